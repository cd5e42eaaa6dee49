"""A plan beside those of the classic schedulers, for the same workflow, fleet and world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prudent.workflows.plan import Plan
from prudent.workflows.scheduling import schedule
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

BASELINES = (
    "heft", "peft", "cpop", "max-min", "min-min", "mct", "data-aware", "round-robin", "fcfs", "random",
)  # fmt: skip
_QUICK = ("heft", "mct", "fcfs")
_QUICK_FROM = 5_000_000
"""With more pairs of activation and slot than this, only the quick schedulers are compared with."""


@dataclass(frozen=True)
class Compared:
    """What one scheduler's plan takes in the calm world."""

    scheduler: str
    makespan_s: float
    cost_usd: float
    busy_s: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def compare(plan: Plan, workflow: Workflow) -> tuple[Compared, ...]:
    """The plan and every baseline's, fastest first; of equals, the plan itself is first.

    >>> from prudent.workflows import Activation, Fleet, Vm
    >>> two = Workflow("two", (Activation("a", runtime_s=3), Activation("b", runtime_s=4)))
    >>> plan = schedule(two, Fleet((Vm("u", "mine"), Vm("v", "mine"))), scheduler="heft")
    >>> compare(plan, two)[0].makespan_s
    4.0
    """
    large = len(workflow) * len(plan.fleet.lanes) > _QUICK_FROM
    world = World(**dict(plan.world))
    names = [name for name in (_QUICK if large else BASELINES) if name != plan.scheduler]
    others = [schedule(workflow, plan.fleet, world, scheduler=name, seed=plan.seed) for name in names]
    return tuple(sorted(map(_of, (plan, *others)), key=lambda each: (each.makespan_s, each.cost_usd)))


def summary(plan: Plan, beside: Sequence[Compared]) -> dict[str, Any]:
    """A plan as an answer: plain values, with what other schedulers would take."""
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
        "assignments": {
            name: {"vm": a.vm, "slot": a.slot, "start_s": a.start_s, "finish_s": a.finish_s}
            for name, a in plan.assignments.items()
        },
    }


def _of(plan: Plan) -> Compared:
    return Compared(plan.scheduler, plan.makespan_s, plan.cost_usd, plan.busy_s)
