"""Processes that give way to others, and that end with the one that started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

_PR_SET_PDEATHSIG = 1
HELP, WORK = 5, 10
"""How far processes give way, as `nice` has it: those that help to answer, and those that do what was
asked for. Whoever answers gets three and nine times as much, and on a busy machine work still goes on."""


def lower_priority(level: int = WORK) -> None:
    """Let others have the processor first: work of minutes shall not delay an answer of milliseconds."""
    os.nice(max(level - os.nice(0), 0))


def lower_session_priority(pid: int, level: int = WORK) -> None:
    """The same for the whole session of a process, which must not be our own.

    Where Linux groups processes by session (`sched_autogroup_enabled`), it shares the processor out between
    sessions first, and a process that gives way does so within its session only: alone in one of its own, it
    gives way to nobody.
    """
    group = Path(f"/proc/{pid}/autogroup")
    with contextlib.suppress(OSError, ValueError):  # it has ended, or there are no such groups here
        if int(group.read_text().split()[-1]) < level:
            group.write_text(str(level), encoding="ascii")


def end_with_parent(parent: int, number: int) -> None:
    """Get this signal when the process `parent` ends; at once if it has ended already.

    The kernel tells only of an end that comes later. A parent that was killed while this process still
    loaded its libraries is seen by its number: a process whose parent is gone has another one.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
