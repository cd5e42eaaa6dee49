"""The problem and a plan under change as flat arrays, and the walk that computes the plan's times.

The walk goes from the first position that changed to the end, or until the plan cannot be good any more.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from prudent.workflows.schedulers.list_scheduling import least_occupancy_s, upward_rank
from prudent.workflows.simulation.compiled import Floats, Ints, allocation_free, inlined
from prudent.workflows.simulation.problem import Placement, SchedulingProblem
from prudent.workflows.simulation.records import SHARED, RunArrays
from prudent.workflows.simulation.replay import bill_usd, replay


class SearchArrays(NamedTuple):
    """What does not change while plans are tried.

    `held_s[i, k]`: how long activation i holds a lane of kind k. `tail_s[i]`: the least time from its end to
    the end of the workflow. Its parents are parents[parent_ptr[i]:parent_ptr[i + 1]], likewise `children`.
    `run` is for `replay`, which computes plans on storages that are not shared.
    """

    held_s: Floats
    tail_s: Floats
    post_s: Floats
    engine_s: Floats
    parent_ptr: Ints
    parents: Ints
    child_ptr: Ints
    children: Ints
    kind: Ints
    vm: Ints
    boot_s: Floats
    run: RunArrays


def search_arrays(problem: SchedulingProblem) -> SearchArrays:
    """The arrays of a problem; the search writes into copies of its records only."""
    held_s = least_occupancy_s(problem)
    least_s = held_s.min(axis=1)
    graph = problem.graph
    return SearchArrays(
        held_s=held_s,
        tail_s=upward_rank(problem, least_s, 0.0) - least_s,
        post_s=np.ascontiguousarray(problem.tasks["post_s"]),
        engine_s=np.ascontiguousarray(problem.tasks["engine_s"]),
        parent_ptr=graph.parent_ptr,
        parents=graph.parents,
        child_ptr=graph.child_ptr,
        children=graph.children,
        kind=np.ascontiguousarray(problem.lanes["kind"]),
        vm=np.ascontiguousarray(problem.lanes["vm"]),
        boot_s=np.ascontiguousarray(problem.vms["boot_s"]),
        run=problem.run_arrays(),
    )


_MIN_BLOCK = 32


class CandidatePlan(NamedTuple):
    """`position[i]` is the position of activation i in `order`; the other arrays are the times of this order.

    After every `block` activations the state of all lanes is kept, so that a walk starts at the last such
    mark. `free_s[b, l]`: when lane l is free before position b * block (-1: not used yet); `from_s` likewise
    for the boot of VMs. The fields that begin with `new_` are those of the change that is tried.
    """

    lane: Ints
    order: Ints
    position: Ints
    start_s: Floats
    finish_s: Floats
    free_s: Floats
    from_s: Floats
    new_start_s: Floats
    new_finish_s: Floats
    new_free_s: Floats
    new_from_s: Floats
    lane_free_s: Floats
    vm_from_s: Floats
    block: int


def candidate_plan(arrays: SearchArrays, placement: Placement) -> CandidatePlan:
    """Room for a placement; its times are not set yet."""
    n, lanes, vms = len(placement.lane), len(arrays.kind), len(arrays.boot_s)
    # Keeping the state of many lanes takes as long as walking over as many activations.
    block = max(_MIN_BLOCK, lanes)
    blocks = n // block + 1
    position = np.empty(n, dtype=np.int64)
    position[placement.order] = np.arange(n)
    return CandidatePlan(
        lane=placement.lane.astype(np.int64),
        order=placement.order.astype(np.int64),
        position=position,
        start_s=np.zeros(n),
        finish_s=np.zeros(n),
        free_s=np.zeros((blocks, lanes)),
        from_s=np.zeros((blocks, vms)),
        new_start_s=np.zeros(n),
        new_finish_s=np.zeros(n),
        new_free_s=np.zeros((blocks, lanes)),
        new_from_s=np.zeros((blocks, vms)),
        lane_free_s=np.zeros(lanes),
        vm_from_s=np.zeros(vms),
        block=block,
    )


@inlined
def copy(source: Any, into: Any) -> None:
    """Copy element by element: a slice assignment would allocate memory, which such code cannot."""
    for at in range(len(source)):
        into[at] = source[at]


@allocation_free
def walk(arrays: SearchArrays, candidate: CandidatePlan, first: int, limit_s: float) -> float:
    """The makespan; infinite as soon as it must be above `limit_s`. Sets the candidate's `new_` times."""
    if arrays.run.state[0].storage != SHARED:
        return _walk_records(arrays, candidate)
    size, block = candidate.block, first // candidate.block
    _restore_block(arrays, candidate, block)
    copy(candidate.finish_s, candidate.new_finish_s)
    free_s, from_s, finish_s = candidate.lane_free_s, candidate.vm_from_s, candidate.new_finish_s
    for at in range(block * size, len(candidate.order)):
        if at % size == 0:
            copy(free_s, candidate.new_free_s[at // size])
            copy(from_s, candidate.new_from_s[at // size])
        task = candidate.order[at]
        lane = candidate.lane[task]
        vm = arrays.vm[lane]
        start_s = 0.0
        for link in range(arrays.parent_ptr[task], arrays.parent_ptr[task + 1]):
            parent = arrays.parents[link]
            start_s = max(start_s, finish_s[parent] + arrays.post_s[parent])
        start_s = max(start_s + arrays.engine_s[task], free_s[lane])
        if from_s[vm] < 0.0:
            from_s[vm] = start_s
        start_s = max(start_s, from_s[vm] + arrays.boot_s[vm])
        end_s = start_s + arrays.held_s[task, arrays.kind[lane]]
        if end_s + arrays.tail_s[task] > limit_s:
            return math.inf
        candidate.new_start_s[task] = start_s
        finish_s[task] = end_s
        free_s[lane] = end_s
    makespan_s = 0.0
    for lane in range(len(free_s)):
        makespan_s = max(makespan_s, free_s[lane])
    return makespan_s


@inlined
def _restore_block(arrays: SearchArrays, candidate: CandidatePlan, block: int) -> None:
    """The state of lanes and VMs before the block."""
    if block > 0:
        copy(candidate.free_s[block], candidate.lane_free_s)
        copy(candidate.from_s[block], candidate.vm_from_s)
        return
    candidate.lane_free_s[:] = -1.0
    candidate.vm_from_s[:] = -1.0 if arrays.run.state[0].boots_at_first_use == 1 else 0.0


@allocation_free
def _walk_records(arrays: SearchArrays, candidate: CandidatePlan) -> float:
    """The same for any storage: the whole plan, without an early end."""
    tasks, vms = arrays.run.tasks, arrays.run.vms
    makespan_s = replay(arrays.run, candidate.lane, candidate.order, candidate.lane_free_s)
    candidate.lane_free_s[:] = -1.0
    candidate.vm_from_s[:] = -1.0
    for task in candidate.order:
        candidate.new_start_s[task] = tasks[task].start_s
        candidate.new_finish_s[task] = tasks[task].finish_s
        candidate.lane_free_s[candidate.lane[task]] = tasks[task].finish_s
    for vm in range(len(vms)):
        candidate.vm_from_s[vm] = vms[vm].from_s
    return makespan_s


@allocation_free
def cost_usd(arrays: SearchArrays, candidate: CandidatePlan) -> float:
    """The bill of the plan that was walked last: each VM from its boot to its last use."""
    total = 0.0
    lanes, lane = len(arrays.vm), 0
    while lane < lanes:
        vm, last_s = arrays.vm[lane], -1.0
        while lane < lanes and arrays.vm[lane] == vm:
            last_s = max(last_s, candidate.lane_free_s[lane])
            lane += 1
        if last_s >= 0.0:
            total += bill_usd(arrays.run.vms, arrays.run.state, vm, last_s - candidate.vm_from_s[vm])
    return total


@allocation_free
def accept(candidate: CandidatePlan, first: int) -> None:
    """Accept the change that was walked: its times become the candidate's."""
    copy(candidate.new_finish_s, candidate.finish_s)
    block = first // candidate.block
    for at in range(block * candidate.block, len(candidate.order)):
        task = candidate.order[at]
        candidate.start_s[task] = candidate.new_start_s[task]
    for row in range(block, len(candidate.free_s)):
        copy(candidate.new_free_s[row], candidate.free_s[row])
        copy(candidate.new_from_s[row], candidate.from_s[row])
