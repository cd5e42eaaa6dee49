"""Named places in the life of a cluster where a test may end the program, as a power cut would.

"No machine is ever forgotten" can only be shown by dying at every step between deciding to launch
and having released. In production these places do nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

KILL_AT = "PRUDENT_KILL_AT"
"""The environment variable that names the place: `launch.accepted`; `trial.put:2` the second time; or
several that must be passed in this order, to die at the last: `trial.started>renew.done`."""

_passed: list[str] = []


def kill_point(name: str) -> None:
    """A place that is passed; nothing happens, unless the environment says to die here.

    >>> point("launch.accepted")
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
