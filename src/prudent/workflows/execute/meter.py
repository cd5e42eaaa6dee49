"""What an execution pays for: rented machines by their leases, or workers at the prices of the plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from prudent.cloud.hold import Hold, cost_usd
from prudent.cloud.leases.lease import Lease
from prudent.core.money import Price
from prudent.workflows.fleet import Fleet, Vm
from prudent.workflows.world import World


class Meter(Protocol):
    """Who is paid for, on the clock of the run. A session asks it every time it decides about money."""

    @property
    def earlier_usd(self) -> float:
        """What earlier sessions of the run have cost."""

    @property
    def give_back_s(self) -> float:
        """How long a machine is paid for after it was decided to give it back; hardly ever longer."""

    def holds(self, now_s: float) -> tuple[Hold, ...]:
        """The machines of this session, those that were given back included."""

    def used(self, vm: str, now_s: float) -> None:
        """An activation begins on a VM."""

    def returned(self, vm: str, now_s: float) -> None:
        """It was decided to give a VM back."""


def spent_usd(meter: Meter, now_s: float) -> float:
    """What a run has cost until now, in all its sessions."""
    return meter.earlier_usd + cost_usd(meter.holds(now_s), now_s)


def plan_price(vm: Vm, world: World) -> Price:
    """The price that a plan has for a VM."""
    step_s = 3600.0 if world.billing == "hour" else 0.0
    return Price(vm.usd_per_h, "", "plan", minimum_s=vm.minimum_s, step_s=step_s)


class PlanMeter:
    """Workers that nobody rents, at the prices of the plan: from the start, or from their first use."""

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

    def holds(self, now_s: float) -> tuple[Hold, ...]:
        del now_s
        return tuple(
            Hold(vm, self._prices[vm], since_s, self._until_s.get(vm))
            for vm, since_s in self._since_s.items()
        )

    def used(self, vm: str, now_s: float) -> None:
        self._since_s.setdefault(vm, now_s if self._late else 0.0)
        self._until_s.pop(vm, None)
        self._idle.discard(vm)

    def returned(self, vm: str, now_s: float) -> None:
        if vm in self._idle:  # one that is never used costs nothing
            self._since_s.pop(vm, None)
        else:
            self._until_s.setdefault(vm, now_s)


class LeaseMeter:
    """Rented machines, as their leases have them: from the launch until they are gone."""

    def __init__(
        self, leases: Callable[[], Mapping[str, Lease]], earlier_usd: float, give_back_s: float
    ) -> None:
        self.earlier_usd, self.give_back_s = earlier_usd, give_back_s
        self._leases = leases

    def holds(self, now_s: float) -> tuple[Hold, ...]:
        zero_s = time.time() - now_s
        return tuple(
            replace(
                hold,
                name=name,
                since_s=hold.since_s - zero_s,
                until_s=None if hold.until_s is None else hold.until_s - zero_s,
            )
            for name, lease in self._leases().items()
            for hold in lease.holds
        )

    def used(self, vm: str, now_s: float) -> None:
        """Paid for anyway."""

    def returned(self, vm: str, now_s: float) -> None:
        """Its lease tells when it is gone."""
