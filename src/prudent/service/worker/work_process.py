"""The worker's side of a process that does runs: give it a task, hear what it says, stop it."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import prudent
from prudent.core.errors import RunFailed
from prudent.core.memory import exact_used_mb, process_tree, tmpfs_mb, used_mb
from prudent.core.processes import lower_session_priority
from prudent.service.worker.artifacts import LOGS
from prudent.service.worker.child import ProcessOptions, over_memory, over_processes
from prudent.service.worker.messages import (
    DoneMessage,
    FailedMessage,
    InterruptedMessage,
    KeepAliveOrder,
    MalformedMessage,
    PostponedMessage,
    ProcessMessage,
    ReadyMessage,
    RunTask,
    StopOrder,
    decode_message,
)
from prudent.service.worker.sandbox import Sandbox

_CHILD = "import sys; from prudent.service.worker.child import main; main(sys.argv[1:])"
LAST_WORDS = (DoneMessage, FailedMessage, PostponedMessage, InterruptedMessage)
SCRATCH = "scratch"
_LOOK_S = 0.5
_LEFTOVERS_S = 2.0
MOST_RUNS = 200
"""A process is replaced after so many runs: whatever leaks does not leak for ever."""


class ProcessDied(RunFailed):
    """The process that did the work ended by itself; the run is tried again."""


class LimitExceeded(RunFailed):
    """The run needs more memory or processes than it may use; it is not tried again."""


class WorkProcess:
    """One process. It works for one run at a time; `stop` is heard at once, whatever it does.

    One that runs commands is in the sandbox, if there is one, and does the run of one folder alone.
    """

    def __init__(
        self, options: ProcessOptions, sandbox: Sandbox | None = None, folder_in_sandbox: Path | None = None
    ) -> None:
        self._memory_mb, self._processes, self._looked_s = options.memory_mb, math.inf, 0.0
        self._nice = options.nice
        ours, theirs = socket.socketpair()
        home = str(Path(prudent.__file__).parents[1])
        path = os.pathsep.join(part for part in (home, os.environ.get("PYTHONPATH", "")) if part)
        own = {"PYTHONPATH": path, **({} if options.home is None else {"PRUDENT_HOME": str(options.home)})}
        command = [sys.executable, "-P", "-c", _CHILD, str(theirs.fileno())]
        environment, popen_options = {**_harmless(os.environ), **own}, dict[str, Any]()
        self.sandboxed = sandbox is not None and folder_in_sandbox is not None
        if sandbox is not None and folder_in_sandbox is not None:
            sandbox.prepare(folder_in_sandbox)
            command, popen_options = sandbox.command(command, folder_in_sandbox), sandbox.options()
            environment = sandbox.environment(folder_in_sandbox, environment)
            options = replace(options, limits=sandbox.limits, warm=False, scratch=folder_in_sandbox / SCRATCH)
            self._processes = sandbox.limits.processes
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                **popen_options,
            )
        lower_session_priority(self._process.pid, options.nice)
        self._connection = Connection(ours.detach())
        self._lock = threading.Lock()
        self.runs = 0
        self._ready = False
        self._send(options)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it has loaded what it needs; to be asked only while it has no run."""
        try:
            if not self._ready and self._connection.poll(0):
                self._ready = isinstance(decode_message(self._connection.recv_bytes()), ReadyMessage)
        except (EOFError, OSError, MalformedMessage):
            return False
        return self._ready

    def start_run(self, task: RunTask) -> None:
        """Begin a run."""
        self.runs += 1
        self._send(task)

    def receive(self, wait_s: float) -> ProcessMessage | None:
        """The next message; None if there is none in that time. ProcessDied if there will never be one."""
        try:
            while self._connection.poll(wait_s):
                said = decode_message(self._connection.recv_bytes())
                if not isinstance(said, ReadyMessage):
                    return said
                self._ready = True  # it is not said again, and a process that is not ready gets no other run
        except MalformedMessage as error:
            self._process.kill()
            raise ProcessDied(str(error)) from None
        except (EOFError, OSError):
            raise ProcessDied(
                f"The process that did the work ended ({self._cause()}); it will be tried again."
            ) from None
        return None

    def check_limits(self) -> None:
        """End the run, with LimitExceeded, if it has more memory or processes than it may.

        Looked at now and then. Each process is kept within its memory by the kernel; this is for all of them
        together, and for files: in the sandbox, /tmp is in memory. Processes are counted because the
        kernel's own limit does not hold for root. Sessions that they have begun give way, too.
        """
        if time.monotonic() - self._looked_s < _LOOK_S:
            return
        self._looked_s = time.monotonic()
        found = list(process_tree(self.pid))
        for pid in found:
            lower_session_priority(pid, self._nice)
        if len(found) > self._processes:
            self._end(found)
            raise LimitExceeded(over_processes(self._processes))
        files = tmpfs_mb(self.pid) if self.sandboxed else 0.0
        if used_mb(self.pid, files) > self._memory_mb and exact_used_mb(self.pid, files) > self._memory_mb:
            self._end(process_tree(self.pid))
            raise LimitExceeded(over_memory(self._memory_mb))

    @staticmethod
    def _end(found: Iterable[int]) -> None:
        """Kill the processes, the youngest first; bubblewrap ends the rest with itself."""
        for pid in [*found][::-1]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def keep_alive(self) -> None:
        """Tell the process that its worker lives and still has the run."""
        with contextlib.suppress(ProcessDied):
            self._send(KeepAliveOrder())

    def stop(self, wait_s: float = 3.0) -> None:
        """End it, with what it started: asked first, so that commands under way are ended too."""
        self.interrupt()
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def interrupt(self) -> None:
        """Ask the run to stop; its last word comes over the line."""
        if self.sandboxed:  # a signal would end the sandbox, and the run without a last word
            with contextlib.suppress(ProcessDied):
                self._send(StopOrder())
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End a process that is not needed any more."""
        with contextlib.suppress(OSError):
            self._connection.close()
        self.stop()

    def _send(self, order: object) -> None:
        with self._lock:
            try:
                self._connection.send(order)
            except (OSError, ValueError):
                raise ProcessDied(
                    "The process that does the work has ended; it will be tried again."
                ) from None

    def _cause(self) -> str:
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return "it hung"
        if code == -signal.SIGKILL:
            return "killed, most likely for lack of memory"
        return f"{signal.Signals(-code).name}" if code < 0 else f"code {code}"


def end_leftovers(folder: Path) -> None:
    """End commands that a process which is gone has left running in a run's folder.

    An interrupt can come in the very moment in which a command starts, before anybody knows of it; its note
    on the disk does.
    """
    from prudent.tuning.jobs.pid_files import reap_processes

    if (folder / LOGS).is_dir():
        reap_processes(folder / LOGS, _LEFTOVERS_S)


def _harmless(environment: os._Environ[str]) -> dict[str, str]:
    """The environment without the service's secrets, which commands must not read."""
    return {
        name: value
        for name, value in environment.items()
        if not (
            name.startswith("PRUDENT_")
            and any(word in name for word in ("PASSWORD", "SECRET", "DATABASE", "TOKEN"))
        )
    }


_log = logging.getLogger("prudent.worker")
_PAUSE_S = 5.0


class WorkPool:
    """As many processes as runs at a time, started before they are needed.

    `make` starts one: for any run, or in the sandbox for the run of a folder.
    """

    def __init__(
        self, make: Callable[[Path | None], WorkProcess], size: int, sandbox: Sandbox | None = None
    ) -> None:
        self._make, self._size, self.sandbox = make, size, sandbox
        self._lock = threading.Lock()
        self._spare: list[WorkProcess] = []
        self._out: set[WorkProcess] = set()
        self._closed = False
        self._not_before_s = 0.0

    def fill(self) -> None:
        """Have a spare process for every run that could begin; replaces those that died meanwhile."""
        with self._lock:
            dead = [process for process in self._spare if not process.alive]
            self._spare = [process for process in self._spare if process.alive]
            lacking = 0 if self._closed else self._size - len(self._out) - len(self._spare)
        for process in dead:
            process.close()
            if not process.runs:  # it could not even begin; the next one most likely cannot either
                _log.warning("A process ended before it was ready; the next is started in %g s", _PAUSE_S)
                self._not_before_s = time.monotonic() + _PAUSE_S
        if time.monotonic() < self._not_before_s:
            return
        for _ in range(lacking):
            process = self._make(None)
            with self._lock:
                self._spare.append(process)

    def ready(self) -> bool:
        """Whether a run could begin at once."""
        with self._lock:
            return any(process.ready for process in self._spare)

    def take(self, folder_in_sandbox: Path | None = None) -> WorkProcess:
        """A process that is this run's alone; one that is ready before one that is not.

        For a run that is to be in the sandbox, name its folder: it gets a new one, where there is one.
        """
        folder = None if self.sandbox is None else folder_in_sandbox
        with self._lock:
            self._spare.sort(key=lambda process: not process.ready)
            while self._spare and folder is None:
                process = self._spare.pop(0)
                if process.alive:
                    self._out.add(process)
                    return process
        process = self._make(folder)
        with self._lock:
            self._out.add(process)
        return process

    def give_back(self, process: WorkProcess, good: bool = True) -> None:
        """A run has ended; a process that was interrupted, or is old, is not used again."""
        with self._lock:
            self._out.discard(process)
            keep = (
                good
                and not self._closed
                and process.alive
                and process.runs < MOST_RUNS
                and not process.sandboxed
            )
            if keep and len(self._spare) + len(self._out) < self._size:
                self._spare.append(process)
                return
        process.close()

    def keep_alive(self) -> None:
        """Tell those at work that their worker lives."""
        with self._lock:
            out = list(self._out)
        for process in out:
            process.keep_alive()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            every, self._spare = [*self._spare, *self._out], []
            self._out.clear()
        for process in every:
            process.close()
