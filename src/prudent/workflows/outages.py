"""VMs that come up and break, and what becomes of the work on them."""

from __future__ import annotations

import math
from typing import Any

from prudent.workflows.adaptation import go_adrift
from prudent.workflows.compiled import bare, inlined
from prudent.workflows.graph import Floats, Ints
from prudent.workflows.policies import ADAPTIVE, PLAN
from prudent.workflows.queues import KIND, push, put_in_bag
from prudent.workflows.readiness import become_ready
from prudent.workflows.records import (
    DOWN,
    IDLE,
    IS_READY,
    LOCAL,
    OUTCOME_LOST,
    VM_DOWN,
    VM_UP,
    Records,
)


@bare
def boot(
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
        set_lanes(lanes, sizes, vm, DOWN)
        push(events, sizes, up, VM_UP * KIND + vm, 0)
    else:
        set_lanes(lanes, sizes, vm, IDLE)
    life = vms[vm].life
    if life < lives_s.shape[1] and lives_s[vm, life] < math.inf:
        push(events, sizes, up + lives_s[vm, life], VM_DOWN * KIND + vm, life)


@bare
def set_lanes(lanes: Records, sizes: Ints, vm: int, state: int) -> None:
    for lane in range(len(lanes)):
        if lanes[lane].vm == vm:
            sizes[2] += (state == IDLE) - (lanes[lane].task == IDLE)
            lanes[lane].task = state


@bare
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
        go_adrift(tasks, rules, bag, sizes)
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
        boot(lanes, vms, rules, lives_s, events, sizes, vm, now)


@inlined
def orphan(tasks: Records, bag: Records, sizes: Ints, task: int) -> None:
    """An activation planned for a VM that is gone goes to whichever lane is free."""
    tasks[task].orphan = 1
    if tasks[task].status == IS_READY:
        put_in_bag(bag, sizes, task, tasks[task].ready_s, True)
