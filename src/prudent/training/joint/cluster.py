"""The machines of a joint search: one Spark cluster at a time, kept while trials want the same one."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from prudent.cloud.clusters.autoscaling import Wish
from prudent.cloud.leases.register import Register
from prudent.cloud.meter import Meter
from prudent.cloud.providers.provider import Provider
from prudent.core.errors import PrudentError
from prudent.core.money import ROUNDING_USD, Price
from prudent.training.engines.engine import TrainingSession
from prudent.training.request.request import TrainingRequest

if TYPE_CHECKING:
    from prudent.cloud.clusters.spark_cluster import SparkCluster

_LOOK_S = 0.05


class Cluster(Protocol):
    """What must be known of machines: whether they can be used. What they cost is the meter's."""

    @property
    def trouble(self) -> str | None:
        """Why they cannot be used any more; None while they can."""

    def abort(self) -> None:
        """Give them back, also while somebody waits for them."""


@dataclass(frozen=True)
class Kind:
    """Machines that a trial wants: how many of a type, and what one costs."""

    type: str
    count: int
    price: Price


Opening = Callable[[Kind, int], tuple[Cluster, Callable[[], TrainingSession]]]
"""Machines of a kind, not ordered yet, and what orders them and gets them ready for trials; the number is
that of the cluster."""


class Place:
    """A cluster with Spark and the data on it, from before it is ordered until it is gone.

    A thread of its own brings it up, and ends the one `before` it first: a process drives one Spark at a
    time. Nothing is ordered before somebody pays (`pay`). `done` is set when it can be used, or never will.
    """

    def __init__(
        self, kind: Kind, cluster: Cluster, opened: Callable[[], TrainingSession], before: Place | None
    ):
        self.kind, self.cluster = kind, cluster
        self.session: TrainingSession | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.ordered = False
        self._wake: Callable[[], None] = lambda: None
        self._opened, self._before = opened, before
        self._paid, self._over = threading.Event(), threading.Event()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._come_up, name="joint search", daemon=True)
        self._thread.start()

    @property
    def sound(self) -> bool:
        """Whether it can be used, or may yet."""
        return self.error is None and not self._over.is_set() and self.cluster.trouble is None

    def notify(self, wake: Callable[[], None]) -> None:
        """Call `wake` when it is `done`, at once if it is."""
        self._wake = wake
        if self.done.is_set():
            wake()

    def pay(self) -> None:
        """There is money for it."""
        self._paid.set()

    def withdraw(self) -> None:
        """Whoever would have paid is gone; if it was not ordered yet it waits for another."""
        self._paid.clear()

    def end(self) -> None:
        """There is no money for it any more: it is closed while whoever says so goes on."""
        threading.Thread(target=self.close, name="joint search, the end", daemon=True).start()

    def close(self) -> None:
        """End it, also while it comes up; returns when it is gone."""
        self._over.set()
        with self._closing:
            if self.ordered and self.session is None:
                with contextlib.suppress(PrudentError):
                    self.cluster.abort()
            self._thread.join()
            session, self.session = self.session, None
            if session is not None:
                session.__exit__(None, None, None)

    def _come_up(self) -> None:
        try:
            if self._before is not None:
                self._before.close()
            self._before = None
            while not self._paid.wait(_LOOK_S) and not self._over.is_set():
                pass
            if not self._over.is_set():
                self.ordered = True
                self.session = self._opened()
        except BaseException as error:  # noqa: BLE001 - told to the trial that waits for it
            self.error = error
        finally:
            self.done.set()
            self._wake()


class Site:
    """Rents what trials want, one after another, and charges them for all that `meter` counts."""

    def __init__(self, opening: Opening, meter: Meter) -> None:
        self._opening, self.meter = opening, meter
        self._settled_usd = meter.spent_usd()
        self._numbers = 0
        self._place: Place | None = None

    def want(self, kind: Kind) -> Place:
        """The machines for a trial: those of the one before if they are the same and sound, or others."""
        before = self._place
        if before is not None and before.kind == kind and before.sound:
            return before
        self._numbers += 1
        cluster, opened = self._opening(kind, self._numbers)
        self._place = Place(kind, cluster, opened, before)
        return self._place

    def lasts_s(self, place: Place, usd: float) -> float:
        """For how long from now `usd` pay for what nobody was charged for yet, and for these machines to
        their end; 0 if they must not be ordered."""
        allowed_usd = self._settled_usd + usd
        if place.ordered:
            return self.meter.lasts_s(allowed_usd)
        least_usd = self.meter.least_usd(place.kind.price, place.kind.count)
        return math.inf if self.meter.committed_usd() + least_usd <= allowed_usd + ROUNDING_USD else 0.0

    def settle(self) -> float:
        """Charge what is due to somebody; answers how much it is."""
        due_usd = max(self.meter.spent_usd() - self._settled_usd, 0.0)
        self._settled_usd += due_usd
        return due_usd

    def close(self) -> None:
        """Give the machines back; later trials may rent again."""
        place, self._place = self._place, None
        if place is not None:
            place.close()

    def end(self) -> None:
        """There is no money for machines any more: end them, whoever uses them."""
        place = self._place
        if place is not None:
            place.close()


@dataclass(frozen=True)
class OnSpark:
    """How Spark clusters come about: where they are rented, for which request.

    `opened` is told of every session, `ready` of every cluster and how long it took.
    """

    request: TrainingRequest
    provider: Provider
    register: Register
    run: str
    work: Path
    logs: Path
    meter: Meter
    ready: Callable[[SparkCluster, float], None]
    opened: Callable[[TrainingSession], None]

    def __call__(self, kind: Kind, number: int) -> tuple[Cluster, Callable[[], TrainingSession]]:
        from prudent.cloud.clusters.spark_cluster import SparkCluster
        from prudent.training.engines.spark.engine import SparkEngine

        wish, logs = Wish.exactly(kind.count, kind.type), self.logs / str(number)
        cluster = SparkCluster(
            self.provider, wish, run=self.run, register=self.register, logs=logs, meter=self.meter
        )

        def opened() -> TrainingSession:
            began_s = time.monotonic()
            self.work.mkdir(parents=True, exist_ok=True)
            engine = SparkEngine(
                cluster=cluster, ready=lambda ready: self.ready(ready, time.monotonic() - began_s)
            )
            session = engine.open(self.request, self.work, 1)
            self.opened(session)
            return session

        return cluster, opened
