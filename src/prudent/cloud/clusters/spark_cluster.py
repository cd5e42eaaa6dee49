"""A standalone Spark cluster on rented machines: there for one run, and gone with it."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from prudent.cloud.clusters.autoscaling import ClusterRequest
from prudent.cloud.clusters.cluster_host import (
    ClosedOnExit,
    DistributedFiles,
    SparkHost,
    callback_port,
    host_sees_files,
    host_shares_folder,
    is_loopback,
    own_address,
    prepare,
)
from prudent.cloud.clusters.host_program import PYTHON
from prudent.cloud.clusters.rental import LEASE_S, READY_S, Rental
from prudent.cloud.clusters.rental_pool import RentalPool
from prudent.cloud.clusters.spark_java import (
    AT,
    REGISTERED,
    UI,
    SparkDaemon,
    class_archive_options,
    class_archive_path,
    decommission,
    page_at,
    start_master,
    start_worker,
)
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.meter import Meter
from prudent.cloud.providers.channel import LOST, attempts, concurrently
from prudent.cloud.providers.provider import CAPACITY, QUOTA, LaunchFailed, Offer, Provider
from prudent.core.errors import PrudentError, RunFailed

_DAEMON_S, _STOP_S = 120.0, 30.0
_RESTARTS = 3
_COMMON = {"spark.authenticate": "true", "spark.ui.killEnabled": "false"}
# What asks for no secret takes no orders: neither jobs, nor the end of workers.
_NO_ORDERS = {"spark.master.rest.enabled": "false", "spark.master.ui.decommission.allow.mode": "DENY"}


@dataclass(eq=False)
class _Worker:
    host: SparkHost
    rental: Rental
    daemon: SparkDaemon
    restarts: int = 0


class SparkCluster(ClosedOnExit):
    """A master and workers on machines of a provider, as many as a request says.

        request = ClusterRequest.exactly(3, "m5.large")
        with SparkCluster(provider, request, run="digits", register=register, logs=logs) as cluster:
            cluster.master, cluster.ui, cluster.options, cluster.environment

    `start` returns when the least number of workers is registered; `grow` and `shrink` change it by one
    machine; `close` ends everything. Each may be called from any thread. `meter` counts what the machines
    cost; none is ordered at a price for which the meter has no money left.
    """

    def __init__(
        self,
        provider: Provider,
        request: ClusterRequest,
        *,
        run: str,
        register: LeaseRegister,
        logs: Path,
        spot: bool = False,
        lease_s: float = LEASE_S,
        ready_s: float = READY_S,
        meter: Meter | None = None,
    ) -> None:
        self.provider, self.request, self.run, self.spot = provider, request, run, spot
        self.meter = meter or Meter()
        self.stop_driver: Callable[[], None] | None = None
        """What ends a driver that waits for these machines, while it could wait for them in vain."""
        self._logs = Path(logs)
        self._rentals = RentalPool(provider, register, run, spot, lease_s, ready_s, self.meter)
        self._secret = secrets.token_hex(32)
        self._workers: list[_Worker] = []
        self._master: SparkDaemon | None = None
        self._first: SparkHost | None = None
        self._first_rental: Rental | None = None
        self._carried: DistributedFiles | None = None
        self.refused: dict[str, str] = {}
        self._closing = threading.Event()
        self._lock = threading.RLock()
        self._changing = threading.Lock()
        self._said = {AT: "", UI: ""}
        self._numbers = 0

    # What it is

    @property
    def master(self) -> str:
        """The address for drivers, spark://…"""
        return self._said[AT]

    @property
    def ui(self) -> str:
        """The address of the master's pages."""
        return self._said[UI]

    @property
    def here(self) -> bool:
        """Whether all of it runs on this computer, which then shares its files."""
        return self._first is None or self._first.here

    @property
    def closing(self) -> bool:
        """Whether its end has begun."""
        return self._closing.is_set()

    @property
    def held(self) -> dict[str, int]:
        """Machines that are paid for now, by type: also those that are coming or going."""
        return self._rentals.held

    @property
    def workers(self) -> int:
        """Workers that are registered."""
        with self._lock:
            return len(self._workers)

    @property
    def text(self) -> str:
        """As people write it: 2*m5.large, 1*m5.xlarge."""
        return ", ".join(f"{count}*{name}" for name, count in self.held.items())

    def cores(self) -> dict[str, int]:
        """The cores of a machine, by type."""
        return {machine.type: self.offer(machine.type).vcpus for machine in self.request.machines}

    def offer(self, type_name: str) -> Offer:
        return self._rentals.offer(type_name)

    def cost_usd(self, now_s: float | None = None) -> float:
        """What its machines have cost: each from its launch to its release, or until now."""
        return self._rentals.cost_usd(now_s)

    @property
    def trouble(self) -> str | None:
        """Why it cannot be used any more; None while it can."""
        if self._master is not None and self._master.ended() is not None and not self._closing.is_set():
            return "The Spark master is gone"
        return None if self._first_rental is None else self._first_rental.lost

    @property
    def options(self) -> dict[str, str]:
        """Settings for a driver on this computer."""
        assert self._first is not None, "start it first"
        caller = self._first.caller
        most = self.request.most * max(self.cores().values())
        heap_mb = min([worker.host.heap_mb for worker in self._workers], default=self._first.heap_mb)
        java = "-XX:-UsePerfData -Djava.io.tmpdir=."
        if self.here:
            kept = class_archive_path(self._first.java_home, self._first.spark_home)
            java = f"{java} {class_archive_options(kept)}".strip()
        options = {
            **_COMMON,
            "spark.driver.host": caller,
            "spark.driver.bindAddress": own_address(self._first.instance.address),
            "spark.executor.memory": f"{heap_mb}m",
            "spark.executor.extraJavaOptions": java,
            "spark.default.parallelism": str(max(2, most)),
            "spark.decommission.enabled": "true",
            "spark.storage.decommission.enabled": "true",
        }
        return options if self.here else {**options, "spark.network.crypto.enabled": "true"}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a driver: Python, and the secret, which no list of processes may show."""
        own = {"_SPARK_AUTH_SECRET": self._secret, "PYSPARK_PYTHON": PYTHON}
        return {**own, "SPARK_LOCAL_IP": "127.0.0.1"} if self.here else own

    # Its life

    def start(self) -> Self:
        """Rent the least number of machines, start Spark there, wait until all workers are registered."""
        try:
            with self._changing:
                self._logs.mkdir(parents=True, exist_ok=True)
                hosts = self._rent_least()
                first_host, self._first_rental = hosts[0]
                self._first = first_host
                self._master = start_master(first_host, self._secret, self._settings(), self._log("master"))
                # From here on it takes workers, once it is through with its pages; they need longer to start.
                self._said[AT] = self._master.wait_for(AT, _DAEMON_S, self._closing.is_set)
                self._start_workers(hosts)
                page = self._master.wait_for(UI, _DAEMON_S, self._closing.is_set)
                self._said[UI] = page_at(page, first_host.address)
        except BaseException:
            self.close()
            raise
        return self

    def grow(self, type_name: str) -> bool:
        """One machine more of a type, ready for work; False if it could not be had (see `refused`)."""
        with self._changing:
            if self._closing.is_set() or self.request.next_type(self.held) is None:
                return False
            try:
                rented = self._rentals.rent(type_name, self._rentals.price_ceiling(type_name))
                self._start_workers([self._prepared(rented)])
            except PrudentError as error:
                self.refused[type_name] = str(error)
                return False
            return True

    def shrink(self, type_name: str) -> bool:
        """Give one machine of a type back; False if there is none that may go."""
        with self._changing:
            with self._lock:
                spare = [
                    worker
                    for worker in self._workers
                    if self._rentals.type_of(worker.rental) == type_name and worker.host is not self._first
                ]
                if not spare or self._closing.is_set() or not self.request.spare(self.held):
                    return False
                chosen = spare[-1]
                self._workers.remove(chosen)
            self._let_go(chosen)
            return True

    def mend(self) -> int:
        """Start workers again that ended, and give up those whose machine is gone; answers how many went."""
        gone = 0
        with self._lock:
            ended = [worker for worker in self._workers if worker.daemon.ended() is not None]
        for worker in ended:
            if self._closing.is_set():
                break
            with self._changing, contextlib.suppress(PrudentError):
                if worker.daemon.ended() != LOST and worker.restarts < _RESTARTS:
                    worker.restarts += 1
                    worker.daemon = self._worker(worker.host)
                    continue
                with self._lock:
                    self._workers.remove(worker)
                gone += 1
                self._rentals.give_back(worker.rental)
        return gone

    def reached(self, parts: Sequence[Path], work: Path) -> list[Path]:
        """Paths under which every machine finds these files, machines that come later included.

        Files that a machine does not see by itself are streamed to it; links for them are made in `work`.
        """
        with self._changing:
            hosts = [worker.host for worker in self._workers]
            if all(concurrently(lambda host: host_sees_files(host, parts), hosts)):
                return list(parts)
            self._carried = DistributedFiles(parts, work)
            concurrently(self._carried.bring, hosts)
            return self._carried.paths

    def shares(self, folder: Path) -> bool:
        """Whether what a machine writes to a folder is written to that folder here."""
        return all(concurrently(lambda worker: host_shares_folder(worker.host, folder), list(self._workers)))

    def close(self) -> None:
        """End everything. Whoever is starting something meanwhile is stopped, and waited for."""
        begun_s = time.monotonic()
        self._closing.set()
        self._end()
        self.meter.note_release_time(time.monotonic() - begun_s)
        if self._changing.acquire(timeout=_STOP_S):
            try:
                self._end()  # what was being started a moment ago
            finally:
                self._changing.release()

    def abort(self) -> None:
        """End everything, and first of all what costs money, though a driver may be waiting for it."""
        try:
            self.close()
        finally:
            if (stop_driver := self.stop_driver) is not None:
                stop_driver()

    def _end(self) -> None:
        with self._lock:
            workers = list(self._workers)
            self._workers.clear()
        # At once, and before the machines: they would give each Java time for a farewell.
        daemons = [worker.daemon for worker in workers]
        concurrently(lambda one: one.end(), [*daemons, *([self._master] if self._master else [])])
        if (carried := self._carried) is not None:
            carried.close()
            with contextlib.suppress(PrudentError):
                concurrently(lambda worker: carried.forget(worker.host), workers)
        self._rentals.close()

    def __enter__(self) -> Self:
        return self.start()

    def _rent_least(self) -> list[tuple[SparkHost, Rental]]:
        rented: list[Rental] = []
        while (missing := self.request.needed(self.held, self.refused)) is not None:
            type_name, count = missing
            # An unknown type is told here, before anything is written or paid.
            most_usd_per_h = self._rentals.price_ceiling(type_name, count)
            rent = partial(self._rentals.rent, most_usd_per_h=most_usd_per_h)
            for answer in attempts(rent, [type_name] * count):
                if isinstance(answer, Rental):
                    rented.append(answer)
                elif isinstance(answer, LaunchFailed) and answer.kind in (CAPACITY, QUOTA):
                    self.refused[type_name] = str(answer)
                else:
                    raise answer
        if sum(self.held.values()) < self.request.least:
            why = "; ".join(said.rstrip(".") for said in self.refused.values()) or "none is offered"
            raise RunFailed(
                f"{self.request.least} machines are needed at least, and could not be had: {why}; ask for "
                "fewer, or name other types."
            )
        return concurrently(self._prepared, rented)

    def _prepared(self, rental: Rental) -> tuple[SparkHost, Rental]:
        """The machine of a rental, made ready; it is given back if it cannot be used."""
        offer, [instance] = self.offer(self._rentals.type_of(rental)), rental.instances
        only_here = is_loopback(instance.address)
        # Machines on one computer share its memory, whatever their types say.
        sharing = self.request.most if only_here else 1
        try:
            with callback_port(instance.address) as knocked:
                host = prepare(instance, rental.channel(), offer, knocked, sharing)
            if self._workers:
                least_mb = min(worker.host.heap_mb for worker in self._workers)
                host = replace(host, heap_mb=max(host.heap_mb, least_mb))
            if self._carried is not None:
                self._carried.bring(host)
        except BaseException:
            self._rentals.give_back(rental)
            raise
        return host, rental

    def _start_workers(self, hosts: Sequence[tuple[SparkHost, Rental]]) -> None:
        started = [_Worker(host, rental, self._worker(host)) for host, rental in hosts]
        with self._lock:
            self._workers += started
        try:
            for worker in started:
                worker.daemon.wait_for(REGISTERED, _DAEMON_S, self._closing.is_set)
        except BaseException:
            with self._lock:
                self._workers = [worker for worker in self._workers if worker not in started]
            for worker in started:
                worker.daemon.end()
            for _, rental in hosts:
                self._rentals.give_back(rental)
            raise

    def _worker(self, host: SparkHost) -> SparkDaemon:
        self._numbers += 1
        return start_worker(
            host, self.master, self._secret, self._settings(), self._log(f"worker-{self._numbers}")
        )

    def _let_go(self, worker: _Worker) -> None:
        with contextlib.suppress(PrudentError):
            decommission(worker.host)
            if self._carried is not None:
                self._carried.forget(worker.host)
        worker.daemon.end()
        self._rentals.give_back(worker.rental)

    def _settings(self) -> Mapping[str, str]:
        common = {**_COMMON, **_NO_ORDERS, "spark.decommission.enabled": "true"}
        return common if self.here else {**common, "spark.network.crypto.enabled": "true"}

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def __repr__(self) -> str:
        return f"<SparkCluster {self.text or 'of no machines'} at {self.provider.name}>"
