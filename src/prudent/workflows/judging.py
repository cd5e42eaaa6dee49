"""A plan judged over many random worlds, not only the calm one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prudent.core.errors import BadInput
from prudent.workflows.fleet import Fleet
from prudent.workflows.following import follow
from prudent.workflows.graph import Floats
from prudent.workflows.plan import Plan
from prudent.workflows.problem import bring_together, weather_of
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a plan did in every world: makespans and costs by world, and how often all was done."""

    makespans_s: Floats
    costs_usd: Floats
    finished: float

    @cached_property
    def mean_s(self) -> float:
        """The mean makespan."""
        return float(self.makespans_s.mean())

    @cached_property
    def p95_s(self) -> float:
        """The makespan that 95 of 100 worlds stay below."""
        return float(np.quantile(self.makespans_s, 0.95))

    @cached_property
    def mean_usd(self) -> float:
        """The mean cost."""
        return float(self.costs_usd.mean())


def judge(
    plan: Plan,
    workflow: Workflow,
    fleet: Fleet | None = None,
    world: World | None = None,
    worlds: int = 200,
    seed: int = 0,
) -> Judgement:
    """Follow the plan in `worlds` realisations of a world; plans with the same seed meet the same luck.

    >>> from prudent.workflows import Activation, Fleet, Vm, Workflow, World, schedule
    >>> two = Workflow("two", (Activation("a", runtime_s=3), Activation("b", runtime_s=4)))
    >>> fleet = Fleet((Vm("u", "mine"), Vm("v", "mine")))
    >>> judge(schedule(two, fleet), two, world=World(), worlds=3).mean_s
    4.0
    """
    if worlds < 1:
        raise BadInput(f"There are {worlds} worlds to judge in; give at least one.")
    fleet, world = fleet or plan.fleet, world or World(**plan.world)
    problem = bring_together(workflow, fleet, world)
    placement = plan.placement(workflow, fleet)
    traces = [
        follow(problem, weather_of(problem, world, seed + each), placement, plan.policy)
        for each in range(worlds)
    ]
    return Judgement(
        np.array([trace.makespan_s for trace in traces]),
        np.array([trace.cost_usd for trace in traces]),
        sum(trace.done == len(workflow) for trace in traces) / worlds,
    )
