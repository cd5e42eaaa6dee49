"""The two halves of list scheduling (HEFT and its family): ranks, and placement by insertion.

Ranks tell how long the way from an activation to the end, or from the start, is. Placement by insertion puts
activations one by one where each ends first, into gaps of the lanes if they fit.
"""

from __future__ import annotations

import math

import numpy as np

from prudent.workflows.simulation.compiled import Floats, Ints, Records, allocation_free, compiled, inlined
from prudent.workflows.simulation.problem import Placement, SchedulingProblem, recorded_placement
from prudent.workflows.simulation.queues import pop_ready, push_ready
from prudent.workflows.simulation.records import LOCAL, NETWORK, READY_ENTRY, RunArrays
from prudent.workflows.simulation.staging import arrival_s, missing_bytes


def lane_counts(problem: SchedulingProblem) -> Ints:
    """The number of lanes of each kind of VM."""
    return np.bincount(problem.lanes["kind"], minlength=problem.run_s.shape[1])


def least_occupancy_s(problem: SchedulingProblem) -> Floats:
    """`[i, k]`: how long activation i holds a lane of kind k, if no file has to move to its VM."""
    return np.asarray(problem.run_s + _fixed_s(problem)[:, None])


def occupancy_s(problem: SchedulingProblem) -> Floats:
    """`[i, k]`: how long activation i holds a lane of kind k, external files included."""
    fixed_s = _fixed_s(problem)
    if problem.world.storage == "local":
        fixed_s = fixed_s + problem.tasks["external_bytes"] / problem.state[0]["bytes_per_s"]
    return np.asarray(problem.run_s + fixed_s[:, None])


def _fixed_s(problem: SchedulingProblem) -> Floats:
    """What an activation needs on any machine: its overhead, and staging on shared storage."""
    return np.asarray(problem.tasks["hold_s"] + problem.tasks["stage_s"])


def mean_occupancy_s(problem: SchedulingProblem) -> Floats:
    """The mean of `occupancy_s` over all lanes."""
    counts = lane_counts(problem)
    return np.asarray(occupancy_s(problem) @ counts / counts.sum())


def seconds_per_byte(problem: SchedulingProblem) -> float:
    """The cost of an edge between two VMs; zero on shared storage, where activations read their inputs."""
    return 0.0 if problem.world.storage == "shared" else 1.0 / float(problem.state[0]["bytes_per_s"])


def upward_rank(problem: SchedulingProblem, cost_s: Floats, per_byte_s: float) -> Floats:
    """rank_u(i) = cost(i) + max over children c of (edge(i, c) + rank_u(c)): the longest way to the end."""
    return _upward_rank(problem.tasks, problem.links, problem.graph.order, cost_s, per_byte_s)


def mean_upward_rank(problem: SchedulingProblem) -> Floats:
    """The upward rank of HEFT: activations cost their mean over all lanes."""
    return upward_rank(problem, mean_occupancy_s(problem), seconds_per_byte(problem))


def downward_rank(problem: SchedulingProblem, cost_s: Floats, per_byte_s: float) -> Floats:
    """rank_d(i) = max over parents p of (rank_d(p) + cost(p) + edge(p, i)): the longest way from a start."""
    return _downward_rank(problem.tasks, problem.links, problem.graph.order, cost_s, per_byte_s)


@compiled
def _upward_rank(tasks: Records, links: Records, order: Ints, cost_s: Floats, per_byte_s: float) -> Floats:
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
def _downward_rank(tasks: Records, links: Records, order: Ints, cost_s: Floats, per_byte_s: float) -> Floats:
    rank = np.zeros(len(tasks))
    for task in order:
        before = 0.0
        for at in range(tasks[task].parents, tasks[task].children):
            parent = links[at].other
            lag_s = tasks[parent].post_s + links[at].bytes * per_byte_s
            before = max(before, rank[parent] + cost_s[parent] + lag_s)
        rank[task] = before + tasks[task].engine_s
    return rank


GAP = np.dtype([("start_s", np.float64), ("end_s", np.float64), ("before", np.int64)], align=True)
"""A free interval of a lane and the one before it; the last of every lane has no end."""


_NO_BONUS = np.zeros((1, 1))


def place_by_insertion(
    problem: SchedulingProblem, order: Ints, bonus_s: Floats = _NO_BONUS, pinned: Ints | None = None
) -> Placement:
    """Place activations one by one (parents first), each where it ends first, in a gap if it fits.

    `bonus_s[i, k]` is added to the end of activation i on a lane of kind k before lanes are compared;
    `pinned[i]` fixes a lane (-1: free). Boot times and mean overheads count; nothing is random.
    """
    run, lanes = problem.run_arrays(), problem.lanes
    gaps = np.zeros(len(run.tasks) + len(lanes), dtype=GAP)
    last = np.arange(len(lanes), dtype=np.int64)
    opens_s = np.zeros(len(problem.vms)) if problem.state[0]["boots_at_first_use"] else problem.vms["boot_s"]
    gaps["start_s"][: len(lanes)] = opens_s[lanes["vm"]]
    gaps["end_s"] = np.inf
    gaps["before"] = -1
    if pinned is None:
        pinned = np.full(len(run.tasks), -1, dtype=np.int64)
    _place_by_insertion(run, order, bonus_s, pinned, gaps, last)
    return recorded_placement(run.tasks, problem.graph.order)


@allocation_free
def _place_by_insertion(
    run: RunArrays, order: Ints, bonus_s: Floats, pinned: Ints, gaps: Records, last: Ints
) -> None:
    tasks, links, lanes = run.tasks, run.links, run.lanes
    used = len(lanes)
    for task in order:
        ready_s = 0.0
        for at in range(tasks[task].parents, tasks[task].children):
            parent = tasks[links[at].other]
            ready_s = max(ready_s, parent.finish_s + parent.post_s)
        ready_s += tasks[task].engine_s
        best, best_gap, best_start, best_end, best_key = -1, -1, 0.0, 0.0, math.inf
        for lane in range(len(lanes)):
            if pinned[task] >= 0 and pinned[task] != lane:
                continue
            held_s, from_s = _needs(run, task, lane, ready_s)
            gap, start_s = _first_fit(gaps, last[lane], from_s, held_s)
            key = start_s + held_s
            if bonus_s.shape[0] > 1 or len(tasks) == 1:
                key += bonus_s[task, lanes[lane].kind % bonus_s.shape[1]]
            if key < best_key:
                best, best_gap, best_start, best_end, best_key = lane, gap, start_s, start_s + held_s, key
        tasks[task].lane = best
        tasks[task].start_s = best_start
        tasks[task].finish_s = best_end
        used = _occupy(gaps, last, used, best, best_gap, best_start, best_end)
        if run.state[0].storage == LOCAL:
            for at in range(tasks[task].staged, tasks[task].end):
                run.present[lanes[best].vm, links[at].other] = 1


@inlined
def _needs(run: RunArrays, task: int, lane: int, ready_s: float) -> tuple[float, float]:
    """How long the activation holds the lane, and from when on it could."""
    tasks, lanes, state = run.tasks, run.lanes, run.state
    held_s = tasks[task].hold_s + tasks[task].stage_s + run.run_s[task, lanes[lane].kind]
    if state[0].storage == LOCAL:
        return held_s + missing_bytes(run, task, lanes[lane].vm) / state[0].bytes_per_s, ready_s
    if state[0].storage == NETWORK:
        return held_s, max(ready_s, arrival_s(run, task, lanes[lane].vm))
    return held_s, ready_s


@allocation_free
def _first_fit(gaps: Records, gap: int, ready_s: float, held_s: float) -> tuple[int, float]:
    """The earliest gap that is long enough; walked from the last, down to the one at `ready_s`."""
    best, best_start = gap, max(gaps[gap].start_s, ready_s)
    while gaps[gap].start_s > ready_s and gaps[gap].before >= 0:
        gap = gaps[gap].before
        start_s = max(gaps[gap].start_s, ready_s)
        if start_s + held_s <= gaps[gap].end_s:
            best, best_start = gap, start_s
    return best, best_start


@allocation_free
def _occupy(gaps: Records, last: Ints, used: int, lane: int, gap: int, start_s: float, end_s: float) -> int:
    """Take an interval out of a gap; an emptied gap stays, with length 0. Returns the number of gaps used."""
    if start_s <= gaps[gap].start_s:
        gaps[gap].start_s = end_s
        return used
    # The new record is the gap before; the old one stays in the chain as the gap after.
    gaps[used].start_s = gaps[gap].start_s
    gaps[used].end_s = start_s
    gaps[used].before = gaps[gap].before
    gaps[gap].before = used
    gaps[gap].start_s = end_s
    return used + 1


def priority_order(problem: SchedulingProblem, priority: Floats) -> Ints:
    """All activations, parents first; of those that could be next, the one of largest priority."""
    ready_queue = np.empty(len(problem.tasks), dtype=READY_ENTRY)
    return _priority_order(
        problem.tasks["missing"].copy(), problem.tasks, problem.links, priority, ready_queue
    )


@compiled
def _priority_order(
    missing: Ints, tasks: Records, links: Records, priority: Floats, ready_queue: Records
) -> Ints:
    sizes = np.zeros(3, np.int64)
    order = np.empty(len(tasks), np.int64)
    for task in range(len(tasks)):
        if missing[task] == 0:
            push_ready(ready_queue, sizes, task, -priority[task], True)
    done = 0
    while sizes[1] > 0:
        task = ready_queue[0].task
        pop_ready(ready_queue, sizes, 0, True)
        order[done] = task
        done += 1
        for at in range(tasks[task].children, tasks[task].staged):
            child = links[at].other
            missing[child] -= 1
            if missing[child] == 0:
                push_ready(ready_queue, sizes, child, -priority[child], True)
    return order
