"""Lower bounds of makespan and cost in a calm world.

A bound near a plan's makespan says that more planning is in vain.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prudent.workflows.fleet import Fleet
from prudent.workflows.schedulers.list_scheduling import (
    downward_rank,
    lane_counts,
    least_occupancy_s,
    upward_rank,
)
from prudent.workflows.simulation.compiled import Floats, Ints, Records, compiled
from prudent.workflows.simulation.problem import SchedulingProblem, build_problem
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

_WEIGHTS = 17
"""How many mixes of weights are tried between two kinds of VM."""


_EXACT_SIZE = 3000
"""Larger workflows get heads and tails from paths alone: sets of ancestors would take too long."""


@dataclass(frozen=True)
class MakespanBounds:
    """Three lower bounds of the makespan; `tight_s` is at least the other two.

    `path_s`: the longest path with every activation on its fastest VM. `work_s`: all work spread over all
    slots. `tight_s`: the largest head + work + tail of any set of activations: none of them can start before
    the head, their work is spread over all slots, and the tail must follow each of them.
    """

    path_s: float
    work_s: float
    tight_s: float

    @property
    def simple_s(self) -> float:
        """max(critical path, work / speed)."""
        return max(self.path_s, self.work_s)


def lower_bounds(workflow: Workflow, fleet: Fleet, world: World | None = None) -> MakespanBounds:
    """Bounds on the makespan of any plan; transfers count where they cannot be avoided (shared storage)."""
    problem = build_problem(workflow, fleet, world or World())
    held_s = least_occupancy_s(problem)
    least_s = held_s.min(axis=1)
    ways_s = upward_rank(problem, least_s, 0.0)
    path_s = float(ways_s.max())
    shares = _shares(held_s, lane_counts(problem))
    work_s = float(shares.sum(axis=1).max())
    heads = downward_rank(problem, least_s, 0.0)
    tails = ways_s - least_s
    tight_s = max(path_s, work_s)
    for share in shares:
        tight_s = max(tight_s, _tight(problem, least_s, heads, tails, share))
    return MakespanBounds(path_s, work_s, tight_s)


def least_cost_usd(problem: SchedulingProblem) -> float:
    """A lower bound of the cost: every activation where it is cheapest, all slots of its VM in use.

    A VM is paid at least while something runs on it, and at least for its minimum.
    """
    lanes_of_vm = np.bincount(problem.lanes["vm"], minlength=len(problem.vms))
    rate = problem.vms["price"] / lanes_of_vm
    held_s = least_occupancy_s(problem)
    kinds = held_s.shape[1]
    least_rate = np.array([rate[problem.vms["kind"] == kind].min() for kind in range(kinds)])
    work_usd = float((held_s * least_rate).min(axis=1).sum())
    return max(work_usd, float((problem.vms["price"] * problem.vms["minimum_s"]).min()))


def _shares(held_s: Floats, counts: Ints) -> Floats:
    """Rows of what each activation adds to the work bound, one row per choice of weights.

    For any weights w of VMs: T * sum(w) >= sum over activations of min over kinds of w * time. So every row's
    sum over any set of activations bounds the time that set needs. Good weights are near the speeds.
    """
    kinds = held_s.shape[1]
    if kinds == 1:
        return np.asarray(held_s.T / counts[0])
    totals = np.maximum(held_s.sum(axis=0), 1e-9)
    steps = np.linspace(0.0, 1.0, _WEIGHTS)
    weights = [(totals.max() / totals) ** step for step in steps]
    rows = [(held_s * weight).min(axis=1) / (counts @ weight) for weight in weights]
    return np.array(rows)


def _tight(problem: SchedulingProblem, least_s: Floats, heads: Floats, tails: Floats, share: Floats) -> float:
    tasks, links, order = problem.tasks, problem.links, problem.graph.order
    if len(tasks) <= _EXACT_SIZE:
        heads = _gathered(tasks, links, order, least_s, share, heads, True)
        tails = _gathered(tasks, links, order[::-1].copy(), least_s, share, tails, False)
    by_head = np.argsort(-heads, kind="stable")
    levels = np.unique(tails)
    if len(levels) > 400:
        levels = levels[:: len(levels) // 400]
    return float(_fit(heads, tails, share, by_head, levels))


@compiled
def _fit(heads: Floats, tails: Floats, share: Floats, by_head: Ints, levels: Floats) -> float:
    """The largest head + work + tail over sets {head at least a, tail at least b}."""
    best = 0.0
    for level in levels:
        work, least_tail = 0.0, np.inf
        for task in by_head:
            if tails[task] >= level:
                work += share[task]
                least_tail = min(least_tail, tails[task])
                best = max(best, heads[task] + work + least_tail)
    return best


@compiled
def _gathered(
    tasks: Records, links: Records, order: Ints, least_s: Floats, share: Floats, paths: Floats, upwards: bool
) -> Floats:
    """Heads that count work as well as paths; tails likewise, along the edges turned round.

    The ancestors of an activation that cannot start before some moment have to be done between that moment
    and its own start.
    """
    n = len(tasks)
    bounds = np.zeros(n)
    reach = np.zeros((n, n), np.uint8)
    sorted_by = np.empty(n, np.int64)
    for task in order:
        first = tasks[task].parents if upwards else tasks[task].children
        last = tasks[task].children if upwards else tasks[task].staged
        bound = paths[task]
        for at in range(first, last):
            near = links[at].other
            reach[task, near] = 1
            for other in range(n):
                reach[task, other] |= reach[near, other]
            bound = max(bound, bounds[near] + least_s[near])
        if last - first > 1:
            count = 0
            for other in range(n):
                if reach[task, other] == 1:
                    sorted_by[count] = other
                    count += 1
            some = sorted_by[:count]
            work = 0.0
            for at in np.argsort(-bounds[some]):
                work += share[some[at]]
                bound = max(bound, bounds[some[at]] + work)
        bounds[task] = bound
    return bounds
