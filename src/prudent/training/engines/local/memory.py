"""How much memory there is to share out."""

from __future__ import annotations

import contextlib
from pathlib import Path

from prudent.core.memory import limit_mb

_MB = 1 << 20
_ENOUGH_MB = 1 << 20  # when nobody says: as good as no limit
_SHARE = 0.8
"""Of what a process may use, for what it starts; the rest is for itself."""
_GROUP = Path("/sys/fs/cgroup")


def available_mb() -> float:
    """Memory that is free now, within the limits of a container or of this process if there are some."""
    found = [_ENOUGH_MB, *_of_machine(), *_of_container(), _SHARE * limit_mb()]
    return max(min(found), 64.0)


def _of_machine() -> list[float]:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return [int(rest.split()[0]) / 1024]
    return []


def _of_container() -> list[float]:
    with contextlib.suppress(OSError, ValueError):
        most = (_GROUP / "memory.max").read_text().strip()
        used = int((_GROUP / "memory.current").read_text())
        # Files kept in memory are given up when something else needs the room.
        stat = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        if most != "max":
            return [(int(most) - used + int(stat.get("file", 0))) / _MB]
    return []
