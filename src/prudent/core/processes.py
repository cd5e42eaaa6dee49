"""Processes that end with the one that started them."""

from __future__ import annotations

import ctypes
import os

_PR_SET_PDEATHSIG = 1


_GIVE_WAY = 10


def give_way() -> None:
    """Let others have the processor first: work of minutes shall not delay an answer of milliseconds."""
    os.nice(max(_GIVE_WAY - os.nice(0), 0))


def end_with_parent(parent: int, number: int) -> None:
    """Get this signal when the process `parent` ends; at once if it has ended already.

    The kernel tells only of an end that comes later. A parent that was killed while this process still
    loaded its libraries is seen by its number: a process whose parent is gone has another one.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), number)
