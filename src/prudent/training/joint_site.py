"""The machines of a joint search: one Spark cluster at a time, kept while trials want the same one."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prudent.cloud.clusters.spark_wish import Wish
from prudent.cloud.leases.register import Register
from prudent.cloud.providers.provider import Provider
from prudent.core.errors import PrudentError
from prudent.core.money import ROUNDING_USD, Price
from prudent.training.engine import Session
from prudent.training.request import TrainingRequest

if TYPE_CHECKING:
    from prudent.cloud.clusters.spark import SparkCluster

CLOSING_S = 5.0
"""Machines are paid for until they are gone: so much is kept back from what a trial may use up."""
_LOOK_S = 0.05

Ready = Callable[["SparkCluster", float], None]


@dataclass(frozen=True)
class Kind:
    """Machines that a trial wants: how many of a type, and what they cost together."""

    type: str
    count: int
    price: Price

    @property
    def least_usd(self) -> float:
        """What they cost at least, however soon they are given back."""
        return self.price.cost_usd(max(self.price.minimum_s, CLOSING_S))


class Place:
    """A cluster with Spark and the data on it, from before it is ordered until it is gone.

    A thread of its own brings it up, and ends the one `before` it first: a process drives one Spark at a
    time. Nothing is ordered before somebody pays (`pay`). `done` is set when it can be used, or never will.
    """

    def __init__(
        self, kind: Kind, cluster: SparkCluster, opened: Callable[[], Session], before: Place | None
    ):
        self.kind, self.cluster = kind, cluster
        self.session: Session | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.ordered_s: float | None = None
        self._opened, self._before = opened, before
        self._paid, self._over = threading.Event(), threading.Event()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._come_up, name="joint search", daemon=True)
        self._thread.start()

    @property
    def sound(self) -> bool:
        """Whether it can be used, or may yet."""
        return self.error is None and not self._over.is_set() and self.cluster.trouble is None

    def pay(self) -> None:
        """There is money for it."""
        self._paid.set()

    def lasts_s(self, usd: float) -> float:
        """For how long from now `usd` more than it has cost pay for it, its end included."""
        if self.kind.price.usd_per_h == 0:
            return math.inf
        if self.ordered_s is None:
            return math.inf if usd + ROUNDING_USD >= self.kind.least_usd else 0.0
        # What the billing minimum has paid for already is its to use.
        spare_s = max(self.kind.price.minimum_s - (time.monotonic() - self.ordered_s), 0.0)
        more_s = usd / self.kind.price.usd_per_h * 3600.0
        return max(spare_s + more_s - CLOSING_S, 0.0)

    def close(self) -> None:
        """End it, also while it comes up; returns when it is gone."""
        self._over.set()
        with self._closing:
            if self.ordered_s is not None and self.session is None:
                with contextlib.suppress(PrudentError):
                    self.cluster.close()
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
                self.ordered_s = time.monotonic()
                self.session = self._opened()
        except BaseException as error:  # noqa: BLE001 - told to the trial that waits for it
            self.error = error
        finally:
            self.done.set()


class Site:
    """Rents what trials want, one after another, and knows what all of it has cost.

    `earlier_usd` is what sessions before this one have paid. `opened` is told of every session, `ready` of
    every cluster.
    """

    def __init__(
        self,
        request: TrainingRequest,
        provider: Provider,
        register: Register,
        run: str,
        work: Path,
        logs: Path,
        earlier_usd: float,
        ready: Ready,
        opened: Callable[[Session], None],
    ) -> None:
        self._request, self._provider, self._register, self._run = request, provider, register, run
        self._work, self._logs = work, logs
        self._ready, self._told = ready, opened
        self._earlier_usd = self._settled_usd = earlier_usd
        self._clusters: list[SparkCluster] = []
        self._place: Place | None = None

    def want(self, kind: Kind) -> Place:
        """The machines for a trial: those of the one before if they are the same and sound, or others."""
        if self._place is not None and self._place.kind == kind and self._place.sound:
            return self._place
        self._place = self._made(kind, self._place)
        return self._place

    def cost_usd(self) -> float:
        """What all machines have cost so far, by the price at their launch."""
        return self._earlier_usd + sum(cluster.cost_usd() for cluster in self._clusters)

    @property
    def due_usd(self) -> float:
        """What nobody was charged for yet."""
        return max(self.cost_usd() - self._settled_usd, 0.0)

    def settle(self) -> float:
        """Charge what is due to somebody; answers how much it is."""
        due_usd = self.due_usd
        self._settled_usd += due_usd
        return due_usd

    def close(self) -> None:
        """Give the machines back; later trials may rent again."""
        place, self._place = self._place, None
        if place is not None:
            place.close()

    def _made(self, kind: Kind, before: Place | None) -> Place:
        from prudent.cloud.clusters.spark import SparkCluster
        from prudent.training.engines.spark.engine import SparkEngine

        self._work.mkdir(parents=True, exist_ok=True)
        began_s = time.monotonic()
        number = len(self._clusters) + 1
        cluster = SparkCluster(
            self._provider,
            Wish.exactly(kind.count, kind.type),
            run=self._run,
            register=self._register,
            logs=self._logs / str(number),
        )
        self._clusters.append(cluster)

        def ready(cluster: SparkCluster) -> None:
            self._ready(cluster, time.monotonic() - began_s)

        def opened() -> Session:
            session = SparkEngine(cluster=cluster, ready=ready).open(self._request, self._work, 1)
            self._told(session)
            return session

        return Place(kind, cluster, opened, before)
