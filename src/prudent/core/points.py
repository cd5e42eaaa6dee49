"""Named places in the life of a cluster where a test may end the program, as a power cut would.

"No machine is ever forgotten" can only be shown by dying at every step between deciding to launch
and having released. In production these places do nothing.
"""

from __future__ import annotations

import os
import signal

KILL_AT = "PRUDENT_KILL_AT"
"""The environment variable that names the place: `launch.accepted`, or `renew.done:2` for the second time."""

_seen: dict[str, int] = {}


def point(name: str) -> None:
    """A place that is passed; nothing happens, unless the environment says to die here.

    >>> point("launch.accepted")
    """
    wanted = os.environ.get(KILL_AT)
    if not wanted:
        return
    place, _, time = wanted.partition(":")
    if place == name:
        _seen[name] = _seen.get(name, 0) + 1
        if _seen[name] == int(time or 1):
            os.kill(os.getpid(), signal.SIGKILL)
