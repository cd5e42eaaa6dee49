"""Critical Path on a Processor (Topcuoglu, Hariri and Wu, 2002)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prudent.workflows.graph import Floats
from prudent.workflows.problem import Problem
from prudent.workflows.schedulers import ranks
from prudent.workflows.schedulers.registry import Proposal
from prudent.workflows.schedulers.timetable import by_priority, fill


@dataclass(frozen=True)
class Cpop:
    """The critical path on the one slot that runs it fastest; the others each where they end first."""

    name: ClassVar[str] = "cpop"
    policy: ClassVar[int | None] = None

    def propose(self, problem: Problem, seed: int) -> Proposal:
        """Deterministic; the seed is not used."""
        cost_s, per_byte_s = ranks.mean_held_s(problem), ranks.seconds_per_byte(problem)
        priority = ranks.upward(problem, cost_s, per_byte_s) + ranks.downward(problem, cost_s, per_byte_s)
        path = critical_path(problem, priority)
        kind = int(np.argmin(ranks.held_s(problem)[path].sum(axis=0)))
        pinned = np.full(len(problem.tasks), -1, dtype=np.int64)
        pinned[path] = int(np.argmax(problem.lanes["kind"] == kind))
        return Proposal(fill(problem, by_priority(problem, priority), pinned=pinned))


def critical_path(problem: Problem, priority: Floats) -> list[int]:
    """From the start of largest priority along children of the same priority."""
    graph = problem.graph
    starts = np.flatnonzero(np.diff(graph.parent_ptr) == 0)
    path = [int(starts[np.argmax(priority[starts])])]
    while True:
        children = graph.children[graph.child_ptr[path[-1]] : graph.child_ptr[path[-1] + 1]]
        if len(children) == 0:
            return path
        path.append(int(children[np.argmax(priority[children])]))
