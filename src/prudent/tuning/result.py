"""The answer of a tuning run, and its recommendation where that was not run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from prudent.core.ledger import LedgerEntry
from prudent.core.money import ROUNDING_USD
from prudent.tuning.goal import COST, TIME, Constraint, Goal
from prudent.tuning.strategies.strategy import prediction_key
from prudent.tuning.study.settlement import INTERRUPTED
from prudent.tuning.trial import Configuration, Trial


@dataclass(frozen=True)
class Result:
    """What was found, what was tried, and what it cost.

    `best` is the best finished trial that keeps every constraint, None while there is none (then
    `nearest` is the one that misses them by least). `recommended` differs from it only where a strategy
    recommends configurations it has not run. `stopped` says why money was left unspent on purpose.
    """

    goal: Goal
    best: Trial | None
    recommended: Configuration | None
    trials: tuple[Trial, ...]
    spent_usd: float
    budget_usd: float | None
    strategy: str
    seed: int
    nearest: Trial | None = None
    entries: tuple[LedgerEntry, ...] = ()
    known: tuple[Trial, ...] = ()
    interrupted: bool = False
    job: str = ""
    prediction: dict[str, Any] = field(default_factory=dict)
    stopped: str = ""

    @property
    def left_usd(self) -> float | None:
        """What of the budget is unspent; None where there was no budget."""
        return None if self.budget_usd is None else max(self.budget_usd - self.spent_usd, 0.0)

    @property
    def over_usd(self) -> float:
        """By how much what was paid has passed the budget; 0 where the promise was kept."""
        over_usd = self.spent_usd - (math.inf if self.budget_usd is None else self.budget_usd)
        return over_usd if over_usd > ROUNDING_USD else 0.0

    @property
    def interrupted_usd(self) -> float:
        """What of it was paid for runs that Ctrl-C, a kill or a crash ended before their time."""
        return math.fsum(entry.usd for entry in self.entries if entry.note == INTERRUPTED)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for `--json`."""
        return {
            "job": self.job,
            "goal": str(self.goal),
            "strategy": self.strategy,
            "seed": self.seed,
            "budget_usd": self.budget_usd,
            "spent_usd": self.spent_usd,
            "over_usd": self.over_usd,
            "interrupted_usd": self.interrupted_usd,
            "interrupted": self.interrupted,
            "left_usd": self.left_usd,
            "stopped": self.stopped,
            "best": self.best.to_dict() if self.best else None,
            "nearest": self.nearest.to_dict() if self.nearest else None,
            "recommended": self.recommended,
            "prediction": self.prediction,
            "trials": [trial.to_dict() for trial in self.trials],
            "charges": [entry.to_dict() for entry in self.entries],
        }


EVEN = 0.5
"""A recommendation with a lower chance to keep the goal is not an answer, only what comes nearest."""


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
            low, high = (
                float(told.get(prediction_key(measure, word), told[measure])) for word in ("low", "high")
            )
            expected.append(PredictedMeasure(measure, float(told[measure]), low, high))
    return Recommendation(configuration, tuple(expected), float(told.get("probability_feasible", 1.0)))
