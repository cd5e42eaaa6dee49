"""The verbs of workflows: `schedule`, `simulate`, `evaluate` and `compare` plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from prudent.core.errors import BadInput, unknown
from prudent.core.seeds import rng_for
from prudent.workflows.execution import Execution
from prudent.workflows.fleet import Fleet
from prudent.workflows.plan import Plan, Policy, misfit
from prudent.workflows.schedulers.registry import (
    BASELINES,
    MANY_PAIRS,
    ScheduleProposal,
    Scheduler,
    options_of,
    scheduler_named,
    schedulers,
)
from prudent.workflows.simulation.compiled import Floats
from prudent.workflows.simulation.problem import SchedulingProblem, build_problem, sample_world
from prudent.workflows.simulation.simulator import follow_placement, run_calm, run_simulation
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

__all__ = ["alternative", "plan_of", "schedule", "schedulers", "simulate"]


def schedule(
    workflow: Workflow,
    fleet: Fleet,
    world: World | None = None,
    scheduler: str | Scheduler = "prudent",
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Plan:
    """Plan the workflow; the plan's times and cost are those of the calm world.

    A planner knows nominal speeds and mean overheads, nothing random. The exception is a scheduler that
    learns: it simulates episodes in the world as it is.
    """
    world = world or World()
    chosen = scheduler_named(scheduler, options) if isinstance(scheduler, str) else scheduler
    problem = build_problem(workflow, fleet, world)
    proposal = chosen.propose(problem, seed)
    plan = plan_of(problem, proposal, chosen.name, options or {}, seed)
    plan.check(workflow)
    return plan


def plan_of(
    problem: SchedulingProblem,
    proposal: ScheduleProposal,
    scheduler: str,
    options: Mapping[str, Any],
    seed: int,
) -> Plan:
    """A proposal as a plan, with its times in the calm world."""
    execution = Execution(problem.workflow, problem.fleet, run_calm(problem, proposal.placement))
    return Plan(
        workflow=problem.workflow.name,
        fingerprint=problem.workflow.fingerprint,
        scheduler=scheduler,
        fleet=problem.fleet,
        assignments=execution.assignments,
        makespan_s=execution.makespan_s,
        busy_s=execution.busy_s,
        cost_usd=execution.cost_usd,
        world=problem.world.to_dict(),
        options=dict(options),
        seed=seed,
        details=dict(proposal.details),
        policy=proposal.policy,
        front=proposal.front,
    )


def alternative(plan: Plan, at: int, workflow: Workflow) -> Plan:
    """The plan of a point on another plan's Pareto front."""
    if not 0 <= at < len(plan.front):
        raise BadInput(f"The plan has {len(plan.front)} alternatives and no number {at}; count from 0.")
    plan.check(workflow)
    problem = build_problem(workflow, plan.fleet, World(**plan.world))
    # A point that was chosen for its price keeps to the VMs it pays for.
    policy: Policy = "frugal" if plan.policy != "static" else "static"
    proposal = ScheduleProposal(plan.front[at].placement, plan.details, policy, plan.front)
    return plan_of(problem, proposal, plan.scheduler, plan.options, plan.seed)


def simulate(
    workflow: Workflow,
    fleet: Fleet,
    world: World | None = None,
    plan_or_scheduler: Plan | str | Scheduler = "fcfs",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Execution:
    """Simulate one run in one sample of the world, drawn with the seed.

    A plan is followed as its `policy` says; an online rule like `fcfs` decides during the run; other
    schedulers plan first.
    """
    world = world or World()
    problem = build_problem(workflow, fleet, world)
    sample = sample_world(problem, world, seed)
    if isinstance(plan_or_scheduler, Plan):
        placement = plan_or_scheduler.placement(workflow, fleet)
        return Execution(
            workflow, fleet, follow_placement(problem, sample, placement, plan_or_scheduler.policy)
        )
    chosen = plan_or_scheduler
    if isinstance(chosen, str):
        chosen = scheduler_named(chosen, options)
    if chosen.rule is not None:
        rule_seed = int(rng_for(seed, "scheduler", chosen.name).integers(1 << 62))
        execution = Execution(workflow, fleet, run_simulation(problem, sample, chosen.rule, seed=rule_seed))
        if sentence := misfit(workflow, fleet, execution.assignments.values()):
            raise BadInput(sentence)
        return execution
    proposal = chosen.propose(problem, seed)
    return Execution(workflow, fleet, follow_placement(problem, sample, proposal.placement, proposal.policy))


def calm_execution(plan: Plan, workflow: Workflow) -> Execution:
    """The run of a plan in the calm world."""
    problem = build_problem(workflow, plan.fleet, World(**dict(plan.world)).calm())
    return Execution(workflow, plan.fleet, run_calm(problem, plan.placement(workflow)))


@dataclass(frozen=True, eq=False)
class PlanEvaluation:
    """A plan in many random worlds: its makespan and cost in each, and the share of runs that finished."""

    makespans_s: Floats
    costs_usd: Floats
    finished: float

    @cached_property
    def mean_s(self) -> float:
        """The mean makespan."""
        return float(self.makespans_s.mean())

    @cached_property
    def p95_s(self) -> float:
        """The 95th percentile of the makespans."""
        return float(np.quantile(self.makespans_s, 0.95))

    @cached_property
    def mean_usd(self) -> float:
        """The mean cost."""
        return float(self.costs_usd.mean())


def evaluate(
    plan: Plan,
    workflow: Workflow,
    fleet: Fleet | None = None,
    world: World | None = None,
    worlds: int = 200,
    seed: int = 0,
) -> PlanEvaluation:
    """Follow the plan in `worlds` samples of a world; plans evaluated with one seed meet the same samples.

    >>> from prudent.workflows import Activation, Fleet, Vm, Workflow, World, schedule
    >>> two = Workflow("two", (Activation("a", runtime_s=3), Activation("b", runtime_s=4)))
    >>> fleet = Fleet((Vm("u", "mine"), Vm("v", "mine")))
    >>> evaluate(schedule(two, fleet), two, world=World(), worlds=3).mean_s
    4.0
    """
    if worlds < 1:
        raise BadInput(f"There are {worlds} worlds to evaluate it in; give at least one.")
    fleet, world = fleet or plan.fleet, world or World(**plan.world)
    problem = build_problem(workflow, fleet, world)
    placement = plan.placement(workflow, fleet)
    traces = [
        follow_placement(problem, sample_world(problem, world, seed + each), placement, plan.policy)
        for each in range(worlds)
    ]
    return PlanEvaluation(
        np.array([trace.makespan_s for trace in traces]),
        np.array([trace.cost_usd for trace in traces]),
        sum(trace.done == len(workflow) for trace in traces) / worlds,
    )


_QUICK_BASELINES = ("heft", "mct", "fcfs")


@dataclass(frozen=True)
class ComparedPlan:
    """A scheduler's plan in the calm world: its times and its cost."""

    scheduler: str
    makespan_s: float
    cost_usd: float
    busy_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def compare(plan: Plan, workflow: Workflow) -> tuple[ComparedPlan, ...]:
    """The plan beside those of the baselines, fastest first; of equals, the plan itself is first.

    >>> from prudent.workflows import Activation, Fleet, Vm
    >>> two = Workflow("two", (Activation("a", runtime_s=3), Activation("b", runtime_s=4)))
    >>> plan = schedule(two, Fleet((Vm("u", "mine"), Vm("v", "mine"))), scheduler="heft")
    >>> compare(plan, two)[0].makespan_s
    4.0
    """
    large = len(workflow) * len(plan.fleet.lanes) > MANY_PAIRS
    problem = build_problem(workflow, plan.fleet, World(**dict(plan.world)))
    every = _QUICK_BASELINES if large else (*BASELINES, "random")
    names = [name for name in every if name != plan.scheduler]
    others = (
        plan_of(problem, scheduler_named(name).propose(problem, plan.seed), name, {}, plan.seed)
        for name in names
    )
    # A scheduler that does not mind sizes may have put an activation where it cannot run: that is no plan.
    usable = [other for other in others if not other.misfit(workflow)]
    return side_by_side((plan, *usable))


def side_by_side(plans: Sequence[Plan]) -> tuple[ComparedPlan, ...]:
    """Plans as rows, fastest first."""
    return tuple(sorted(map(_compared, plans), key=lambda each: (each.makespan_s, each.cost_usd)))


def schedule_by_all(
    workflow: Workflow,
    fleet: Fleet,
    world: World | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> tuple[Plan, ...]:
    """A plan by every scheduler, the fastest first; with the option `objective: cost`, the cheapest.

    Each scheduler gets those of the options that it has. A plan that passes `deadline_s` or `budget_usd` is
    behind those that keep them. One that puts an activation where it cannot run is left out.

    >>> from prudent.workflows import Activation, Fleet, Vm
    >>> two = Workflow("two", (Activation("a", runtime_s=3), Activation("b", runtime_s=4)))
    >>> plans = schedule_by_all(two, Fleet((Vm("u", "mine"), Vm("v", "mine"))), options={"evaluations": 500})
    >>> {plan.scheduler for plan in plans} == set(schedulers()), plans[0].makespan_s
    (True, 4.0)
    """
    said = dict(options or {})
    own = {name: options_of(name) for name in schedulers()}
    for option in said:
        if not any(option in known for known in own.values()):
            raise unknown("option of any scheduler", option, sorted(set().union(*own.values())))
    problem = build_problem(workflow, fleet, world or World())
    chosen = ((name, {o: said[o] for o in own[name] if o in said}) for name in schedulers())
    made = (
        plan_of(problem, scheduler_named(name, its).propose(problem, seed), name, its, seed)
        for name, its in chosen
    )
    plans = [plan for plan in made if not plan.misfit(workflow)]
    by_cost = said.get("objective") == "cost"
    deadline_s, budget_usd = (said.get(name) for name in ("deadline_s", "budget_usd"))

    def rank(plan: Plan) -> tuple[bool, float, float]:
        late = deadline_s is not None and plan.makespan_s > deadline_s
        dear = budget_usd is not None and plan.cost_usd > budget_usd
        measured = (plan.makespan_s, plan.cost_usd)
        return (late or dear, *(measured[::-1] if by_cost else measured))

    return tuple(sorted(plans, key=rank))


def plan_summary(plan: Plan, beside: Sequence[ComparedPlan]) -> dict[str, Any]:
    """A plan as plain values for `--json`, with the comparison to other schedulers."""
    return {
        "workflow": plan.workflow,
        "scheduler": plan.scheduler,
        "fleet": str(plan.fleet),
        "makespan_s": plan.makespan_s,
        "busy_s": plan.busy_s,
        "cost_usd": plan.cost_usd,
        "policy": plan.policy,
        "details": dict(plan.details),
        "front": [{"makespan_s": point.makespan_s, "cost_usd": point.cost_usd} for point in plan.front],
        "comparison": [each.to_dict() for each in beside],
        "assignments": {name: each.to_dict() for name, each in plan.assignments.items()},
    }


def _compared(plan: Plan) -> ComparedPlan:
    return ComparedPlan(plan.scheduler, plan.makespan_s, plan.cost_usd, plan.busy_s)
