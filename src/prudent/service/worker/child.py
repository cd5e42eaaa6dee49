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
from prudent.core.processes import WORK_NICE, lower_priority
from prudent.service.security.redaction import Redaction, scrubbed
from prudent.service.store import disk
from prudent.service.worker import schedule_run, train_run, tune_run, warm_pool
from prudent.service.worker.artifacts import LOG, REPORT, RESULT
from prudent.service.worker.messages import (
    DoneMessage,
    FailedMessage,
    InterruptedMessage,
    KeepAliveOrder,
    NoteMessage,
    PostponedMessage,
    ProcessMessage,
    ReadyMessage,
    RunTask,
    StopOrder,
    TrialEndMessage,
    encode_message,
)
from prudent.service.worker.sandbox import ProcessLimits
from prudent.training.data.fetch import AccessPolicy, restrict

_TALKATIVE = ("py4j", "botocore", "boto3", "urllib3")
_FULL = "The disk is full; it goes on when there is room."
_LEAVE_S = 8.0
"""So long a run may take to stop what it started; then the process ends as it is."""


@dataclass(frozen=True)
class ProcessOptions:
    """What holds for every run of this process."""

    parallelism: int
    lease_s: float
    folders: tuple[Path, ...]
    policy: AccessPolicy
    scratch: Path
    """Where the processes of training write what they have to say; all of them may share it."""
    home: Path | None = None
    """Where the leases of machines are kept; for one's own commands it is where they always are."""
    warm: bool = True
    """Load what work of any kind needs before there is work."""
    memory_mb: float = math.inf
    """What a run may use, with everything it starts."""
    limits: ProcessLimits | None = None
    """What this process, and each that it starts, may use at most."""
    nice: int = WORK_NICE
    """How far they give way to others."""

    @property
    def narrowest(self) -> tuple[float, str]:
        """The memory that one process may use, and the setting which says so."""
        of_commands = math.inf if self.limits is None else self.limits.memory_mb
        return min((self.memory_mb, "memory_mb"), (of_commands, "command_memory_mb"), key=lambda one: one[0])


def over_memory(most_mb: float, setting: str = "memory_mb") -> str:
    """The error of a run that needs more memory."""
    return (
        f"It needs more than the {most_mb:,.0f} MB of memory that a run may use here; use less data or "
        f"parallelism 1, or let the operator raise {setting}."
    )


def over_processes(most: float) -> str:
    """The error of a run that has more processes."""
    return (
        f"It has more than the {most:,.0f} processes that a run may have here; start fewer, or let the "
        "operator raise command_processes."
    )


def main(arguments: Sequence[str]) -> None:
    line = Connection(int(arguments[0]))
    options = line.recv()
    assert isinstance(options, ProcessOptions)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker, which tells us
    lower_priority(options.nice)
    if options.limits is not None:
        options.limits.apply()
    restrict(options.policy)
    limit_memory(min(options.memory_mb, limit_mb()))  # where commands have less, that holds
    ChildProcess(line, options).work()


class ChildProcess:
    """Takes tasks from the line and tells what becomes of them."""

    def __init__(self, line: Connection, options: ProcessOptions) -> None:
        self._connection, self._options = line, options
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[RunTask | None] = queue.SimpleQueue()
        self._busy = False
        self._redaction = Redaction()
        self._heard_s = time.monotonic()
        self._warm_pool = warm_pool.WarmPool(options.parallelism, options.scratch)

    def work(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._watch_lease, daemon=True).start()
        self._warm_up()
        if self._options.warm:
            warm_pool.load()
        signal.signal(signal.SIGTERM, self._stop)
        self.send(ReadyMessage())
        while (task := self._tasks.get()) is not None:
            self.send(self._done(task))
            self._warm_up()
        self._warm_pool.stop()

    def _warm_up(self) -> None:
        if self._options.warm:
            self._warm_pool.start()

    def send(self, said: ProcessMessage) -> None:
        said = redact_message(said, self._redaction)
        with self._lock:
            try:
                self._connection.send_bytes(encode_message(said))
            except OSError:
                self._leave()

    def _done(self, task: RunTask) -> ProcessMessage:
        """Do a run; whatever happens, one last word comes of it."""
        log: logging.Handler | None = None
        try:
            self._busy = True
            task.folder.mkdir(parents=True, exist_ok=True)
            self._redaction = Redaction.of(task.document)
            log = _open_log(task.folder / LOG, self._redaction)
            restrict(
                replace(self._options.policy, roots=(*(self._options.policy.roots or ()), *task.own_data))
            )
            logging.info("The run begins")
            said = self._perform(task)
        except KeyboardInterrupt:
            said = InterruptedMessage()
        except PrudentError as error:
            said = self._failed(task, error, str(error))
        except MemoryError:
            said = FailedMessage(over_memory(*self._options.narrowest), worn=True)
        except Exception as error:  # the last word must be said; the log has the rest
            logging.exception("The run failed")
            why = f"Something went wrong that should not ({type(error).__name__}: {error})."
            said = self._failed(task, error, why)
        finally:
            self._busy = False
        said = self._without_secrets(task, said)
        if log is not None:
            logging.info("The run ends: %s", type(said).__name__.removesuffix("Message").lower())
            logging.getLogger().removeHandler(log)
            with contextlib.suppress(OSError):
                log.close()
        return said

    def _failed(self, task: RunTask, error: Exception, why: str) -> ProcessMessage:
        """The run failed; unless the disk is full, which is not a fault of it."""
        # In the sandbox only the folder of the run is on the disk that counts.
        place = task.folder if task.folder.is_dir() else task.folder.parent
        full = disk.is_full(error) or not disk.has_room(place)
        return PostponedMessage(_FULL) if full else FailedMessage(why)

    def _without_secrets(self, task: RunTask, said: ProcessMessage) -> ProcessMessage:
        """Leave secrets out of the results; a run that finds no room for them makes them again later."""
        for name in (RESULT, REPORT):
            try:
                self._redaction.file(task.folder / name)
            except OSError as error:
                if isinstance(said, DoneMessage) and disk.is_full(error):
                    said = PostponedMessage(_FULL)
        return said

    def _perform(self, task: RunTask) -> ProcessMessage:
        folders = (*self._options.folders, *task.own_data)
        if task.kind == "train":
            return train_run.perform_training(task, self.send, folders, self._warm_pool)
        if task.kind == "tune":
            return tune_run.perform_study(task, self.send, folders)
        return schedule_run.perform_schedule(task, self.send, folders)

    # Beside the work

    def _listen(self) -> None:
        while True:
            try:
                order = self._connection.recv()
            except (EOFError, OSError):
                self._leave()
            self._heard_s = time.monotonic()
            if isinstance(order, StopOrder):
                os.kill(os.getpid(), signal.SIGTERM)
            elif not isinstance(order, KeepAliveOrder):
                self._tasks.put(order)

    def _watch_lease(self) -> None:
        """End a run whose worker has fallen silent: it is another's by now."""
        while True:
            time.sleep(min(1.0, self._options.lease_s / 4))
            if self._busy and time.monotonic() - self._heard_s > self._options.lease_s:
                self._leave()

    def _leave(self) -> NoReturn:
        """Interrupt the work, which ends what it started, then end the process."""
        if self._busy and threading.current_thread() is not threading.main_thread():
            os.kill(os.getpid(), signal.SIGTERM)
            until_s = time.monotonic() + _LEAVE_S
            while self._busy and time.monotonic() < until_s:
                time.sleep(0.02)
        os._exit(1)

    def _stop(self, number: int, frame: object) -> None:
        if self._busy:
            raise KeyboardInterrupt
        self._warm_pool.stop()
        os._exit(0)


def redact_message(said: ProcessMessage, redaction: Redaction) -> ProcessMessage:
    """Remove secrets of the run's document from a message: other users may see it."""
    if isinstance(said, FailedMessage):
        return replace(said, error=redaction.text(said.error))
    if isinstance(said, PostponedMessage):
        return replace(said, why=redaction.text(said.why))
    if isinstance(said, TrialEndMessage) and said.details.get("why"):
        return replace(said, details={**said.details, "why": redaction.text(str(said.details["why"]))})
    if isinstance(said, NoteMessage):
        texts = {name: redaction.text(value) for name, value in said.data.items() if isinstance(value, str)}
        return replace(said, data={**said.data, **texts})
    return said


class _RunLogFormatter(logging.Formatter):
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
    handler.setFormatter(_RunLogFormatter(redaction))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for name in _TALKATIVE:  # what they do is not what a run's log is read for
        logging.getLogger(name).setLevel(logging.WARNING)
    return handler


if __name__ == "__main__":
    main(sys.argv[1:])
