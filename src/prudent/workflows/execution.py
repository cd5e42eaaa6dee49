"""What a run did, with the same fields whether it was simulated or real, and how each VM of it was used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from prudent.workflows.fleet import Fleet
from prudent.workflows.simulation.problem import build_problem
from prudent.workflows.simulation.replay import bill_usd
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

if TYPE_CHECKING:
    from prudent.workflows.simulation.simulator import RunTrace

Outcome = Literal["done", "failed", "lost"]


_OUTCOMES: tuple[Outcome, ...] = ("done", "failed", "lost")


@dataclass(frozen=True, slots=True)
class Assignment:
    """An activation on a slot of a VM, from start to finish."""

    activation: str
    vm: str
    slot: int
    start_s: float
    finish_s: float

    def to_dict(self) -> dict[str, Any]:
        """Where and when, as plain values; the activation is the key to them."""
        return {"vm": self.vm, "slot": self.slot, "start_s": self.start_s, "finish_s": self.finish_s}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at an activation: done, failed, or lost with its VM."""

    activation: str
    vm: str
    slot: int
    start_s: float
    finish_s: float
    outcome: Outcome


@dataclass(frozen=True, eq=False)
class Execution:
    """Times and costs of a run; the lists are built on first use, so that short simulations stay fast.

    `busy_s` is the sum over all attempts of the time they held a slot; `makespan_s` the end of the last one.
    """

    workflow: Workflow
    fleet: Fleet
    trace: RunTrace

    @property
    def makespan_s(self) -> float:
        """When the last activation ended."""
        return self.trace.makespan_s

    @property
    def busy_s(self) -> float:
        """Seconds that slots were held, over all attempts."""
        return self.trace.busy_s

    @property
    def cost_usd(self) -> float:
        """The bill for all VMs, each from its boot to its last use."""
        return self.trace.cost_usd

    @property
    def moved_bytes(self) -> float:
        """Bytes that were transferred."""
        return self.trace.moved_bytes

    @property
    def retries(self) -> int:
        """Attempts that had to be made again."""
        return self.trace.retries

    @property
    def succeeded(self) -> bool:
        """Whether every activation was done in the end."""
        return self.trace.done == len(self.workflow)

    @property
    def utilisation(self) -> float:
        """Busy time over the time that slots were there, until the end of the run."""
        offered_s = self.makespan_s * len(self.fleet.lanes)
        return self.busy_s / offered_s if offered_s else 0.0

    @cached_property
    def unfinished(self) -> tuple[str, ...]:
        """Activations that were not done: they or one before them failed too often, or no VM was left."""
        done = self.trace.tasks["status"] == 4
        return tuple(a.id for a, ok in zip(self.workflow.activations, done, strict=True) if not ok)

    @cached_property
    def assignments(self) -> dict[str, Assignment]:
        """Where every finished activation ran, by id, first to start first."""
        return {
            attempt.activation: Assignment(
                attempt.activation, attempt.vm, attempt.slot, attempt.start_s, attempt.finish_s
            )
            for attempt in self.timeline
            if attempt.outcome == "done"
        }

    @cached_property
    def timeline(self) -> tuple[Attempt, ...]:
        """Every attempt in order of its start."""
        log, vms, lanes = self.trace.log, self.fleet.vms, self.fleet.lanes
        rows = sorted(log.tolist(), key=lambda row: (row[0], row[1], row[2]))
        attempts = []
        for start_s, end_s, task, lane, outcome in rows:
            vm, slot = lanes[lane]
            name = self.workflow.activations[task].id
            attempts.append(Attempt(name, vms[vm].name, slot, start_s, end_s, _OUTCOMES[outcome]))
        return tuple(attempts)


@dataclass(frozen=True)
class VmUsage:
    """One machine of a run; `busy_s` is summed over its slots."""

    vm: str
    machine: str
    usd_per_h: float
    from_s: float
    until_s: float
    busy_s: float
    activations: int
    cost_usd: float

    @property
    def rented_s(self) -> float:
        """How long it was rented."""
        return self.until_s - self.from_s


def vm_usage(execution: Execution, world: World) -> tuple[VmUsage, ...]:
    """The VMs that were used, in the order of the fleet; their costs add up to the cost of the run."""
    problem = build_problem(execution.workflow, execution.fleet, world)
    vms, log = execution.trace.vms, execution.trace.log
    vm_of = problem.lanes["vm"][log["lane"]]
    busy_s = np.bincount(vm_of, log["end_s"] - log["start_s"], len(vms))
    counts = np.bincount(vm_of[log["outcome"] == 0], minlength=len(vms))
    found = []
    for at, vm in enumerate(execution.fleet.vms):
        from_s, until_s = float(vms[at]["from_s"]), float(vms[at]["last_s"])
        if until_s < 0:
            continue
        usd = float(bill_usd(vms, problem.state, at, until_s - from_s))
        found.append(
            VmUsage(
                vm.name, vm.machine, vm.usd_per_h, from_s, until_s, float(busy_s[at]), int(counts[at]), usd
            )
        )
    return tuple(found)
