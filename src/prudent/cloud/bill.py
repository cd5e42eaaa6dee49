"""The bill of a run, from its leases: every machine from its launch to its give-back, at its own price."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from prudent.cloud.hold import RentalPeriod
from prudent.cloud.leases.lease import Lease
from prudent.cloud.leases.register import Register
from prudent.core.money import Price


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
            for one in lease.holds
        ]
        return cls(tuple(sorted(lines, key=lambda line: (line.launched_s, line.cluster))))

    @classmethod
    def of_run(cls, register: Register, run: str) -> Bill:
        """From the register, which knows also what a process that was killed had rented."""
        return cls.of(lease for lease in register.leases() if lease.run == run)

    def total_usd(self, now_s: float | None = None) -> float:
        """The sum at a moment; now if none is named."""
        at_s = time.time() if now_s is None else now_s
        return sum(line.cost_usd(at_s) for line in self.lines)
