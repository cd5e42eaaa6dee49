"""Times of a plan in the calm world without events, and the bill of any run.

When every lane's order is fixed and nothing random happens, starts follow from one walk over the activations:
fast enough for optimisers that try thousands of plans a second.
"""

from __future__ import annotations

import math

import numpy as np

from prudent.workflows.simulation.compiled import Floats, Ints, Records, allocation_free, compiled
from prudent.workflows.simulation.records import LOCAL, NETWORK, RunArrays
from prudent.workflows.simulation.staging import arrival_s, missing_bytes


@allocation_free
def bill_usd(vms: Records, state: Records, vm: int, rented_s: float) -> float:
    """What a VM costs that was rented for so long."""
    billed_s = max(rented_s, vms[vm].minimum_s)
    if state[0].billing_step_s > 0.0:
        billed_s = max(math.ceil(billed_s / state[0].billing_step_s - 1e-9), 1.0) * state[0].billing_step_s
    return billed_s * vms[vm].price  # type: ignore[no-any-return]


@compiled
def run_totals(vms: Records, state: Records, log: Records) -> Floats:
    """Makespan (s), busy time (s) and cost (USD), over all attempts."""
    sums = np.zeros(3)
    for row in range(state[0].log):
        sums[0] = max(sums[0], log[row].end_s)
        sums[1] += log[row].end_s - log[row].start_s
    for vm in range(len(vms)):
        if vms[vm].last_s >= 0.0:
            sums[2] += bill_usd(vms, state, vm, vms[vm].last_s - vms[vm].from_s)
    return sums


@allocation_free
def replay(run: RunArrays, lane_of: Ints, order: Ints, free_s: Floats) -> float:
    """Set starts and finishes in `run.tasks`; answers the makespan (s).

    `order` must put parents first; where two activations share a lane (or, for local storage and late boots,
    a VM), it also says which is first. `free_s` (one per lane) is scratch space.
    """
    tasks, links, vms, state, present = run.tasks, run.links, run.vms, run.state, run.present
    makespan_s = 0.0
    for vm in range(len(vms)):
        vms[vm].from_s = -1.0 if state[0].boots_at_first_use == 1 else 0.0
        vms[vm].up_s = 0.0 if state[0].boots_at_first_use == 1 else vms[vm].boot_s
    free_s[:] = 0.0
    if state[0].storage == LOCAL:
        present[:, :] = 0
    for task in order:
        lane = lane_of[task]
        vm = run.lanes[lane].vm
        ready_s = 0.0
        for at in range(tasks[task].parents, tasks[task].children):
            parent = links[at].other
            ready_s = max(ready_s, tasks[parent].finish_s + tasks[parent].post_s)
        start_s = max(ready_s + tasks[task].engine_s, free_s[lane])
        if vms[vm].from_s < 0.0:
            vms[vm].from_s = start_s
            vms[vm].up_s = start_s + vms[vm].boot_s
        start_s = max(start_s, vms[vm].up_s)
        held_s = tasks[task].hold_s + tasks[task].stage_s + run.run_s[task, run.lanes[lane].kind]
        if state[0].storage == NETWORK:
            start_s = max(start_s, arrival_s(run, task, vm))
        elif state[0].storage == LOCAL:
            held_s += missing_bytes(run, task, vm) / state[0].bytes_per_s
            for at in range(tasks[task].staged, tasks[task].end):
                present[vm, links[at].other] = 1
        tasks[task].lane = lane
        tasks[task].start_s = start_s
        tasks[task].finish_s = start_s + held_s
        free_s[lane] = start_s + held_s
        makespan_s = max(makespan_s, start_s + held_s)
    return makespan_s
