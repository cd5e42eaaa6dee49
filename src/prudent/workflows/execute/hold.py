"""Machines that are paid for, on the clock of a run, and how long money lasts for them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prudent.core.money import ROUNDING_USD, Price

_STEPS = 60
_FAR_S = 1e9


@dataclass(frozen=True)
class Hold:
    """One machine: paid since `since_s` on the run's clock, until `until_s` or still."""

    vm: str
    price: Price
    since_s: float
    until_s: float | None = None

    def cost_usd(self, at_s: float) -> float:
        """What it has cost at a moment."""
        end_s = at_s if self.until_s is None else min(at_s, self.until_s)
        return self.price.cost_usd(max(end_s - self.since_s, 0.0))


def cost_usd(holds: Iterable[Hold], at_s: float) -> float:
    """What all have cost at a moment, if those still held stay until then."""
    return sum(hold.cost_usd(at_s) for hold in holds)


def lasts_s(
    holds: Sequence[Hold], usd: float, now_s: float, give_back_s: float = 0.0, most_s: float = _FAR_S
) -> float:
    """How long from now all may stay if what they cost in the end, give-back included, is at most `usd`.

    Below zero: they should have been given back already. Infinite: for as long as is asked (`most_s`), which
    is quickly told. Steps and minima of prices count: nobody stays into a minute that is not paid for.

    >>> hold = Hold("v", Price(3600.0, "", "x"), since_s=0.0)
    >>> round(lasts_s([hold], usd=100.0, now_s=10.0, give_back_s=5.0), 3)
    85.0
    >>> by_minute = Hold("v", Price(60.0, "", "x", step_s=60), since_s=0.0)
    >>> round(lasts_s([by_minute], usd=2.5, now_s=10.0), 3)
    110.0
    """

    def affordable(seconds: float) -> bool:
        return cost_usd(holds, now_s + seconds + give_back_s) <= usd + ROUNDING_USD

    if not affordable(0.0):
        return -1.0
    if affordable(min(most_s, _FAR_S)):
        return math.inf
    near_s, far_s = 0.0, 1.0
    while affordable(far_s):
        near_s, far_s = far_s, 2 * far_s
    for _ in range(_STEPS):
        middle_s = (near_s + far_s) / 2
        near_s, far_s = (middle_s, far_s) if affordable(middle_s) else (near_s, middle_s)
    return near_s
