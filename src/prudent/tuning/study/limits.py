"""When a run is cut, and how much time and money are kept back for its end."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prudent.core.money import Price
from prudent.tuning.goal import COST, TIME
from prudent.tuning.jobs.job import GracefulRun, Run
from prudent.tuning.problem import Problem
from prudent.tuning.trial import Configuration, Trial

TOO_SLOW = "took longer than the goal allows"
TOO_DEAR = "cost more than the goal allows"
NOT_CHEAPER = "its bill passed the best run so far"
NOT_FASTER = "took longer than the best run so far"
SURPRISE = "cost far more than expected"
OUT_OF_MONEY = "the budget could not pay for more"
OUT_OF_TIME = "its time is over"


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


def noticed(limit: Limit, check_s: float) -> Limit:
    """When a limit is noticed by who looks every `check_s` seconds.

    >>> [noticed(Limit(seconds), 30.0).seconds for seconds in (60.0, 70.0)], noticed(Limit(70.0), 0.0).seconds
    ([60.0, 90.0], 70.0)
    """
    if not check_s or not math.isfinite(limit.seconds):
        return limit
    return Limit(math.ceil(limit.seconds / check_s - 1e-9) * check_s, limit.why)


FIRST_S = 0.1
"""What noticing a limit and stopping a run are taken to need until either was measured; what took longer once
is expected to again."""
DECIDING_S = 2.0
"""What a decision is taken to need at least: the first one of a strategy that learns takes longest."""
GRACE_SHARE = 0.1
"""A run may use its whole grace time to end itself, but no more than this share of what it is paid for."""


class ShutdownMargin:
    """The room between a limit and the moment when the money is gone, by what was measured so far.

    noticing: from the limit to the decision to end; grace: what a run is given to end by itself; stopping:
    what its end takes beyond that. Rented machines know how long their own end takes (`Rented.lasts_s`).
    """

    def __init__(self) -> None:
        self._noticing_s = FIRST_S
        self._stopping_s = FIRST_S

    @property
    def noticing_s(self) -> float:
        return self._noticing_s

    @property
    def stopping_s(self) -> float:
        """How long a run takes to end that is killed."""
        return self._stopping_s

    @property
    def least_s(self) -> float:
        """The room that every run needs."""
        return self._noticing_s + self._stopping_s

    @property
    def deciding_s(self) -> float:
        """How long nobody may look at the runs under way because the next one is being chosen."""
        return max(self._noticing_s, DECIDING_S)

    def noticed(self, late_s: float) -> bool:
        """A limit was noticed so late; True where that was never so before."""
        before_s, self._noticing_s = self._noticing_s, max(self._noticing_s, late_s)
        return self._noticing_s > before_s

    def stopped(self, took_s: float, grace_s: float) -> None:
        self._stopping_s = max(self._stopping_s, took_s - grace_s)

    def grace_s(self, run: Run, paid_s: float) -> float:
        """How long a run may take to end by itself, if it is paid for `paid_s` at most."""
        return min(run.grace_s, GRACE_SHARE * paid_s) if isinstance(run, GracefulRun) else 0.0

    def room_s(self, run: Run, paid_s: float) -> float:
        """How long before its money is gone a run must be ended."""
        return self.least_s + self.grace_s(run, paid_s)
