"""How long machines of a provider take to boot and to be given back, as measured on this computer.

Both are paid for. A forecast counts them, and whoever keeps a budget gives machines back early enough.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from prudent.cloud.home_folder import default_home

DelayKind = Literal["boot", "give_back"]
_FILE = "delays.jsonl"
_REMEMBERED = 50
_TAIL_BYTES = 65_536
_PSEUDO = 2.0
"""The usual delay counts like this many measurements."""
_SIGMA = 0.4
_SPREADS = 2.0
"""A delay is hardly ever this many deviations above the median."""
_USUAL_S: Mapping[str, Mapping[DelayKind, float]] = {
    "local": {"boot": 4.0, "give_back": 2.0},
    "hosts": {"boot": 6.0, "give_back": 4.0},
    "ec2": {"boot": 75.0, "give_back": 15.0},
}
_ELSEWHERE: Mapping[DelayKind, float] = {"boot": 75.0, "give_back": 15.0}


@dataclass(frozen=True)
class Delay:
    """A time that varies: lognormal with this median and this deviation of the logarithm."""

    median_s: float
    sigma: float = 0.0

    @property
    def high_s(self) -> float:
        """A time that the delay hardly ever exceeds."""
        return self.median_s * math.exp(_SPREADS * self.sigma)

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """`size` random delays."""
        return np.asarray(self.median_s * np.exp(self.sigma * rng.normal(size=size)))


NO_DELAY = Delay(0.0)


def fit_delay(measured_s: Iterable[float], usual_s: float) -> Delay:
    """The delay that fits the measurements, drawn towards the usual one while there are few.

    >>> fit_delay([], 4.0)
    Delay(median_s=4.0, sigma=0.4)
    >>> fit_delay([8.0] * 50, 4.0).median_s > 7.5
    True
    """
    logs = np.log([max(seconds, 1e-3) for seconds in measured_s])
    count = len(logs)
    middle = (float(logs.sum()) + _PSEUDO * math.log(usual_s)) / (count + _PSEUDO)
    squares = float(((logs - middle) ** 2).sum()) + _PSEUDO * _SIGMA**2
    return Delay(math.exp(middle), math.sqrt(squares / (count + _PSEUDO)))


class DelayRecords:
    """The measurements of one home folder; a file that cannot be read or written is no reason to fail."""

    def __init__(self, home: Path | None = None) -> None:
        self._path = (home or default_home()) / "leases" / _FILE

    def note(self, provider: str, what: DelayKind, seconds: float) -> None:
        """Remember one measurement."""
        line = json.dumps({"provider": provider, "what": what, "s": round(seconds, 3)}) + "\n"
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(line)

    def of(self, provider: str, what: DelayKind, usual_s: float = 0.0) -> Delay:
        """What to expect at a provider; `usual_s` is what its price list says, if it does."""
        usual_s = usual_s or _USUAL_S.get(provider, _ELSEWHERE)[what]
        return fit_delay(self._measured_s()[provider, what][-_REMEMBERED:], usual_s)

    def _measured_s(self) -> defaultdict[tuple[str, str], list[float]]:
        found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        text = b""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            text = file.read()
        for line in text.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                said = json.loads(line)
                found[str(said["provider"]), str(said["what"])].append(float(said["s"]))
        return found
