"""The clusters of a study: rented for a run, kept for the next one like it, given back when idle."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from prudent.cloud.clusters.rental import Rental
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.meter import Meter
from prudent.cloud.providers.provider import CAPACITY, PRICE, TRANSIENT, LaunchFailed, Provider
from prudent.core.errors import PrudentError
from prudent.core.money import ROUNDING_USD, Price

ORDER_S, END_S = 1.0, 5.0
"""How long it takes to order machines and to give them back; what took longer once is expected to again."""

KEEP_S = 60.0
"""How long a cluster waits for another run like the last one before it is given back."""

WAIT_S = 600.0
"""How long a run waits for machines that others use now."""

_TRIES = 3
_LOOK_S = 2.0
_MONEY_S = 0.02
_log = logging.getLogger(__name__)

Key = tuple[str, int, str]
"""Type, count, and the run that is charged."""


class PooledCluster:
    """One cluster of the study, and how much of what it costs has been charged to runs."""

    def __init__(self, key: Key, make: Callable[[], Rental], price: Price) -> None:
        self.key = key
        self.ordering = threading.Lock()
        """Held while machines are ordered: what they cost is known before and after, not in between."""
        self.price = price
        """Of the whole cluster, as it was offered last."""
        self._make, self._meter = make, Meter(ending_s=0.0)
        self._failed: list[Rental] = []
        self.rental = self._made()
        self.up = False
        self.abandoned = False
        """Whether the run that ordered it was told its bill already, and it boots for whoever comes next."""
        self.idle_s: float | None = None
        self._paid_usd = 0.0
        self._lock = threading.Lock()

    def due_usd(self, later_s: float = 0.0) -> float:
        """What no run was charged for yet, if it is ended `later_s` from now."""
        with self._lock:
            return self._due_usd(later_s)

    def lasts_s(self, usd: float, ordering_s: float, ending_s: float) -> float:
        """How many seconds from now `usd`, beside what was charged, pay for it; 0: not even for an order.

        An order under way cannot be ended before `ordering_s`, and every end takes `ending_s`: both are paid.
        """
        self._meter.note_release_time(ending_s)
        with self._lock:
            lease, usd = self.rental.record, usd + self._paid_usd
        if lease is not None and lease.machines:
            return self._meter.lasts_s(usd)
        least_usd = self.price.cost_usd(max(self.price.minimum_s, ordering_s + ending_s))
        return math.inf if usd + ROUNDING_USD >= self._meter.spent_usd() + least_usd else 0.0

    def most_usd_per_h(self, usd: float, shortest_s: float) -> float | None:
        """The price of one machine at which `usd` just pay for the shortest use; None: any price."""
        shortest_s = max(self.price.minimum_s, shortest_s)
        with self._lock:
            usd += self._paid_usd - self._meter.spent_usd()
        return usd / shortest_s * 3600.0 / self.key[1] if math.isfinite(usd) and shortest_s > 0 else None

    def settle(self) -> float:
        """Count what is due as charged; the caller charges the answer to a run.

        Below zero: a machine was charged for that was gone already, as is known by now.
        """
        with self._lock:
            due = self._due_usd()
            self._paid_usd += due
            return due

    def _due_usd(self, later_s: float = 0.0) -> float:
        return self._meter.spent_usd(later_s) - self._paid_usd

    def again(self) -> None:
        """Another attempt after one that failed; what that one has cost stays due."""
        with self._lock:
            if not self.rental.ended:
                self._failed.append(self.rental)
            self.rental = self._made()

    def release(self, why: str) -> None:
        """End its machines, and those of earlier attempts that could not be ended then."""
        trouble: PrudentError | OSError | None = None
        for rental in (*self._failed, self.rental):
            try:
                rental.release(why)
            except (PrudentError, OSError) as error:
                trouble = error
        if trouble is not None:
            raise trouble

    def _made(self) -> Rental:
        rental = self._make()
        self._meter.add(rental)
        return rental

    @property
    def sound(self) -> bool:
        return self.up and self.rental.lost is None


class ClusterPool:
    """All clusters of one study at one place. Thread-safe: each run takes and gives back its own."""

    def __init__(
        self,
        provider: Provider,
        register: LeaseRegister,
        keep_s: float,
        lease_s: float,
        spot: bool = False,
        grace_s: float = 0.0,
    ) -> None:
        self.provider, self.register = provider, register
        self._keep_s, self._lease_s, self._spot, self._grace_s = keep_s, lease_s, spot, grace_s
        self._order_s, self._release_s = ORDER_S, END_S
        self._idle: list[PooledCluster] = []
        self._used: set[PooledCluster] = set()
        self._leaving: set[PooledCluster] = set()
        self._stubborn: list[PooledCluster] = []
        self._unassigned_usd = 0.0
        self._changed = threading.Condition()
        self._background: set[threading.Thread] = set()
        self._sweeper: threading.Thread | None = None

    def take(self, type_name: str, count: int, run: str, price: Price) -> PooledCluster:
        """A cluster for a run: one that is up and idle, or one yet to `boot`, at about this price.

        When nothing else runs, kept clusters of another kind are given back: no run is left that wants them.
        """
        key = (type_name, count, run)
        with self._changed:
            fitting = [held for held in self._idle if held.key == key and held.sound]
            held = fitting[0] if fitting else PooledCluster(key, lambda: self._rental(*key), price)
            leaving = [one for one in self._idle if one is not held and (not self._used or not one.sound)]
            self._idle = [one for one in self._idle if one is not held and one not in leaving]
            held.idle_s, held.abandoned = None, False
            self._used.add(held)
            self._leaving.update(leaving)
        for one in leaving:
            self._in_background(one, "another kind of machine was wanted")
        return held

    @property
    def ending_s(self) -> float:
        """How long machines are paid for after the decision to end what runs on them."""
        return self._grace_s + self._release_s

    def lasts_s(self, held: PooledCluster, usd: float) -> float:
        """How many seconds from now `usd` pay for a cluster and its end; 0 if it must not be ordered."""
        return held.lasts_s(usd, self._order_s, self.ending_s)

    def boot(self, held: PooledCluster, stopped: threading.Event, in_hand: Callable[[], float]) -> None:
        """Launch a cluster and wait until it can be used; where others have the machines, wait for them.

        Each attempt may cost: none is made before there is money for it, or after the run was stopped.
        """
        give_up_s = time.monotonic() + WAIT_S
        tries = 0
        while not held.up:
            while self.lasts_s(held, in_hand()) <= 0 and not stopped.wait(_MONEY_S):
                pass
            try:
                with held.ordering:
                    if stopped.is_set():
                        raise LaunchFailed("It was stopped before machines were ordered.", TRANSIENT)
                    begun_s = time.monotonic()
                    held.rental.launch(held.most_usd_per_h(in_hand(), self._order_s + self.ending_s))
                    self._order_s = max(self._order_s, time.monotonic() - begun_s)
                held.rental.wait_ready()
                held.up = True
            except LaunchFailed as error:
                tries += error.kind == TRANSIENT
                patient = error.kind in (CAPACITY, PRICE) and time.monotonic() < give_up_s
                if stopped.is_set() or not (patient or (error.kind == TRANSIENT and tries < _TRIES)):
                    raise
                if error.kind == PRICE:
                    self._ask_price(held)
                    stopped.wait(_MONEY_S)
                else:
                    self._make_room()
                held.again()

    def give_back(self, held: PooledCluster, broken: str = "") -> None:
        """After a run: keep a cluster that is sound for the next one, release one that is not."""
        with self._changed:
            if held not in self._used:
                return
            self._used.discard(held)
            keep = not broken and held.sound and self._keep_s > 0
            if not keep:
                self._leaving.add(held)
            else:
                held.idle_s = time.monotonic()
                self._idle.append(held)
                if self._sweeper is None:
                    self._sweeper = threading.Thread(target=self._sweep, name="prudent-idle", daemon=True)
                    self._sweeper.start()
            self._changed.notify_all()
        if not keep:
            self._in_background(held, broken or "its run is over")

    def abandon(self, held: PooledCluster) -> None:
        """Its run ended before it came up: it boots on for the next run; no run was charged for it yet."""
        with self._changed:
            held.abandoned = held in self._used and not held.up

    @property
    def unassigned_usd(self) -> float:
        """What no run was charged for yet of clusters without a run, if they are ended now."""
        with self._changed:
            return self._unassigned_usd + sum(held.due_usd(self.ending_s) for held in self._loose())

    def settle_unassigned(self, own_usd: float) -> float:
        """What a run is charged: `own_usd` for its own machines, and what no run was charged for yet.

        Never below zero: where earlier runs were charged too much, later ones are charged less.
        """
        with self._changed:
            due = own_usd + self._unassigned_usd + sum(held.settle() for held in self._loose())
            self._unassigned_usd = min(due, 0.0)
            return max(due, 0.0)

    def _loose(self) -> list[PooledCluster]:
        """Clusters without a run: idle, booting on, being given back, or impossible to end so far."""
        booting = [held for held in self._used if held.abandoned]
        return [*self._idle, *booting, *self._leaving, *self._stubborn]

    def close(self) -> None:
        """Give everything back, also what is booting; returns when it is done.

        What could not be ended before (a machine that did not answer) is tried once more.
        """
        with self._changed:
            waiting = list(self._background)
        for thread in waiting:
            thread.join()
        with self._changed:
            everything = [*self._idle, *self._used, *self._stubborn]
            self._idle, self._used, self._stubborn = [], set(), []
            self._leaving.update(everything)
            self._changed.notify_all()
        if everything:
            with ThreadPoolExecutor(len(everything)) as several:
                list(several.map(lambda held: self._release(held, "the study is over"), everything))

    # Inside

    def _rental(self, type_name: str, count: int, run: str) -> Rental:
        return Rental(
            self.provider,
            type_name,
            count,
            run=run,
            register=self.register,
            lease_s=self._lease_s,
            spot=self._spot,
        )

    def _ask_price(self, held: PooledCluster) -> None:
        """Ask for its price of this moment; whether there is money for that is checked elsewhere."""
        type_name, count, _ = held.key
        held.price = self.provider.offer(type_name, self._spot).price.times(count)

    def _make_room(self) -> None:
        """Give idle clusters back, since a run wants their machines; if none is idle, wait for a change."""
        with self._changed:
            idle, self._idle = self._idle, []
            self._leaving.update(idle)
            if not idle:
                self._changed.wait(_LOOK_S)
        for held in idle:
            self._release(held, "its machines were wanted")

    def _sweep(self) -> None:
        """Give back what was idle for too long; ends when nothing is idle."""
        while True:
            with self._changed:
                now_s = time.monotonic()
                late = [held for held in self._idle if now_s - (held.idle_s or now_s) >= self._keep_s]
                self._idle = [held for held in self._idle if held not in late]
                self._leaving.update(late)
                if not late and not self._idle:
                    self._sweeper = None
                    return
                if not late:
                    oldest_s = min(held.idle_s or now_s for held in self._idle)
                    self._changed.wait(max(0.01, oldest_s + self._keep_s - now_s))
            for held in late:
                self._release(held, "nobody wanted it")

    def _in_background(self, held: PooledCluster, why: str) -> None:
        def work() -> None:
            self._release(held, why)
            with self._changed:
                self._background.discard(thread)

        thread = threading.Thread(target=work, name=f"release {held.rental.cluster}")
        with self._changed:  # whoever closes waits for threads that have started
            self._background.add(thread)
            thread.start()

    def _release(self, held: PooledCluster, why: str) -> None:
        """End a cluster. If that fails, the reaper and the switches on the machines remain."""
        begun_s = time.monotonic()
        try:
            held.release(why)
        except (PrudentError, OSError) as error:
            _log.warning("%s", error)
            with self._changed:
                self._stubborn.append(held)
        with self._changed:
            self._release_s = max(self._release_s, time.monotonic() - begun_s)
            self._leaving.discard(held)
            self._unassigned_usd += held.settle()
            self._changed.notify_all()
