"""The two verbs: make a plan, and play a plan or a scheduler in a world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prudent.core.errors import BadInput
from prudent.core.seeds import rng_for
from prudent.workflows.execution import Execution
from prudent.workflows.fleet import Fleet
from prudent.workflows.following import follow
from prudent.workflows.front import Policy
from prudent.workflows.plan import Plan
from prudent.workflows.policies import PLAN
from prudent.workflows.problem import Problem, bring_together, weather_of
from prudent.workflows.schedulers.registry import Proposal, Scheduler, scheduler_named, schedulers
from prudent.workflows.simulator import play
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

    A planner knows promised speeds and mean overheads, not luck. The exception is a scheduler that learns: it
    plays episodes in the world as it is.
    """
    world = world or World()
    chosen = scheduler_named(scheduler, options) if isinstance(scheduler, str) else scheduler
    problem = bring_together(workflow, fleet, world)
    proposal = chosen.propose(problem, seed)
    return plan_of(problem, proposal, chosen.name, options or {}, seed)


def plan_of(
    problem: Problem, proposal: Proposal, scheduler: str, options: Mapping[str, Any], seed: int
) -> Plan:
    """A proposal as a plan, with the times it has in the calm world."""
    weather = weather_of(problem, problem.world.calm(), 0)
    trace = play(problem, weather, PLAN, placement=proposal.placement)
    execution = Execution(problem.workflow, problem.fleet, trace)
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
    """The plan behind a point of a plan's front, to be followed in its place."""
    if not 0 <= at < len(plan.front):
        raise BadInput(f"The plan has {len(plan.front)} alternatives and no number {at}; count from 0.")
    plan.check(workflow)
    problem = bring_together(workflow, plan.fleet, World(**plan.world))
    # A choice that was made for its price is to keep it.
    policy: Policy = "frugal" if plan.policy != "static" else "static"
    proposal = Proposal(plan.front[at].placement, plan.details, policy, plan.front)
    return plan_of(problem, proposal, plan.scheduler, plan.options, plan.seed)


def simulate(
    workflow: Workflow,
    fleet: Fleet,
    world: World | None = None,
    plan_or_scheduler: Plan | str | Scheduler = "fcfs",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Execution:
    """Play one run in one realisation of the world (the seed's).

    A plan is followed as its `policy` says; a rule like `fcfs` decides as things happen; other schedulers
    plan first.
    """
    world = world or World()
    problem = bring_together(workflow, fleet, world)
    weather = weather_of(problem, world, seed)
    if isinstance(plan_or_scheduler, Plan):
        placement = plan_or_scheduler.placement(workflow, fleet)
        return Execution(workflow, fleet, follow(problem, weather, placement, plan_or_scheduler.policy))
    chosen = plan_or_scheduler
    if isinstance(chosen, str):
        chosen = scheduler_named(chosen, options)
    if chosen.policy is not None:
        luck = int(rng_for(seed, "scheduler", chosen.name).integers(1 << 62))
        return Execution(workflow, fleet, play(problem, weather, chosen.policy, seed=luck))
    proposal = chosen.propose(problem, seed)
    return Execution(workflow, fleet, follow(problem, weather, proposal.placement, proposal.policy))
