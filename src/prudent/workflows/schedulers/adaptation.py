"""Following a plan only as long as reality does: then by rank, where each is expected to end first.

The speed of a VM is what was seen of it so far; a busy lane may be worth waiting for.
"""

from __future__ import annotations

import math
from typing import Any

from prudent.workflows.simulation.compiled import Floats, Ints, Records, allocation_free, inlined
from prudent.workflows.simulation.queues import insert_ready
from prudent.workflows.simulation.records import IDLE, IS_READY
from prudent.workflows.simulation.staging import estimate_s

_TOLERANCE = 0.01
"""A computing time within this part of the promised one is as planned."""


_MEMORY = 0.9
"""What was seen of a VM counts by this much less with every activation after it: speeds may drift."""


_OVERDUE = 0.25
"""An activation that should have ended is expected to take this part more of its time so far."""


@inlined
def record_speed(vms: Records, vm: int, promised_s: float, seen_s: float) -> bool:
    """Remember how long an activation computed on a VM; whether that was as promised."""
    vms[vm].promised_s = _MEMORY * vms[vm].promised_s + promised_s
    vms[vm].seen_s = _MEMORY * vms[vm].seen_s + seen_s
    return abs(seen_s - promised_s) <= _TOLERANCE * promised_s


@allocation_free
def abandon_plan(tasks: Records, rules: Records, bag: Records, sizes: Ints) -> None:
    """Give up the plan: all that is ready lines up by priority."""
    rules[0].adrift = 1
    for task in range(len(tasks)):
        if tasks[task].status == IS_READY:
            insert_ready(bag, sizes, task, -tasks[task].priority)


@allocation_free
def pick_adaptively(
    tasks: Records,
    links: Records,
    lanes: Records,
    vms: Records,
    rules: Records,
    run_s: Floats,
    present: Any,
    bag: Records,
    sizes: Ints,
    now: float,
) -> tuple[int, int]:
    """The first in line whose best lane is idle, and that lane; those before it wait for busy ones."""
    for lane in range(len(lanes)):
        lanes[lane].free_s = _free_s(lanes, vms, rules, run_s, tasks, lane, now)
    for at in range(sizes[1]):
        task = bag[at].task
        best, best_s = -1, math.inf
        for lane in range(len(lanes)):
            free_s = lanes[lane].free_s
            if free_s < best_s:
                held_s = estimate_s(tasks, links, lanes, rules, run_s, present, task, lane, now)
                work_s = run_s[task, lanes[lane].kind]
                end_s = free_s + held_s + work_s * (slowness(vms, lanes[lane].vm) - 1.0)
                if end_s < best_s:
                    best, best_s = lane, end_s
        if best < 0:
            return 0, -1
        if lanes[best].task == IDLE:
            return at, best
        lanes[best].free_s = best_s
    return 0, -1


@inlined
def slowness(vms: Records, vm: int) -> float:
    """Time seen over time promised."""
    return vms[vm].seen_s / vms[vm].promised_s if vms[vm].promised_s > 0.0 else 1.0


@inlined
def _free_s(
    lanes: Records, vms: Records, rules: Records, run_s: Floats, tasks: Records, lane: int, now: float
) -> float:
    """When a lane is expected to be free; never, when it is down or must not be used."""
    row = lanes[lane]
    if row.closed == 1 or (row.task < 0 and row.task != IDLE):
        return math.inf
    if row.task == IDLE:
        return now + (vms[row.vm].boot_s if vms[row.vm].from_s < 0.0 else 0.0)
    end_s = row.computes_s + run_s[row.task, row.kind] * slowness(vms, row.vm)
    if end_s < now:
        end_s = now + _OVERDUE * (now - tasks[row.task].start_s)
    return end_s  # type: ignore[no-any-return]
