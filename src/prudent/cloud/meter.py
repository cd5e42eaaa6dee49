"""What rented machines cost, from order to give-back, each at the price of its own launch.

One meter for all who rent: whoever spends asks it how long the money lasts. Leases tell it when a machine was
launched, at which price, and when it was gone.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol, Self

from prudent.cloud.billing import RentalPeriod, affordable_s, due_usd, usd_per_s
from prudent.cloud.leases.lease import Lease
from prudent.core.errors import PrudentError
from prudent.core.money import Price

RELEASE_S = 5.0
"""How long giving machines back is taken to need; what took longer once is expected to again."""

_LOOK_S, _LEAST_S = 0.2, 0.001


class Metered(Protocol):
    """Machines under a lease; a `Rental` is one."""

    @property
    def record(self) -> Lease | None:
        """What is known of its machines; None while none was ordered."""


class Meter:
    """Adds up what machines cost, and tells how long `allowed_usd` pays for them, their end included.

        meter = Meter(allowed_usd=2.0)
        meter.add(rental)        # before its launch: it counts from its order on
        meter.spent_usd()        # paid until now
        meter.committed_usd()    # paid in the end if everything is given back now
        meter.usd_per_s          # what another second of all machines costs
        meter.lasts_s()          # in so many seconds they must be given back

    Boot, data on their way and idle time count as all else does. A machine that was ordered and is not known
    yet counts as if it ran since the order. `earlier_usd` is what sessions before this one have paid.
    Thread-safe; `clock` tells seconds since 1970, as leases do.
    """

    def __init__(
        self,
        allowed_usd: float | None = None,
        earlier_usd: float = 0.0,
        ending_s: float = RELEASE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.allowed_usd = math.inf if allowed_usd is None else allowed_usd
        self.earlier_usd = earlier_usd
        self._ending_s = ending_s
        self._clock = clock
        self._metered: tuple[Metered, ...] = ()
        self._known: tuple[tuple[object, ...], float] = ((), 0.0)
        self._lock = threading.Lock()

    def add(self, rental: Metered) -> None:
        """Count these machines too, from their order to their end."""
        with self._lock:
            self._metered = (*self._metered, rental)

    def note_release_time(self, took_s: float) -> None:
        """Giving machines back took `took_s`; from now on the money for as long is kept back."""
        with self._lock:
            self._ending_s = max(self._ending_s, took_s)

    @property
    def ending_s(self) -> float:
        """How long machines are paid for after it was decided to give them back."""
        return self._ending_s

    @property
    def usd_per_s(self) -> float:
        """What one second of all machines that run or are ordered costs."""
        return usd_per_s(self._periods())

    def spent_usd(self, later_s: float = 0.0) -> float:
        """What is paid by now, or will be `later_s` from now, billing minimums included."""
        leases = (lease for one in self._metered if (lease := one.record) is not None)
        now_s = self._clock() + later_s
        return self.earlier_usd + math.fsum(lease.cost_usd(now_s) for lease in leases)

    def committed_usd(self) -> float:
        """What will have been paid in the end if everything is given back now."""
        return self.earlier_usd + due_usd(self._periods(), self._clock() + self._ending_s)

    @property
    def left_usd(self) -> float:
        """What is left for more machines, or for more time of those there are."""
        return max(self.allowed_usd - self.committed_usd(), 0.0)

    def lasts_s(self, usd: float | None = None) -> float:
        """In how many seconds all machines must be given back, so that at most `usd` is paid in all.

        0: now; inf: there are no machines. Without `usd` it is the money that the meter allows.
        """
        allowed_usd = (self.allowed_usd if usd is None else usd) - self.earlier_usd
        periods, now_s = self._periods(), self._clock()
        if usd_per_s(periods) == 0:
            return math.inf
        asked = (allowed_usd, self._ending_s, *periods)
        known, until_s = self._known
        if known != asked:  # the moment stays the same while the machines do
            until_s = now_s + affordable_s(periods, allowed_usd, now_s, self._ending_s)
            self._known = (asked, until_s)
        return max(until_s - now_s, 0.0)

    def least_usd(self, price: Price, count: int = 1) -> float:
        """What the shortest use of `count` machines costs: with less money they cannot be ordered."""
        shortest_s = max(price.minimum_s, price.overhead_s, self._ending_s)
        return count * price.cost_usd(shortest_s)

    def most_usd_per_h(self, price: Price, count: int = 1) -> float | None:
        """The highest price per machine at which the money left pays for `count` more; None: any price.

        For the provider: prices change between an offer and the launch.
        """
        if math.isinf(self.allowed_usd):
            return None
        shortest_s = price.billed_s(max(price.minimum_s, price.overhead_s, self._ending_s))
        return self.left_usd / count / shortest_s * 3600.0 if shortest_s > 0 else None

    def _periods(self) -> list[RentalPeriod]:
        """Every machine that costs money, or did, or may."""
        return [
            period
            for one in self._metered
            if (lease := one.record) is not None
            for period in lease.periods_since_order
        ]


class BudgetGuard:
    """Gives machines back before the money for them is gone, whatever everybody else is busy with.

    `with BudgetGuard(meter, give_back) as guard:` goes around all that is done with the machines;
    `guard.acted` tells whether it gave them back.
    """

    def __init__(self, meter: Meter, give_back: Callable[[], None]) -> None:
        self._meter, self._give_back = meter, give_back
        self._over, self._acted = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="money for machines", daemon=True)

    @property
    def acted(self) -> bool:
        return self._acted.is_set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while (left_s := self._meter.lasts_s()) > 0:
            if self._over.wait(min(max(left_s, _LEAST_S), _LOOK_S)):
                return
        self._acted.set()
        # What cannot be ended now is left to whoever closes it, the reaper, and the switch on each machine.
        with contextlib.suppress(PrudentError, OSError):
            self._give_back()
