"""The engine of the discrete-event simulation: events in, placements by a rule, times and costs out."""

from __future__ import annotations

from prudent.workflows.schedulers.adaptation import abandon_plan, record_speed
from prudent.workflows.schedulers.agent import update_q
from prudent.workflows.simulation.compiled import Records, allocation_free, inlined
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
    EngineArrays,
    RunArrays,
    is_ordered,
)
from prudent.workflows.simulation.rules import pick_next
from prudent.workflows.simulation.staging import arrival_s, computing_s, missing_bytes


@allocation_free
def process_events(run: RunArrays, engine: EngineArrays) -> None:
    """Simulate one run to its end, in place.

    `state.rule` PLAN follows `seq`: the activations of a lane in order are seq[lane.next:lane.last].
    PRIORITY gives the ready activation of largest `priority` the idle lane on which it ends first. ADAPTIVE
    follows `seq` until an activation takes another time than expected, then goes on by `adaptation`.
    """
    tasks, state, events, sizes = run.tasks, run.state, engine.events, engine.sizes
    sizes[2] = len(run.lanes)
    if state[0].boots_at_first_use == 0:
        for vm in range(len(run.vms)):
            boot_vm(run, engine, vm, 0.0)
    for task in range(len(tasks)):
        if tasks[task].missing == 0:
            release(run, engine, task, 0.0)
    now = 0.0
    while True:
        if follows_plan(state) and sizes[2] > 0:
            _start_planned(run, engine, now)
        while sizes[1] > 0 and sizes[2] > 0:
            at, lane = pick_next(run, engine, now)
            if lane < 0:
                break
            task = engine.ready_queue[at].task
            if state[0].rule == ADAPTIVE:
                remove_ready(engine.ready_queue, sizes, at)
            else:
                pop_ready(engine.ready_queue, sizes, at, is_ordered(state[0].rule))
            _start_attempt(run, engine, task, lane, now)
        if sizes[0] == 0 or state[0].done == len(tasks):
            return
        now = events[0].time
        while sizes[0] > 0 and events[0].time == now:
            _process_event(run, engine, now)


@inlined
def follows_plan(state: Records) -> bool:
    """Whether each lane runs what was planned for it."""
    rule = state[0].rule
    return rule == PLAN or (rule == ADAPTIVE and state[0].plan_abandoned == 0)  # type: ignore[no-any-return]


@inlined
def _process_event(run: RunArrays, engine: EngineArrays, now: float) -> None:
    """Process the first event, unless it is outdated."""
    event = engine.events[0]
    kind, name, generation = event.code >> KIND_BITS, event.code & (KIND - 1), event.generation
    pop_event(engine.events, engine.sizes)
    if kind == FINISH:
        if run.lanes[name].generation == generation:
            _finish_attempt(run, engine, name, now)
    elif kind == READY:
        become_ready(run, engine, name, now)
    elif kind == VM_UP:
        set_lane_status(run.lanes, engine.sizes, name, IDLE)
    elif run.vms[name].boots == generation:
        lose_vm(run, engine, name, now)


@inlined
def _start_planned(run: RunArrays, engine: EngineArrays, now: float) -> None:
    """Start what is next on each idle lane, if it is ready."""
    lanes = run.lanes
    for lane in range(len(lanes)):
        if lanes[lane].task == IDLE and lanes[lane].next < lanes[lane].last:
            task = engine.seq[lanes[lane].next]
            if run.tasks[task].status == IS_READY:
                _start_attempt(run, engine, task, lane, now)


@inlined
def _start_attempt(run: RunArrays, engine: EngineArrays, task: int, lane: int, now: float) -> None:
    """Occupy the lane until the attempt succeeds or fails."""
    tasks, lanes, vms, state, log = run.tasks, run.lanes, run.vms, run.state, engine.log
    vm = lanes[lane].vm
    if vms[vm].from_s < 0.0:
        boot_vm(run, engine, vm, now)
    begin = max(now, vms[vm].up_s)
    fetched = missing_bytes(run, task, vm)
    state[0].moved_bytes += fetched
    if state[0].storage == NETWORK:
        begin = max(begin, arrival_s(run, task, vm))
    ready = begin + tasks[task].hold_s + tasks[task].stage_s
    if state[0].storage == LOCAL:
        ready += fetched / state[0].bytes_per_s
        for at in range(tasks[task].staged, tasks[task].written):
            run.present[vm, run.links[at].other] = 1
    work_s = run.run_s[task, lanes[lane].kind]
    lanes[lane].compute_from_s = ready
    end = ready + computing_s(vms[vm].speed, engine.drift, vm, state[0].drift_period_s, ready, work_s)
    part = engine.fails_at[task, tasks[task].attempt]
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
    engine.sizes[2] -= 1
    lanes[lane].row = row
    lanes[lane].generation += 1
    push_event(engine.events, engine.sizes, end, FINISH * KIND + lane, lanes[lane].generation)


@inlined
def _finish_attempt(run: RunArrays, engine: EngineArrays, lane: int, now: float) -> None:
    """An attempt ends: its children are released, or it is tried again."""
    tasks, lanes, state, log = run.tasks, run.lanes, run.state, engine.log
    task, vm, row = lanes[lane].task, lanes[lane].vm, lanes[lane].row
    lanes[lane].task = IDLE
    engine.sizes[2] += 1
    run.vms[vm].last_s = now
    log[row].end_s = now
    if engine.fails_at[task, tasks[task].attempt] < 1.0:
        log[row].outcome = OUTCOME_FAILED
        if state[0].rule == ADAPTIVE and state[0].plan_abandoned == 0:
            abandon_plan(run, engine)
        _retry_or_fail(run, engine, task, now)
        return
    log[row].outcome = OUTCOME_DONE
    tasks[task].status = SUCCEEDED
    tasks[task].finish_s = now
    state[0].done += 1
    if follows_plan(state) and tasks[task].orphan == 0:
        lanes[lane].next += 1
    if state[0].rule == ADAPTIVE:
        measured_s = now - lanes[lane].compute_from_s
        as_planned = record_speed(run.vms, vm, run.run_s[task, lanes[lane].kind], measured_s)
        if not as_planned and state[0].plan_abandoned == 0:
            abandon_plan(run, engine)
    if state[0].storage == LOCAL:
        for at in range(tasks[task].written, tasks[task].end):
            run.present[vm, run.links[at].other] = 1
    _tell_children(run, engine, task, now)
    if state[0].rule == Q_LEARNING:
        executed_s, queued_s = now - tasks[task].start_s, tasks[task].start_s - tasks[task].ready_s
        update_q(run, engine, task, vm, executed_s, queued_s)


@inlined
def _tell_children(run: RunArrays, engine: EngineArrays, task: int, now: float) -> None:
    """Release each child of which this was the last missing parent."""
    tasks = run.tasks
    for at in range(tasks[task].children, tasks[task].staged):
        child = run.links[at].other
        tasks[child].missing -= 1
        tasks[child].notified_s = max(tasks[child].notified_s, now + tasks[task].post_s)
        if tasks[child].missing == 0:
            release(run, engine, child, now)


@inlined
def _retry_or_fail(run: RunArrays, engine: EngineArrays, task: int, now: float) -> None:
    run.tasks[task].attempt += 1
    if run.tasks[task].attempt == engine.fails_at.shape[1]:
        run.tasks[task].status = FAILED
        run.state[0].given_up += 1
    else:
        run.state[0].retries += 1
        become_ready(run, engine, task, now)
