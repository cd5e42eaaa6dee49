"""Commands must not outlive the process that started them, however it ends.

A study or a worker that is killed cannot clean up: its commands would go on, cost money that nobody counts
and write the same files as their repetitions. So each has one small guard process, which is told of every
command's process group. When the pipe from its owner breaks it kills the open ones, and notes when.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from pathlib import Path

_PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
groups = {}
for line in sys.stdin:
    group, _, note = line[1:].strip().partition(" ")
    if line[0] == "+":
        groups[int(group)] = bytes.fromhex(note)
    else:
        groups.pop(int(group), None)
for group, note in groups.items():
    try:
        os.killpg(group, signal.SIGKILL)
        if note:
            with open(note, "w") as file:
                file.write(str(time.time()))
    except OSError:
        pass
"""


class Guard:
    """The guard of this process; `watch` and `forget` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, Path | None] = {}
        # A session of its own: Ctrl-C at the terminal must not end the guard before its owner.
        self._popen = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def watch(self, group: int, note: Path | None = None) -> None:
        """Kill this process group if this process ends before `forget`; `note` is where to write when."""
        with self._lock:
            self._watched[group] = note
            self._tell(f"+{group} {'' if note is None else os.fsencode(note).hex()}\n")

    def forget(self, group: int) -> None:
        """The group has ended by itself; its number may be given to others."""
        with self._lock:
            self._watched.pop(group, None)
            self._tell(f"-{group}\n")

    def follow(self, other: Guard) -> None:
        """Watch what another one did that is no more."""
        for group, note in dict(other._watched).items():
            self.watch(group, note)

    def close(self) -> None:
        """End the guard; groups still watched are killed."""
        assert self._popen.stdin is not None
        with self._lock:
            self._popen.stdin.close()
        self._popen.wait()

    def _tell(self, line: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(line.encode())


_guards: dict[int, Guard] = {}
_starting = threading.Lock()


def guard() -> Guard:
    """This process's guard, started when first asked for; a fork gets its own.

    One for all threads: a second one would be dropped, and with it what it watches would be ended.
    """
    with _starting:
        found = _guards.get(os.getpid())
        if found is not None and found.alive:
            return found
        made = _guards[os.getpid()] = Guard()
        atexit.register(_end, os.getpid(), made)
        if found is not None:
            made.follow(found)
        return made


def _end(owner: int, made: Guard) -> None:
    if os.getpid() == owner:  # a fork that ends must not end its parent's
        made.close()
