"""When a run is cut: early time-out, and the money set aside for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prudent.core.money import Price
from prudent.tuning.goal import COST, TIME
from prudent.tuning.problem import Problem
from prudent.tuning.trial import Configuration, Trial

TOO_SLOW = "took longer than the goal allows"
TOO_DEAR = "cost more than the goal allows"
NOT_CHEAPER = "its bill passed the best run so far"
NOT_FASTER = "took longer than the best run so far"
SURPRISE = "cost far more than expected"
OUT_OF_MONEY = "the budget could not pay for more"


@dataclass(frozen=True, order=True)
class Limit:
    """After how many seconds a run is cut, and why."""

    seconds: float
    why: str = ""


NEVER = Limit(math.inf)


def early_limit(problem: Problem, configuration: Configuration, price: Price, best: Trial | None) -> Limit:
    """The moment from which a run can no longer be the answer; never without early time-out.

    A run past the time or cost that the goal allows is lost; so is one whose bill passed the best
    feasible one, when cost (or time) is what is minimised. Bounds at full data say nothing about a
    run on a part of it.
    """
    if not problem.early_stop:
        return NEVER
    limits = [NEVER]
    goal, full = problem.goal, problem.is_full(configuration)
    for constraint in goal.constraints:
        if not constraint.is_upper or (constraint.at_full_data and not full):
            continue
        if constraint.measure == TIME:
            limits.append(Limit(constraint.bound, TOO_SLOW))
        elif constraint.measure == COST:
            limits.append(Limit(price.seconds_for(constraint.bound), TOO_DEAR))
    if best is not None and goal.minimise and problem.answers(configuration):
        if goal.measure == COST:
            limits.append(Limit(price.seconds_for(best.cost_usd), NOT_CHEAPER))
        elif goal.measure == TIME:
            limits.append(Limit(best.time_s, NOT_FASTER))
    return min(limits)
