"""Predict Earliest Finish Time (Arabnejad and Barbosa, 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prudent.workflows.compiled import compiled
from prudent.workflows.graph import Floats, Ints
from prudent.workflows.problem import Problem
from prudent.workflows.records import Records
from prudent.workflows.schedulers import ranks
from prudent.workflows.schedulers.registry import Proposal
from prudent.workflows.schedulers.timetable import by_priority, fill


@dataclass(frozen=True)
class Peft:
    """As HEFT, but the choice of a slot looks ahead through the optimistic cost table."""

    name: ClassVar[str] = "peft"
    policy: ClassVar[int | None] = None

    def propose(self, problem: Problem, seed: int) -> Proposal:
        """Deterministic; the seed is not used."""
        table = optimistic_cost_s(problem)
        counts = ranks.lane_counts(problem)
        return Proposal(fill(problem, by_priority(problem, table @ counts / counts.sum()), bonus_s=table))


def optimistic_cost_s(problem: Problem) -> Floats:
    """OCT(i, k) = max over children c of min over VMs w of (OCT(c, w) + held(c, w) + edge if w is another).

    The table depends on a VM only through its kind, so it has one column per kind.
    """
    held_s, per_byte_s = ranks.held_s(problem), ranks.seconds_per_byte(problem)
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
