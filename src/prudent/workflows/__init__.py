"""Place scientific workflows on mixed machines: simulate, schedule, execute.

The names of all schedulers come from `scheduling.schedulers()`: here, `schedulers` is the folder of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prudent.workflows.activation import Activation, File
    from prudent.workflows.distribution import Distribution
    from prudent.workflows.execution import Assignment, Attempt, Execution
    from prudent.workflows.fleet import Fleet, Vm
    from prudent.workflows.front import FrontPoint
    from prudent.workflows.judging import Judgement, judge
    from prudent.workflows.plan import Plan
    from prudent.workflows.schedulers.registry import Proposal, Scheduler
    from prudent.workflows.scheduling import alternative, schedule, simulate
    from prudent.workflows.workflow import Workflow
    from prudent.workflows.world import World

_PLACES = {
    "Activation": "activation",
    "Assignment": "execution",
    "Attempt": "execution",
    "Distribution": "distribution",
    "Execution": "execution",
    "File": "activation",
    "Fleet": "fleet",
    "FrontPoint": "front",
    "Judgement": "judging",
    "Plan": "plan",
    "Proposal": "schedulers.registry",
    "Scheduler": "schedulers.registry",
    "Vm": "fleet",
    "Workflow": "workflow",
    "World": "world",
    "alternative": "scheduling",
    "judge": "judging",
    "schedule": "scheduling",
    "simulate": "scheduling",
}

__all__ = [
    "Activation",
    "Assignment",
    "Attempt",
    "Distribution",
    "Execution",
    "File",
    "Fleet",
    "FrontPoint",
    "Judgement",
    "Plan",
    "Proposal",
    "Scheduler",
    "Vm",
    "Workflow",
    "World",
    "alternative",
    "judge",
    "schedule",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Import on first use: the compiler behind the simulator takes half a second to load."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
