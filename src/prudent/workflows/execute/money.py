"""The money of an execution: terms of rental, the source of machines, meters of cost, the bill."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from prudent.cloud.billing import Bill, BillLine, RentalPeriod, cost_usd
from prudent.cloud.leases.lease import Lease
from prudent.cloud.leases.machine_delays import NO_DELAY, Delay, DelayRecords
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.provider import Provider
from prudent.cloud.providers.registry import provider_of
from prudent.core.money import Price
from prudent.workflows.execute.journal import Fact
from prudent.workflows.fleet import Fleet, Vm
from prudent.workflows.world import World


@dataclass(frozen=True)
class RentalTerms:
    """How machines are paid, by the name of the VM: prices, and how long boot and give-back take.

    All are ordered together; `boot` is the time until the last is up and work begins. Where no machine is
    really rented, a VM may be paid from its first use instead (`from_first_use`). It may also go on from an
    earlier session: `held_s` tells for how many seconds it was held before, `paid_usd` how much of its bill
    was paid then.
    """

    prices: Mapping[str, Price]
    boot: Delay = NO_DELAY
    give_back: Delay = NO_DELAY
    from_first_use: bool = False
    held_s: Mapping[str, float] = field(default_factory=dict)
    paid_usd: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RentalSource:
    """Where machines are rented: a provider, and the register of leases."""

    provider: Provider
    register: LeaseRegister

    @classmethod
    def of(cls, where: str, home: Path | None = None) -> RentalSource:
        """The source named by text like local, hosts:INVENTORY.yaml or ec2:CONFIG.yaml."""
        register = LeaseRegister(home)
        name, _, setting = where.partition(":")
        provider = provider_of({name.strip(): setting.strip() or None}, register.home, Path.cwd())
        return cls(provider, register)

    @property
    def delays(self) -> DelayRecords:
        return DelayRecords(self.register.home)

    def terms(self, fleet: Fleet, used: Collection[str]) -> RentalTerms:
        """Today's prices of the VMs in use; BadInput if a type is not offered."""
        offers = {
            (vm.machine, vm.spot): self.provider.offer(vm.machine, vm.spot).price
            for vm in fleet.vms
            if vm.name in used
        }
        prices = {vm.name: offers[vm.machine, vm.spot] for vm in fleet.vms if vm.name in used}
        boot_s = max((price.boot_s for price in prices.values()), default=0.0)
        release_s = max((price.release_s for price in prices.values()), default=0.0)
        return RentalTerms(
            prices,
            self.delays.of(self.provider.name, "boot", boot_s),
            self.delays.of(self.provider.name, "give_back", release_s),
        )

    def bill(self, run: str) -> Bill:
        """What the machines of a run have cost so far."""
        return Bill.of_run(self.register, run)


def bill_fact(bill: Bill, facts: Iterable[Mapping[str, Any]]) -> Fact:
    """The journal's fact about a bill: each machine on the clock of the run, and the sum of all sessions.

    Machines of earlier sessions that the register has forgotten stay as the journal knew them.
    """
    told = list(facts)
    rented = {fact["cluster"]: fact for fact in told if fact["fact"] == "rented"}
    known = {row["cluster"]: row for fact in told if fact["fact"] == "bill" for row in fact["machines"]}
    sessions = [fact for fact in told if fact["fact"] == "session" and "wall_s" in fact]
    now_s = time.time()
    for line in bill.lines:
        known_as = rented.get(line.cluster, {"vm": line.cluster, "at_s": None})
        from_s = line.launched_s - _zero_s(sessions, line) if known_as["at_s"] is None else known_as["at_s"]
        end_s = now_s if line.released_s is None else line.released_s
        known[line.cluster] = {
            "vm": known_as["vm"],
            "machine": line.type,
            "cluster": line.cluster,
            "usd_per_h": line.price.usd_per_h,
            "from_s": from_s,
            "until_s": from_s + end_s - line.launched_s,
            "cost_usd": line.cost_usd(now_s),
        }
    rows = sorted(known.values(), key=lambda row: (row["from_s"], row["vm"]))
    return {"fact": "bill", "total_usd": sum(row["cost_usd"] for row in rows), "machines": rows}


def _zero_s(sessions: Iterable[Mapping[str, Any]], line: BillLine) -> float:
    """The wall clock at zero of the run's clock, in the session that rented a machine."""
    zeros = [fact["wall_s"] - fact["at_s"] for fact in sessions if fact["wall_s"] <= line.launched_s + 1.0]
    return float(zeros[-1]) if zeros else line.launched_s


class CostMeter(Protocol):
    """Which machines are paid, and since when, by the run's clock. Every decision about money asks it."""

    @property
    def earlier_usd(self) -> float:
        """What earlier sessions of the run have cost."""

    @property
    def give_back_s(self) -> float:
        """How long a machine is paid after the decision to give it back (an upper estimate)."""

    def holds(self, now_s: float) -> tuple[RentalPeriod, ...]:
        """The machines of this session, those that were given back included."""

    def vm_used(self, vm: str, now_s: float) -> None:
        """An activation starts on a VM."""

    def vm_returned(self, vm: str, now_s: float) -> None:
        """A VM is given back."""


def spent_usd(meter: CostMeter, now_s: float) -> float:
    """What a run has cost until now, in all its sessions."""
    return meter.earlier_usd + cost_usd(meter.holds(now_s), now_s)


def plan_price(vm: Vm, world: World) -> Price:
    """The price that a plan has for a VM."""
    step_s = 3600.0 if world.billing == "hour" else 0.0
    return Price(vm.usd_per_h, "", "plan", minimum_s=vm.minimum_s, step_s=step_s)


class PlanCostMeter:
    """Workers that are not rented, at the prices of the plan: from the start, or from their first use."""

    earlier_usd: float = 0.0

    def __init__(
        self,
        fleet: Fleet,
        world: World,
        planned: Iterable[str],
        earlier: Iterable[Mapping[str, Any]],
        give_back_s: float = 0.0,
    ) -> None:
        self.give_back_s = give_back_s
        self._prices = {vm.name: plan_price(vm, world) for vm in fleet.vms}
        self._late = world.boot == "first-use"
        self._since_s: dict[str, float] = {}
        self._until_s: dict[str, float] = {}
        self._idle: set[str] = set()
        for fact in earlier:
            if fact["fact"] == "ended":
                self._since_s.setdefault(fact["vm"], float(fact["start_s"]) if self._late else 0.0)
                self._until_s[fact["vm"]] = float(fact["finish_s"])
        for vm in planned:
            self._until_s.pop(vm, None)
            if not self._late and vm not in self._since_s:
                self._since_s[vm] = 0.0
                self._idle.add(vm)

    def holds(self, now_s: float) -> tuple[RentalPeriod, ...]:
        del now_s
        return tuple(
            RentalPeriod(vm, self._prices[vm], since_s, self._until_s.get(vm))
            for vm, since_s in self._since_s.items()
        )

    def vm_used(self, vm: str, now_s: float) -> None:
        self._since_s.setdefault(vm, now_s if self._late else 0.0)
        self._until_s.pop(vm, None)
        self._idle.discard(vm)

    def vm_returned(self, vm: str, now_s: float) -> None:
        if vm in self._idle:  # one that is never used costs nothing
            self._since_s.pop(vm, None)
        else:
            self._until_s.setdefault(vm, now_s)


class LeaseCostMeter:
    """Rented machines, by their leases: from the launch until they are gone."""

    def __init__(
        self, leases: Callable[[], Mapping[str, Lease]], earlier_usd: float, give_back_s: float
    ) -> None:
        self.earlier_usd, self.give_back_s = earlier_usd, give_back_s
        self._leases = leases

    def holds(self, now_s: float) -> tuple[RentalPeriod, ...]:
        zero_s = time.time() - now_s
        return tuple(
            replace(
                hold,
                name=name,
                since_s=hold.since_s - zero_s,
                until_s=None if hold.until_s is None else hold.until_s - zero_s,
            )
            for name, lease in self._leases().items()
            for hold in lease.rental_periods
        )

    def vm_used(self, vm: str, now_s: float) -> None:
        """Nothing to do: it is paid from its launch."""

    def vm_returned(self, vm: str, now_s: float) -> None:
        """Nothing to do: its lease records the end."""
