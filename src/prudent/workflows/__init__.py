"""Place scientific workflows on mixed machines: simulate, schedule, execute.

`scheduling.schedulers()` lists the names of all schedulers: `prudent.workflows.schedulers` is the package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prudent.workflows.activation import Activation, File, Usage
    from prudent.workflows.execution import Assignment, Attempt, Execution
    from prudent.workflows.fleet import Fleet, Vm
    from prudent.workflows.plan import ParetoPoint, Plan
    from prudent.workflows.schedulers.registry import ScheduleProposal, Scheduler
    from prudent.workflows.scheduling import PlanEvaluation, alternative, evaluate, schedule, simulate
    from prudent.workflows.workflow import Workflow
    from prudent.workflows.world import Distribution, World

_MODULES = {
    "Activation": "activation",
    "Assignment": "execution",
    "Attempt": "execution",
    "Distribution": "world",
    "Execution": "execution",
    "File": "activation",
    "Fleet": "fleet",
    "ParetoPoint": "plan",
    "PlanEvaluation": "scheduling",
    "Plan": "plan",
    "ScheduleProposal": "schedulers.registry",
    "Scheduler": "schedulers.registry",
    "Usage": "activation",
    "Vm": "fleet",
    "Workflow": "workflow",
    "World": "world",
    "alternative": "scheduling",
    "evaluate": "scheduling",
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
    "ParetoPoint",
    "Plan",
    "PlanEvaluation",
    "ScheduleProposal",
    "Scheduler",
    "Usage",
    "Vm",
    "Workflow",
    "World",
    "alternative",
    "evaluate",
    "schedule",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Import on first use: the compiler behind the simulator takes half a second to load."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
