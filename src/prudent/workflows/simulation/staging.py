"""How long an activation waits for its inputs on each kind of storage, and how long it computes."""

from __future__ import annotations

from prudent.workflows.simulation.compiled import Floats, inlined
from prudent.workflows.simulation.records import LOCAL, NETWORK, SHARED, RunArrays


@inlined
def missing_bytes(run: RunArrays, task: int, vm: int) -> float:
    """Bytes of the inputs that are not on the VM; all of them on shared storage."""
    tasks, links, state = run.tasks, run.links, run.state
    row = tasks[task]
    if state[0].storage == SHARED:
        return row.staged_bytes  # type: ignore[no-any-return]
    total = 0.0
    if state[0].storage == LOCAL:
        for at in range(row.staged, row.written):
            if run.present[vm, links[at].other] == 0:
                total += links[at].bytes
        return total
    for at in range(row.parents, row.children):
        if run.lanes[tasks[links[at].other].lane].vm != vm:
            total += links[at].bytes
    return total + row.external_bytes  # type: ignore[no-any-return]


@inlined
def arrival_s(run: RunArrays, task: int, vm: int) -> float:
    """When the last input reaches the VM over the network; files from outside set out at time zero."""
    tasks, links, state = run.tasks, run.links, run.state
    row = tasks[task]
    latest = row.external_bytes / state[0].bytes_per_s
    for at in range(row.parents, row.children):
        parent = tasks[links[at].other]
        here = parent.finish_s
        if run.lanes[parent.lane].vm != vm:
            here += links[at].bytes / state[0].bytes_per_s
        latest = max(latest, here)
    return latest  # type: ignore[no-any-return]


@inlined
def estimate_s(run: RunArrays, task: int, lane: int, now: float) -> float:
    """How long the activation would hold the lane if it were placed there now, at nominal speed."""
    work_s, state = run.run_s[task, run.lanes[lane].kind], run.state
    if state[0].storage == SHARED:
        return run.tasks[task].stage_s + work_s  # type: ignore[no-any-return]
    vm = run.lanes[lane].vm
    if state[0].storage == NETWORK:
        return max(arrival_s(run, task, vm) - now, 0.0) + work_s  # type: ignore[no-any-return]
    return missing_bytes(run, task, vm) / state[0].bytes_per_s + work_s  # type: ignore[no-any-return]


@inlined
def computing_s(
    factor: float, drift: Floats, vm: int, period_s: float, start_s: float, work_s: float
) -> float:
    """How long `work_s` at nominal speed really take: the speed is `factor` times the drift of the time."""
    count = drift.shape[1]
    if count == 1:
        return work_s / (factor * drift[vm, 0])  # type: ignore[no-any-return]
    spent = 0.0
    at = int(start_s / period_s)
    left_in_period = (at + 1) * period_s - start_s
    while True:
        speed = factor * drift[vm, at % count]
        if work_s <= speed * left_in_period:
            return spent + work_s / speed  # type: ignore[no-any-return]
        work_s -= speed * left_in_period
        spent += left_in_period
        left_in_period = period_s
        at += 1
