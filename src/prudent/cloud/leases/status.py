"""The status of every cluster: what the register says, next to what the providers see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from prudent.cloud.catalog import cluster_text
from prudent.cloud.leases.lease import RELEASED, Lease
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.provider import Instance, Provider
from prudent.core.errors import PrudentError

UNRECORDED, FOREIGN = "unrecorded", "foreign"
"""Machines that no lease knows; machines of another register, which are another's to end."""


@dataclass(frozen=True)
class ClusterStatus:
    """One cluster: its lease, if there is one, and its machines, as far as anybody sees them."""

    cluster: str
    run: str
    place: str
    type: str
    count: int
    state: str
    held: bool | None
    """Whether its run lives; None where nobody here can tell."""
    since_s: float
    lease_end_s: float
    machines: tuple[Instance, ...]
    cost_usd: float
    usd_per_h: float

    @property
    def text(self) -> str:
        return cluster_text(self.count, self.type)

    def to_dict(self, now_s: float) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "cluster": self.cluster,
            "run": self.run,
            "place": self.place,
            "type": self.type,
            "count": self.count,
            "state": self.state,
            "held": self.held,
            "age_s": max(now_s - self.since_s, 0.0),
            "cost_usd": self.cost_usd,
            "price_usd_per_h": self.usd_per_h,
            "lease_end_s": self.lease_end_s,
            "lease_left_s": self.lease_end_s - now_s,
            "machines": [
                {
                    "id": one.id,
                    "index": one.index,
                    "state": one.state,
                    "address": one.address,
                    "zone": one.zone,
                    "spot": one.spot,
                    "age_s": max(now_s - one.launched_s, 0.0),
                }
                for one in self.machines
            ],
        }


def cluster_statuses(
    register: LeaseRegister, providers: Iterable[Provider], now_s: float
) -> tuple[tuple[ClusterStatus, ...], tuple[str, ...]]:
    """Every cluster that is recorded or seen and not gone, oldest first; and complaints of providers."""
    leases, complaints = register.survey()
    said = list(complaints)
    seen: dict[str, dict[str, Instance]] = defaultdict(dict)
    for provider in providers:
        try:
            for one in provider.list():
                seen[one.cluster][one.id] = one
        except (PrudentError, OSError) as error:
            said.append(f"{provider.name}: {error}")
    found = []
    for lease in leases:
        machines = tuple(seen.pop(lease.cluster, {}).values())
        if lease.state != RELEASED or machines:
            found.append(_recorded(lease, machines, now_s))
    found += [_unrecorded(register.owner, tuple(some.values()), now_s) for some in seen.values() if some]
    return tuple(sorted(found, key=lambda one: (one.since_s, one.cluster))), tuple(said)


def _recorded(lease: Lease, machines: tuple[Instance, ...], now_s: float) -> ClusterStatus:
    known = {one.id for one in lease.machines}
    late_usd = sum(_cost_usd(one, now_s) for one in machines if one.id not in known)
    return ClusterStatus(
        cluster=lease.cluster,
        run=lease.run,
        place=lease.provider,
        type=lease.order.type,
        count=lease.order.count,
        state=lease.state,
        held=lease.holder.alive,
        since_s=lease.launched_s or lease.wanted_s,
        lease_end_s=lease.lease_end_s,
        machines=machines,
        cost_usd=lease.cost_usd(now_s) + late_usd,
        usd_per_h=lease.price.usd_per_h * lease.order.count,
    )


def _unrecorded(owner: str, machines: tuple[Instance, ...], now_s: float) -> ClusterStatus:
    first = min(machines, key=lambda one: one.index)
    return ClusterStatus(
        cluster=first.cluster,
        run=first.run,
        place=first.provider,
        type=first.type,
        count=len(machines),
        state=UNRECORDED if first.owner == owner else FOREIGN,
        held=None,
        since_s=min(one.launched_s for one in machines),
        lease_end_s=max(one.lease_end_s for one in machines),
        machines=machines,
        cost_usd=sum(_cost_usd(one, now_s) for one in machines),
        usd_per_h=sum(one.price.usd_per_h for one in machines),
    )


def _cost_usd(one: Instance, now_s: float) -> float:
    return one.price.cost_usd(max(now_s - one.launched_s, 0.0))
