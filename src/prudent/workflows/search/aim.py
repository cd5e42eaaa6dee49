"""What a plan is judged by: time, money, and how much being late or dear hurts."""

from __future__ import annotations

import math
from typing import NamedTuple

from prudent.workflows.compiled import inlined


class Aim(NamedTuple):
    """time_weight * makespan + cost_weight * cost, plus late_weight * lateness + over_weight * excess."""

    time_weight: float = 1.0
    cost_weight: float = 0.0
    deadline_s: float = math.inf
    late_weight: float = 0.0
    budget_usd: float = math.inf
    over_weight: float = 0.0


@inlined
def energy(aim: Aim, makespan_s: float, cost_usd: float) -> float:
    """What the search makes small."""
    total = aim.time_weight * makespan_s + aim.cost_weight * cost_usd
    if makespan_s > aim.deadline_s:
        total += aim.late_weight * (makespan_s - aim.deadline_s)
    if cost_usd > aim.budget_usd:
        total += aim.over_weight * (cost_usd - aim.budget_usd)
    return total


@inlined
def latest_s(aim: Aim, limit: float) -> float:
    """The makespan above which the energy is above `limit` whatever the cost."""
    if aim.time_weight * aim.deadline_s >= limit or aim.late_weight == 0.0:
        return limit / aim.time_weight if aim.time_weight > 0.0 else math.inf
    return (limit + aim.late_weight * aim.deadline_s) / (aim.time_weight + aim.late_weight)
