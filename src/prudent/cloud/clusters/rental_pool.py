"""The rentals of a cluster that grows and shrinks: which there are, what they hold, what they cost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter

from prudent.cloud.clusters.rental import Rental
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.meter import Meter
from prudent.cloud.providers.channel import on_all
from prudent.cloud.providers.provider import Offer, Provider
from prudent.core.errors import PrudentError, RunFailed


class RentalPool:
    """Rented machines by type. A machine counts from before it is asked for until it is certainly gone.

    Each has a lease of its own: one that is lost or given back must not concern the leases of the others.
    All are counted by `meter`.
    """

    def __init__(
        self,
        provider: Provider,
        register: LeaseRegister,
        run: str,
        spot: bool,
        lease_s: float,
        ready_s: float,
        meter: Meter,
    ) -> None:
        self._provider, self._register, self._run, self._spot = provider, register, run, spot
        self._meter = meter
        self._lease_s, self._ready_s = lease_s, ready_s
        self._offers: dict[str, Offer] = {}
        self._all: list[Rental] = []
        self._types: dict[Rental, str] = {}
        self._holding: set[Rental] = set()
        self._closed = False
        self._lock = threading.RLock()

    @property
    def held(self) -> dict[str, int]:
        with self._lock:
            return dict(Counter(self._types[rental] for rental in self._all if rental in self._holding))

    def offer(self, type_name: str) -> Offer:
        """What a type costs, asked once: the price at launch is the one that counts."""
        with self._lock:
            if type_name not in self._offers:
                self._offers[type_name] = self._provider.offer(type_name, self._spot)
            return self._offers[type_name]

    def type_of(self, rental: Rental) -> str:
        return self._types[rental]

    def cost_usd(self, now_s: float | None = None) -> float:
        with self._lock:
            return sum(rental.cost_usd(now_s) for rental in self._all)

    def price_ceiling(self, type_name: str, count: int = 1) -> float | None:
        """The highest price per machine at which the money pays for `count` of a type; None: any price."""
        return self._meter.most_usd_per_h(self.offer(type_name).price, count)

    def rent(self, type_name: str, most_usd_per_h: float | None = None) -> Rental:
        """A machine that can be used, at this price at most; whatever goes wrong, none is left."""
        rental = Rental(
            self._provider, type_name, run=self._run, register=self._register, lease_s=self._lease_s,
            ready_s=self._ready_s, spot=self._spot,
        )  # fmt: skip
        with self._lock:
            self._must_be_open()
            self._all.append(rental)
            self._types[rental] = type_name
            self._holding.add(rental)
        self._meter.add(rental)
        try:
            rental.launch(most_usd_per_h)
            self._must_be_open()
            return rental.wait_ready()
        except BaseException:
            self.give_back(rental)
            raise

    def give_back(self, rental: Rental) -> None:
        """Release a rental. If that fails, the reaper and the switch on each machine remain."""
        begun_s = time.monotonic()
        with contextlib.suppress(PrudentError):
            rental.release()
        self._meter.note_release_time(time.monotonic() - begun_s)
        with self._lock:
            self._holding.discard(rental)

    def close(self) -> None:
        """Release all, side by side; RunFailed if one could not be. None can be rented afterwards."""
        with self._lock:
            self._closed = True
            rentals = list(self._all)
        try:
            on_all(Rental.release, rentals)
        finally:
            with self._lock:
                self._holding.clear()

    def _must_be_open(self) -> None:
        if self._closed:
            raise RunFailed("The cluster is being closed; start it again.")
