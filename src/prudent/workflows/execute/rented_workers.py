"""A crew on rented machines: a Dask scheduler here, a worker on each machine, files carried where needed."""

from __future__ import annotations

import contextlib
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from prudent.cloud.clusters.dask_cluster import DaskCluster, Seat
from prudent.cloud.clusters.dask_node import scheduler
from prudent.cloud.clusters.dask_security import for_workers, made_for_run
from prudent.cloud.leases.lease import Lease
from prudent.cloud.leases.machine_delays import Delays
from prudent.core.errors import BadInput, PrudentError, RunFailed
from prudent.workflows.execute.command import ActivationCommand
from prudent.workflows.execute.money import RentalSource
from prudent.workflows.execute.workers import ActivationReport, VmWorkers, WorkerLost, scratch_folder
from prudent.workflows.fleet import Fleet

_CARRIERS = 8


_START_S = 120.0


_TTL = "60s"
"""A worker that says nothing for so long is taken for lost."""


_FILES, _LOGS = "files", "logs"


class RentedVmWorkers(VmWorkers):
    """Workers on machines. Where these do not see the folder of the run, its files are carried.

    Inputs go to the machine before an activation starts there, outputs come back before its end is told: the
    folder here holds all files, as if it were shared. A machine that files cannot be brought to is lost.
    """

    rents = True

    def __init__(
        self,
        client: Any,
        addresses: Mapping[str, str],
        cluster: DaskCluster,
        directory: Path,
        delays: Delays,
        ordered_s: float,
    ) -> None:
        super().__init__(client, addresses)
        self.ordered_s = ordered_s
        self._cluster, self._directory, self._delays = cluster, directory, delays
        self.carries = not _shared(cluster, directory)
        self._orders: dict[tuple[str, int], ActivationCommand] = {}
        self._carriers = ThreadPoolExecutor(_CARRIERS, thread_name_prefix="carrier")
        self._returners = ThreadPoolExecutor(_CARRIERS, thread_name_prefix="returner")

    def start(self, order: ActivationCommand) -> None:
        if not self.carries:
            super().start(order)
            return
        self._orders[order.activation, order.attempt] = order
        self._carriers.submit(self._bring, order)

    def forget(self, activation: str, attempt: int) -> None:
        self._orders.pop((activation, attempt), None)
        super().forget(activation, attempt)

    def end(self, run: str) -> None:
        self._orders.clear()
        super().end(run)

    def hush(self) -> None:
        self._carriers.shutdown(wait=False, cancel_futures=True)
        self._returners.shutdown(wait=False, cancel_futures=True)
        super().hush()

    def leases(self) -> dict[str, Lease]:
        """The lease of every VM."""
        return self._cluster.leases()

    def give_back(self, vm: str, why: str) -> None:
        """End the worker and the machine, without waiting for it."""
        self.dismiss(vm)
        self._returners.submit(self._end_machine, vm, why)

    def _end_machine(self, vm: str, why: str) -> None:
        begun_s = time.monotonic()
        try:
            self._cluster.give_back(vm, why)
        except (PrudentError, OSError):  # it is tried again when all is closed; the reaper remains
            return
        self._delays.note(self._cluster.provider.name, "give_back", time.monotonic() - begun_s)

    def _bring(self, order: ActivationCommand) -> None:
        channel = self._cluster.hosts[order.vm].channel
        try:
            channel.run(f"mkdir -p {_FILES} {_LOGS}")
            for name in order.inputs:
                if (self._directory / name).exists():
                    channel.put(self._directory / name, f"{_FILES}/{name}")
            if (order.activation, order.attempt) in self._orders:
                place = channel.workspace
                log = f"{place}/{_LOGS}/{Path(order.log).name}"
                super().start(replace(order, directory=f"{place}/{_FILES}", log=log))
        except (PrudentError, OSError):
            self._events.put(WorkerLost(order.vm))

    def _deliver(self, fact: dict[str, Any]) -> None:
        key = fact.get("activation", ""), fact.get("attempt", 0)
        order = self._orders.get(key)
        if not self.carries or order is None or fact["fact"] != "ended":
            super()._deliver(fact)
            return
        self._carriers.submit(self._fetch, order, fact)

    def _fetch(self, order: ActivationCommand, fact: dict[str, Any]) -> None:
        channel = self._cluster.hosts[order.vm].channel
        try:
            for ending in ("out", "err"):
                with contextlib.suppress(PrudentError):
                    log = f"{order.log}.{ending}"
                    channel.get(f"{_LOGS}/{Path(log).name}", Path(log))
            for name in order.outputs if fact.get("outcome") == "done" else ():
                target = self._directory / name
                target.parent.mkdir(parents=True, exist_ok=True)
                channel.get(f"{_FILES}/{name}", target)
        except (PrudentError, OSError):
            self._events.put(WorkerLost(order.vm))
            return
        self._events.put(ActivationReport(fact))


def _shared(cluster: DaskCluster, directory: Path) -> bool:
    """Whether all machines see the folder with the files: they look for one that was made just now."""
    marker = directory / f".prudent-{secrets.token_hex(8)}"
    marker.touch()
    try:
        test = f"[ -w {shlex.quote(str(marker.absolute()))} ]"
        return all(host.channel.run(test)[0] == 0 for host in cluster.hosts.values())
    finally:
        marker.unlink()


class BootTooLong(RunFailed):
    """Machines took so long to come that money or time was over; they were given back."""


@contextlib.contextmanager
def rented_vm_workers(
    fleet: Fleet,
    used: set[str],
    place: RentalSource,
    directory: Path,
    run: str,
    most_usd_per_h: Mapping[str, float],
    most_s: float = threading.TIMEOUT_MAX,
) -> Iterator[RentedVmWorkers]:
    """A crew on machines of the plan's types, none of them dearer than `most_usd_per_h` has it, by VM.

    If they are not up after `most_s`, they are given back: BootTooLong.
    """
    try:
        import dask
        import distributed
    except ModuleNotFoundError:
        raise BadInput(
            'Running workflows needs Dask, which is not installed; install "prudent[workflows]".'
        ) from None
    seats = [
        Seat(vm.name, vm.machine, vm.slots, vm.spot, most_usd_per_h.get(vm.name))
        for vm in fleet.vms
        if vm.name in used
    ]
    cluster = DaskCluster(place.provider, seats, run=run, register=place.register)
    security = made_for_run()
    ordered_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        in_time = stack.enter_context(_given_back_after(cluster, most_s))
        stack.enter_context(cluster)
        stack.enter_context(dask.config.set({"distributed.scheduler.worker-ttl": _TTL}))
        scratch = stack.enter_context(scratch_folder(run))
        here = stack.enter_context(scheduler(scratch, security, cluster.here))
        cluster.start(int(here.scheduler_address.rpartition(":")[2]), for_workers(security))
        connection = distributed.Client(here, set_as_default=False)
        client = stack.enter_context(connection)
        cluster.wait_for(lambda: len(_known(client)), _START_S)
        addresses = {str(info["name"]): address for address, info in _known(client).items()}
        in_time()
        place.delays.note(place.provider.name, "boot", time.monotonic() - ordered_s)
        crew = RentedVmWorkers(client, addresses, cluster, directory, place.delays, ordered_s)
        stack.callback(crew.hush)
        # Workers first, while somebody still listens: a scheduler that goes before them would complain.
        stack.callback(_close, cluster, place.delays)
        yield crew


@contextlib.contextmanager
def _given_back_after(cluster: DaskCluster, most_s: float) -> Iterator[Callable[[], None]]:
    """Machines are given back after a time, wherever their start stands then, unless `in_time` was called."""
    over = threading.Event()

    def give_back() -> None:
        over.set()
        with contextlib.suppress(PrudentError):  # whoever waits for them closes them again, and tells
            cluster.close()

    def in_time() -> None:
        timer.cancel()
        if over.is_set():
            raise BootTooLong("The machines were not up in time.")

    timer = threading.Timer(min(max(most_s, 0.0), threading.TIMEOUT_MAX), give_back)
    timer.daemon = True
    timer.start()
    try:
        yield in_time
    except PrudentError as error:
        if over.is_set():
            raise BootTooLong("The machines were not up in time.") from error
        raise
    finally:
        timer.cancel()


def _close(cluster: DaskCluster, delays: Delays) -> None:
    begun_s = time.monotonic()
    cluster.close()
    delays.note(cluster.provider.name, "give_back", time.monotonic() - begun_s)


def _known(client: Any) -> dict[str, Any]:
    return dict(client.scheduler_info(n_workers=-1)["workers"])
