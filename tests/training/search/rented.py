"""Machines of a cloud that is only a clock and a book of its own, for tests of budgets.

What the book says is the bill: it knows nothing of leases, meters and ledgers.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prudent.cloud.catalog import Catalog
from prudent.cloud.clusters.autoscaling import ClusterRequest
from prudent.cloud.clusters.rental import Rental
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.meter import Meter
from prudent.cloud.providers.provider import Instance, LaunchOrder, Offer
from prudent.core.errors import RunFailed
from prudent.core.money import Price
from prudent.training.engines.engine import TrainingSession

from .test_search import Clock, Timed

LONG_S = 60.0


@dataclass
class Line:
    """One machine in the cloud's own book."""

    type: str
    since_s: float
    until_s: float | None = None


@dataclass
class Cloud:
    """A provider. A machine boots for `boot_s` and needs `end_s` to end; `usd_per_h` may change."""

    clock: Clock
    usd_per_h: dict[str, float]
    minimum_s: float = 0.0
    boot_s: float = 0.0
    end_s: float = 0.0
    name: str = "cloud"
    orders: list[LaunchOrder] = field(default_factory=list)
    book: dict[str, tuple[Line, Instance, float]] = field(default_factory=dict)
    stubborn: bool = False

    settings: dict[str, str] = field(default_factory=lambda: {"local": ""})

    def bill_usd(self) -> float:
        """What the cloud asks for: each machine from launch to end, for its minimum at least."""
        total_usd = 0.0
        for line, _, rate in self.book.values():
            until_s = self.clock.now_s if line.until_s is None else line.until_s
            total_usd += max(until_s - line.since_s, self.minimum_s) / 3600.0 * rate
        return total_usd

    @property
    def running(self) -> int:
        return sum(line.until_s is None for line, _, _ in self.book.values())

    # The provider

    def _price(self, type_name: str) -> Price:
        return Price(self.usd_per_h[type_name], "2026-01-01", "cloud", self.minimum_s)

    def catalog(self) -> Catalog:
        raise NotImplementedError

    def check(self, types: Sequence[str] = (), spot: bool = False) -> list[str]:
        return []

    def offer(self, type_name: str, spot: bool = False) -> Offer:
        return Offer(type_name, self._price(type_name), 1, 1.0)

    def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        price = self._price(order.type)
        order.check_price(price)
        self.orders.append(order)
        made = []
        for index in range(order.count):
            one = Instance(
                f"{order.cluster}-{index}", self.name, order.type, order.cluster, order.run, order.owner,
                index, "running", "", self.clock.now_s, order.lease_end_s, price,
            )  # fmt: skip
            self.book[one.id] = (Line(order.type, self.clock.now_s), one, price.usd_per_h)
            made.append(one)
        return tuple(made)

    def ready(self, instances: Sequence[Instance], timeout_s: float) -> tuple[Instance, ...]:
        for one in instances:
            self.clock.now_s = max(self.clock.now_s, one.launched_s + self.boot_s)
        return tuple(instances)

    def list(self) -> tuple[Instance, ...]:
        return tuple(one for line, one, _ in self.book.values() if line.until_s is None)

    def renew(self, instances: Sequence[Instance], lease_end_s: float) -> None:
        pass

    def terminate(self, instances: Sequence[Instance]) -> None:
        if self.stubborn:
            raise RunFailed("The cloud does not answer; try again.")
        there = [self.book[one.id][0] for one in instances if self.book[one.id][0].until_s is None]
        if there:
            self.clock.now_s += self.end_s
        for line in there:
            line.until_s = self.clock.now_s

    def channel(self, instance: Instance) -> Any:
        raise NotImplementedError

    def preempted(self, instance: Instance) -> str | None:
        return None


class LookedAt(Meter):
    """A meter that tells how often it was asked how long the money lasts."""

    looks = 0

    def __init__(self, *said: Any, **more: Any) -> None:
        super().__init__(*said, **more)
        self._asked = threading.Condition()

    def lasts_s(self, usd: float | None = None) -> float:
        found = super().lasts_s(usd)
        with self._asked:
            self.looks += 1
            self._asked.notify_all()
        return found

    def wait_for_look(self, closed: threading.Event) -> None:
        """Until somebody has looked who began after this call, or has closed the machines."""
        with self._asked:
            seen = self.looks
            looked = self._asked.wait_for(lambda: self.looks >= seen + 2 or closed.is_set(), LONG_S)
        assert looked, "nobody looks at the money"


class Cluster:
    """The machines of a request, rented one by one under leases."""

    def __init__(self, cloud: Cloud, request: ClusterRequest, folder: Path, budget_usd: float | None) -> None:
        self.cloud, self.request = cloud, request
        self.meter: Meter = LookedAt(budget_usd, clock=lambda: cloud.clock.now_s)
        self._register = LeaseRegister(folder)
        self._rentals: list[Rental] = []
        self.closed = threading.Event()
        self._lock = threading.Lock()

    def offer(self, type_name: str) -> Offer:
        return self.cloud.offer(type_name)

    def cores(self) -> dict[str, int]:
        return {kind.type: 1 for kind in self.request.machines}

    def start(self) -> None:
        for name, count in self.request.smallest().items():
            most = self.meter.most_usd_per_h(self.offer(name).price, count)
            rental = Rental(
                self.cloud, name, count, run="train", register=self._register,
                clock=lambda: self.cloud.clock.now_s,
            )  # fmt: skip
            self._rentals.append(rental)
            self.meter.add(rental)
            rental.launch(most)
        for rental in self._rentals:
            rental.wait_ready()

    def close(self) -> None:
        self.closed.set()
        with self._lock:
            for rental in self._rentals:
                rental.release()

    abort = close


class OnMachines(Timed):
    """The engine of `Timed` on rented machines; to read the data there takes `data_s`.

    With `refits` it can train on all rows, which takes as long as a trial.
    """

    def __init__(self, cluster: Cluster, takes_s: float, data_s: float = 0.0, refits: bool = False) -> None:
        super().__init__(cluster.cloud.clock, takes_s)
        self._cluster, self._data_s, self._refits = cluster, data_s, refits

    def open(self, request: Any, work: Path, parallelism: int) -> TrainingSession:
        cluster = self._cluster
        try:
            cluster.start()
            until_s = self.clock.now_s + self._data_s
            while self.clock.now_s < until_s:
                self.clock.now_s += min(1.0, until_s - self.clock.now_s)
                assert isinstance(cluster.meter, LookedAt)
                cluster.meter.wait_for_look(cluster.closed)
                if cluster.closed.is_set():
                    raise RunFailed("Its machines are gone.")
            session: Any = super().open(request, work, parallelism)
        except BaseException:
            cluster.close()
            raise
        leave = session.pool.shutdown

        def close() -> None:
            cluster.close()
            leave()

        session.pool.shutdown = close
        if self._refits:
            session.test_rows = lambda: None
        opened: TrainingSession = session
        return opened
