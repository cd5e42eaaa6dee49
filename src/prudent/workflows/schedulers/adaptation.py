"""The adaptive rule: follow a plan while times are as expected, then go by rank.

Ranked activations go where each is expected to end first. The speed of a VM is the one measured on it so far;
a busy lane may be worth waiting for.
"""

from __future__ import annotations

import math

from prudent.workflows.simulation.compiled import Records, allocation_free, inlined
from prudent.workflows.simulation.queues import insert_ready
from prudent.workflows.simulation.records import IDLE, IS_READY, EngineArrays, RunArrays
from prudent.workflows.simulation.staging import estimate_s

_TOLERANCE = 0.01
"""A computing time that differs from the expected one by less than this share is as planned."""


_MEMORY = 0.9
"""Weight of older measurements of a VM after each new activation: speeds may drift."""


_OVERDUE = 0.25
"""An overdue activation is expected to take this share of its time so far in addition."""


@inlined
def record_speed(vms: Records, vm: int, promised_s: float, measured_s: float) -> bool:
    """Record how long an activation computed on a VM; answers whether that was as planned."""
    vms[vm].promised_s = _MEMORY * vms[vm].promised_s + promised_s
    vms[vm].measured_s = _MEMORY * vms[vm].measured_s + measured_s
    return abs(measured_s - promised_s) <= _TOLERANCE * promised_s


@allocation_free
def abandon_plan(run: RunArrays, engine: EngineArrays) -> None:
    """Give up the plan: all ready activations queue by priority."""
    tasks = run.tasks
    run.state[0].plan_abandoned = 1
    for task in range(len(tasks)):
        if tasks[task].status == IS_READY:
            insert_ready(engine.ready_queue, engine.sizes, task, -tasks[task].priority)


@allocation_free
def pick_adaptively(run: RunArrays, engine: EngineArrays, now: float) -> tuple[int, int]:
    """The first queued activation whose best lane is idle, and that lane; earlier ones wait."""
    lanes = run.lanes
    for lane in range(len(lanes)):
        lanes[lane].free_s = _free_s(run, lane, now)
    for at in range(engine.sizes[1]):
        task = engine.ready_queue[at].task
        best, best_s = -1, math.inf
        for lane in range(len(lanes)):
            free_s = lanes[lane].free_s
            if free_s < best_s:
                held_s = estimate_s(run, task, lane, now)
                work_s = run.run_s[task, lanes[lane].kind]
                end_s = free_s + held_s + work_s * (slowness(run.vms, lanes[lane].vm) - 1.0)
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
    """Measured over expected computing time."""
    return vms[vm].measured_s / vms[vm].promised_s if vms[vm].promised_s > 0.0 else 1.0


@inlined
def _free_s(run: RunArrays, lane: int, now: float) -> float:
    """When a lane is expected to be free; infinity if it is down or must not be used."""
    row, vms = run.lanes[lane], run.vms
    if row.closed == 1 or (row.task < 0 and row.task != IDLE):
        return math.inf
    if row.task == IDLE:
        return now + (vms[row.vm].boot_s if vms[row.vm].from_s < 0.0 else 0.0)
    end_s = row.compute_from_s + run.run_s[row.task, row.kind] * slowness(vms, row.vm)
    if end_s < now:
        end_s = now + _OVERDUE * (now - run.tasks[row.task].start_s)
    return end_s  # type: ignore[no-any-return]
