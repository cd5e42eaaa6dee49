"""A lease: the record that every cluster needs, with its holder and the end of its time."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from prudent.cloud.billing import RentalPeriod, cost_usd
from prudent.cloud.processes import ProcessIdentity
from prudent.cloud.providers.provider import Instance, LaunchOrder
from prudent.core.errors import BadInput
from prudent.core.money import Price

WANTED, UP, RELEASED = "wanted", "up", "released"
"""The record is written before the launch; the machines are known; none of them is left."""


@dataclass(frozen=True)
class LeasedMachine:
    """One machine of a lease: since when, and at which price, it is paid for.

    `gone_s` is set where a machine was taken away, or ended by itself, before its lease was released.
    """

    id: str
    launched_s: float
    price: Price
    gone_s: float | None = None

    @classmethod
    def of(cls, instance: Instance) -> LeasedMachine:
        return cls(instance.id, instance.launched_s, instance.price)


@dataclass(frozen=True)
class Lease:
    """Machines of one order, held by one process until `lease_end_s` (seconds since 1970).

    `price` is that of one machine when the order was made. `settings` make the provider again (see
    `provider_of`), so that another process can end what this one has launched.
    """

    order: LaunchOrder
    provider: str
    settings: Mapping[str, str]
    holder: LeaseHolder
    wanted_s: float
    lease_end_s: float
    price: Price
    state: str = WANTED
    machines: tuple[LeasedMachine, ...] = ()
    released_s: float | None = None
    why: str = ""

    @property
    def cluster(self) -> str:
        return self.order.cluster

    @property
    def run(self) -> str:
        return self.order.run

    @property
    def launched_s(self) -> float | None:
        """When its first machine was; None while none is known."""
        return min((one.launched_s for one in self.machines), default=None)

    def over(self, now_s: float) -> str | None:
        """Why its machines should not be there any more; None while they should."""
        if self.state == RELEASED:
            return "its lease was released"
        if self.holder.gone:
            return "its run is gone"
        return "its lease is over" if now_s >= self.lease_end_s else None

    def cost_usd(self, now_s: float) -> float:
        """What it has cost: for each machine its own time since the launch, boot included."""
        return cost_usd(self.rental_periods, now_s)

    @property
    def rental_periods(self) -> tuple[RentalPeriod, ...]:
        """When each of its machines was paid for, in seconds since 1970: until it was gone."""
        return tuple(
            RentalPeriod(
                one.id, one.price, one.launched_s, self.released_s if one.gone_s is None else one.gone_s
            )
            for one in self.machines
        )

    @property
    def periods_since_order(self) -> tuple[RentalPeriod, ...]:
        """The same; a machine that is ordered but not known yet counts from the order on."""
        if self.machines or self.released_s is not None:
            return self.rental_periods
        return (RentalPeriod(self.cluster, self.price, self.wanted_s),) * self.order.count

    def with_machines(self, machines: Iterable[LeasedMachine]) -> Lease:
        """With machines that were not known before; what is known stays as it was."""
        known = {one.id: one for one in machines} | {one.id: one for one in self.machines}
        return replace(self, machines=tuple(sorted(known.values(), key=lambda one: (one.launched_s, one.id))))

    def with_ends(self, ends_s: Mapping[str, float]) -> Lease:
        """With the ends of machines, by their ids; where an end is known already, that one stays."""
        known = {**ends_s, **{one.id: one.gone_s for one in self.machines if one.gone_s is not None}}
        return replace(self, machines=tuple(replace(one, gone_s=known.get(one.id)) for one in self.machines))

    def ended(
        self,
        released_s: float,
        why: str,
        machines: Iterable[LeasedMachine],
        ends_s: Mapping[str, float] | None = None,
    ) -> Lease:
        """Released, with the machines that nobody had recorded. Done twice, the first time counts.

        Machines that were gone before are paid for until then (`ends_s`); those that turn up after the
        release until their own end.
        """
        whole = self.with_machines(machines).with_ends(ends_s or {})
        if self.state == RELEASED:
            late = len(whole.machines) > len(self.machines)
            return replace(whole, released_s=released_s) if late else self
        return replace(whole, state=RELEASED, released_s=released_s, why=why)

    def to_dict(self) -> dict[str, Any]:
        return {
            "order": asdict(self.order),
            "provider": self.provider,
            "settings": dict(self.settings),
            "holder": self.holder.to_dict(),
            "wanted_s": self.wanted_s,
            "lease_end_s": self.lease_end_s,
            "price": self.price.to_dict(),
            "state": self.state,
            "machines": [
                {
                    "id": one.id,
                    "launched_s": one.launched_s,
                    "price": one.price.to_dict(),
                    "gone_s": one.gone_s,
                }
                for one in self.machines
            ],
            "released_s": self.released_s,
            "why": self.why,
        }

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Lease:
        """The lease that `to_dict` wrote."""
        try:
            return cls(
                order=LaunchOrder(**said["order"]),
                provider=str(said["provider"]),
                settings={str(name): str(value) for name, value in said["settings"].items()},
                holder=LeaseHolder.from_dict(said["holder"]),
                wanted_s=float(said["wanted_s"]),
                lease_end_s=float(said["lease_end_s"]),
                price=Price.from_dict(said["price"]),
                state=_state(said["state"]),
                machines=tuple(map(_rented, said["machines"])),
                released_s=_moment(said["released_s"]),
                why=str(said["why"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"A lease is damaged ({error}): remove the file, then reap.") from error


def _rented(said: Mapping[str, Any]) -> LeasedMachine:
    price = Price.from_dict(said["price"])
    return LeasedMachine(str(said["id"]), float(said["launched_s"]), price, _moment(said.get("gone_s")))


def _moment(said: Any) -> float | None:
    return None if said is None else float(said)


def _state(word: object) -> str:
    if word not in (WANTED, UP, RELEASED):
        raise ValueError(f"state {word!r}")
    return str(word)


@dataclass(frozen=True)
class LeaseHolder:
    """A process and where it runs.

    `realm` is the computer and, on Linux, the namespace that numbers its processes: two containers
    that share a folder of leases must not take each other's processes for dead.
    """

    pid: int
    started: str
    realm: str

    @classmethod
    def here(cls) -> LeaseHolder:
        """This process."""
        identity = ProcessIdentity.of(os.getpid())
        return cls(os.getpid(), identity.started if identity else "", _realm())

    @property
    def alive(self) -> bool | None:
        """Whether it lives; None for one elsewhere, of which nobody here can tell."""
        if self.realm != _realm() or not self.started:
            return None
        return ProcessIdentity(self.pid, self.started).alive

    @property
    def gone(self) -> bool:
        """Whether it has certainly ended; where nobody can tell, the end of the lease decides."""
        return self.alive is False

    def to_dict(self) -> dict[str, Any]:
        return {"pid": self.pid, "started": self.started, "realm": self.realm}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LeaseHolder:
        return cls(int(values["pid"]), str(values["started"]), str(values["realm"]))


def _realm() -> str:
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()} {space}".strip()
