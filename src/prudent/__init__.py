"""Prudent: think ahead before paying for it.

Names are imported when they are first used, so that `import prudent` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from prudent._version import __version__

if TYPE_CHECKING:
    from prudent.core.errors import BadInput, PrudentError, RunFailed
    from prudent.core.space import Space
    from prudent.training.models.model import load
    from prudent.training.train import train
    from prudent.tuning.comparison import Comparison, compare
    from prudent.tuning.goal import Goal
    from prudent.tuning.jobs.command import CommandJob
    from prudent.tuning.jobs.function import FunctionJob
    from prudent.tuning.jobs.table import TableJob
    from prudent.tuning.result import Result
    from prudent.tuning.strategies.registry import strategies
    from prudent.tuning.study.study import Study
    from prudent.tuning.trial import Trial
    from prudent.tuning.tune import tune
    from prudent.workflows.execute.runner import execute
    from prudent.workflows.execution import Execution
    from prudent.workflows.fleet import Fleet
    from prudent.workflows.plan import Plan
    from prudent.workflows.scheduling import schedule, schedulers, simulate
    from prudent.workflows.workflow import Workflow
    from prudent.workflows.world import World

_PLACES = {
    "BadInput": "prudent.core.errors",
    "PrudentError": "prudent.core.errors",
    "RunFailed": "prudent.core.errors",
    "Space": "prudent.core.space",
    "load": "prudent.training.models.model",
    "train": "prudent.training.train",
    "Comparison": "prudent.tuning.comparison",
    "compare": "prudent.tuning.comparison",
    "Goal": "prudent.tuning.goal",
    "CommandJob": "prudent.tuning.jobs.command",
    "FunctionJob": "prudent.tuning.jobs.function",
    "TableJob": "prudent.tuning.jobs.table",
    "Result": "prudent.tuning.result",
    "strategies": "prudent.tuning.strategies.registry",
    "Study": "prudent.tuning.study.study",
    "Trial": "prudent.tuning.trial",
    "tune": "prudent.tuning.tune",
    "Execution": "prudent.workflows.execution",
    "Fleet": "prudent.workflows.fleet",
    "Plan": "prudent.workflows.plan",
    "Workflow": "prudent.workflows.workflow",
    "World": "prudent.workflows.world",
    "execute": "prudent.workflows.execute.runner",
    "schedule": "prudent.workflows.scheduling",
    "schedulers": "prudent.workflows.scheduling",
    "simulate": "prudent.workflows.scheduling",
}

__all__ = [
    "BadInput",
    "CommandJob",
    "Comparison",
    "Execution",
    "Fleet",
    "FunctionJob",
    "Goal",
    "Plan",
    "PrudentError",
    "Result",
    "RunFailed",
    "Space",
    "Study",
    "TableJob",
    "Trial",
    "Workflow",
    "World",
    "__version__",
    "compare",
    "execute",
    "load",
    "schedule",
    "schedulers",
    "simulate",
    "strategies",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'prudent' has no attribute {name!r}")
    value = getattr(import_module(_PLACES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
