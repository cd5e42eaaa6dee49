"""The discrete-event simulation: events in, placements by a rule, times and money out."""

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
    rules: Records,
    run_s: Floats,
    fails_at: Floats,
    drift: Floats,
    lives_s: Floats,
    seq: Ints,
    events: Records,
    bag: Records,
    sizes: Ints,
    choice: Ints,
    log: Records,
    present: Any,
    q: Floats,
    mind: Records,
    habits: Records,
    random: Any,
) -> None:
    """Play one run to its end, in place.

    `rules.policy` PLAN follows `seq`: the activations of a lane in order are seq[lane.next:lane.last].
    PRIORITY gives the ready activation of largest `priority` the idle lane on which it ends first. ADAPTIVE
    follows `seq` until something takes another time than promised, then goes on by `adaptation`.
    """
    sizes[2] = len(lanes)
    if rules[0].boots_late == 0:
        for vm in range(len(vms)):
            boot_vm(lanes, vms, rules, lives_s, events, sizes, vm, 0.0)
    for task in range(len(tasks)):
        if tasks[task].missing == 0:
            release(tasks, rules, events, bag, sizes, task, 0.0)
    now = 0.0
    while True:
        if follows_plan(rules) and sizes[2] > 0:
            _follow_plan(
                tasks, links, lanes, vms, rules, run_s, fails_at, drift, lives_s, seq, events, sizes, log,
                present, now,
            )  # fmt: skip
        while sizes[1] > 0 and sizes[2] > 0:
            at, lane = pick_next(
                tasks, links, lanes, vms, rules, run_s, present, bag, sizes, choice, q, mind, random, now
            )
            if lane < 0:
                break
            task = bag[at].task
            if rules[0].policy == ADAPTIVE:
                remove_ready(bag, sizes, at)
            else:
                pop_ready(bag, sizes, at, is_ordered(rules[0].policy))
            _start(
                tasks, links, lanes, vms, rules, run_s, fails_at, drift, lives_s, events, sizes, log,
                present, task, lane, now,
            )  # fmt: skip
        if sizes[0] == 0 or rules[0].done == len(tasks):
            return
        now = events[0].time
        while sizes[0] > 0 and events[0].time == now:
            _happen(
                tasks, links, lanes, vms, rules, run_s, fails_at, lives_s, seq, events, bag, sizes, log,
                present, q, mind, habits, now,
            )  # fmt: skip


@inlined
def follows_plan(rules: Records) -> bool:
    """Whether lanes work off what was planned for them."""
    policy = rules[0].policy
    return policy == PLAN or (policy == ADAPTIVE and rules[0].adrift == 0)  # type: ignore[no-any-return]


@inlined
def _happen(
    tasks: Records,
    links: Records,
    lanes: Records,
    vms: Records,
    rules: Records,
    run_s: Floats,
    fails_at: Floats,
    lives_s: Floats,
    seq: Ints,
    events: Records,
    bag: Records,
    sizes: Ints,
    log: Records,
    present: Any,
    q: Floats,
    mind: Records,
    habits: Records,
    now: float,
) -> None:
    """Take the first event and let it happen, unless it was overtaken."""
    kind, name, mark = events[0].code >> KIND_BITS, events[0].code & (KIND - 1), events[0].mark
    pop_event(events, sizes)
    if kind == FINISH:
        if lanes[name].mark == mark:
            _finish(
                tasks, links, lanes, vms, rules, run_s, fails_at, events, bag, sizes, log, present, q, mind,
                habits, name, now,
            )  # fmt: skip
    elif kind == READY:
        become_ready(tasks, rules, bag, sizes, name, now)
    elif kind == VM_UP:
        set_lane_status(lanes, sizes, name, IDLE)
    elif vms[name].life == mark:
        lose_vm(tasks, lanes, vms, rules, lives_s, seq, events, bag, sizes, log, present, name, now)


@inlined
def _follow_plan(
    tasks: Records,
    links: Records,
    lanes: Records,
    vms: Records,
    rules: Records,
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
                _start(
                    tasks, links, lanes, vms, rules, run_s, fails_at, drift, lives_s, events, sizes, log,
                    present, task, lane, now,
                )  # fmt: skip


@inlined
def _start(
    tasks: Records,
    links: Records,
    lanes: Records,
    vms: Records,
    rules: Records,
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
    """Occupy the lane until the attempt ends, well or not."""
    vm = lanes[lane].vm
    if vms[vm].from_s < 0.0:
        boot_vm(lanes, vms, rules, lives_s, events, sizes, vm, now)
    begin = max(now, vms[vm].up_s)
    fetched = missing_bytes(tasks, links, lanes, rules, present, task, vm)
    rules[0].moved_bytes += fetched
    if rules[0].storage == NETWORK:
        begin = max(begin, arrival_s(tasks, links, lanes, rules, task, vm))
    ready = begin + tasks[task].hold_s + tasks[task].stage_s
    if rules[0].storage == LOCAL:
        ready += fetched / rules[0].bytes_per_s
        for at in range(tasks[task].staged, tasks[task].written):
            present[vm, links[at].other] = 1
    work_s = run_s[task, lanes[lane].kind]
    lanes[lane].computes_s = ready
    end = ready + computing_s(vms[vm].speed, drift, vm, rules[0].drift_period_s, ready, work_s)
    part = fails_at[task, tasks[task].attempt]
    if part < 1.0:
        end = begin + (end - begin) * part
    tasks[task].status = RUNNING
    tasks[task].lane = lane
    tasks[task].start_s = begin
    row = rules[0].log
    rules[0].log += 1
    log[row].task = task
    log[row].lane = lane
    log[row].start_s = begin
    lanes[lane].task = task
    sizes[2] -= 1
    lanes[lane].row = row
    lanes[lane].mark += 1
    push_event(events, sizes, end, FINISH * KIND + lane, lanes[lane].mark)


@inlined
def _finish(
    tasks: Records,
    links: Records,
    lanes: Records,
    vms: Records,
    rules: Records,
    run_s: Floats,
    fails_at: Floats,
    events: Records,
    bag: Records,
    sizes: Ints,
    log: Records,
    present: Any,
    q: Floats,
    mind: Records,
    habits: Records,
    lane: int,
    now: float,
) -> None:
    """An attempt ends: its children hear of it, or it is tried again."""
    task, vm, row = lanes[lane].task, lanes[lane].vm, lanes[lane].row
    lanes[lane].task = IDLE
    sizes[2] += 1
    vms[vm].last_s = now
    log[row].end_s = now
    if fails_at[task, tasks[task].attempt] < 1.0:
        log[row].outcome = OUTCOME_FAILED
        if rules[0].policy == ADAPTIVE and rules[0].adrift == 0:
            abandon_plan(tasks, rules, bag, sizes)
        _fail(tasks, rules, fails_at.shape[1], bag, sizes, task, now)
        return
    log[row].outcome = OUTCOME_DONE
    tasks[task].status = SUCCEEDED
    tasks[task].finish_s = now
    rules[0].done += 1
    if follows_plan(rules) and tasks[task].orphan == 0:
        lanes[lane].next += 1
    if rules[0].policy == ADAPTIVE:
        as_planned = record_speed(vms, vm, run_s[task, lanes[lane].kind], now - lanes[lane].computes_s)
        if not as_planned and rules[0].adrift == 0:
            abandon_plan(tasks, rules, bag, sizes)
    if rules[0].storage == LOCAL:
        for at in range(tasks[task].written, tasks[task].end):
            present[vm, links[at].other] = 1
    for at in range(tasks[task].children, tasks[task].staged):
        child = links[at].other
        tasks[child].missing -= 1
        tasks[child].heard_s = max(tasks[child].heard_s, now + tasks[task].post_s)
        if tasks[child].missing == 0:
            release(tasks, rules, events, bag, sizes, child, now)
    if rules[0].policy == Q_LEARNING:
        executed_s, queued_s = now - tasks[task].start_s, tasks[task].start_s - tasks[task].ready_s
        update_q(lanes, bag, sizes, q, mind, habits, task, vm, executed_s, queued_s)


@inlined
def _fail(
    tasks: Records, rules: Records, attempts: int, bag: Records, sizes: Ints, task: int, now: float
) -> None:
    tasks[task].attempt += 1
    if tasks[task].attempt == attempts:
        tasks[task].status = FAILED
        rules[0].dead += 1
    else:
        rules[0].retries += 1
        become_ready(tasks, rules, bag, sizes, task, now)
