"""Signs of life of the trials under way, on the disk: what a kill or a crash ended was paid too."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

EVERY_S, SHARE = 1.0, 0.01
"""How often they are noted: what a kill leaves unpaid is no more than this, or this share of a trial."""


class Signs:
    """How long trials lasted that were ended before their time, in all sessions of a request.

    A trial that was told in a journal is no such one, whatever was noted of it before.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        said = _read(path)
        self._lost_s = float(said.get("lost_s", 0.0))
        self._left: dict[str, float] = dict(said.get("under_way_s", {}))
        self.due_s = -math.inf
        """When the next sign is due."""

    def lost_s(self, told: Collection[int]) -> float:
        """What was lost in earlier sessions, once it is known which trials were told."""
        self._lost_s += math.fsum(age_s for number, age_s in self._left.items() if int(number) not in told)
        self._left = {}
        if self._lost_s:
            self._write({})
        return self._lost_s

    def note(self, now_s: float, ages_s: Mapping[int, float]) -> None:
        """These trials live, and have lasted so long."""
        self.due_s = now_s + max(EVERY_S, SHARE * max(ages_s.values(), default=0.0))
        self._write(ages_s)

    def lose(self, seconds: float) -> None:
        """A trial was ended before its time after so long."""
        self._lost_s += seconds
        self._write({})

    def _write(self, ages_s: Mapping[int, float]) -> None:
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"lost_s": self._lost_s, "under_way_s": dict(ages_s)}))
        os.replace(fresh, self._path)


def _read(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
