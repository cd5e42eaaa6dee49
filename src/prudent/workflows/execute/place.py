"""Where the machines of an execution are rented: at which prices, how long they take, what they have cost."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.cloud.leases.bill import Bill, BillLine
from prudent.cloud.leases.delays import Delays
from prudent.cloud.leases.register import Register
from prudent.cloud.providers.provider import Provider
from prudent.cloud.providers.registry import provider_of
from prudent.workflows.execute.foresight import Terms
from prudent.workflows.execute.journal import Fact
from prudent.workflows.fleet import Fleet


@dataclass(frozen=True)
class Place:
    """A provider, and the register of what is rented there."""

    provider: Provider
    register: Register

    @classmethod
    def of(cls, where: str, home: Path | None = None) -> Place:
        """The place of words like local, hosts:INVENTORY.yaml or ec2:CONFIG.yaml."""
        register = Register(home)
        name, _, setting = where.partition(":")
        provider = provider_of({name.strip(): setting.strip() or None}, register.home, Path.cwd())
        return cls(provider, register)

    @property
    def delays(self) -> Delays:
        return Delays(self.register.home)

    def terms(self, fleet: Fleet, used: Collection[str]) -> Terms:
        """The prices of today for the VMs that are used; BadInput if a type cannot be had."""
        offers = {
            (vm.machine, vm.spot): self.provider.offer(vm.machine, vm.spot).price
            for vm in fleet.vms
            if vm.name in used
        }
        prices = {vm.name: offers[vm.machine, vm.spot] for vm in fleet.vms if vm.name in used}
        boot_s = max((price.boot_s for price in prices.values()), default=0.0)
        release_s = max((price.release_s for price in prices.values()), default=0.0)
        return Terms(
            prices,
            self.delays.of(self.provider.name, "boot", boot_s),
            self.delays.of(self.provider.name, "give_back", release_s),
        )

    def bill(self, run: str) -> Bill:
        """What the machines of a run have cost so far."""
        return Bill.of_run(self.register, run)


def bill_fact(bill: Bill, facts: Iterable[Mapping[str, Any]]) -> Fact:
    """A bill for the journal: each machine on the clock of the run, and the sum of all sessions.

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
    """When the run's clock stood at zero, in the session that rented a machine."""
    zeros = [fact["wall_s"] - fact["at_s"] for fact in sessions if fact["wall_s"] <= line.launched_s + 1.0]
    return float(zeros[-1]) if zeros else line.launched_s
