"""How processes of Prudent behave: their priority, their threads, how they end with their parent, and where
tests kill them.

"No machine is ever forgotten" can only be shown by dying at every step between deciding to launch a machine
and having released it. The steps are marked by `kill_point`, which does nothing in production.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
HELPER_NICE, WORK_NICE = 5, 10
"""How far processes give way, as `nice` has it: those that help to answer, and those that do what was
asked for. Whoever answers gets three and nine times as much, and on a busy machine work still goes on."""


def lower_priority(level: int = WORK_NICE) -> None:
    """Let others have the processor first: work of minutes shall not delay an answer of milliseconds."""
    os.nice(max(level - os.nice(0), 0))


def lower_session_priority(pid: int, level: int = WORK_NICE) -> None:
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


@contextmanager
def one_thread() -> Iterator[None]:
    """Linear algebra on one thread inside this block.

    Matrices of a few hundred rows are quicker on one core than shared out over many, and the order of
    additions, and so the last digit, no longer depends on how many cores a machine has.
    """
    with _controller("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=2)
def _controller(scipy_is_loaded: bool) -> Any:
    """Knows the libraries loaded when it is made; scipy brings one of its own later than numpy."""
    del scipy_is_loaded
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


KILL_AT = "PRUDENT_KILL_AT"
"""The environment variable that names the place: `launch.accepted`; `trial.put:2` the second time; or
several that must be passed in this order, to die at the last: `trial.started>renew.done`."""

_passed: list[str] = []


def kill_point(name: str) -> None:
    """A place that is passed; nothing happens, unless the environment says to die here.

    >>> kill_point("launch.accepted")
    """
    wanted = os.environ.get(KILL_AT)
    if not wanted:
        return
    steps = [place for place, _, times in _parts(wanted) for _ in range(int(times or 1))]
    if name == steps[len(_passed)]:
        if len(_passed) == len(steps) - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        _passed.append(name)


def _parts(wanted: str) -> Iterator[tuple[str, str, str]]:
    return (step.partition(":") for step in wanted.split(">"))
