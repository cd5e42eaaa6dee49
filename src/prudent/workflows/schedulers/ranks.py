"""How much lies behind an activation, and how much before it: the ranks of HEFT and its kin."""

from __future__ import annotations

import numpy as np

from prudent.workflows.compiled import compiled
from prudent.workflows.graph import Floats, Ints
from prudent.workflows.problem import Problem
from prudent.workflows.records import Records


def lane_counts(problem: Problem) -> Ints:
    """How many lanes there are of each kind of VM."""
    return np.bincount(problem.lanes["kind"], minlength=problem.run_s.shape[1])


def held_s(problem: Problem) -> Floats:
    """`[i, k]`: how long activation i holds a lane of kind k, with files that nobody here writes."""
    fixed = problem.tasks["hold_s"] + problem.tasks["stage_s"]
    if problem.world.storage == "local":
        fixed = fixed + problem.tasks["foreign_bytes"] / problem.rules[0]["bytes_per_s"]
    return np.asarray(problem.run_s + fixed[:, None])


def mean_held_s(problem: Problem) -> Floats:
    """The mean of `held_s` over all lanes."""
    counts = lane_counts(problem)
    return np.asarray(held_s(problem) @ counts / counts.sum())


def seconds_per_byte(problem: Problem) -> float:
    """What an edge costs between two VMs: nothing on shared storage, where each activation reads."""
    return 0.0 if problem.world.storage == "shared" else 1.0 / float(problem.rules[0]["bytes_per_s"])


def upward(problem: Problem, cost_s: Floats, per_byte_s: float) -> Floats:
    """rank_u(i) = cost(i) + max over children c of (edge(i, c) + rank_u(c)): the longest way to the end."""
    return _upward(problem.tasks, problem.links, problem.graph.order, cost_s, per_byte_s)


def downward(problem: Problem, cost_s: Floats, per_byte_s: float) -> Floats:
    """rank_d(i) = max over parents p of (rank_d(p) + cost(p) + edge(p, i)): the longest way from a start."""
    return _downward(problem.tasks, problem.links, problem.graph.order, cost_s, per_byte_s)


@compiled
def _upward(tasks: Records, links: Records, order: Ints, cost_s: Floats, per_byte_s: float) -> Floats:
    rank = np.zeros(len(tasks))
    for task in order[::-1]:
        behind = 0.0
        for at in range(tasks[task].children, tasks[task].staged):
            child = links[at].other
            lag_s = tasks[task].post_s + tasks[child].engine_s + links[at].bytes * per_byte_s
            behind = max(behind, lag_s + rank[child])
        rank[task] = cost_s[task] + behind
    return rank


@compiled
def _downward(tasks: Records, links: Records, order: Ints, cost_s: Floats, per_byte_s: float) -> Floats:
    rank = np.zeros(len(tasks))
    for task in order:
        before = 0.0
        for at in range(tasks[task].parents, tasks[task].children):
            parent = links[at].other
            lag_s = tasks[parent].post_s + links[at].bytes * per_byte_s
            before = max(before, rank[parent] + cost_s[parent] + lag_s)
        rank[task] = before + tasks[task].engine_s
    return rank
