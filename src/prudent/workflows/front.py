"""Time against money: the plans of which none is both faster and cheaper than another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import numpy as np

from prudent.workflows.simulator import Placement

Policy = Literal["static", "adaptive", "frugal"]
"""How a plan is followed: to the letter; by rank once reality differs, on any VM; or only on rented ones."""
POLICIES: tuple[Policy, ...] = ("static", "adaptive", "frugal")


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """One choice between fast and cheap; `lanes` by activation and `order` are its plan.

    `alternative(plan, at, workflow)` makes a plan of it.
    """

    makespan_s: float
    cost_usd: float
    lanes: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    @classmethod
    def of(cls, placement: Placement, makespan_s: float, cost_usd: float) -> FrontPoint:
        """A point from a placement and what it takes."""
        return cls(makespan_s, cost_usd, tuple(placement.lane.tolist()), tuple(placement.order.tolist()))

    @property
    def placement(self) -> Placement:
        """The plan as arrays."""
        return Placement(np.array(self.lanes, dtype=np.int64), np.array(self.order, dtype=np.int64))


class Choice(Protocol):
    """Anything that takes time and money."""

    @property
    def makespan_s(self) -> float:
        """Seconds until the end."""

    @property
    def cost_usd(self) -> float:
        """The bill."""


Some = TypeVar("Some", bound=Choice)


def undominated(choices: Iterable[Some]) -> list[Some]:
    """Those than which no other is both at least as fast and at least as cheap; fastest first.

    >>> points = FrontPoint(2, 3), FrontPoint(1, 5), FrontPoint(3, 4)
    >>> [(point.makespan_s, point.cost_usd) for point in undominated(points)]
    [(1, 5), (2, 3)]
    """
    kept: list[Some] = []
    for choice in sorted(choices, key=lambda each: (each.makespan_s, each.cost_usd)):
        if not kept or choice.cost_usd < kept[-1].cost_usd:
            kept.append(choice)
    return kept
