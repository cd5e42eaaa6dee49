"""The engine of the discrete-event simulation: events in, placements by a rule, times and costs out."""

from __future__ import annotations

from typing import Any

from prudent.workflows.schedulers.adaptation import abandon_plan, record_speed
from prudent.workflows.schedulers.agent import update_q
from prudent.workflows.simulation.compiled import Floats, Ints, Records, allocation_free, inlined
from prudent.workflows.simulation.outages import boot_vm, lose_vm, set_lane_status
from prudent.workflows.simulation.queues import (
    KIND,
    KIND_BITS,
    become_ready,
    pop_event,
    pop_ready,
    push_event,
    release,
    remove_ready,
)
from prudent.workflows.simulation.records import (
    ADAPTIVE,
    FAILED,
    FINISH,
    IDLE,
    IS_READY,
    LOCAL,
    NETWORK,
    OUTCOME_DONE,
    OUTCOME_FAILED,
    PLAN,
    Q_LEARNING,
    READY,
    RUNNING,
    SUCCEEDED,
    VM_UP,
    is_ordered,
)
from prudent.workflows.simulation.rules import pick_next
from prudent.workflows.simulation.staging import arrival_s, computing_s, missing_bytes


@allocation_free
def process_events(
    tasks: Records,
    links: Records,
    lanes: Records,
    vms: Records,
    state: Records,
    run_s: Floats,
    fails_at: Floats,
    drift: Floats,
    lives_s: Floats,
    seq: Ints,
    events: Records,
    ready_queue: Records,
    sizes: Ints,
    candidates: Ints,
    log: Records,
    present: Any,
    q: Floats,
    parameters: Records,
    statistics: Records,
    random: Any,
) -> None:
    """Simulate one run to its end, in place.

    `state.policy` PLAN follows `seq`: the activations of a lane in order are seq[lane.next:lane.last].
    PRIORITY gives the ready activation of largest `priority` the idle lane on which it ends first. ADAPTIVE
    follows `seq` until an activation takes another time than expected, then goes on by `adaptation`.
    """
    sizes[2] = len(lanes)
    if state[0].boots_at_first_use == 0:
        for vm in range(len(vms)):
            boot_vm(lanes, vms, state, lives_s, events, sizes, vm, 0.0)
    for task in range(len(tasks)):
        if tasks[task].missing == 0:
            release(tasks, state, events, ready_queue, sizes, task, 0.0)
    now = 0.0
    while True:
        if follows_plan(state) and sizes[2] > 0:
            _start_planned(
                tasks, links, lanes, vms, state, run_s, fails_at, drift, lives_s, seq, events, sizes, log,
                present, now,
            )  # fmt: skip
        while sizes[1] > 0 and sizes[2] > 0:
            at, lane = pick_next(
                tasks,
                links,
                lanes,
                vms,
                state,
                run_s,
                present,
                ready_queue,
                sizes,
                candidates,
                q,
                parameters,
                random,
                now,
            )
            if lane < 0:
                break
            task = ready_queue[at].task
            if state[0].rule == ADAPTIVE:
                remove_ready(ready_queue, sizes, at)
            else:
                pop_ready(ready_queue, sizes, at, is_ordered(state[0].rule))
            _start_attempt(
                tasks, links, lanes, vms, state, run_s, fails_at, drift, lives_s, events, sizes, log,
                present, task, lane, now,
            )  # fmt: skip
        if sizes[0] == 0 or state[0].done == len(tasks):
            return
        now = events[0].time
        while sizes[0] > 0 and events[0].time == now:
            _process_event(
                tasks, links, lanes, vms, state, run_s, fails_at, lives_s, seq, events, ready_queue, sizes,
                log, present, q, parameters, statistics, now,
            )  # fmt: skip


@inlined
def follows_plan(state: Records) -> bool:
    """Whether each lane runs what was planned for it."""
    rule = state[0].rule
    return rule == PLAN or (rule == ADAPTIVE and state[0].plan_abandoned == 0)  # type: ignore[no-any-return]


@inlined
def _process_event(
    tasks: Records,
    links: Records,
    lanes: Records,
    vms: Records,
    state: Records,
    run_s: Floats,
    fails_at: Floats,
    lives_s: Floats,
    seq: Ints,
    events: Records,
    ready_queue: Records,
    sizes: Ints,
    log: Records,
    present: Any,
    q: Floats,
    parameters: Records,
    statistics: Records,
    now: float,
) -> None:
    """Process the first event, unless it is outdated."""
    kind, name, generation = events[0].code >> KIND_BITS, events[0].code & (KIND - 1), events[0].generation
    pop_event(events, sizes)
    if kind == FINISH:
        if lanes[name].generation == generation:
            _finish_attempt(
                tasks, links, lanes, vms, state, run_s, fails_at, events, ready_queue, sizes, log, present, q,
                parameters, statistics, name, now,
            )  # fmt: skip
    elif kind == READY:
        become_ready(tasks, state, ready_queue, sizes, name, now)
    elif kind == VM_UP:
        set_lane_status(lanes, sizes, name, IDLE)
    elif vms[name].boots == generation:
        lose_vm(tasks, lanes, vms, state, lives_s, seq, events, ready_queue, sizes, log, present, name, now)


@inlined
def _start_planned(
    tasks: Records,
    links: Records,
    lanes: Records,
    vms: Records,
    state: Records,
    run_s: Floats,
    fails_at: Floats,
    drift: Floats,
    lives_s: Floats,
    seq: Ints,
    events: Records,
    sizes: Ints,
    log: Records,
    present: Any,
    now: float,
) -> None:
    """Start what is next on each idle lane, if it is ready."""
    for lane in range(len(lanes)):
        if lanes[lane].task == IDLE and lanes[lane].next < lanes[lane].last:
            task = seq[lanes[lane].next]
            if tasks[task].status == IS_READY:
                _start_attempt(
                    tasks, links, lanes, vms, state, run_s, fails_at, drift, lives_s, events, sizes, log,
                    present, task, lane, now,
                )  # fmt: skip


@inlined
def _start_attempt(
    tasks: Records,
    links: Records,
    lanes: Records,
    vms: Records,
    state: Records,
    run_s: Floats,
    fails_at: Floats,
    drift: Floats,
    lives_s: Floats,
    events: Records,
    sizes: Ints,
    log: Records,
    present: Any,
    task: int,
    lane: int,
    now: float,
) -> None:
    """Occupy the lane until the attempt succeeds or fails."""
    vm = lanes[lane].vm
    if vms[vm].from_s < 0.0:
        boot_vm(lanes, vms, state, lives_s, events, sizes, vm, now)
    begin = max(now, vms[vm].up_s)
    fetched = missing_bytes(tasks, links, lanes, state, present, task, vm)
    state[0].moved_bytes += fetched
    if state[0].storage == NETWORK:
        begin = max(begin, arrival_s(tasks, links, lanes, state, task, vm))
    ready = begin + tasks[task].hold_s + tasks[task].stage_s
    if state[0].storage == LOCAL:
        ready += fetched / state[0].bytes_per_s
        for at in range(tasks[task].staged, tasks[task].written):
            present[vm, links[at].other] = 1
    work_s = run_s[task, lanes[lane].kind]
    lanes[lane].compute_from_s = ready
    end = ready + computing_s(vms[vm].speed, drift, vm, state[0].drift_period_s, ready, work_s)
    part = fails_at[task, tasks[task].attempt]
    if part < 1.0:
        end = begin + (end - begin) * part
    tasks[task].status = RUNNING
    tasks[task].lane = lane
    tasks[task].start_s = begin
    row = state[0].log
    state[0].log += 1
    log[row].task = task
    log[row].lane = lane
    log[row].start_s = begin
    lanes[lane].task = task
    sizes[2] -= 1
    lanes[lane].row = row
    lanes[lane].generation += 1
    push_event(events, sizes, end, FINISH * KIND + lane, lanes[lane].generation)


@inlined
def _finish_attempt(
    tasks: Records,
    links: Records,
    lanes: Records,
    vms: Records,
    state: Records,
    run_s: Floats,
    fails_at: Floats,
    events: Records,
    ready_queue: Records,
    sizes: Ints,
    log: Records,
    present: Any,
    q: Floats,
    parameters: Records,
    statistics: Records,
    lane: int,
    now: float,
) -> None:
    """An attempt ends: its children are released, or it is tried again."""
    task, vm, row = lanes[lane].task, lanes[lane].vm, lanes[lane].row
    lanes[lane].task = IDLE
    sizes[2] += 1
    vms[vm].last_s = now
    log[row].end_s = now
    if fails_at[task, tasks[task].attempt] < 1.0:
        log[row].outcome = OUTCOME_FAILED
        if state[0].rule == ADAPTIVE and state[0].plan_abandoned == 0:
            abandon_plan(tasks, state, ready_queue, sizes)
        _retry_or_fail(tasks, state, fails_at.shape[1], ready_queue, sizes, task, now)
        return
    log[row].outcome = OUTCOME_DONE
    tasks[task].status = SUCCEEDED
    tasks[task].finish_s = now
    state[0].done += 1
    if follows_plan(state) and tasks[task].orphan == 0:
        lanes[lane].next += 1
    if state[0].rule == ADAPTIVE:
        as_planned = record_speed(vms, vm, run_s[task, lanes[lane].kind], now - lanes[lane].compute_from_s)
        if not as_planned and state[0].plan_abandoned == 0:
            abandon_plan(tasks, state, ready_queue, sizes)
    if state[0].storage == LOCAL:
        for at in range(tasks[task].written, tasks[task].end):
            present[vm, links[at].other] = 1
    for at in range(tasks[task].children, tasks[task].staged):
        child = links[at].other
        tasks[child].missing -= 1
        tasks[child].notified_s = max(tasks[child].notified_s, now + tasks[task].post_s)
        if tasks[child].missing == 0:
            release(tasks, state, events, ready_queue, sizes, child, now)
    if state[0].rule == Q_LEARNING:
        executed_s, queued_s = now - tasks[task].start_s, tasks[task].start_s - tasks[task].ready_s
        update_q(lanes, ready_queue, sizes, q, parameters, statistics, task, vm, executed_s, queued_s)


@inlined
def _retry_or_fail(
    tasks: Records, state: Records, attempts: int, ready_queue: Records, sizes: Ints, task: int, now: float
) -> None:
    tasks[task].attempt += 1
    if tasks[task].attempt == attempts:
        tasks[task].status = FAILED
        state[0].given_up += 1
    else:
        state[0].retries += 1
        become_ready(tasks, state, ready_queue, sizes, task, now)
