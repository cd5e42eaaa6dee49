"""Queues of the engine: events by time, then kind, then id; ready activations by key, then id.

The order is total, so every run is deterministic. `release` and `become_ready` put activations into the ready
queue. `sizes` is that of `EngineArrays`.
"""

from __future__ import annotations

from prudent.workflows.simulation.compiled import Ints, Records, inlined
from prudent.workflows.simulation.records import (
    ADAPTIVE,
    IS_READY,
    PLAN,
    PRIORITY,
    READY,
    WAITING,
    EngineArrays,
    RunArrays,
    is_ordered,
)

KIND_BITS = 40


KIND = 1 << KIND_BITS
"""An event's code is kind * KIND + id, so that one comparison orders both."""


@inlined
def push_event(events: Records, sizes: Ints, time: float, code: int, generation: int) -> None:
    """Add an event; `generation` tells outdated events from valid ones."""
    at = sizes[0]
    sizes[0] += 1
    while at > 0:
        up = (at - 1) >> 1
        if events[up].time < time or (events[up].time == time and events[up].code <= code):
            break
        events[at] = events[up]
        at = up
    events[at].time = time
    events[at].code = code
    events[at].generation = generation


@inlined
def pop_event(events: Records, sizes: Ints) -> None:
    """Remove the first event (at position 0)."""
    sizes[0] -= 1
    size = sizes[0]
    time, code = events[size].time, events[size].code
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        right = down + 1
        if right < size and (
            events[right].time < events[down].time
            or (events[right].time == events[down].time and events[right].code < events[down].code)
        ):
            down = right
        if time < events[down].time or (time == events[down].time and code <= events[down].code):
            break
        events[at] = events[down]
        at = down
    events[at] = events[size]


@inlined
def push_ready(ready_queue: Records, sizes: Ints, task: int, key: float, ordered: bool) -> None:
    """Add a ready activation; an ordered queue is a heap, others are in no order."""
    at = sizes[1]
    sizes[1] += 1
    while ordered and at > 0:
        up = (at - 1) >> 1
        if ready_queue[up].key < key or (ready_queue[up].key == key and ready_queue[up].task < task):
            break
        ready_queue[at] = ready_queue[up]
        at = up
    ready_queue[at].key = key
    ready_queue[at].task = task


@inlined
def insert_ready(ready_queue: Records, sizes: Ints, task: int, key: float) -> None:
    """Add a ready activation to a queue that is kept sorted, for rules that look at many in order."""
    at = sizes[1]
    sizes[1] += 1
    while at > 0 and (
        ready_queue[at - 1].key > key or (ready_queue[at - 1].key == key and ready_queue[at - 1].task > task)
    ):
        ready_queue[at] = ready_queue[at - 1]
        at -= 1
    ready_queue[at].key = key
    ready_queue[at].task = task


@inlined
def remove_ready(ready_queue: Records, sizes: Ints, at: int) -> None:
    """Remove the entry at a position of a sorted queue."""
    sizes[1] -= 1
    for place in range(at, sizes[1]):
        ready_queue[place] = ready_queue[place + 1]


@inlined
def pop_ready(ready_queue: Records, sizes: Ints, at: int, ordered: bool) -> None:
    """Remove the entry at a position (0 in an ordered queue)."""
    sizes[1] -= 1
    size = sizes[1]
    key, task = ready_queue[size].key, ready_queue[size].task
    while ordered:
        down = 2 * at + 1
        if down >= size:
            break
        right = down + 1
        if right < size and (
            ready_queue[right].key < ready_queue[down].key
            or (
                ready_queue[right].key == ready_queue[down].key
                and ready_queue[right].task < ready_queue[down].task
            )
        ):
            down = right
        if key < ready_queue[down].key or (key == ready_queue[down].key and task < ready_queue[down].task):
            break
        ready_queue[at] = ready_queue[down]
        at = down
    ready_queue[at].key = key
    ready_queue[at].task = task


@inlined
def release(run: RunArrays, engine: EngineArrays, task: int, now: float) -> None:
    """All parents are done: ready now, or after the overhead of the workflow engine."""
    tasks = run.tasks
    at_s = tasks[task].notified_s + tasks[task].engine_s
    if at_s > now:
        tasks[task].status = WAITING
        push_event(engine.events, engine.sizes, at_s, READY * KIND + task, 0)
    else:
        become_ready(run, engine, task, now)


@inlined
def become_ready(run: RunArrays, engine: EngineArrays, task: int, now: float) -> None:
    """Queue the activation, unless it waits for its planned lane."""
    tasks, state = run.tasks, run.state
    tasks[task].status = IS_READY
    tasks[task].ready_s = now
    rule = state[0].rule
    if rule == ADAPTIVE:
        if state[0].plan_abandoned == 1:
            insert_ready(engine.ready_queue, engine.sizes, task, -tasks[task].priority)
    elif rule != PLAN or tasks[task].orphan == 1:
        key = -tasks[task].priority if rule == PRIORITY else now
        push_ready(engine.ready_queue, engine.sizes, task, key, is_ordered(rule))
