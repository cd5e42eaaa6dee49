"""A plan: which activation runs on which VM and in which order, how it is followed, and its Pareto front.

Plans are saved as JSON and checked against the workflow and the fleet when they are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from prudent.core.errors import BadInput, did_you_mean, unknown
from prudent.workflows.execution import Assignment
from prudent.workflows.fleet import Fleet, Vm
from prudent.workflows.simulation.problem import Placement
from prudent.workflows.workflow import Workflow

Policy = Literal["static", "adaptive", "frugal"]
"""How a plan is followed: exactly; by rank once times differ, on any VM; or by rank on the planned VMs."""


POLICIES: tuple[Policy, ...] = ("static", "adaptive", "frugal")


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """A point between fast and cheap; `lanes` (by activation) and `order` are its placement.

    `alternative(plan, at, workflow)` makes a plan of it.
    """

    makespan_s: float
    cost_usd: float
    lanes: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    @classmethod
    def of(cls, placement: Placement, makespan_s: float, cost_usd: float) -> ParetoPoint:
        """A point from a placement and what it takes."""
        return cls(makespan_s, cost_usd, tuple(placement.lane.tolist()), tuple(placement.order.tolist()))

    @property
    def placement(self) -> Placement:
        """The plan as arrays."""
        return Placement(np.array(self.lanes, dtype=np.int64), np.array(self.order, dtype=np.int64))


class TimeAndCost(Protocol):
    """Anything with a makespan and a cost."""

    @property
    def makespan_s(self) -> float:
        """Seconds until the end."""

    @property
    def cost_usd(self) -> float:
        """The bill."""


Item = TypeVar("Item", bound=TimeAndCost)


def pareto_front(choices: Iterable[Item]) -> list[Item]:
    """The Pareto front: items that no other beats in both time and cost; fastest first.

    >>> points = ParetoPoint(2, 3), ParetoPoint(1, 5), ParetoPoint(3, 4)
    >>> [(point.makespan_s, point.cost_usd) for point in pareto_front(points)]
    [(1, 5), (2, 3)]
    """
    kept: list[Item] = []
    for choice in sorted(choices, key=lambda each: (each.makespan_s, each.cost_usd)):
        if not kept or choice.cost_usd < kept[-1].cost_usd:
            kept.append(choice)
    return kept


_FORMAT = "prudent-plan-1"


@dataclass(frozen=True)
class Plan:
    """Assignments by activation id, first to start first, with the times expected in the calm world.

    `details` holds what the scheduler reports (a learning curve, say), as plain values. `policy`:
    "static" plans are followed exactly; "adaptive" ones until an activation takes another time than expected,
    then the rest goes by rank to the VM where it is expected to end first; "frugal" ones adapt as well, but
    rent no VM that the plan does not use. `front` lists the other points
    between fast and cheap, fastest first.

    >>> from prudent.workflows.workflow import Workflow, Activation
    >>> from prudent.workflows.fleet import Fleet, Vm
    >>> from prudent.workflows.world import World
    >>> from prudent.workflows.scheduling import schedule
    >>> pair = Activation("a", runtime_s=3), Activation("b", runtime_s=4)
    >>> workflow = Workflow("two", pair, (("a", "b"),))
    >>> plan = schedule(workflow, Fleet((Vm("v", "mine"),)), World(), scheduler="heft")
    >>> plan.makespan_s, list(plan.assignments)
    (7.0, ['a', 'b'])
    """

    workflow: str
    fingerprint: str
    scheduler: str
    fleet: Fleet
    assignments: Mapping[str, Assignment]
    makespan_s: float
    busy_s: float
    cost_usd: float
    world: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    policy: Policy = "static"
    front: tuple[ParetoPoint, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "front", tuple(self.front))
        if self.policy not in POLICIES:
            raise unknown("policy of a plan", self.policy, POLICIES)

    def check(self, workflow: Workflow, fleet: Fleet | None = None) -> None:
        """Refuse a plan that was not made for this workflow, or that this fleet cannot follow."""
        for name in workflow.index:
            if name not in self.assignments:
                raise BadInput(f'The plan misses activation "{name}"; plan workflow "{workflow.name}" again.')
        for name in self.assignments:
            if name not in workflow.index:
                raise BadInput(
                    f'The plan names activation "{name}", which workflow "{workflow.name}" does not have.'
                    f"{did_you_mean(name, workflow.index)} Plan this workflow again."
                )
        if self.fingerprint != workflow.fingerprint:
            raise BadInput(
                f'The plan was made for another workflow ("{self.workflow}", {self.fingerprint}), not for '
                f'"{workflow.name}" ({workflow.fingerprint}); plan this one.'
            )
        self._check_vms(fleet or self.fleet)
        if misfit := self.misfit(workflow, fleet):
            raise BadInput(misfit)

    def placement(self, workflow: Workflow, fleet: Fleet | None = None) -> Placement:
        """The plan as arrays, checked against what it is used for."""
        fleet = fleet or self.fleet
        self.check(workflow, fleet)
        lane = np.empty(len(workflow), dtype=np.int64)
        position = {workflow.index[name]: at for at, name in enumerate(workflow.order)}
        keys = []
        for assignment in self.assignments.values():
            at = workflow.index[assignment.activation]
            lane[at] = fleet.lane_index[assignment.vm, assignment.slot]
            keys.append((assignment.start_s, position[at], at))
        order = np.array([at for _, _, at in sorted(keys)], dtype=np.int64)
        return Placement(lane, order)

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON."""
        document = {
            "format": _FORMAT,
            "workflow": self.workflow,
            "fingerprint": self.fingerprint,
            "scheduler": self.scheduler,
            "options": dict(self.options),
            "seed": self.seed,
            "world": dict(self.world),
            "makespan_s": self.makespan_s,
            "busy_s": self.busy_s,
            "cost_usd": self.cost_usd,
            "details": dict(self.details),
            "policy": self.policy,
            "front": [asdict(point) for point in self.front],
            "fleet": [asdict(vm) for vm in self.fleet.vms],
            "assignments": [asdict(assignment) for assignment in self.assignments.values()],
        }
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan that `save` wrote."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(f'Cannot read plan "{path}" ({error.strerror}); check the path.') from None
        except ValueError as error:
            raise BadInput(f'Plan "{path}" is not valid JSON ({error}); plan again.') from None
        if not isinstance(document, dict) or document.pop("format", None) != _FORMAT:
            raise BadInput(f'"{path}" is not a plan of this version; make one with `prudent schedule`.')
        try:
            rows = [Assignment(**row) for row in document.pop("assignments")]
            fleet = Fleet(tuple(Vm(**row) for row in document.pop("fleet")))
            front = tuple(_point(**row) for row in document.pop("front", ()))
            plan = cls(
                assignments={row.activation: row for row in rows}, fleet=fleet, front=front, **document
            )
        except (TypeError, KeyError) as error:
            raise BadInput(f'Plan "{path}" is incomplete ({error}); plan again.') from None
        if len(plan.assignments) < len(rows):
            raise BadInput(f'Plan "{path}" places an activation twice; plan again.')
        return plan

    def misfit(self, workflow: Workflow, fleet: Fleet | None = None) -> str | None:
        """A sentence about an activation on a machine that lacks the cores or the memory for it, if any."""
        return misfit(workflow, fleet or self.fleet, self.assignments.values())

    def _check_vms(self, fleet: Fleet) -> None:
        for assignment in self.assignments.values():
            at = fleet.index.get(assignment.vm)
            if at is None or assignment.slot >= fleet.vms[at].slots:
                raise BadInput(
                    f'The plan uses slot {assignment.slot} of VM "{assignment.vm}", which the fleet does not '
                    f"have.{did_you_mean(assignment.vm, fleet.index)} Plan again for this fleet."
                )


def misfit(workflow: Workflow, fleet: Fleet, assignments: Iterable[Assignment]) -> str | None:
    """A sentence about the first assignment to a machine that lacks what the activation needs, if any."""
    for assignment in assignments:
        vm = fleet.vms[fleet.index[assignment.vm]]
        if lacks := vm.lacks(workflow[assignment.activation]):
            return (
                f'Activation "{assignment.activation}" is put where it can never run: it needs {lacks}; take '
                "larger machines, or plan by a scheduler that minds their size (prudent)."
            )
    return None


def _point(makespan_s: float, cost_usd: float, lanes: list[int], order: list[int]) -> ParetoPoint:
    return ParetoPoint(makespan_s, cost_usd, tuple(lanes), tuple(order))
