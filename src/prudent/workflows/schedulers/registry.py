"""The Scheduler protocol, what schedulers propose, and the registry of them by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from prudent.core.errors import BadInput, unknown

if TYPE_CHECKING:  # the compiler behind them takes half a second to load, and names are asked for more often
    from prudent.workflows.plan import ParetoPoint, Policy
    from prudent.workflows.simulation.problem import Placement, SchedulingProblem


@dataclass(frozen=True, eq=False)
class ScheduleProposal:
    """A placement and details about it (plain values, saved with the plan).

    `policy` says how it is to be followed; `front` lists other points between fast and cheap.
    """

    placement: Placement
    details: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy = "static"
    front: tuple[ParetoPoint, ...] = ()


class Scheduler(Protocol):
    """Turns a problem into a placement; deterministic for a seed.

    `schedule` and `simulate` call it. A scheduler that decides during the run names its rule in `rule` (see
    `simulation.rules`), and `simulate` lets the engine decide. For the others `rule` is None and `propose` is
    called before the run. The options of a scheduler are the fields of its dataclass.
    """

    @property
    def name(self) -> str:
        """The name in the registry."""

    @property
    def rule(self) -> int | None:
        """The engine's rule, or None for a scheduler that plans in advance."""

    def propose(self, problem: SchedulingProblem, seed: int) -> ScheduleProposal:
        """Place every activation."""


_MODULES = {
    "fcfs": "online:Fcfs",
    "round-robin": "online:RoundRobin",
    "min-min": "online:MinMin",
    "max-min": "online:MaxMin",
    "mct": "online:Mct",
    "data-aware": "online:DataAware",
    "random": "online:Random",
    "heft": "heft_family:Heft",
    "cpop": "heft_family:Cpop",
    "peft": "heft_family:Peft",
    "q-learning": "q_learning:QLearning",
    "prudent": "prudent:PrudentScheduler",
}


_PUBLISHED = ("q-learning",)

BASELINES = (
    "heft", "peft", "cpop", "mct", "min-min", "max-min", "fcfs", "round-robin", "data-aware",
)  # fmt: skip
"""The classic schedulers: our own starts from their plans, and plans are compared with them."""


MANY_PAIRS = 5_000_000
"""With more pairs of activation and slot than this, only quick baselines are asked."""


def schedulers() -> tuple[str, ...]:
    """The names of all schedulers."""
    return tuple(_MODULES)


def register(name: str, place: str) -> None:
    """Add a scheduler as `module:Class`; the module is only imported when the name is used."""
    _MODULES[name] = place


def scheduler_named(name: str, options: Mapping[str, Any] | None = None) -> Scheduler:
    """The scheduler of that name, with its options set."""
    make, known = _class_of(name), options_of(name)
    options = _as_published(name, dict(options or {}))
    for option in options or {}:
        if option not in known:
            if not known:
                raise BadInput(f'Scheduler "{name}" has no option "{option}"; leave it out.')
            raise unknown(f"option of {name}", option, known)
    return make(**(options or {}))


def _as_published(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options without `as: published`, which q-learning takes: it has its paper's parameters anyway."""
    how = options.pop("as", None)
    if how is None:
        return options
    if how != "published":
        raise unknown(f"value of {name}.as", how, ["published"])
    if name not in _PUBLISHED:
        raise BadInput(f'"{name}" is not the scheduler of a paper; leave out "as: published".')
    return options


def options_of(name: str) -> list[str]:
    """The options of a scheduler."""
    return [each.name for each in fields(_class_of(name)) if each.init]  # type: ignore[arg-type]


def _class_of(name: str) -> Callable[..., Scheduler]:
    if name not in _MODULES:
        raise unknown("scheduler", name, _MODULES)
    module, _, word = _MODULES[name].partition(":")
    if "." not in module:
        module = f"prudent.workflows.schedulers.{module}"
    found: Callable[..., Scheduler] = getattr(import_module(module), word)
    return found
