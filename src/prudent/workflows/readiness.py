"""When an activation may start: its parents are done, and whoever places it hears of it."""

from __future__ import annotations

from prudent.workflows.compiled import inlined
from prudent.workflows.graph import Ints
from prudent.workflows.policies import ADAPTIVE, PLAN, PRIORITY, is_ordered
from prudent.workflows.queues import KIND, push, put_in_bag, put_in_line
from prudent.workflows.records import IS_READY, READY, WAITING, Records


@inlined
def release(
    tasks: Records, rules: Records, events: Records, bag: Records, sizes: Ints, task: int, now: float
) -> None:
    """All parents are done: ready now, or when the engine has noticed."""
    at_s = tasks[task].heard_s + tasks[task].engine_s
    if at_s > now:
        tasks[task].status = WAITING
        push(events, sizes, at_s, READY * KIND + task, 0)
    else:
        become_ready(tasks, rules, bag, sizes, task, now)


@inlined
def become_ready(tasks: Records, rules: Records, bag: Records, sizes: Ints, task: int, now: float) -> None:
    tasks[task].status = IS_READY
    tasks[task].ready_s = now
    policy = rules[0].policy
    if policy == ADAPTIVE:
        if rules[0].adrift == 1:
            put_in_line(bag, sizes, task, -tasks[task].priority)
    elif policy != PLAN or tasks[task].orphan == 1:
        key = -tasks[task].priority if policy == PRIORITY else now
        put_in_bag(bag, sizes, task, key, is_ordered(policy))
