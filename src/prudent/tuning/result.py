"""The answer of a tuning run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prudent.core.ledger import Entry
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
    entries: tuple[Entry, ...] = ()
    known: tuple[Trial, ...] = ()
    interrupted: bool = False
    job: str = ""
    prediction: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for `--json`."""
        return {
            "job": self.job,
            "goal": str(self.goal),
            "strategy": self.strategy,
            "seed": self.seed,
            "budget_usd": self.budget_usd,
            "spent_usd": self.spent_usd,
            "interrupted": self.interrupted,
            "best": self.best.to_dict() if self.best else None,
            "nearest": self.nearest.to_dict() if self.nearest else None,
            "recommended": self.recommended,
            "prediction": self.prediction,
            "trials": [trial.to_dict() for trial in self.trials],
            "charges": [entry.to_dict() for entry in self.entries],
        }
