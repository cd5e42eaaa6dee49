"""Dask workers on rented machines, each with the name of the VM that it stands for."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from prudent.cloud.clusters.cluster_host import ClosedOnExit, callback_port, own_address, probe
from prudent.cloud.clusters.dask_node import WORKER_ARGUMENTS
from prudent.cloud.clusters.rental import LEASE_S, READY_S, Rental
from prudent.cloud.leases.lease import Lease
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.channel import Channel, RemoteProcess, concurrently, on_all
from prudent.cloud.providers.provider import Instance, Provider
from prudent.core.errors import PrudentError, RunFailed

_LOG = "dask.log"
_MODULES = ("distributed", "prudent")
_PACKAGE = "prudent[workflows]"


@dataclass(frozen=True)
class DaskWorkerSpec:
    """A worker that is wanted: its name, its machine's type, and how many tasks it takes at once.

    At a price above `most_usd_per_h` its machine is not launched.
    """

    name: str
    type: str
    threads: int = 1
    spot: bool = False
    most_usd_per_h: float | None = None


@dataclass(frozen=True, eq=False)
class DaskHost:
    """The machine of one seat."""

    seat: DaskWorkerSpec
    instance: Instance
    channel: Channel
    python: str
    address: str
    caller: str


class DaskCluster(ClosedOnExit):
    """Machines for some seats, and a Dask worker on each; all gone at the end of the `with` block.

    The scheduler is the caller's: it listens at `here`, the address of this computer in the network of the
    machines, and `start` brings up the workers that connect to it.
    """

    def __init__(
        self,
        provider: Provider,
        seats: Sequence[DaskWorkerSpec],
        *,
        run: str,
        register: LeaseRegister,
        lease_s: float = LEASE_S,
        ready_s: float = READY_S,
    ) -> None:
        self.provider, self.seats = provider, tuple(seats)
        self.hosts: dict[str, DaskHost] = {}
        leased: dict[str, Any] = {"run": run, "register": register, "lease_s": lease_s, "ready_s": ready_s}
        # A lease for each: a machine that is lost must not concern the leases of the others.
        self._rentals = {Rental(provider, seat.type, spot=seat.spot, **leased): seat for seat in self.seats}
        self._processes: dict[str, RemoteProcess] = {}

    @property
    def here(self) -> str:
        """The address at which this computer listens: only that of the network in which the machines are."""
        return own_address(next(iter(self.hosts.values())).instance.address)

    def cost_usd(self) -> float:
        return sum(rental.cost_usd() for rental in self._rentals)

    def leases(self) -> dict[str, Lease]:
        """The lease of each seat whose machine was ordered."""
        return {seat.name: rental.lease for rental, seat in self._rentals.items() if rental.ordered}

    def give_back(self, name: str, why: str = "its part is done") -> None:
        """End the worker and the machine of one seat; the others go on. Done twice, the first time counts."""
        process = self._processes.pop(name, None)
        if process is not None:
            _ended(process)
        next(rental for rental, seat in self._rentals.items() if seat.name == name).release(why)

    def rent(self) -> Self:
        """Launch all machines side by side, and find out their addresses and their Python."""
        try:
            for name, spot in dict.fromkeys((seat.type, seat.spot) for seat in self.seats):
                self.provider.offer(name, spot)  # an unknown type, before anything is paid
            for host in concurrently(self._rented, list(self._rentals)):
                self.hosts[host.seat.name] = host
        except BaseException:
            self.close()
            raise
        return self

    def _rented(self, rental: Rental) -> DaskHost:
        seat = self._rentals[rental]
        [instance] = rental.launch(seat.most_usd_per_h).wait_ready().instances
        with callback_port(instance.address) as knocked:
            found = probe(instance, rental.channel(), knocked, {}, _MODULES, _PACKAGE)
        place = found["python"], found["address"], found["caller"]
        return DaskHost(seat, instance, rental.channel(), *place)

    def start(self, port: int, certificates: Mapping[str, str]) -> None:
        """Start the workers of the scheduler at a port of this computer; it lets them in by certificate."""

        def start(host: DaskHost) -> RemoteProcess:
            seat, caller = host.seat, f"[{host.caller}]" if ":" in host.caller else host.caller
            told = {"scheduler": f"tls://{caller}:{port}", "name": seat.name, "threads": seat.threads}
            told |= {"host": host.address, "certificates": dict(certificates)}
            command = f"exec {shlex.quote(host.python)} -m prudent.cloud.clusters.dask_node > {_LOG} 2>&1"
            # No file of the machine holds the key, nor can others see it: it ends with the worker.
            return host.channel.start(command, {WORKER_ARGUMENTS: json.dumps(told)})

        hosts = list(self.hosts.values())
        for host, process in zip(hosts, concurrently(start, hosts), strict=True):
            self._processes[host.seat.name] = process

    def check(self) -> None:
        """RunFailed if a worker has ended; its last words say why."""
        for name, process in self._processes.items():
            if process.wait(0) is not None:
                host = self.hosts[name]
                _, said, _ = host.channel.run(f"tail -n 3 {_LOG}")
                why = " ".join(said.split())[-300:] or "it said nothing"
                raise RunFailed(f"The worker for {name} on {host.instance.id} did not start ({why}).")

    def wait_for(self, count: Callable[[], int], timeout_s: float) -> None:
        """Wait until so many workers as there are seats are counted."""
        until = time.monotonic() + timeout_s
        while count() < len(self.seats):
            self.check()
            if time.monotonic() > until:
                raise RunFailed(
                    f"{count()} of {len(self.seats)} workers reached the scheduler within {timeout_s:.0f} s; "
                    "see whether a firewall is between the machines and this computer."
                )
            time.sleep(0.1)

    def close(self) -> None:
        """End the workers with all that they started, then the machines."""
        processes = list(self._processes.values())
        concurrently(_ended, processes)
        on_all(Rental.release, list(self._rentals))

    def __enter__(self) -> Self:
        return self.rent()


def _ended(process: RemoteProcess) -> None:
    with contextlib.suppress(PrudentError):
        process.end(grace_s=0.0)
    for stream in (process.stdout, process.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.close()
