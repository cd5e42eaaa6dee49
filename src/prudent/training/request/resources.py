"""The machines that a request or its caller asks for, and the price of a trial on them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from prudent.cloud.catalog import Catalog, parse_cluster
from prudent.cloud.clusters.autoscaling import ClusterRequest, MachineRange
from prudent.cloud.leases.reaper import reap
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.meter import Meter
from prudent.cloud.providers.provider import Offer, Provider
from prudent.cloud.providers.registry import provider_of
from prudent.core.errors import BadInput
from prudent.core.money import ROUNDING_USD, Price
from prudent.core.units import format_money
from prudent.training.models.output import CLUSTER
from prudent.training.request.request import Instances, Resources, TrainingRequest

if TYPE_CHECKING:
    from prudent.cloud.clusters.spark_cluster import SparkCluster

GPU = "GPU"
LOCAL = "local"
SPARK = "spark"


class RentedMachines(Protocol):
    """Machines rented for a request: types and counts, prices, meter, and a way to end them at once."""

    meter: Meter
    request: ClusterRequest

    def offer(self, type_name: str) -> Offer: ...

    def cores(self) -> dict[str, int]: ...

    def abort(self) -> None: ...


def parse_where(text: str) -> str | dict[str, str]:
    """Parse the option --where: where to rent machines.

    >>> parse_where("local"), parse_where("hosts:inventory.yaml")
    ('local', {'hosts': 'inventory.yaml'})
    """
    name, colon, setting = text.partition(":")
    return {name.strip(): setting.strip()} if colon else name.strip()


def cluster_for_request(
    request: TrainingRequest,
    engine: object,
    master: str | None,
    cluster: str | None,
    where: str | Mapping[str, Any],
    out: Path,
    home: Path | None,
) -> SparkCluster | None:
    """The cluster to rent for a request, or None; only the Spark engine rents, and not beside a master."""
    if engine != SPARK or master is not None:
        if cluster is not None or where != LOCAL:
            raise BadInput(
                "A cluster is rented for the Spark engine only, and not beside a master of one's own; add "
                "--engine spark and leave --master out, or leave --cluster and --where out."
            )
        return None
    found = None if request.dataset is None else requested_cluster(request, cluster, where, out, home)
    if found is None and (where != LOCAL or cluster is not None):
        raise BadInput(
            "There is nothing to rent machines for; give the request a dataset, and computationalResources "
            'or --cluster "3*m5.large".'
        )
    return found


def requested_cluster(
    request: TrainingRequest,
    cluster: str | None,
    where: str | Mapping[str, Any],
    out: Path,
    home: Path | None = None,
) -> SparkCluster | None:
    """The Spark cluster that `cluster` or the request asks for, not started yet; None without one."""
    from prudent.cloud.clusters.spark_cluster import SparkCluster

    resources = request.computational_resources
    if cluster is None and (resources is None or resources == Resources()):
        return None
    register = LeaseRegister(home)
    provider = provider_of(parse_where(where) if isinstance(where, str) else where, register.home, Path.cwd())
    if cluster is not None:
        cluster_request = ClusterRequest.exactly(*parse_cluster(cluster))
        provider.offer(cluster_request.machines[0].type)
    else:
        assert resources is not None
        cluster_request = machines_requested(resources, provider)
    return SparkCluster(
        provider, cluster_request, run=lease_run_name(out), register=register, logs=Path(out) / CLUSTER
    )


def paid_before(work: Path, register: LeaseRegister, provider: Provider, run: str) -> float:
    """What the machines of a request cost in earlier sessions; machines that a killed session left are ended.

    The leases know requests by name; those of an older one with this name are none of ours, so the first
    session notes in `work` when it began.
    """
    note = work / "machines.json"
    if not note.exists():
        note.write_text(json.dumps({"since_s": time.time()}))
        return 0.0
    since_s = float(json.loads(note.read_text())["since_s"])
    reap(register, [provider], time.time())
    leases = [one for one in register.leases() if one.run == run and one.wanted_s >= since_s]
    return sum(lease.cost_usd(time.time()) for lease in leases)


def lease_run_name(out: Path) -> str:
    """By which name the leases of a request know it: its folder's, or of one that is just "models" the one
    around it.

    >>> lease_run_name(Path("/srv/runs/01m7/models")), lease_run_name(Path("digits"))
    ('train-01m7', 'train-digits')
    """
    folder = Path(out).absolute()
    return f"train-{(folder.parent if folder.name == 'models' else folder).name}"


def machines_requested(resources: Resources, provider: Provider) -> ClusterRequest:
    """The machines that a request's computational resources mean at a provider, the cheapest types first.

    Without a maximum nothing is rented beyond the minimum. A type with GPUs is taken only by whom asks for
    them as additional hardware, for they cost much and most algorithms leave them idle. A type that is named
    is taken as it is: GPUs that it does not have are not missed, for no algorithm here needs them.
    """
    catalog = provider_catalog(provider)
    kinds: dict[str, MachineRange] = {}
    for asked in resources.instances or (Instances(),):
        name = _type(asked, catalog)
        before = kinds.get(name, MachineRange(name, 0, 0))
        most = None if asked.max_instances is None else asked.max_instances + (before.most or 0)
        kinds[name] = MachineRange(name, before.least + (asked.min_instances or 0), most)
    prices = {name: provider.offer(name).price.usd_per_h for name in kinds}
    owed = sum(kind.least for kind in kinds.values())
    least = max(resources.min_total_instances or 1, owed, 1)
    known = [kind.most for kind in kinds.values() if kind.most is not None]
    together = sum(known) if len(known) == len(kinds) else None
    most = resources.max_total_instances or together or least
    if together is not None:
        most = min(most, together)
    if most < least:
        raise BadInput(
            f"The request's machines are {least} at least and {most} at most; raise maxTotalInstances or "
            "maxInstances, or lower the minimum."
        )
    return ClusterRequest(
        tuple(sorted(kinds.values(), key=lambda kind: (prices[kind.type], kind.type))), least, most
    )


def _type(asked: Instances, catalog: Catalog) -> str:
    wants = GPU in asked.additional_hardware
    if asked.ec2_instance is None:
        return catalog.cheapest(vcpus=2, memory_gb=4.0, gpus=int(wants)).name
    machine = catalog[asked.ec2_instance]
    if machine.gpus and not wants:
        raise BadInput(
            f'The type "{machine.name}" has GPUs, and the request does not ask for any; add '
            '"additionalHardware": ["GPU"] to it, or name another type.'
        )
    return machine.name


def provider_catalog(provider: Provider) -> Catalog:
    """The machine types of a provider: those of its inventory, or all that are known."""
    own = getattr(provider, "catalog", None)
    if callable(own):
        found: Catalog = own()
        return found
    return Catalog.load(provider.settings.get(LOCAL) or None)


def parallelism_of(cluster: RentedMachines) -> int:
    """The number of trials that keeps the largest cluster busy: one for each core."""
    cores = cluster.cores()
    return max(1, sum(count * cores[name] for name, count in cluster.request.largest().items()))


def cluster_trial_price(cluster: RentedMachines, parallelism: int) -> Price:
    """What an hour of a trial costs on the largest cluster, shared by the trials that run on it at once.

    For forecasts: what is paid is what the meter says.
    """
    counts = cluster.request.largest()
    prices = {name: cluster.offer(name).price for name in counts}
    rate = sum(count * prices[name].usd_per_h for name, count in counts.items()) / parallelism
    first = prices[next(iter(counts))]
    return Price(rate, first.date, f"{first.source} {_text(counts)} / {parallelism}")


def check_payable(cluster: RentedMachines) -> None:
    """BadInput if the rest of the budget does not pay for the smallest cluster."""
    meter, counts = cluster.meter, cluster.request.smallest()
    least_usd = sum(meter.least_usd(cluster.offer(name).price, count) for name, count in counts.items())
    if meter.left_usd + ROUNDING_USD >= least_usd:
        return
    there = f"{format_money(meter.left_usd)} of the budget of {format_money(meter.allowed_usd)} are left"
    raise BadInput(
        f"To rent {_text(counts)} costs {format_money(least_usd)} at least, and {there}; raise the budget to "
        f"{format_money(meter.earlier_usd + least_usd)} or more, or ask for fewer or smaller machines."
    )


def _text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count}*{name}" for name, count in counts.items())


def available_cores() -> int:
    """The processors that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trial_price(request: TrainingRequest, parallelism: int) -> Price:
    """What an hour of a trial costs: the machine's price, shared by the trials that run on it at once.

    The machine is the request's own, or the first that its computational resources name, or the smallest
    general one with a processor for each trial.
    """
    catalog = Catalog.load()
    resources = request.computational_resources
    named = [found.ec2_instance for found in resources.instances] if resources else []
    name = request.machine or next((type_ for type_ in named if type_ in catalog), None)
    roomy = [machine for machine in catalog.machines("m5") if machine.vcpus >= parallelism]
    machine = catalog[name] if name else (roomy or list(catalog.machines("m5"))[-1:])[0]
    rate = machine.price.usd_per_h / parallelism
    # The machine is rented for the request: its billing minimum is not due for every trial.
    return Price(rate, machine.price.date, f"{machine.price.source} {machine.name} / {parallelism}")
