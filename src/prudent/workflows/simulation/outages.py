"""VMs that boot and break, and what becomes of the activations on them."""

from __future__ import annotations

import math

from prudent.workflows.schedulers.adaptation import abandon_plan
from prudent.workflows.simulation.compiled import Ints, Records, allocation_free, inlined
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
    EngineArrays,
    RunArrays,
)


@allocation_free
def boot_vm(run: RunArrays, engine: EngineArrays, vm: int, now: float) -> None:
    """Start a VM: its lanes open when it is up; its next failure is already in the sample of the world."""
    vms, events, sizes, lives_s = run.vms, engine.events, engine.sizes, engine.lives_s
    if vms[vm].from_s < 0.0:
        vms[vm].from_s = now
    up = now + vms[vm].boot_s
    vms[vm].up_s = up
    if up > now and run.state[0].boots_at_first_use == 0:
        set_lane_status(run.lanes, sizes, vm, DOWN)
        push_event(events, sizes, up, VM_UP * KIND + vm, 0)
    else:
        set_lane_status(run.lanes, sizes, vm, IDLE)
    boots = vms[vm].boots
    if boots < lives_s.shape[1] and lives_s[vm, boots] < math.inf:
        push_event(events, sizes, up + lives_s[vm, boots], VM_DOWN * KIND + vm, boots)


@allocation_free
def set_lane_status(lanes: Records, sizes: Ints, vm: int, status: int) -> None:
    """All lanes of a VM become idle or down."""
    for lane in range(len(lanes)):
        if lanes[lane].vm == vm:
            sizes[2] += (status == IDLE) - (lanes[lane].task == IDLE)
            lanes[lane].task = status


@allocation_free
def lose_vm(run: RunArrays, engine: EngineArrays, vm: int, now: float) -> None:
    """A VM breaks: its activations start again elsewhere or later, the files on it are lost."""
    lanes, vms, state, log = run.lanes, run.vms, run.state, engine.log
    gone = vms[vm].revocable == 1
    if state[0].rule == ADAPTIVE and state[0].plan_abandoned == 0:
        abandon_plan(run, engine)
    if state[0].storage == LOCAL:
        run.present[vm, :] = 0
    for lane in range(len(lanes)):
        if lanes[lane].vm != vm:
            continue
        task = lanes[lane].task
        engine.sizes[2] -= task == IDLE
        lanes[lane].task = DOWN
        lanes[lane].generation += 1
        if gone and state[0].rule == PLAN:
            for at in range(lanes[lane].next, lanes[lane].last):
                orphan(run, engine, engine.seq[at])
            lanes[lane].next = lanes[lane].last
        if task >= 0:
            log[lanes[lane].row].end_s = now
            log[lanes[lane].row].outcome = OUTCOME_LOST
            vms[vm].last_s = now
            state[0].retries += 1
            become_ready(run, engine, task, now)
    vms[vm].boots += 1
    if not gone:
        boot_vm(run, engine, vm, now)


@inlined
def orphan(run: RunArrays, engine: EngineArrays, task: int) -> None:
    """An activation planned for a VM that is gone may run on any free lane."""
    tasks = run.tasks
    tasks[task].orphan = 1
    if tasks[task].status == IS_READY:
        push_ready(engine.ready_queue, engine.sizes, task, tasks[task].ready_s, True)
