"""Each machine's part of a bill: how long it was rented, how much of that it worked, what it cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prudent.workflows.bill import bill_usd
from prudent.workflows.execution import Execution
from prudent.workflows.plan import Plan
from prudent.workflows.policies import PLAN
from prudent.workflows.problem import bring_together, weather_of
from prudent.workflows.simulator import play
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World


@dataclass(frozen=True)
class Rent:
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


def calm_execution(plan: Plan, workflow: Workflow) -> Execution:
    """The plan as it goes when nothing unforeseen happens."""
    problem = bring_together(workflow, plan.fleet, World(**dict(plan.world)).calm())
    weather = weather_of(problem, problem.world, 0)
    trace = play(problem, weather, PLAN, placement=plan.placement(workflow))
    return Execution(workflow, plan.fleet, trace)


def rents(execution: Execution, world: World) -> tuple[Rent, ...]:
    """The machines that were used, in the order of the fleet; their costs add up to the run's."""
    problem = bring_together(execution.workflow, execution.fleet, world)
    vms, log = execution.trace.vms, execution.trace.log
    vm_of = problem.lanes["vm"][log["lane"]]
    busy_s = np.bincount(vm_of, log["end_s"] - log["start_s"], len(vms))
    counts = np.bincount(vm_of[log["outcome"] == 0], minlength=len(vms))
    found = []
    for at, vm in enumerate(execution.fleet.vms):
        from_s, until_s = float(vms[at]["from_s"]), float(vms[at]["last_s"])
        if until_s < 0:
            continue
        usd = float(bill_usd(vms, problem.rules, at, until_s - from_s))
        found.append(
            Rent(vm.name, vm.machine, vm.usd_per_h, from_s, until_s, float(busy_s[at]), int(counts[at]), usd)
        )
    return tuple(found)
