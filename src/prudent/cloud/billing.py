"""How rented machines are billed: their prices, the period that each is paid for, and the bill of a run."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prudent.core.money import ROUNDING_USD, Price

if TYPE_CHECKING:
    from prudent.cloud.leases.lease import Lease
    from prudent.cloud.leases.register import LeaseRegister

MINIMUM_S = 60.0
"""AWS bills Linux on-demand machines per second, with a minimum of one minute each time one is started."""


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
        """Its final cost if it is given back at a moment; the billing minimum is due in any case."""
        if self.until_s is not None:
            return self.cost_usd(at_s)
        return self.price.cost_usd(max(at_s - self.since_s, self.price.minimum_s))


def cost_usd(periods: Iterable[RentalPeriod], at_s: float) -> float:
    """What all have cost at a moment."""
    return math.fsum(period.cost_usd(at_s) for period in periods)


def due_usd(periods: Iterable[RentalPeriod], at_s: float) -> float:
    """The final cost of all, if those still held are given back at a moment."""
    return math.fsum(period.due_usd(at_s) for period in periods)


def usd_per_s(periods: Iterable[RentalPeriod]) -> float:
    """What another second of those still held costs."""
    return math.fsum(period.price.usd_per_h for period in periods if period.until_s is None) / 3600.0


def affordable_s(
    periods: Sequence[RentalPeriod],
    usd: float,
    now_s: float,
    give_back_s: float = 0.0,
    most_s: float = math.inf,
) -> float:
    """How many seconds all may stay, if their final cost, give-back included, is to be at most `usd`.

    Below zero: they should have been given back already. Infinite: for as long as is asked (`most_s`), which
    is quickly told. Steps and minima of prices count: nobody stays into a minute that is not paid for.

    >>> period = RentalPeriod("v", Price(3600.0, "", "x"), since_s=0.0)
    >>> round(affordable_s([period], usd=100.0, now_s=10.0, give_back_s=5.0), 3)
    85.0
    >>> by_minute = RentalPeriod("v", Price(60.0, "", "x", step_s=60), since_s=0.0)
    >>> round(affordable_s([by_minute], usd=2.5, now_s=10.0), 3)
    110.0
    """

    def affordable(seconds: float) -> bool:
        return due_usd(periods, now_s + seconds + give_back_s) <= usd + ROUNDING_USD

    if not affordable(0.0):
        return -1.0
    rate = usd_per_s(periods)
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


@dataclass(frozen=True)
class BillLine:
    """One machine: paid from `launched_s` to `released_s` (seconds since 1970), or still being paid."""

    cluster: str
    type: str
    price: Price
    launched_s: float
    released_s: float | None = None

    def cost_usd(self, now_s: float) -> float:
        """What it has cost until `now_s`, or in all once it was given back."""
        return RentalPeriod(self.cluster, self.price, self.launched_s, self.released_s).cost_usd(now_s)


@dataclass(frozen=True)
class Bill:
    """All machines that were rented for a run, the first one first. Nothing of it is ever clipped.

    >>> price = Price(3.6, "2025-01-01", "catalog", minimum_s=60)
    >>> bill = Bill((BillLine("c", "m5.large", price, 100.0, 110.0), BillLine("d", "m5.large", price, 100.0)))
    >>> round(bill.total_usd(now_s=200.0), 3)
    0.16
    """

    lines: tuple[BillLine, ...] = ()

    @classmethod
    def of(cls, leases: Iterable[Lease]) -> Bill:
        lines = [
            BillLine(lease.cluster, lease.order.type, one.price, one.since_s, one.until_s)
            for lease in leases
            for one in lease.rental_periods
        ]
        return cls(tuple(sorted(lines, key=lambda line: (line.launched_s, line.cluster))))

    @classmethod
    def of_run(cls, register: LeaseRegister, run: str) -> Bill:
        """By the register, which also knows the machines that a killed process had rented."""
        return cls.of(lease for lease in register.leases() if lease.run == run)

    def total_usd(self, now_s: float | None = None) -> float:
        """The sum at a moment; now if none is named."""
        at_s = time.time() if now_s is None else now_s
        return sum(line.cost_usd(at_s) for line in self.lines)
