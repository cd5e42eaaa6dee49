"""What Linux tells about processes in /proc: who is who, and who belongs to a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_PROC = Path("/proc")
_GONE = ("Z", "X")  # zombies hold nothing any more and only wait to be counted


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
        try:
            text = (_PROC / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return None
        # The name in brackets may hold anything, brackets and spaces too; behind it come plain fields.
        fields = text.rpartition(")")[2].split()
        if len(fields) < 20 or fields[0] in _GONE:
            return None
        return cls(pid, int(fields[2]), int(fields[3]), int(fields[19]))

    def carries(self, cookie: str) -> bool:
        """Whether it was started with this word in its environment."""
        try:
            return cookie.encode() in (_PROC / str(self.pid) / "environ").read_bytes()
        except OSError:
            return False


def processes_of_run(cookie: str, session: int | None = None) -> list[ProcessInfo]:
    """The living processes of a run: those in its session, and those that inherited its cookie.

    A daemon leaves the session of whoever started it, but not its environment.
    """
    found = []
    for entry in os.scandir(_PROC) if _PROC.is_dir() else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        process = ProcessInfo.read(int(entry.name))
        if process is not None and (process.session == session or process.carries(cookie)):
            found.append(process)
    return found


@cache
def _boot() -> str:
    """Which boot of the machine this is: start times count from it."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
