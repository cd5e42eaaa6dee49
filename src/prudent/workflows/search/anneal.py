"""What a plan is judged by: time, money, and how much being late or dear hurts.

Simulated annealing of a draft: worse plans are accepted less and less often, the best is kept.
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
def energy(aim: SearchObjective, makespan_s: float, cost_usd: float) -> float:
    """What the search makes small."""
    total = aim.time_weight * makespan_s + aim.cost_weight * cost_usd
    if makespan_s > aim.deadline_s:
        total += aim.late_weight * (makespan_s - aim.deadline_s)
    if cost_usd > aim.budget_usd:
        total += aim.over_weight * (cost_usd - aim.budget_usd)
    return total


@inlined
def makespan_limit_s(aim: SearchObjective, limit: float) -> float:
    """The makespan above which the energy is above `limit` whatever the cost."""
    if aim.time_weight * aim.deadline_s >= limit or aim.late_weight == 0.0:
        return limit / aim.time_weight if aim.time_weight > 0.0 else math.inf
    return (limit + aim.late_weight * aim.deadline_s) / (aim.time_weight + aim.late_weight)


class CoolingSchedule(NamedTuple):
    """How bold the search is.

    The temperature falls from `first` to `last`, as shares of the energy. `focus`: how often an activation is
    taken from those that hold up the end. `crowding`: what the mean end of lanes adds to the energy, so that
    plans of one makespan are not all alike.
    """

    first: float
    last: float
    focus: float = 0.5
    crowding: float = 0.05


@allocation_free
def anneal(
    ground: SearchArrays,
    draft: CandidatePlan,
    aim: SearchObjective,
    heat: CoolingSchedule,
    tries: int,
    enough: float,
    random: Any,
    path: Ints,
    move: Ints,
    best_lane: Ints,
    best_order: Ints,
    best: Floats,
) -> None:
    """Change the draft `tries` times; `best` (energy, makespan, cost) and its plan are improved in place.

    Only plans within the aim's deadline and budget count as best. Ends early when the energy is `enough`.
    """
    makespan_s = walk(ground, draft, 0, math.inf)
    accept(draft, 0)
    usd = cost_usd(ground, draft)
    now = energy(aim, makespan_s, usd) + heat.crowding * _crowding(draft)
    length = _critical(ground, draft, path)
    scale = now
    for turn in range(tries):
        temperature = scale * heat.first * (heat.last / heat.first) ** (turn / tries)
        limit = now - temperature * math.log(1.0 - uniform(random))
        task = draw_below(random, len(draft.order))
        if uniform(random) < heat.focus:
            task = path[draw_below(random, length)]
        first = try_move(ground, draft, random, task, move)
        if first < 0:
            continue
        makespan_s = walk(ground, draft, first, makespan_limit_s(aim, limit))
        if makespan_s == math.inf:
            undo(draft, move)
            continue
        usd = cost_usd(ground, draft)
        plain = energy(aim, makespan_s, usd)
        then = plain + heat.crowding * _crowding(draft)
        if then > limit:
            undo(draft, move)
            continue
        accept(draft, first)
        now = then
        length = _critical(ground, draft, path)
        allowed = makespan_s <= aim.deadline_s and usd <= aim.budget_usd
        if allowed and plain < best[0] - 1e-9 * scale:
            best[0], best[1], best[2] = plain, makespan_s, usd
            copy(draft.lane, best_lane)
            copy(draft.order, best_order)
            if plain <= enough:
                return


@allocation_free
def _crowding(draft: CandidatePlan) -> float:
    """The mean time at which lanes fall idle: of two equal makespans the less crowded one leads further."""
    total = 0.0
    for lane in range(len(draft.lane_free_s)):
        total += max(draft.lane_free_s[lane], 0.0)
    return total / len(draft.lane_free_s)


@allocation_free
def _critical(ground: SearchArrays, draft: CandidatePlan, path: Ints) -> int:
    """The activations that hold up the end, last first; how many they are."""
    last = draft.order[0]
    for task in draft.order:
        if draft.finish_s[task] > draft.finish_s[last]:
            last = task
    path[0] = last
    length = 1
    task, at = last, draft.place[last]
    slack_s = 1e-9 * draft.finish_s[last]
    while at > 0:
        due_s = draft.start_s[task] - slack_s
        before = -1
        for link in range(ground.beneath[task], ground.beneath[task + 1]):
            parent = ground.parents[link]
            if draft.finish_s[parent] + ground.post_s[parent] + ground.engine_s[task] >= due_s:
                before = parent
        if before < 0:
            lane = draft.lane[task]
            at -= 1
            while at >= 0 and draft.lane[draft.order[at]] != lane:
                at -= 1
            if at < 0 or draft.finish_s[draft.order[at]] < due_s:
                return length
            before = draft.order[at]
        task = before
        at = draft.place[task]
        path[length] = task
        length += 1
    return length
