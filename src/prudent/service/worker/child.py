"""The process that does runs, one at a time: started warm, ended at once when its run is not wanted.

Its argument is the number of the socket to its worker. It never outlives the worker: when nobody is at the
other end, or nobody has been heard of for too long (a worker that hangs has lost its runs by then), it stops
what it does, so that whoever takes the run over finds its journal free.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from prudent.core.errors import PrudentError
from prudent.core.memory import limit_mb, limit_memory
from prudent.core.processes import WORK, lower_priority
from prudent.service.security.redaction import Redaction, scrubbed
from prudent.service.store import disk
from prudent.service.worker import schedule_run, train_run, tune_run, warm_pool
from prudent.service.worker.artifacts import LOG, REPORT, RESULT
from prudent.service.worker.messages import (
    Done,
    Ended,
    Failed,
    Interrupted,
    Noted,
    Postponed,
    Ready,
    Said,
    Stop,
    Task,
    Tick,
    written,
)
from prudent.service.worker.sandbox import Limits
from prudent.training.data.fetch import Policy, restrict

_TALKATIVE = ("py4j", "botocore", "boto3", "urllib3")
_FULL = "The disk is full; it goes on when there is room."
_LEAVE_S = 8.0
"""So long a run may take to stop what it started; then the process ends as it is."""


@dataclass(frozen=True)
class Terms:
    """What holds for every run of this process."""

    parallelism: int
    lease_s: float
    folders: tuple[Path, ...]
    policy: Policy
    scratch: Path
    """Where the processes of training write what they have to say; all of them may share it."""
    home: Path | None = None
    """Where the leases of machines are kept; for one's own commands it is where they always are."""
    warm: bool = True
    """Load what work of any kind needs before there is work."""
    memory_mb: float = math.inf
    """What a run may use, with everything it starts."""
    limits: Limits | None = None
    """What this process, and each that it starts, may use at most."""
    nice: int = WORK
    """How far they give way to others."""

    @property
    def narrowest(self) -> tuple[float, str]:
        """The memory that one process may use, and the setting which says so."""
        of_commands = math.inf if self.limits is None else self.limits.memory_mb
        return min((self.memory_mb, "memory_mb"), (of_commands, "command_memory_mb"), key=lambda one: one[0])


def over_memory(most_mb: float, setting: str = "memory_mb") -> str:
    """Why a run failed that needs more."""
    return (
        f"It needs more than the {most_mb:,.0f} MB of memory that a run may use here; use less data or "
        f"parallelism 1, or let the operator raise {setting}."
    )


def over_processes(most: float) -> str:
    """Why a run was ended that has more."""
    return (
        f"It has more than the {most:,.0f} processes that a run may have here; start fewer, or let the "
        "operator raise command_processes."
    )


def main(arguments: Sequence[str]) -> None:
    line = Connection(int(arguments[0]))
    terms = line.recv()
    assert isinstance(terms, Terms)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which tells us
    lower_priority(terms.nice)
    if terms.limits is not None:
        terms.limits.apply()
    restrict(terms.policy)
    limit_memory(min(terms.memory_mb, limit_mb()))  # where commands have less, that holds
    Child(line, terms).work()


class Child:
    """Takes tasks from the line and tells what becomes of them."""

    def __init__(self, line: Connection, terms: Terms) -> None:
        self._line, self._terms = line, terms
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._busy = False
        self._redaction = Redaction()
        self._heard_s = time.monotonic()
        self._stove = warm_pool.Stove(terms.parallelism, terms.scratch)

    def work(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._mind, daemon=True).start()
        self._warm_up()
        if self._terms.warm:
            warm_pool.load()
        signal.signal(signal.SIGTERM, self._stop)
        self.tell(Ready())
        while (task := self._tasks.get()) is not None:
            self.tell(self._done(task))
            self._warm_up()
        self._stove.put_out()

    def _warm_up(self) -> None:
        if self._terms.warm:
            self._stove.light()

    def tell(self, said: Said) -> None:
        said = without_secrets(said, self._redaction)
        with self._lock:
            try:
                self._line.send_bytes(written(said))
            except OSError:
                self._leave()

    def _done(self, task: Task) -> Said:
        """Do a run; whatever happens, one last word comes of it."""
        log: logging.Handler | None = None
        try:
            self._busy = True
            task.folder.mkdir(parents=True, exist_ok=True)
            self._redaction = Redaction.of(task.document)
            log = _open_log(task.folder / LOG, self._redaction)
            restrict(replace(self._terms.policy, roots=(*(self._terms.policy.roots or ()), *task.own_data)))
            logging.info("The run begins")
            said = self._perform(task)
        except KeyboardInterrupt:
            said = Interrupted()
        except PrudentError as error:
            said = self._failed(task, error, str(error))
        except MemoryError:
            said = Failed(over_memory(*self._terms.narrowest), worn=True)
        except Exception as error:  # the last word must be said; the log has the rest
            logging.exception("The run failed")
            why = f"Something went wrong that should not ({type(error).__name__}: {error})."
            said = self._failed(task, error, why)
        finally:
            self._busy = False
        said = self._without_secrets(task, said)
        if log is not None:
            logging.info("The run ends: %s", type(said).__name__.lower())
            logging.getLogger().removeHandler(log)
            with contextlib.suppress(OSError):
                log.close()
        return said

    def _failed(self, task: Task, error: Exception, why: str) -> Said:
        """The run failed; unless the disk is full, which is no fault of it."""
        # Behind the wall only the folder of the run is on the disk that counts.
        place = task.folder if task.folder.is_dir() else task.folder.parent
        full = disk.is_full(error) or not disk.has_room(place)
        return Postponed(_FULL) if full else Failed(why)

    def _without_secrets(self, task: Task, said: Said) -> Said:
        """Leave secrets out of the results; a run that finds no room for them makes them again later."""
        for name in (RESULT, REPORT):
            try:
                self._redaction.file(task.folder / name)
            except OSError as error:
                if isinstance(said, Done) and disk.is_full(error):
                    said = Postponed(_FULL)
        return said

    def _perform(self, task: Task) -> Said:
        folders = (*self._terms.folders, *task.own_data)
        if task.kind == "train":
            return train_run.perform(task, self.tell, folders, self._stove)
        if task.kind == "tune":
            return tune_run.perform(task, self.tell, folders)
        return schedule_run.perform(task, self.tell, folders)

    # Beside the work

    def _listen(self) -> None:
        while True:
            try:
                order = self._line.recv()
            except (EOFError, OSError):
                self._leave()
            self._heard_s = time.monotonic()
            if isinstance(order, Stop):
                os.kill(os.getpid(), signal.SIGTERM)
            elif not isinstance(order, Tick):
                self._tasks.put(order)

    def _mind(self) -> None:
        """End a run whose worker has fallen silent: it is another's by now."""
        while True:
            time.sleep(min(1.0, self._terms.lease_s / 4))
            if self._busy and time.monotonic() - self._heard_s > self._terms.lease_s:
                self._leave()

    def _leave(self) -> NoReturn:
        """Stop the work, which ends what it started, then the process."""
        if self._busy and threading.current_thread() is not threading.main_thread():
            os.kill(os.getpid(), signal.SIGTERM)
            until_s = time.monotonic() + _LEAVE_S
            while self._busy and time.monotonic() < until_s:
                time.sleep(0.02)
        os._exit(1)

    def _stop(self, number: int, frame: object) -> None:
        if self._busy:
            raise KeyboardInterrupt
        self._stove.put_out()
        os._exit(0)


def without_secrets(said: Said, redaction: Redaction) -> Said:
    """What is told of a run is for all who may see it, so secrets of its document are left out of texts."""
    if isinstance(said, Failed):
        return replace(said, error=redaction.text(said.error))
    if isinstance(said, Postponed):
        return replace(said, why=redaction.text(said.why))
    if isinstance(said, Ended) and said.details.get("why"):
        return replace(said, details={**said.details, "why": redaction.text(str(said.details["why"]))})
    if isinstance(said, Noted):
        texts = {name: redaction.text(value) for name, value in said.data.items() if isinstance(value, str)}
        return replace(said, data={**said.data, **texts})
    return said


class _Line(logging.Formatter):
    def __init__(self, redaction: Redaction) -> None:
        super().__init__()
        self._redaction = redaction

    def format(self, record: logging.LogRecord) -> str:
        said = {"at_s": round(record.created, 3), "message": self._clean(record.getMessage())}
        if record.exc_info:
            said["error"] = self._clean(self.formatException(record.exc_info))
        return json.dumps(said, ensure_ascii=False)

    def _clean(self, text: str) -> str:
        return scrubbed(self._redaction.text(text))


def _open_log(path: Path, redaction: Redaction) -> logging.Handler:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(_Line(redaction))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for name in _TALKATIVE:  # what they do is not what a run's log is read for
        logging.getLogger(name).setLevel(logging.WARNING)
    return handler


if __name__ == "__main__":
    main(sys.argv[1:])
