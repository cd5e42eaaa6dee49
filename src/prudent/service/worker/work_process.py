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
from prudent.service.worker.child import Terms, over_memory, over_processes
from prudent.service.worker.messages import (
    Done,
    Failed,
    Interrupted,
    Postponed,
    Ready,
    Said,
    Stop,
    Suspect,
    Task,
    Tick,
    read,
)
from prudent.service.worker.sandbox import Wall

_CHILD = "import sys; from prudent.service.worker.child import main; main(sys.argv[1:])"
LAST_WORDS = (Done, Failed, Postponed, Interrupted)
SCRATCH = "scratch"
_LOOK_S = 0.5
MOST_RUNS = 200
"""A process is replaced after so many runs: whatever leaks does not leak for ever."""


class Died(RunFailed):
    """The process that did the work ended by itself; the run is tried again."""


class TooLarge(RunFailed):
    """The run needs more memory or processes than it may use; it is not tried again."""


class Hand:
    """One process. It works for one run at a time; `stop` is heard at once, whatever it does.

    One that runs commands is behind the wall, if there is one, and does the run of one folder alone.
    """

    def __init__(self, terms: Terms, wall: Wall | None = None, walled: Path | None = None) -> None:
        self._memory_mb, self._processes, self._looked_s = terms.memory_mb, math.inf, 0.0
        self._nice = terms.nice
        ours, theirs = socket.socketpair()
        home = str(Path(prudent.__file__).parents[1])
        path = os.pathsep.join(part for part in (home, os.environ.get("PYTHONPATH", "")) if part)
        own = {"PYTHONPATH": path, **({} if terms.home is None else {"PRUDENT_HOME": str(terms.home)})}
        command = [sys.executable, "-P", "-c", _CHILD, str(theirs.fileno())]
        environment, options = {**_harmless(os.environ), **own}, dict[str, Any]()
        self.walled = wall is not None and walled is not None
        if wall is not None and walled is not None:
            wall.prepare(walled)
            command, options = wall.command(command, walled), wall.options()
            environment = wall.environment(walled, environment)
            terms = replace(terms, limits=wall.limits, warm=False, scratch=walled / SCRATCH)
            self._processes = wall.limits.processes
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                **options,
            )
        lower_session_priority(self._process.pid, terms.nice)
        self._line = Connection(ours.detach())
        self._lock = threading.Lock()
        self.runs = 0
        self._ready = False
        self._send(terms)

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
            if not self._ready and self._line.poll(0):
                self._ready = isinstance(read(self._line.recv_bytes()), Ready)
        except (EOFError, OSError, Suspect):
            return False
        return self._ready

    def give(self, task: Task) -> None:
        """Begin a run."""
        self.runs += 1
        self._send(task)

    def hear(self, wait_s: float) -> Said | None:
        """The next message; None if there is none in that time. Died if there will never be one."""
        try:
            while self._line.poll(wait_s):
                said = read(self._line.recv_bytes())
                if not isinstance(said, Ready):
                    return said
                self._ready = True  # it is not said again, and a process that is not ready gets no other run
        except Suspect as error:
            self._process.kill()
            raise Died(str(error)) from None
        except (EOFError, OSError):
            raise Died(f"The process that did the work ended ({self._cause()}); it is tried again.") from None
        return None

    def check_limits(self) -> None:
        """End everything, with TooLarge, if the run has more memory or processes than it may.

        Looked at now and then. Each process is kept within its memory by the kernel; this is for all of them
        together, and for files: behind the wall, /tmp lies in memory. Processes are counted because the
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
            raise TooLarge(over_processes(self._processes))
        files = tmpfs_mb(self.pid) if self.walled else 0.0
        if used_mb(self.pid, files) > self._memory_mb and exact_used_mb(self.pid, files) > self._memory_mb:
            self._end(process_tree(self.pid))
            raise TooLarge(over_memory(self._memory_mb))

    @staticmethod
    def _end(found: Iterable[int]) -> None:
        """Those that were started last first; bubblewrap ends all that are left with itself."""
        for pid in [*found][::-1]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def tick(self) -> None:
        """Say that the run is still ours."""
        with contextlib.suppress(Died):
            self._send(Tick())

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
        if self.walled:  # a signal would end the wall, and the run without a last word
            with contextlib.suppress(Died):
                self._send(Stop())
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """It is not needed any more."""
        with contextlib.suppress(OSError):
            self._line.close()
        self.stop()

    def _send(self, order: object) -> None:
        with self._lock:
            try:
                self._line.send(order)
            except (OSError, ValueError):
                raise Died("The process that does the work has ended; it is tried again.") from None

    def _cause(self) -> str:
        try:
            code = self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            return "it hung"
        if code == -signal.SIGKILL:
            return "killed, most likely for lack of memory"
        return f"{signal.Signals(-code).name}" if code < 0 else f"code {code}"


def clear(folder: Path, grace_s: float = 2.0) -> None:
    """End commands that a process which is gone has left running in a run's folder.

    An interrupt can come in the very moment in which a command starts, before anybody knows of it; its note
    on the disk does.
    """
    from prudent.tuning.jobs.leftovers import reap_processes

    if (folder / LOGS).is_dir():
        reap_processes(folder / LOGS, grace_s)


def _harmless(environment: os._Environ[str]) -> dict[str, str]:
    """The environment without our secrets: nobody's command shall read them."""
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


class Hands:
    """As many processes as runs at a time, started before they are needed.

    `make` starts one: for any run, or behind the wall for the run of a folder.
    """

    def __init__(self, make: Callable[[Path | None], Hand], size: int, wall: Wall | None = None) -> None:
        self._make, self._size, self.wall = make, size, wall
        self._lock = threading.Lock()
        self._spare: list[Hand] = []
        self._out: set[Hand] = set()
        self._closed = False
        self._not_before_s = 0.0

    def fill(self) -> None:
        """Have a spare process for every run that could begin; replaces those that died meanwhile."""
        with self._lock:
            dead = [hand for hand in self._spare if not hand.alive]
            self._spare = [hand for hand in self._spare if hand.alive]
            lacking = 0 if self._closed else self._size - len(self._out) - len(self._spare)
        for hand in dead:
            hand.close()
            if not hand.runs:  # it could not even begin; the next one most likely cannot either
                _log.warning("A process ended before it was ready; the next is started in %g s", _PAUSE_S)
                self._not_before_s = time.monotonic() + _PAUSE_S
        if time.monotonic() < self._not_before_s:
            return
        for _ in range(lacking):
            hand = self._make(None)
            with self._lock:
                self._spare.append(hand)

    def ready(self) -> bool:
        """Whether a run could begin at once."""
        with self._lock:
            return any(hand.ready for hand in self._spare)

    def take(self, walled: Path | None = None) -> Hand:
        """A process that is this run's alone; one that is ready before one that is not.

        For a run that is to be behind the wall, name its folder: it gets a new one, where there is a wall.
        """
        folder = None if self.wall is None else walled
        with self._lock:
            self._spare.sort(key=lambda hand: not hand.ready)
            while self._spare and folder is None:
                hand = self._spare.pop(0)
                if hand.alive:
                    self._out.add(hand)
                    return hand
        hand = self._make(folder)
        with self._lock:
            self._out.add(hand)
        return hand

    def give_back(self, hand: Hand, good: bool = True) -> None:
        """A run has ended; a process that was interrupted, or is old, is not used again."""
        with self._lock:
            self._out.discard(hand)
            keep = good and not self._closed and hand.alive and hand.runs < MOST_RUNS and not hand.walled
            if keep and len(self._spare) + len(self._out) < self._size:
                self._spare.append(hand)
                return
        hand.close()

    def tick(self) -> None:
        """Tell those at work that their worker lives."""
        with self._lock:
            out = list(self._out)
        for hand in out:
            hand.tick()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            every, self._spare = [*self._spare, *self._out], []
            self._out.clear()
        for hand in every:
            hand.close()
