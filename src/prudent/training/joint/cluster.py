"""The machines of a joint search: one Spark cluster at a time, kept while trials need the same size."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from prudent.cloud.clusters.autoscaling import ClusterRequest
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.meter import Meter
from prudent.cloud.providers.provider import Provider
from prudent.core.errors import PrudentError
from prudent.core.money import ROUNDING_USD, Price
from prudent.training.engines.engine import TrainingSession
from prudent.training.request.request import TrainingRequest

if TYPE_CHECKING:
    from prudent.cloud.clusters.spark_cluster import SparkCluster

_POLL_S = 0.05


class ClusterHandle(Protocol):
    """Whether machines can be used, and how to give them back. The meter counts what they cost."""

    @property
    def trouble(self) -> str | None:
        """Why they cannot be used any more; None while they can."""

    def abort(self) -> None:
        """Give them back, also while somebody waits for them."""


@dataclass(frozen=True)
class ClusterSize:
    """The machines of a cluster: their type, how many, and what one costs."""

    type: str
    count: int
    price: Price


ClusterOpener = Callable[[ClusterSize, int], tuple[ClusterHandle, Callable[[], TrainingSession]]]
"""Answers a cluster that is not ordered yet, and the function that orders it and opens a session on it; its
second argument is the number of the cluster."""


class TrainingCluster:
    """A cluster with Spark and the data on it, from before it is ordered until it is gone.

    A thread of its own starts it, and first closes the one `before` it: a process drives one Spark at a time.
    Nothing is ordered before the cost is approved. `done` is set when it can be used, or never will be.
    """

    def __init__(
        self,
        size: ClusterSize,
        handle: ClusterHandle,
        open_session: Callable[[], TrainingSession],
        before: TrainingCluster | None,
    ):
        self.size, self.handle = size, handle
        self.session: TrainingSession | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.ordered = False
        self._wake: Callable[[], None] = lambda: None
        self._open_session, self._before = open_session, before
        self._approved, self._closing_down = threading.Event(), threading.Event()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._start, name="joint search", daemon=True)
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Whether it can be used, or may yet."""
        return self.error is None and not self._closing_down.is_set() and self.handle.trouble is None

    def notify(self, wake: Callable[[], None]) -> None:
        """Call `wake` when it is `done`, at once if it is."""
        self._wake = wake
        if self.done.is_set():
            wake()

    def approve(self) -> None:
        """Allow the order: there is money for it."""
        self._approved.set()

    def withdraw_approval(self) -> None:
        """Withdraw the approval: if it was not ordered yet, it waits for the approval of another trial."""
        self._approved.clear()

    def end(self) -> None:
        """Close it in a thread of its own, because there is no money for it any more."""
        threading.Thread(target=self.close, name="joint search, the end", daemon=True).start()

    def close(self) -> None:
        """End it, also while it starts; returns when it is gone."""
        self._closing_down.set()
        with self._closing:
            if self.ordered and self.session is None:
                with contextlib.suppress(PrudentError):
                    self.handle.abort()
            self._thread.join()
            session, self.session = self.session, None
            if session is not None:
                session.__exit__(None, None, None)

    def _start(self) -> None:
        try:
            if self._before is not None:
                self._before.close()
            self._before = None
            while not self._approved.wait(_POLL_S) and not self._closing_down.is_set():
                pass
            if not self._closing_down.is_set():
                self.ordered = True
                self.session = self._open_session()
        except BaseException as error:  # noqa: BLE001 - told to the trial that waits for it
            self.error = error
        finally:
            self.done.set()
            self._wake()


class SharedCluster:
    """The rented cluster that trials share, one after another, and pay for as `meter` counts."""

    def __init__(self, open_cluster: ClusterOpener, meter: Meter) -> None:
        self._open_cluster, self.meter = open_cluster, meter
        self._settled_usd = meter.spent_usd()
        self._numbers = 0
        self._cluster: TrainingCluster | None = None

    def cluster_for(self, size: ClusterSize) -> TrainingCluster:
        """The cluster for a trial: the current one if it has that size and is usable, or a new one."""
        before = self._cluster
        if before is not None and before.size == size and before.usable:
            return before
        self._numbers += 1
        handle, open_session = self._open_cluster(size, self._numbers)
        self._cluster = TrainingCluster(size, handle, open_session, before)
        return self._cluster

    @property
    def session(self) -> TrainingSession | None:
        """The session on the machines that are there; None where none are, or they cannot be used."""
        cluster = self._cluster
        return cluster.session if cluster is not None and cluster.done.is_set() and cluster.usable else None

    def lasts_s(self, cluster: TrainingCluster, usd: float) -> float:
        """For how long from now `usd` pay for what no trial was charged for yet, and for this cluster to its
        end; 0 if it must not be ordered."""
        allowed_usd = self._settled_usd + usd
        if cluster.ordered:
            return self.meter.lasts_s(allowed_usd)
        least_usd = self.meter.least_usd(cluster.size.price, cluster.size.count)
        return math.inf if self.meter.committed_usd() + least_usd <= allowed_usd + ROUNDING_USD else 0.0

    def settle(self) -> float:
        """Charge what was spent since the last settlement; answers how much it is."""
        due_usd = max(self.meter.spent_usd() - self._settled_usd, 0.0)
        self._settled_usd += due_usd
        return due_usd

    def close(self) -> None:
        """Give the machines back; later trials may rent again."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def end(self) -> None:
        """End the machines, used or not, because there is no money for them any more."""
        cluster = self._cluster
        if cluster is not None:
            cluster.close()


@dataclass(frozen=True)
class SparkClusterOpener:
    """Rents Spark clusters for one request at one provider, and opens a training session on each.

    `session_opened` is called with every session, `ready` with every cluster and the time it took.
    """

    request: TrainingRequest
    provider: Provider
    register: LeaseRegister
    run: str
    work: Path
    logs: Path
    meter: Meter
    ready: Callable[[SparkCluster, float], None]
    session_opened: Callable[[TrainingSession], None]

    def __call__(self, size: ClusterSize, number: int) -> tuple[ClusterHandle, Callable[[], TrainingSession]]:
        from prudent.cloud.clusters.spark_cluster import SparkCluster
        from prudent.training.engines.spark.engine import SparkEngine

        machines, logs = ClusterRequest.exactly(size.count, size.type), self.logs / str(number)
        handle = SparkCluster(
            self.provider,
            machines,
            run=self.run,
            register=self.register,
            logs=logs,
            meter=self.meter,
        )

        def open_session() -> TrainingSession:
            began_s = time.monotonic()
            self.work.mkdir(parents=True, exist_ok=True)
            engine = SparkEngine(
                cluster=handle, ready=lambda ready: self.ready(ready, time.monotonic() - began_s)
            )
            session = engine.open(self.request, self.work, 1)
            self.session_opened(session)
            return session

        return handle, open_session
