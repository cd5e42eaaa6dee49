"""Machines that are paid for: what they cost, and how long money lasts for them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prudent.core.money import ROUNDING_USD, Price

_HALVINGS = 60
_EDGE_S = 1e-5
"""So long before the next billing step it is left: sums of seconds since 1970 are hardly more exact."""


@dataclass(frozen=True)
class RentalPeriod:
    """One machine, paid since `since_s` on some clock, until `until_s` or still."""

    name: str
    price: Price
    since_s: float
    until_s: float | None = None

    def cost_usd(self, at_s: float) -> float:
        """What it has cost at a moment, or in all once it is gone."""
        end_s = at_s if self.until_s is None else self.until_s
        return self.price.cost_usd(max(end_s - self.since_s, 0.0))

    def due_usd(self, at_s: float) -> float:
        """What it will have cost in the end if it is gone at a moment: its billing minimum is due already."""
        if self.until_s is not None:
            return self.cost_usd(at_s)
        return self.price.cost_usd(max(at_s - self.since_s, self.price.minimum_s))


def cost_usd(holds: Iterable[RentalPeriod], at_s: float) -> float:
    """What all have cost at a moment."""
    return math.fsum(hold.cost_usd(at_s) for hold in holds)


def due_usd(holds: Iterable[RentalPeriod], at_s: float) -> float:
    """What all will have cost in the end if those still held are gone at a moment."""
    return math.fsum(hold.due_usd(at_s) for hold in holds)


def usd_per_s(holds: Iterable[RentalPeriod]) -> float:
    """What another second of those still held costs."""
    return math.fsum(hold.price.usd_per_h for hold in holds if hold.until_s is None) / 3600.0


def affordable_s(
    holds: Sequence[RentalPeriod],
    usd: float,
    now_s: float,
    give_back_s: float = 0.0,
    most_s: float = math.inf,
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
        return due_usd(holds, now_s + seconds + give_back_s) <= usd + ROUNDING_USD

    if not affordable(0.0):
        return -1.0
    rate = usd_per_s(holds)
    if rate == 0 or math.isinf(usd) or (math.isfinite(most_s) and affordable(most_s)):
        return math.inf
    # No machine costs less than its time; by how much more it does depends on minimums and billing steps.
    low_s, high_s = 0.0, usd / rate
    if affordable(high_s):
        return high_s
    for _ in range(_HALVINGS):
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (middle_s, high_s) if affordable(middle_s) else (low_s, middle_s)
    return max(low_s - _EDGE_S, 0.0)
