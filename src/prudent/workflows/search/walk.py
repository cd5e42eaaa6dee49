"""The problem as the search sees it: few flat arrays, so that a plan's times take microseconds.

A plan under change: where and in which order, its times, and where to take up again after a change.

The times of a draft, from the first position that changed to the end, or until it cannot be good.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from prudent.workflows.schedulers.list_scheduling import upward_rank
from prudent.workflows.simulation.compiled import Floats, Ints, Records, allocation_free, inlined
from prudent.workflows.simulation.problem import Placement, SchedulingProblem
from prudent.workflows.simulation.records import SHARED
from prudent.workflows.simulation.replay import Replayer, bill_usd, replay


class SearchArrays(NamedTuple):
    """What does not change while plans are tried; the records serve storages that only `replay` knows.

    `held_s[i, k]`: how long activation i holds a lane of kind k. `tail_s[i]`: the least time from its end to
    the end of the workflow. `beneath[i]`: its parents are parents[beneath[i]:beneath[i + 1]], likewise
    `above` and `children`.
    """

    held_s: Floats
    tail_s: Floats
    post_s: Floats
    engine_s: Floats
    beneath: Ints
    parents: Ints
    above: Ints
    children: Ints
    kind: Ints
    vm: Ints
    boot_s: Floats
    tasks: Records
    links: Records
    lanes: Records
    vms: Records
    rules: Records
    run_s: Floats
    present: Records
    sums: Floats


def search_arrays(problem: SchedulingProblem) -> SearchArrays:
    """The arrays of a problem; the search writes into copies of its records only."""
    replayer = Replayer(problem)
    fixed_s = problem.tasks["hold_s"] + problem.tasks["stage_s"]
    held_s = np.ascontiguousarray(problem.run_s + fixed_s[:, None])
    least_s = held_s.min(axis=1)
    graph = problem.graph
    return SearchArrays(
        held_s=held_s,
        tail_s=upward_rank(problem, least_s, 0.0) - least_s,
        post_s=np.ascontiguousarray(problem.tasks["post_s"]),
        engine_s=np.ascontiguousarray(problem.tasks["engine_s"]),
        beneath=graph.parent_ptr,
        parents=graph.parents,
        above=graph.child_ptr,
        children=graph.children,
        kind=np.ascontiguousarray(problem.lanes["kind"]),
        vm=np.ascontiguousarray(problem.lanes["vm"]),
        boot_s=np.ascontiguousarray(problem.vms["boot_s"]),
        tasks=replayer.tasks,
        links=problem.links,
        lanes=problem.lanes,
        vms=replayer.vms,
        rules=problem.rules,
        run_s=problem.run_s,
        present=replayer.present,
        sums=replayer.sums,
    )


_MIN_BLOCK = 32


class CandidatePlan(NamedTuple):
    """`place[i]` is the position of activation i in `order`; the other arrays are the times of this order.

    After every `block` activations the state of all lanes is kept, so that a walk starts at the last such
    mark. `free_s[b, l]`: when lane l is free before position b * block (-1: not used yet); `from_s` likewise
    for the boot of VMs. The fields that begin with `new_` are those of the change that is tried.
    """

    lane: Ints
    order: Ints
    place: Ints
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


def candidate_plan(ground: SearchArrays, placement: Placement) -> CandidatePlan:
    """Room for a placement; its times are not set yet."""
    n, lanes, vms = len(placement.lane), len(ground.kind), len(ground.boot_s)
    # Keeping the state of many lanes takes as long as walking over as many activations.
    block = max(_MIN_BLOCK, lanes)
    blocks = n // block + 1
    place = np.empty(n, dtype=np.int64)
    place[placement.order] = np.arange(n)
    return CandidatePlan(
        lane=placement.lane.astype(np.int64),
        order=placement.order.astype(np.int64),
        place=place,
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
    """Element by element: a slice assignment would need memory, which bare code cannot ask for."""
    for at in range(len(source)):
        into[at] = source[at]


@allocation_free
def walk(ground: SearchArrays, draft: CandidatePlan, first: int, limit_s: float) -> float:
    """The makespan; infinite as soon as it must be above `limit_s`. Sets the draft's `new_` times."""
    if ground.rules[0].storage != SHARED:
        return _walk_records(ground, draft)
    size, block = draft.block, first // draft.block
    _open(ground, draft, block)
    copy(draft.finish_s, draft.new_finish_s)
    free_s, from_s, finish_s = draft.lane_free_s, draft.vm_from_s, draft.new_finish_s
    for at in range(block * size, len(draft.order)):
        if at % size == 0:
            copy(free_s, draft.new_free_s[at // size])
            copy(from_s, draft.new_from_s[at // size])
        task = draft.order[at]
        lane = draft.lane[task]
        vm = ground.vm[lane]
        start_s = 0.0
        for link in range(ground.beneath[task], ground.beneath[task + 1]):
            parent = ground.parents[link]
            start_s = max(start_s, finish_s[parent] + ground.post_s[parent])
        start_s = max(start_s + ground.engine_s[task], free_s[lane])
        if from_s[vm] < 0.0:
            from_s[vm] = start_s
        start_s = max(start_s, from_s[vm] + ground.boot_s[vm])
        end_s = start_s + ground.held_s[task, ground.kind[lane]]
        if end_s + ground.tail_s[task] > limit_s:
            return math.inf
        draft.new_start_s[task] = start_s
        finish_s[task] = end_s
        free_s[lane] = end_s
    makespan_s = 0.0
    for lane in range(len(free_s)):
        makespan_s = max(makespan_s, free_s[lane])
    return makespan_s


@inlined
def _open(ground: SearchArrays, draft: CandidatePlan, block: int) -> None:
    """The state of lanes and VMs before the block."""
    if block > 0:
        copy(draft.free_s[block], draft.lane_free_s)
        copy(draft.from_s[block], draft.vm_from_s)
        return
    draft.lane_free_s[:] = -1.0
    draft.vm_from_s[:] = -1.0 if ground.rules[0].boots_late == 1 else 0.0


@allocation_free
def _walk_records(ground: SearchArrays, draft: CandidatePlan) -> float:
    """The same for any storage: the whole plan, without an early end."""
    replay(
        ground.tasks, ground.links, ground.lanes, ground.vms, ground.rules, ground.run_s, ground.present,
        draft.lane, draft.order, draft.lane_free_s, ground.sums,
    )  # fmt: skip
    draft.lane_free_s[:] = -1.0
    draft.vm_from_s[:] = -1.0
    for task in draft.order:
        draft.new_start_s[task] = ground.tasks[task].start_s
        draft.new_finish_s[task] = ground.tasks[task].finish_s
        draft.lane_free_s[draft.lane[task]] = ground.tasks[task].finish_s
    for vm in range(len(ground.vms)):
        draft.vm_from_s[vm] = ground.vms[vm].from_s
    return ground.sums[0]  # type: ignore[no-any-return]


@allocation_free
def cost_usd(ground: SearchArrays, draft: CandidatePlan) -> float:
    """The bill of the plan that was walked last: each VM from its boot to its last use."""
    total = 0.0
    lanes, lane = len(ground.vm), 0
    while lane < lanes:
        vm, last_s = ground.vm[lane], -1.0
        while lane < lanes and ground.vm[lane] == vm:
            last_s = max(last_s, draft.lane_free_s[lane])
            lane += 1
        if last_s >= 0.0:
            total += bill_usd(ground.vms, ground.rules, vm, last_s - draft.vm_from_s[vm])
    return total


@allocation_free
def accept(draft: CandidatePlan, first: int) -> None:
    """The change that was walked becomes the draft."""
    copy(draft.new_finish_s, draft.finish_s)
    block = first // draft.block
    for at in range(block * draft.block, len(draft.order)):
        task = draft.order[at]
        draft.start_s[task] = draft.new_start_s[task]
    for row in range(block, len(draft.free_s)):
        copy(draft.new_free_s[row], draft.free_s[row])
        copy(draft.new_from_s[row], draft.from_s[row])
