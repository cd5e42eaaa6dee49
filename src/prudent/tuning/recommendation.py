"""A recommendation that was never run: what is expected of it on the full data, and how surely."""

from __future__ import annotations

from dataclasses import dataclass

from prudent.tuning.goal import COST, TIME, Constraint
from prudent.tuning.result import Result
from prudent.tuning.strategies.strategy import prediction_key
from prudent.tuning.trial import Configuration

EVEN = 0.5
"""A recommendation with a lower chance to keep the goal is no answer, only what comes nearest."""


@dataclass(frozen=True)
class PredictedMeasure:
    """What is predicted of one measure: the median and the ends of a 95 % interval."""

    measure: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Recommendation:
    """An untested configuration; `chance` is the probability that it keeps every constraint.

    `expected` has the measures of the goal first, then cost and time.
    """

    configuration: Configuration
    expected: tuple[PredictedMeasure, ...]
    chance: float

    @property
    def likely(self) -> bool:
        """Whether it is rather an answer than only the nearest to one."""
        return self.chance >= EVEN

    def of(self, measure: str) -> PredictedMeasure | None:
        return next((expected for expected in self.expected if expected.measure == measure), None)

    def missed(self, constraints: tuple[Constraint, ...]) -> list[tuple[Constraint, PredictedMeasure]]:
        """The constraints that the predictions break; where medians keep all, those in doubt."""
        told = [(c, expected) for c in constraints if (expected := self.of(c.measure)) is not None]
        broken = [(c, expected) for c, expected in told if not c.holds(expected.value)]
        return broken or [(c, e) for c, e in told if not c.holds(e.high if c.is_upper else e.low)]


def untested_recommendation(result: Result) -> Recommendation | None:
    """What a result recommends without having run it; None where it was run, or nothing is predicted."""
    configuration, told = result.recommended, result.prediction
    if configuration is None or not told:
        return None
    if any(t.finished and t.configuration == configuration for t in (*result.known, *result.trials)):
        return None
    expected = []
    for measure in dict.fromkeys([*result.goal.measures, COST, TIME]):
        if measure in told:
            low, high = (float(told.get(prediction_key(measure, word), told[measure])) for word in ("low", "high"))
            expected.append(PredictedMeasure(measure, float(told[measure]), low, high))
    return Recommendation(configuration, tuple(expected), float(told.get("probability_feasible", 1.0)))
