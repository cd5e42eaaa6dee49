"""VMs that come up and break, and what becomes of the work on them."""

from __future__ import annotations

import math
from typing import Any

from prudent.workflows.schedulers.adaptation import abandon_plan
from prudent.workflows.simulation.compiled import Floats, Ints, Records, allocation_free, inlined
from prudent.workflows.simulation.queues import KIND, become_ready, push_event, push_ready
from prudent.workflows.simulation.records import (
    ADAPTIVE,
    DOWN,
    IDLE,
    IS_READY,
    LOCAL,
    OUTCOME_LOST,
    PLAN,
    VM_DOWN,
    VM_UP,
)


@allocation_free
def boot_vm(
    lanes: Records,
    vms: Records,
    rules: Records,
    lives_s: Floats,
    events: Records,
    sizes: Ints,
    vm: int,
    now: float,
) -> None:
    """Start a VM: its lanes open when it is up, and its end is already known to the weather."""
    if vms[vm].from_s < 0.0:
        vms[vm].from_s = now
    up = now + vms[vm].boot_s
    vms[vm].up_s = up
    if up > now and rules[0].boots_late == 0:
        set_lane_status(lanes, sizes, vm, DOWN)
        push_event(events, sizes, up, VM_UP * KIND + vm, 0)
    else:
        set_lane_status(lanes, sizes, vm, IDLE)
    life = vms[vm].life
    if life < lives_s.shape[1] and lives_s[vm, life] < math.inf:
        push_event(events, sizes, up + lives_s[vm, life], VM_DOWN * KIND + vm, life)


@allocation_free
def set_lane_status(lanes: Records, sizes: Ints, vm: int, state: int) -> None:
    for lane in range(len(lanes)):
        if lanes[lane].vm == vm:
            sizes[2] += (state == IDLE) - (lanes[lane].task == IDLE)
            lanes[lane].task = state


@allocation_free
def lose_vm(
    tasks: Records,
    lanes: Records,
    vms: Records,
    rules: Records,
    lives_s: Floats,
    seq: Ints,
    events: Records,
    bag: Records,
    sizes: Ints,
    log: Records,
    present: Any,
    vm: int,
    now: float,
) -> None:
    """A VM breaks: what ran on it starts again elsewhere or later, what lay on it is gone."""
    gone = vms[vm].mortal == 1
    if rules[0].policy == ADAPTIVE and rules[0].adrift == 0:
        abandon_plan(tasks, rules, bag, sizes)
    if rules[0].storage == LOCAL:
        present[vm, :] = 0
    for lane in range(len(lanes)):
        if lanes[lane].vm != vm:
            continue
        task = lanes[lane].task
        sizes[2] -= task == IDLE
        lanes[lane].task = DOWN
        lanes[lane].mark += 1
        if gone and rules[0].policy == PLAN:
            for at in range(lanes[lane].next, lanes[lane].last):
                orphan(tasks, bag, sizes, seq[at])
            lanes[lane].next = lanes[lane].last
        if task >= 0:
            log[lanes[lane].row].end_s = now
            log[lanes[lane].row].outcome = OUTCOME_LOST
            vms[vm].last_s = now
            rules[0].retries += 1
            become_ready(tasks, rules, bag, sizes, task, now)
    vms[vm].life += 1
    if not gone:
        boot_vm(lanes, vms, rules, lives_s, events, sizes, vm, now)


@inlined
def orphan(tasks: Records, bag: Records, sizes: Ints, task: int) -> None:
    """An activation planned for a VM that is gone goes to whichever lane is free."""
    tasks[task].orphan = 1
    if tasks[task].status == IS_READY:
        push_ready(bag, sizes, task, tasks[task].ready_s, True)
