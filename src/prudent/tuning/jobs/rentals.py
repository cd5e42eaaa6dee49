"""The clusters of a study: rented for a run, kept for the next one like it, given back when idle."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from prudent.cloud.clusters.rental import Rental
from prudent.cloud.leases.register import Register
from prudent.cloud.providers.provider import CAPACITY, TRANSIENT, LaunchFailed, Provider
from prudent.core.errors import PrudentError
from prudent.core.money import ROUNDING_USD, Price

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


class Held:
    """One cluster of the study, and how much of what it costs has been charged to runs."""

    def __init__(self, key: Key, make: Callable[[], Rental], price: Price) -> None:
        self.key = key
        self.ordering = threading.Lock()
        """Held while machines are ordered: what they cost is known before and after, not in between."""
        self._least_usd = price.cost_usd(price.minimum_s)
        self._make = make
        self.rental = make()
        self.up = False
        self.idle_s: float | None = None
        self._before_usd = 0.0
        self._paid_usd = 0.0
        self._lock = threading.Lock()

    @property
    def due_usd(self) -> float:
        """What nobody was charged for yet."""
        with self._lock:
            return max(0.0, self._before_usd + self.rental.cost_usd() - self._paid_usd)

    def lasts_s(self, usd: float) -> float:
        """For how long from now `usd` more than what was charged pay for it; 0 if for no order at all."""
        with self._lock:
            usd += self._paid_usd - self._before_usd
            left_s = self.rental.lasts_s(usd)
        if left_s is None:
            return math.inf if usd + ROUNDING_USD >= self._least_usd else 0.0
        return left_s

    def settle(self) -> float:
        """Charge what is due to somebody; answers how much it is."""
        due = self.due_usd
        with self._lock:
            self._paid_usd += due
        return due

    def again(self) -> None:
        """Another attempt after one that failed; what that one has cost stays due."""
        with self._lock:
            self._before_usd += self.rental.cost_usd()
            self.rental = self._make()

    @property
    def sound(self) -> bool:
        return self.up and self.rental.lost is None


class Rentals:
    """All clusters of one study at one place. Thread-safe: each run takes and gives back its own."""

    def __init__(
        self, provider: Provider, register: Register, keep_s: float, lease_s: float, spot: bool = False
    ) -> None:
        self.provider, self.register = provider, register
        self._keep_s, self._lease_s, self._spot = keep_s, lease_s, spot
        self._idle: list[Held] = []
        self._used: set[Held] = set()
        self._stubborn: list[Held] = []
        self._unassigned_usd = 0.0
        self._changed = threading.Condition()
        self._background: set[threading.Thread] = set()
        self._sweeper: threading.Thread | None = None

    def take(self, type_name: str, count: int, run: str, price: Price) -> Held:
        """A cluster for a run: one that is up and idle, or one yet to `boot`, at about this price.

        When nothing else runs, a kept cluster of another kind has waited in vain and is given back.
        """
        key = (type_name, count, run)
        with self._changed:
            fitting = [held for held in self._idle if held.key == key and held.sound]
            held = fitting[0] if fitting else Held(key, lambda: self._rental(*key), price)
            leaving = [one for one in self._idle if one is not held and (not self._used or not one.sound)]
            self._idle = [one for one in self._idle if one is not held and one not in leaving]
            held.idle_s = None
            self._used.add(held)
        for one in leaving:
            self._in_background(one, "another kind of machine was wanted")
        return held

    def boot(self, held: Held, stopped: threading.Event, affordable: Callable[[], bool]) -> None:
        """Launch a cluster and wait until it can be used; where others have the machines, wait for them.

        Each attempt may cost: none is made before there is money for it, or after the run was stopped.
        """
        give_up_s = time.monotonic() + WAIT_S
        tries = 0
        while not held.up:
            while not affordable() and not stopped.wait(_MONEY_S):
                pass
            try:
                with held.ordering:
                    if stopped.is_set():
                        raise LaunchFailed("It was stopped before machines were ordered.", TRANSIENT)
                    held.rental.launch()
                held.rental.wait_ready()
                held.up = True
            except LaunchFailed as error:
                tries += error.kind == TRANSIENT
                patient = error.kind == CAPACITY and time.monotonic() < give_up_s
                if stopped.is_set() or not (patient or (error.kind == TRANSIENT and tries < _TRIES)):
                    raise
                self._make_room()
                held.again()

    def give_back(self, held: Held, broken: str = "") -> None:
        """After a run: keep a cluster that is sound for the next one, release one that is not."""
        with self._changed:
            if held not in self._used:
                return
            self._used.discard(held)
            keep = not broken and held.sound and self._keep_s > 0
            if keep:
                held.idle_s = time.monotonic()
                self._idle.append(held)
                if self._sweeper is None:
                    self._sweeper = threading.Thread(target=self._sweep, name="prudent-idle", daemon=True)
                    self._sweeper.start()
            self._changed.notify_all()
        if not keep:
            self._in_background(held, broken or "its run is over")

    @property
    def unassigned_usd(self) -> float:
        """What clusters have cost that no run uses: those that wait for one, and those given back."""
        with self._changed:
            return self._unassigned_usd + sum(held.due_usd for held in self._idle)

    def settle_unassigned(self) -> float:
        with self._changed:
            due, self._unassigned_usd = self._unassigned_usd, 0.0
            return due + sum(held.settle() for held in self._idle)

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

    def _make_room(self) -> None:
        """Give idle clusters back, for somebody wants their machines; else wait for a change."""
        with self._changed:
            idle, self._idle = self._idle, []
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
                if not late and not self._idle:
                    self._sweeper = None
                    return
                if not late:
                    oldest_s = min(held.idle_s or now_s for held in self._idle)
                    self._changed.wait(max(0.01, oldest_s + self._keep_s - now_s))
            for held in late:
                self._release(held, "nobody wanted it")

    def _in_background(self, held: Held, why: str) -> None:
        def work() -> None:
            self._release(held, why)
            with self._changed:
                self._background.discard(thread)

        thread = threading.Thread(target=work, name=f"release {held.rental.cluster}")
        with self._changed:  # whoever closes waits for threads that have started
            self._background.add(thread)
            thread.start()

    def _release(self, held: Held, why: str) -> None:
        """Whatever cannot be ended now is left to the reaper and to the switches on the machines."""
        try:
            held.rental.release(why)
        except (PrudentError, OSError) as error:
            _log.warning("%s", error)
            with self._changed:
                self._stubborn.append(held)
        due = held.settle()
        with self._changed:
            self._unassigned_usd += due
            self._changed.notify_all()
