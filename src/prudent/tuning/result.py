"""The answer of a tuning run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from prudent.core.ledger import LedgerEntry
from prudent.core.money import ROUNDING_USD
from prudent.tuning.charges import INTERRUPTED
from prudent.tuning.goal import Goal
from prudent.tuning.trial import Configuration, Trial


@dataclass(frozen=True)
class Result:
    """What was found, what was tried, and what it cost.

    `best` is the best finished trial that keeps every constraint, None while there is none (then
    `nearest` is the one that misses them by least). `recommended` differs from it only where a strategy
    recommends configurations it has not run.
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
            "best": self.best.to_dict() if self.best else None,
            "nearest": self.nearest.to_dict() if self.nearest else None,
            "recommended": self.recommended,
            "prediction": self.prediction,
            "trials": [trial.to_dict() for trial in self.trials],
            "charges": [entry.to_dict() for entry in self.entries],
        }
