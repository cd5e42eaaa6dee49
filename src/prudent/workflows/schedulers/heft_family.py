"""The classic list schedulers: HEFT, CPOP (Topcuoglu, Hariri and Wu, 2002) and PEFT.

PEFT is by Arabnejad and Barbosa (2014). All of them place by insertion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prudent.workflows.schedulers.list_scheduling import (
    downward_rank,
    lane_counts,
    mean_occupancy_s,
    mean_upward_rank,
    occupancy_s,
    place_by_insertion,
    priority_order,
    seconds_per_byte,
    upward_rank,
)
from prudent.workflows.schedulers.registry import ScheduleProposal
from prudent.workflows.simulation.compiled import Floats, Ints, Records, compiled
from prudent.workflows.simulation.problem import SchedulingProblem


@dataclass(frozen=True)
class Heft:
    """Largest upward rank first, each where it ends first; later activations may use earlier gaps."""

    name: ClassVar[str] = "heft"
    rule: ClassVar[int | None] = None

    def propose(self, problem: SchedulingProblem, seed: int) -> ScheduleProposal:
        """Deterministic; the seed is not used."""
        rank = mean_upward_rank(problem)
        order = problem.graph.order
        # Equal ranks (activations that take no time) keep the order of the graph, parents first.
        return ScheduleProposal(place_by_insertion(problem, order[np.argsort(-rank[order], kind="stable")]))


@dataclass(frozen=True)
class Peft:
    """As HEFT, but the choice of a slot looks ahead through the optimistic cost table."""

    name: ClassVar[str] = "peft"
    rule: ClassVar[int | None] = None

    def propose(self, problem: SchedulingProblem, seed: int) -> ScheduleProposal:
        """Deterministic; the seed is not used."""
        table = optimistic_cost_s(problem)
        counts = lane_counts(problem)
        return ScheduleProposal(
            place_by_insertion(problem, priority_order(problem, table @ counts / counts.sum()), bonus_s=table)
        )


def optimistic_cost_s(problem: SchedulingProblem) -> Floats:
    """OCT(i, k) = max over children c of min over VMs w of (OCT(c, w) + held(c, w) + edge if w is another).

    The table depends on a VM only through its kind, so it has one column per kind.
    """
    held_s, per_byte_s = occupancy_s(problem), seconds_per_byte(problem)
    return _optimistic_cost(problem.tasks, problem.links, problem.graph.order, held_s, per_byte_s)


@compiled
def _optimistic_cost(
    tasks: Records, links: Records, order: Ints, held_s: Floats, per_byte_s: float
) -> Floats:
    kinds = held_s.shape[1]
    table = np.zeros((len(tasks), kinds))
    for task in order[::-1]:
        for at in range(tasks[task].children, tasks[task].staged):
            child = links[at].other
            elsewhere = np.inf
            for kind in range(kinds):
                elsewhere = min(elsewhere, table[child, kind] + held_s[child, kind])
            elsewhere += links[at].bytes * per_byte_s
            for kind in range(kinds):
                here = table[child, kind] + held_s[child, kind]
                table[task, kind] = max(table[task, kind], min(here, elsewhere))
    return table


@dataclass(frozen=True)
class Cpop:
    """The critical path on the slot that runs it fastest; the other activations where each ends first."""

    name: ClassVar[str] = "cpop"
    rule: ClassVar[int | None] = None

    def propose(self, problem: SchedulingProblem, seed: int) -> ScheduleProposal:
        """Deterministic; the seed is not used."""
        cost_s, per_byte_s = mean_occupancy_s(problem), seconds_per_byte(problem)
        priority = upward_rank(problem, cost_s, per_byte_s) + downward_rank(problem, cost_s, per_byte_s)
        path = critical_path(problem, priority)
        kind = int(np.argmin(occupancy_s(problem)[path].sum(axis=0)))
        pinned = np.full(len(problem.tasks), -1, dtype=np.int64)
        pinned[path] = int(np.argmax(problem.lanes["kind"] == kind))
        return ScheduleProposal(place_by_insertion(problem, priority_order(problem, priority), pinned=pinned))


def critical_path(problem: SchedulingProblem, priority: Floats) -> list[int]:
    """The activations from the start of largest priority to an end, each the child of largest priority."""
    graph = problem.graph
    starts = np.flatnonzero(np.diff(graph.parent_ptr) == 0)
    path = [int(starts[np.argmax(priority[starts])])]
    while True:
        children = graph.children[graph.child_ptr[path[-1]] : graph.child_ptr[path[-1] + 1]]
        if len(children) == 0:
            return path
        path.append(int(children[np.argmax(priority[children])]))
