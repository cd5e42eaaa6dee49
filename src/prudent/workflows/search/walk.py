"""The times of a draft, from the first position that changed to the end, or until it cannot be good."""

from __future__ import annotations

import math
from typing import Any

from prudent.workflows.bill import bill_usd
from prudent.workflows.compiled import bare, inlined
from prudent.workflows.records import SHARED
from prudent.workflows.replay import replay
from prudent.workflows.search.draft import Draft
from prudent.workflows.search.ground import Ground


@inlined
def copy(source: Any, into: Any) -> None:
    """Element by element: a slice assignment would need memory, which bare code cannot ask for."""
    for at in range(len(source)):
        into[at] = source[at]


@bare
def walk(ground: Ground, draft: Draft, first: int, limit_s: float) -> float:
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
def _open(ground: Ground, draft: Draft, block: int) -> None:
    """The state of lanes and VMs before the block."""
    if block > 0:
        copy(draft.free_s[block], draft.lane_free_s)
        copy(draft.from_s[block], draft.vm_from_s)
        return
    draft.lane_free_s[:] = -1.0
    draft.vm_from_s[:] = -1.0 if ground.rules[0].boots_late == 1 else 0.0


@bare
def _walk_records(ground: Ground, draft: Draft) -> float:
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


@bare
def cost_usd(ground: Ground, draft: Draft) -> float:
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


@bare
def keep(draft: Draft, first: int) -> None:
    """The change that was walked becomes the draft."""
    copy(draft.new_finish_s, draft.finish_s)
    block = first // draft.block
    for at in range(block * draft.block, len(draft.order)):
        task = draft.order[at]
        draft.start_s[task] = draft.new_start_s[task]
    for row in range(block, len(draft.free_s)):
        copy(draft.new_free_s[row], draft.free_s[row])
        copy(draft.new_from_s[row], draft.from_s[row])
