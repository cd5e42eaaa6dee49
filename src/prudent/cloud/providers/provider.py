"""The contract between a cluster and whoever has the machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from prudent.cloud.catalog import Catalog
from prudent.cloud.providers.channel import Channel
from prudent.core.errors import RunFailed
from prudent.core.money import Price

CAPACITY, QUOTA, CONFIG, TRANSIENT, PRICE = "capacity", "quota", "config", "transient", "price"
"""Why a launch failed: nobody has such a machine now; we may not have more; asking again will not help;
asking again may help; it costs more now than the order allows."""

PENDING, RUNNING, GONE = "pending", "running", "gone"
_ROUNDING = 1e-9


class LaunchFailed(RunFailed):
    """No cluster came of an order; `kind` says what to do about it. Nothing of it is left running."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Offer:
    """What one machine of a type costs now, and how many there are (None: nobody knows)."""

    type: str
    price: Price
    vcpus: int
    memory_gb: float
    available: int | None = None
    zone: str = ""


@dataclass(frozen=True)
class LaunchOrder:
    """Machines that are wanted. Whoever orders names the `cluster`: the same order twice is one.

    `lease_end_s` is a moment in seconds since 1970. None is launched if a machine costs more than
    `most_usd_per_h`: prices change between offer and launch, and whoever put money aside by the offer must
    not get a higher bill. Everything else here becomes a tag on every machine.
    """

    cluster: str
    run: str
    owner: str
    type: str
    count: int
    lease_end_s: float
    spot: bool = False
    most_usd_per_h: float | None = None

    def check_price(self, price: Price) -> None:
        """`LaunchFailed` if a machine costs more than may be paid.

        >>> order = LaunchOrder("c1", "run", "me", "m5.large", 2, 0.0, most_usd_per_h=0.05)
        >>> order.check_price(Price(0.096, "", "catalog"))
        Traceback (most recent call last):
        prudent.cloud.providers.provider.LaunchFailed: m5.large costs $0.096/h now, more than the $0.05/h ...
        """
        most = self.most_usd_per_h
        if most is not None and price.usd_per_h > most * (1 + _ROUNDING):
            raise LaunchFailed(
                f"{self.type} costs ${price.usd_per_h:.6g}/h now, more than the ${most:.6g}/h that there is "
                "money for; wait for a lower price, or raise the budget.",
                PRICE,
            )


@dataclass(frozen=True)
class Instance:
    """A machine that is there, or coming. `index` is its place in its cluster, 0 for the first."""

    id: str
    provider: str
    type: str
    cluster: str
    run: str
    owner: str
    index: int
    state: str
    address: str
    launched_s: float
    lease_end_s: float
    price: Price
    zone: str = ""
    spot: bool = False
    notes: tuple[str, ...] = field(default=())


@runtime_checkable
class Provider(Protocol):
    """Offers, launches, lists and ends machines. Its methods may be called from any thread.

    Nothing is kept in memory that `list` could not find out: another process, later, sees the same machines.
    """

    @property
    def name(self) -> str:
        """One word: local, hosts, ec2."""

    @property
    def settings(self) -> dict[str, str]:
        """What `provider_of` needs to make the same provider again, in another process; no secrets."""

    def catalog(self) -> Catalog:
        """The types that can be had here, with their prices; BadInput if the price list is none."""

    def check(self, types: Sequence[str] = (), spot: bool = False) -> list[str]:
        """What would go wrong, one sentence each with its remedy; nothing is launched, nothing is paid.

        `types` are those that will be wanted, or how many at a time: m5.large, 3*m5.large.
        """

    def offer(self, type_name: str, spot: bool = False) -> Offer:
        """What a type costs; BadInput if there is no such type here."""

    def launch(self, order: LaunchOrder) -> tuple[Instance, ...]:
        """All machines of an order, or `LaunchFailed` and none. The same cluster again: the same machines.

        None is launched at a price above the order's (see `LaunchOrder.check_price`). It returns when the
        machines were accepted, not when they can be used: see `ready`.
        """

    def ready(self, instances: Sequence[Instance], timeout_s: float) -> tuple[Instance, ...]:
        """Wait until all can be used; addresses are known then. `LaunchFailed` if they do not come."""

    def list(self) -> tuple[Instance, ...]:
        """Every machine that is Prudent's and not gone, also those that no one recorded."""

    def renew(self, instances: Sequence[Instance], lease_end_s: float) -> None:
        """A later end for a cluster: on its tags, and for the switch on each machine."""

    def terminate(self, instances: Sequence[Instance]) -> None:
        """End machines and clean up after them; those that are gone already are no error."""

    def channel(self, instance: Instance) -> Channel:
        """A way in, to run commands and move files; the caller closes it."""

    def preempted(self, instance: Instance) -> str | None:
        """Why the machine was or will be taken away by its owner (a spot interruption); None if it is not."""


@runtime_checkable
class ReportsEnds(Protocol):
    """A provider that can tell when machines that it had were gone."""

    def ended_s(self, cluster: str) -> Mapping[str, float]:
        """When each machine of a cluster was gone, in seconds since 1970, by its id; those that are known."""
