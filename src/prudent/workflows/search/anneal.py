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


@allocation_free
def anneal(
    arrays: SearchArrays,
    candidate: CandidatePlan,
    objective: SearchObjective,
    cooling: CoolingSchedule,
    tries: int,
    enough: float,
    random: Any,
    path: Ints,
    move: Ints,
    best_lane: Ints,
    best_order: Ints,
    best: Floats,
) -> None:
    """Change the candidate `tries` times; `best` (energy, makespan, cost) and its plan are improved in place.

    Only plans within the deadline and the budget of the objective count as best. Ends early when the
    energy is `enough`.
    """
    makespan_s = walk(arrays, candidate, 0, math.inf)
    accept(candidate, 0)
    usd = cost_usd(arrays, candidate)
    now = energy(objective, makespan_s, usd) + cooling.crowding * _crowding(candidate)
    length = _critical(arrays, candidate, path)
    scale = now
    for attempt in range(tries):
        temperature = scale * cooling.first * (cooling.last / cooling.first) ** (attempt / tries)
        limit = now - temperature * math.log(1.0 - uniform(random))
        task = draw_below(random, len(candidate.order))
        if uniform(random) < cooling.focus:
            task = path[draw_below(random, length)]
        first = try_move(arrays, candidate, random, task, move)
        if first < 0:
            continue
        makespan_s = walk(arrays, candidate, first, makespan_limit_s(objective, limit))
        if makespan_s == math.inf:
            undo(candidate, move)
            continue
        usd = cost_usd(arrays, candidate)
        plain = energy(objective, makespan_s, usd)
        then = plain + cooling.crowding * _crowding(candidate)
        if then > limit:
            undo(candidate, move)
            continue
        accept(candidate, first)
        now = then
        length = _critical(arrays, candidate, path)
        allowed = makespan_s <= objective.deadline_s and usd <= objective.budget_usd
        if allowed and plain < best[0] - 1e-9 * scale:
            best[0], best[1], best[2] = plain, makespan_s, usd
            copy(candidate.lane, best_lane)
            copy(candidate.order, best_order)
            if plain <= enough:
                return


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
