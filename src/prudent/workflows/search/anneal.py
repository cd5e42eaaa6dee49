"""Simulated annealing: the objective, the cooling schedule, and the search itself.

Worse plans are accepted less and less often; the best plan is kept.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from prudent.workflows.search.moves import draw_below, try_move, undo
from prudent.workflows.search.walk import CandidatePlan, SearchArrays, accept, copy, cost_usd, walk
from prudent.workflows.simulation.compiled import Floats, Ints, allocation_free, inlined, uniform


class SearchObjective(NamedTuple):
    """time_weight * makespan + cost_weight * cost, plus late_weight * lateness + over_weight * excess."""

    time_weight: float = 1.0
    cost_weight: float = 0.0
    deadline_s: float = math.inf
    late_weight: float = 0.0
    budget_usd: float = math.inf
    over_weight: float = 0.0


@inlined
def energy(objective: SearchObjective, makespan_s: float, cost_usd: float) -> float:
    """The value that the search minimises."""
    total = objective.time_weight * makespan_s + objective.cost_weight * cost_usd
    if makespan_s > objective.deadline_s:
        total += objective.late_weight * (makespan_s - objective.deadline_s)
    if cost_usd > objective.budget_usd:
        total += objective.over_weight * (cost_usd - objective.budget_usd)
    return total


@inlined
def makespan_limit_s(objective: SearchObjective, limit: float) -> float:
    """The makespan above which the energy exceeds `limit` at any cost."""
    if objective.time_weight * objective.deadline_s >= limit or objective.late_weight == 0.0:
        return limit / objective.time_weight if objective.time_weight > 0.0 else math.inf
    return (limit + objective.late_weight * objective.deadline_s) / (
        objective.time_weight + objective.late_weight
    )


class CoolingSchedule(NamedTuple):
    """How readily the search accepts worse plans.

    The temperature falls from `first` to `last`, as shares of the energy. `focus`: how often an activation is
    taken from the critical path. `crowding`: what the mean end of lanes adds to the energy, so that
    plans of one makespan are not all alike.
    """

    first: float
    last: float
    focus: float = 0.5
    crowding: float = 0.05


class SearchMemory(NamedTuple):
    """What a search writes into: the state of its random numbers, scratch space, and the best plan so far.

    `path` and `move` are scratch space for the critical path and for what the last change was. `best` is the
    energy, the makespan and the cost of the plan in `lane` and `order`.
    """

    random: Any
    path: Ints
    move: Ints
    lane: Ints
    order: Ints
    best: Floats


@allocation_free
def anneal(
    arrays: SearchArrays,
    candidate: CandidatePlan,
    objective: SearchObjective,
    cooling: CoolingSchedule,
    tries: int,
    enough: float,
    memory: SearchMemory,
) -> None:
    """Change the candidate `tries` times; the best plan in `memory` is improved in place.

    Only plans within the deadline and the budget of the objective count as best. Ends early when the
    energy is `enough`.
    """
    best = memory.best
    makespan_s = walk(arrays, candidate, 0, math.inf)
    accept(candidate, 0)
    usd = cost_usd(arrays, candidate)
    now = energy(objective, makespan_s, usd) + cooling.crowding * _crowding(candidate)
    length = _critical(arrays, candidate, memory.path)
    scale = now
    for attempt in range(tries):
        temperature = scale * cooling.first * (cooling.last / cooling.first) ** (attempt / tries)
        limit = now - temperature * math.log(1.0 - uniform(memory.random))
        first = _change(arrays, candidate, cooling.focus, memory, length)
        if first < 0:
            continue
        makespan_s = walk(arrays, candidate, first, makespan_limit_s(objective, limit))
        if makespan_s == math.inf:
            undo(candidate, memory.move)
            continue
        usd = cost_usd(arrays, candidate)
        plain = energy(objective, makespan_s, usd)
        then = plain + cooling.crowding * _crowding(candidate)
        if then > limit:
            undo(candidate, memory.move)
            continue
        accept(candidate, first)
        now = then
        length = _critical(arrays, candidate, memory.path)
        allowed = makespan_s <= objective.deadline_s and usd <= objective.budget_usd
        if allowed and plain < best[0] - 1e-9 * scale:
            best[0], best[1], best[2] = plain, makespan_s, usd
            copy(candidate.lane, memory.lane)
            copy(candidate.order, memory.order)
            if plain <= enough:
                return


@inlined
def _change(
    arrays: SearchArrays, candidate: CandidatePlan, focus: float, memory: SearchMemory, length: int
) -> int:
    """Try a change, with the chance `focus` on the critical path; the first changed position, or -1."""
    task = draw_below(memory.random, len(candidate.order))
    if uniform(memory.random) < focus:
        task = memory.path[draw_below(memory.random, length)]
    return try_move(arrays, candidate, memory.random, task, memory.move)


@allocation_free
def _crowding(candidate: CandidatePlan) -> float:
    """The mean end of lanes: of two equal makespans the less crowded one leaves more room to improve."""
    total = 0.0
    for lane in range(len(candidate.lane_free_s)):
        total += max(candidate.lane_free_s[lane], 0.0)
    return total / len(candidate.lane_free_s)


@allocation_free
def _critical(arrays: SearchArrays, candidate: CandidatePlan, path: Ints) -> int:
    """Put the critical path of the plan into `path`, last first; answers its length."""
    last = candidate.order[0]
    for task in candidate.order:
        if candidate.finish_s[task] > candidate.finish_s[last]:
            last = task
    path[0] = last
    length = 1
    task, at = last, candidate.position[last]
    slack_s = 1e-9 * candidate.finish_s[last]
    while at > 0:
        due_s = candidate.start_s[task] - slack_s
        before = -1
        for link in range(arrays.parent_ptr[task], arrays.parent_ptr[task + 1]):
            parent = arrays.parents[link]
            if candidate.finish_s[parent] + arrays.post_s[parent] + arrays.engine_s[task] >= due_s:
                before = parent
        if before < 0:
            lane = candidate.lane[task]
            at -= 1
            while at >= 0 and candidate.lane[candidate.order[at]] != lane:
                at -= 1
            if at < 0 or candidate.finish_s[candidate.order[at]] < due_s:
                return length
            before = candidate.order[at]
        task = before
        at = candidate.position[task]
        path[length] = task
        length += 1
    return length
