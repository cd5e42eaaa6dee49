"""Workers on rented machines: a Dask scheduler here, a worker on each machine, files copied where needed."""

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

from prudent.cloud.clusters.dask_cluster import DaskCluster, DaskWorkerSpec
from prudent.cloud.clusters.dask_node import scheduler, security_of_run, worker_certificates
from prudent.cloud.leases.lease import Lease
from prudent.cloud.leases.machine_delays import DelayRecords
from prudent.core.errors import PrudentError, RunFailed
from prudent.workflows.execute.command import ActivationRequest
from prudent.workflows.execute.money import RentalSource
from prudent.workflows.execute.workers import (
    ActivationReport,
    VmWorkers,
    WorkerLost,
    require_dask,
    scratch_folder,
)
from prudent.workflows.fleet import Fleet

_COPIERS = 8


_START_S = 120.0


_TTL = "60s"
"""A worker without a heartbeat for so long is lost."""


_FILES, _LOGS = "files", "logs"


class RentedVmWorkers(VmWorkers):
    """Workers on rented machines. Files are copied if the machines do not share the folder of the run.

    Inputs go to the machine before an activation starts there, outputs come back before its end is told: the
    folder here holds all files, as if it were shared. A machine to which files cannot be copied is lost.
    """

    are_rented = True

    def __init__(
        self,
        client: Any,
        addresses: Mapping[str, str],
        cluster: DaskCluster,
        directory: Path,
        delays: DelayRecords,
        ordered_s: float,
    ) -> None:
        super().__init__(client, addresses)
        self.ordered_s = ordered_s
        self._cluster, self._directory, self._delays = cluster, directory, delays
        self.copies_files = not _shared(cluster, directory)
        self._requests: dict[tuple[str, int], ActivationRequest] = {}
        self._copiers = ThreadPoolExecutor(_COPIERS, thread_name_prefix="carrier")
        self._returners = ThreadPoolExecutor(_COPIERS, thread_name_prefix="returner")

    def start(self, request: ActivationRequest) -> None:
        if not self.copies_files:
            super().start(request)
            return
        self._requests[request.activation, request.attempt] = request
        self._copiers.submit(self._copy_inputs, request)

    def forget_attempt(self, activation: str, attempt: int) -> None:
        self._requests.pop((activation, attempt), None)
        super().forget_attempt(activation, attempt)

    def end_run(self, run: str) -> None:
        self._requests.clear()
        super().end_run(run)

    def stop_listening(self) -> None:
        self._copiers.shutdown(wait=False, cancel_futures=True)
        self._returners.shutdown(wait=False, cancel_futures=True)
        super().stop_listening()

    def leases(self) -> dict[str, Lease]:
        """The lease of every VM."""
        return self._cluster.leases()

    def give_back(self, vm: str, why: str) -> None:
        """End the worker and the machine, without waiting for it."""
        self.forget_vm(vm)
        self._returners.submit(self._end_machine, vm, why)

    def _end_machine(self, vm: str, why: str) -> None:
        begun_s = time.monotonic()
        try:
            self._cluster.give_back(vm, why)
        except (PrudentError, OSError):  # it is tried again when all is closed; the reaper remains
            return
        self._delays.note(self._cluster.provider.name, "give_back", time.monotonic() - begun_s)

    def _copy_inputs(self, request: ActivationRequest) -> None:
        channel = self._cluster.hosts[request.vm].channel
        try:
            channel.run(f"mkdir -p {_FILES} {_LOGS}")
            for name in request.inputs:
                if (self._directory / name).exists():
                    channel.put(self._directory / name, f"{_FILES}/{name}")
            if (request.activation, request.attempt) in self._requests:
                place = channel.workspace
                log = f"{place}/{_LOGS}/{Path(request.log).name}"
                super().start(replace(request, directory=f"{place}/{_FILES}", log=log))
        except (PrudentError, OSError):
            self._events.put(WorkerLost(request.vm))

    def _put_report(self, fact: dict[str, Any]) -> None:
        key = fact.get("activation", ""), fact.get("attempt", 0)
        request = self._requests.get(key)
        if not self.copies_files or request is None or fact["fact"] != "ended":
            super()._put_report(fact)
            return
        self._copiers.submit(self._copy_outputs, request, fact)

    def _copy_outputs(self, request: ActivationRequest, fact: dict[str, Any]) -> None:
        channel = self._cluster.hosts[request.vm].channel
        try:
            for ending in ("out", "err"):
                with contextlib.suppress(PrudentError):
                    log = f"{request.log}.{ending}"
                    channel.get(f"{_LOGS}/{Path(log).name}", Path(log))
            for name in request.outputs if fact.get("outcome") == "done" else ():
                target = self._directory / name
                target.parent.mkdir(parents=True, exist_ok=True)
                channel.get(f"{_FILES}/{name}", target)
        except (PrudentError, OSError):
            self._events.put(WorkerLost(request.vm))
            return
        self._events.put(ActivationReport(fact))


def _shared(cluster: DaskCluster, directory: Path) -> bool:
    """Whether all machines share the folder: they look for a file that was just made there."""
    marker = directory / f".prudent-{secrets.token_hex(8)}"
    marker.touch()
    try:
        test = f"[ -w {shlex.quote(str(marker.absolute()))} ]"
        return all(host.channel.run(test)[0] == 0 for host in cluster.hosts.values())
    finally:
        marker.unlink()


class BootTooLong(RunFailed):
    """Machines took so long to boot that money or time was over; they were given back."""


@contextlib.contextmanager
def rented_vm_workers(
    fleet: Fleet,
    used: set[str],
    source: RentalSource,
    directory: Path,
    run: str,
    most_usd_per_h: Mapping[str, float],
    most_s: float = threading.TIMEOUT_MAX,
) -> Iterator[RentedVmWorkers]:
    """Workers on machines of the plan's types, each at most at its price in `most_usd_per_h` (by VM).

    If they are not up after `most_s`, they are given back: BootTooLong.
    """
    require_dask()
    import dask
    import distributed

    specs = _worker_specs(fleet, used, most_usd_per_h)
    cluster = DaskCluster(source.provider, specs, run=run, register=source.register)
    security = security_of_run()
    ordered_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        in_time = stack.enter_context(_given_back_after(cluster, most_s))
        stack.enter_context(cluster)
        stack.enter_context(dask.config.set({"distributed.scheduler.worker-ttl": _TTL}))
        scratch = stack.enter_context(scratch_folder(run))
        here = stack.enter_context(scheduler(scratch, security, cluster.here))
        cluster.start(int(here.scheduler_address.rpartition(":")[2]), worker_certificates(security))
        connection = distributed.Client(here, set_as_default=False)
        client = stack.enter_context(connection)
        cluster.wait_for(lambda: len(_known(client)), _START_S)
        addresses = {str(info["name"]): address for address, info in _known(client).items()}
        in_time()
        source.delays.note(source.provider.name, "boot", time.monotonic() - ordered_s)
        workers = RentedVmWorkers(client, addresses, cluster, directory, source.delays, ordered_s)
        stack.callback(workers.stop_listening)
        # Workers first, while somebody still listens: a scheduler that goes before them would complain.
        stack.callback(_close, cluster, source.delays)
        yield workers


def _worker_specs(fleet: Fleet, used: set[str], most_usd_per_h: Mapping[str, float]) -> list[DaskWorkerSpec]:
    return [
        DaskWorkerSpec(vm.name, vm.machine, vm.slots, vm.spot, most_usd_per_h.get(vm.name))
        for vm in fleet.vms
        if vm.name in used
    ]


@contextlib.contextmanager
def _given_back_after(cluster: DaskCluster, most_s: float) -> Iterator[Callable[[], None]]:
    """Give machines back after `most_s`, whatever the state of their start, unless `in_time` was called."""
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


def _close(cluster: DaskCluster, delays: DelayRecords) -> None:
    begun_s = time.monotonic()
    cluster.close()
    delays.note(cluster.provider.name, "give_back", time.monotonic() - begun_s)


def _known(client: Any) -> dict[str, Any]:
    return dict(client.scheduler_info(n_workers=-1)["workers"])
