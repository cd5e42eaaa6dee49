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
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from prudent.core.errors import PrudentError
from prudent.core.memory import hold
from prudent.core.processes import give_way
from prudent.service.store import disk
from prudent.service.work import schedule, train, tune, warm
from prudent.service.work.artifacts import LOG
from prudent.service.work.messages import Failed, Interrupted, Postponed, Ready, Said, Task, Tick
from prudent.training.data.fetch import Policy, restrict

_TALKATIVE = ("py4j", "botocore", "boto3", "urllib3")
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


def over_memory(most_mb: float) -> str:
    """Why a run failed that needs more."""
    return (
        f"It needs more than the {most_mb:,.0f} MB of memory that a run may use here; use less data or "
        "parallelism 1, or let the operator raise memory_mb."
    )


def main(arguments: Sequence[str]) -> None:
    line = Connection(int(arguments[0]))
    terms = line.recv()
    assert isinstance(terms, Terms)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which tells us
    give_way()
    restrict(terms.policy)
    hold(terms.memory_mb)
    Child(line, terms).work()


class Child:
    """Takes tasks from the line and tells what becomes of them."""

    def __init__(self, line: Connection, terms: Terms) -> None:
        self._line, self._terms = line, terms
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._busy = False
        self._heard_s = time.monotonic()
        self._stove = warm.Stove(terms.parallelism, terms.scratch)

    def work(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._mind, daemon=True).start()
        self._warm_up()
        if self._terms.warm:
            warm.load()
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
        with self._lock:
            try:
                self._line.send(said)
            except OSError:
                self._leave()

    def _done(self, task: Task) -> Said:
        """Do a run; whatever happens, one last word comes of it."""
        log: logging.Handler | None = None
        try:
            self._busy = True
            task.folder.mkdir(parents=True, exist_ok=True)
            log = _open_log(task.folder / LOG)
            logging.info("The run begins")
            said = self._perform(task)
        except KeyboardInterrupt:
            said = Interrupted()
        except PrudentError as error:
            said = self._failed(task, error, str(error))
        except MemoryError:
            said = Failed(over_memory(self._terms.memory_mb), worn=True)
        except Exception as error:  # the last word must be said; the log has the rest
            logging.exception("The run failed")
            why = f"Something went wrong that should not ({type(error).__name__}: {error})."
            said = self._failed(task, error, why)
        finally:
            self._busy = False
        if log is not None:
            logging.info("The run ends: %s", type(said).__name__.lower())
            logging.getLogger().removeHandler(log)
            with contextlib.suppress(OSError):
                log.close()
        return said

    def _failed(self, task: Task, error: Exception, why: str) -> Said:
        """The run failed; unless the disk is full, which is no fault of it."""
        full = disk.is_full(error) or not disk.has_room(task.folder.parent)
        return Postponed("The disk is full; it goes on when there is room.") if full else Failed(why)

    def _perform(self, task: Task) -> Said:
        folders = self._terms.folders
        if task.kind == "train":
            return train.perform(task, self.tell, folders, self._stove)
        if task.kind == "tune":
            return tune.perform(task, self.tell, folders)
        return schedule.perform(task, self.tell, folders)

    # Beside the work

    def _listen(self) -> None:
        while True:
            try:
                order = self._line.recv()
            except (EOFError, OSError):
                self._leave()
            self._heard_s = time.monotonic()
            if not isinstance(order, Tick):
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


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {"at_s": round(record.created, 3), "message": record.getMessage()}
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def _open_log(path: Path) -> logging.Handler:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(_Line())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for name in _TALKATIVE:  # what they do is not what a run's log is read for
        logging.getLogger(name).setLevel(logging.WARNING)
    return handler


if __name__ == "__main__":
    main(sys.argv[1:])
