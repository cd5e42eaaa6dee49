"""Heterogeneous Earliest Finish Time (Topcuoglu, Hariri and Wu, 2002), with insertion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prudent.workflows.problem import Problem
from prudent.workflows.schedulers import ranks
from prudent.workflows.schedulers.registry import Proposal
from prudent.workflows.schedulers.timetable import fill


@dataclass(frozen=True)
class Heft:
    """Longest way to the end first, each where it ends first; later ones may slip into gaps."""

    name: ClassVar[str] = "heft"
    policy: ClassVar[int | None] = None

    def propose(self, problem: Problem, seed: int) -> Proposal:
        """Deterministic; the seed is not used."""
        rank = ranks.upward(problem, ranks.mean_held_s(problem), ranks.seconds_per_byte(problem))
        order = problem.graph.order
        # Equal ranks (activations that take no time) keep the order of the graph, parents first.
        return Proposal(fill(problem, order[np.argsort(-rank[order], kind="stable")]))
