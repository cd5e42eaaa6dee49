"""What an execution will cost and how long it will take, with 90 % intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.units import format_duration, format_money

_TAIL = 0.05


@dataclass(frozen=True)
class Interval:
    """What is expected, and the bounds that nine of ten outcomes keep.

    >>> Interval(1.0, 2.0, 4.0).plus(1.0)
    Interval(low=2.0, expected=3.0, high=5.0)
    """

    low: float
    expected: float
    high: float

    @classmethod
    def of(cls, drawn: NDArray[np.float64]) -> Interval:
        low, high = np.quantile(drawn, (_TAIL, 1.0 - _TAIL))
        return cls(float(low), float(drawn.mean()), float(high))

    def plus(self, known: float) -> Interval:
        """With what is known already."""
        return Interval(self.low + known, self.expected + known, self.high + known)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_dict(self) -> dict[str, float]:
        return {"low": self.low, "expected": self.expected, "high": self.high}


@dataclass(frozen=True)
class Forecast:
    """Cost and makespan, each with its 90 % interval."""

    cost_usd: Interval
    makespan_s: Interval

    def plus(self, usd: float, seconds: float) -> Forecast:
        """After so much was paid and so much time has passed."""
        return Forecast(self.cost_usd.plus(usd), self.makespan_s.plus(seconds))

    @property
    def cost_text(self) -> str:
        """The cost in words."""
        return _text(self.cost_usd, format_money)

    @property
    def makespan_text(self) -> str:
        """The makespan in words."""
        return _text(self.makespan_s, format_duration)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `from_dict` reads them."""
        return {"cost_usd": self.cost_usd.to_dict(), "makespan_s": self.makespan_s.to_dict()}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Forecast:
        return cls(Interval(**said["cost_usd"]), Interval(**said["makespan_s"]))


def _text(interval: Interval, say: Callable[[float], str]) -> str:
    return f"{say(interval.expected)} (90 %: {say(interval.low)} to {say(interval.high)})"
