"""Two binary heaps in arrays: events by time, then kind, then id; ready activations by key, then id.

So every run is deterministic. `sizes` is (number of events, of ready activations, of idle lanes).

When an activation may start: its parents are done, and whoever places it hears of it.
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
    is_ordered,
)

KIND_BITS = 40


KIND = 1 << KIND_BITS
"""An event's code is kind * KIND + id, so that one comparison orders both."""


@inlined
def push_event(events: Records, sizes: Ints, time: float, code: int, mark: int) -> None:
    """Add an event; `mark` tells one that was overtaken from a valid one."""
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
    events[at].mark = mark


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
def push_ready(bag: Records, sizes: Ints, task: int, key: float, ordered: bool) -> None:
    """Add a ready activation; an ordered bag is a heap, others are in no order."""
    at = sizes[1]
    sizes[1] += 1
    while ordered and at > 0:
        up = (at - 1) >> 1
        if bag[up].key < key or (bag[up].key == key and bag[up].task < task):
            break
        bag[at] = bag[up]
        at = up
    bag[at].key = key
    bag[at].task = task


@inlined
def insert_ready(bag: Records, sizes: Ints, task: int, key: float) -> None:
    """Add a ready activation to a bag that is kept sorted, for rules that look at many in order."""
    at = sizes[1]
    sizes[1] += 1
    while at > 0 and (bag[at - 1].key > key or (bag[at - 1].key == key and bag[at - 1].task > task)):
        bag[at] = bag[at - 1]
        at -= 1
    bag[at].key = key
    bag[at].task = task


@inlined
def remove_ready(bag: Records, sizes: Ints, at: int) -> None:
    """Remove the entry at a position of a sorted bag."""
    sizes[1] -= 1
    for place in range(at, sizes[1]):
        bag[place] = bag[place + 1]


@inlined
def pop_ready(bag: Records, sizes: Ints, at: int, ordered: bool) -> None:
    """Remove the entry at a position (0 in an ordered bag)."""
    sizes[1] -= 1
    size = sizes[1]
    key, task = bag[size].key, bag[size].task
    while ordered:
        down = 2 * at + 1
        if down >= size:
            break
        right = down + 1
        if right < size and (
            bag[right].key < bag[down].key
            or (bag[right].key == bag[down].key and bag[right].task < bag[down].task)
        ):
            down = right
        if key < bag[down].key or (key == bag[down].key and task < bag[down].task):
            break
        bag[at] = bag[down]
        at = down
    bag[at].key = key
    bag[at].task = task


@inlined
def release(
    tasks: Records, rules: Records, events: Records, bag: Records, sizes: Ints, task: int, now: float
) -> None:
    """All parents are done: ready now, or when the engine has noticed."""
    at_s = tasks[task].heard_s + tasks[task].engine_s
    if at_s > now:
        tasks[task].status = WAITING
        push_event(events, sizes, at_s, READY * KIND + task, 0)
    else:
        become_ready(tasks, rules, bag, sizes, task, now)


@inlined
def become_ready(tasks: Records, rules: Records, bag: Records, sizes: Ints, task: int, now: float) -> None:
    tasks[task].status = IS_READY
    tasks[task].ready_s = now
    policy = rules[0].policy
    if policy == ADAPTIVE:
        if rules[0].adrift == 1:
            insert_ready(bag, sizes, task, -tasks[task].priority)
    elif policy != PLAN or tasks[task].orphan == 1:
        key = -tasks[task].priority if policy == PRIORITY else now
        push_ready(bag, sizes, task, key, is_ordered(policy))
