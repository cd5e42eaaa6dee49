"""Commands with everything they start, and what Linux tells about their processes in /proc."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

COOKIE = "PRUDENT_RUN"
"""The environment variable by which all descendants of a run are known."""

_POLL_S = 0.02
_DYING_S = 5.0  # how long a killed process may take to vanish (one that waits for a disk cannot hurry)


class ProcessTree:
    """A running command, its children and theirs.

    The number of the first process names its session and group, and stays reserved until `close`, so
    that no signal can reach a stranger that was given the same number.
    """

    def __init__(
        self,
        command: str,
        directory: Path,
        environment: Mapping[str, str],
        cookie: str,
    ) -> None:
        self.cookie = cookie
        outer = environment.get(COOKIE)
        # A run inside a run carries both words: ending the outer one must find it too.
        carried = {COOKIE: f"{outer}:{cookie}" if outer else cookie}
        self._popen = subprocess.Popen(
            command,
            shell=True,
            executable="/bin/sh",
            cwd=directory,
            env={**environment, **carried},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._ending = False
        self._reaped = False
        self._identity = ProcessIdentity.of(self._popen.pid)
        # Not left running when Python ends without having cut it.
        self._finalizer = weakref.finalize(self, _kill_group, self._popen.pid, os.getpid())

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def identity(self) -> ProcessIdentity:
        return self._identity or ProcessIdentity(self.pid, "")

    @property
    def stdout(self) -> IO[bytes]:
        assert self._popen.stdout is not None
        return self._popen.stdout

    @property
    def stderr(self) -> IO[bytes]:
        assert self._popen.stderr is not None
        return self._popen.stderr

    def wait(self) -> None:
        """Until the command itself has ended; it is not forgotten yet, so its number stays reserved."""
        with contextlib.suppress(ChildProcessError):  # somebody in this program has counted it already
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> int:
        """After `wait`: end what the command left behind, and answer its exit code."""
        with self._lock:
            ending = self._ending
        if not ending:
            end_processes(self.members, self._signal, grace_s=0.0)
        with self._lock:
            self._reaped = True
            self._finalizer.detach()
            return self._popen.wait()

    def end(self, grace_s: float) -> tuple[float, float]:
        """Ask everything to stop, and kill what is left after the grace time; answers as `end` does.

        Its group gets the signal at once; finding what else belongs to it means looking at all processes.
        """
        with self._lock:
            self._ending = True
        self._signal_group(signal.SIGTERM if grace_s > 0 else signal.SIGKILL)
        return end_processes(self.members, self._signal_rest, grace_s)

    def members(self, older: OlderProcesses | None = None) -> list[ProcessInfo]:
        with self._lock:
            session = None if self._reaped else self.pid
        return processes_of_run(self.cookie, session, older)

    def _signal(self, members: list[ProcessInfo], number: signal.Signals) -> None:
        # The group got it in one stroke; a second SIGTERM would make many programs give up their clean-up.
        grouped = self._signal_group(number)
        signal_processes([one for one in members if not (grouped and one.group == self.pid)], number)

    def _signal_rest(self, members: list[ProcessInfo], number: signal.Signals) -> None:
        """As `_signal`, after the group was asked to stop already."""
        if number == signal.SIGTERM:
            signal_processes([one for one in members if one.group != self.pid], number)
        else:
            self._signal(members, number)

    def _signal_group(self, number: signal.Signals) -> bool:
        """Signal the whole group; False if its first process was reaped: another may have its number."""
        with self._lock:
            if not self._reaped:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, number)
            return not self._reaped


def new_cookie() -> str:
    return secrets.token_hex(16)


def signal_processes(members: list[ProcessInfo], number: signal.Signals) -> None:
    for process in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def end_processes(
    find: Callable[[], list[ProcessInfo]],
    send: Callable[[list[ProcessInfo], signal.Signals], None],
    grace_s: float,
) -> tuple[float, float]:
    """SIGTERM to all that `find` finds, SIGKILL to what is left after `grace_s`; returns when none is left.

    Answers when something of it was last seen, and when nothing was seen any more, on the monotonic clock. An
    interrupt (Ctrl-C) while waiting kills at once.
    """
    give_up_s = (looked_s := time.monotonic()) + grace_s
    seen_s = -math.inf
    try:
        if grace_s > 0 and (members := find()):
            send(members, signal.SIGTERM)
            send(members, signal.SIGCONT)  # a stopped process would not hear it
            while members and looked_s < give_up_s:
                seen_s = looked_s
                time.sleep(_POLL_S)
                looked_s, members = time.monotonic(), find()
        give_up_s = time.monotonic() + _DYING_S
        # Looked for again each time: what is being killed may have started another one.
        while (looked_s := time.monotonic()) < give_up_s and (members := find()):
            seen_s = looked_s
            send(members, signal.SIGKILL)
            time.sleep(_POLL_S / 10)
        return seen_s, looked_s
    except BaseException:
        send(find(), signal.SIGKILL)
        raise


def _kill_group(pid: int, owner: int) -> None:
    if os.getpid() == owner:  # a fork of this program that ends must not end its parent's runs
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


_PROC = Path("/proc")
_GONE = ("Z", "X")  # zombies hold nothing any more and only wait to be counted


def process_file(pid: int, name: str) -> str:
    """A file of a process in /proc; empty where it cannot be read."""
    try:
        return (_PROC / str(pid) / name).read_text(errors="replace")
    except OSError:
        return ""


def stat_fields(pid: int) -> list[str] | None:
    """What /proc tells of a process, from its state on; None if it is gone."""
    # The name in brackets may hold anything, brackets and spaces too; behind it come plain fields.
    fields = process_file(pid, "stat").rpartition(")")[2].split()
    return fields if len(fields) >= 22 else None


@dataclass(frozen=True)
class ProcessIdentity:
    """A process that cannot be mistaken: numbers are used again, a number with its start time is not."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The process that has this number now, if any."""
        process = ProcessInfo.read(pid)
        return None if process is None else cls(pid, f"{_boot()}:{process.started_ticks}")

    @property
    def alive(self) -> bool:
        return ProcessIdentity.of(self.pid) == self

    def to_dict(self) -> dict[str, Any]:
        return {"pid": self.pid, "started": self.started}


@dataclass(frozen=True)
class ProcessInfo:
    """One living process: its group, its session, and when it started (clock ticks after the boot)."""

    pid: int
    group: int
    session: int
    started_ticks: int

    @classmethod
    def read(cls, pid: int) -> ProcessInfo | None:
        fields = stat_fields(pid)
        if fields is None or fields[0] in _GONE:
            return None
        return cls(pid, int(fields[2]), int(fields[3]), int(fields[19]))

    def carries(self, cookie: str) -> bool:
        """Whether it was started with this word in its environment."""
        try:
            return cookie.encode() in (_PROC / str(self.pid) / "environ").read_bytes()
        except OSError:
            return False


class OlderProcesses:
    """Those that began before a run, so that who looks for the run's again and again looks at them once."""

    def __init__(self, before_s: float) -> None:
        """`before_s` is on the clock of the boot (`CLOCK_BOOTTIME`)."""
        self._before_ticks = before_s * os.sysconf("SC_CLK_TCK")
        self._known: set[int] = set()

    def without(self, pids: set[int]) -> set[int]:
        """Those of the numbers that are not known to be older; numbers that are free again are forgotten."""
        self._known &= pids
        return pids - self._known

    def has(self, process: ProcessInfo) -> bool:
        if process.started_ticks < self._before_ticks:
            self._known.add(process.pid)
        return process.pid in self._known


def processes_of_run(
    cookie: str, session: int | None = None, older: OlderProcesses | None = None
) -> list[ProcessInfo]:
    """The living processes of a run: those in its session, and those that inherited its cookie.

    A daemon leaves the session of whoever started it, but not its environment. What is in `older` is passed
    over.
    """
    names = os.listdir(_PROC) if _PROC.is_dir() else []
    pids = {int(name) for name in names if name.isdigit()} - {os.getpid()}
    found = []
    for process in map(ProcessInfo.read, sorted(pids if older is None else older.without(pids))):
        if process is None or (older is not None and older.has(process)):
            continue
        if process.session == session or process.carries(cookie):
            found.append(process)
    return found


@cache
def _boot() -> str:
    """Which boot of the machine this is: start times count from it."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
