"""The leaderboard of a training request, every model best first, and the events on the way to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from prudent.core.money import ROUNDING_USD
from prudent.tuning.trial import Progress

ENSEMBLE = "ensemble"
"""The algorithm of an entry that averages others."""
SAMPLE = "sample"
"""The transform under which an entry tells that its model saw a share of the rows."""


@dataclass(frozen=True)
class LeaderboardEntry:
    """One trained model. `score` is larger for a better model (RMSE is negated); `value` is the metric as is.

    They are what a user would be right to expect on new rows: of a score that was the best of many, a part is
    luck. `validation_score` is what was measured, `test_score` that on rows which only the few best have
    seen, and `interval` holds the true score with 95 % certainty.

    A trial that failed has no entry but is in `Leaderboard.failures`.
    """

    rank: int
    algorithm: str
    hyperparameters: Mapping[str, Any]
    score: float
    metric: str
    value: float
    model_path: str
    train_s: float
    predict_ms: float
    """Milliseconds to predict one row, in a batch."""
    cost_usd: float
    trial: int
    transforms: Mapping[str, Any] = field(default_factory=dict)
    machines: str = ""
    """On which machines it was trained, such as 2*m5.large, where the request left that open."""
    members: tuple[Mapping[str, Any], ...] = ()
    """Of an ensemble: algorithm, weight, trial, hyper-parameters and transforms of each."""
    validation_score: float | None = None
    test_score: float | None = None
    interval: tuple[float, float] | None = None
    rows_trained: int = 0
    """On how many rows the model that is delivered was trained; 0 where that is not known."""
    refitted: bool = False
    """Whether these are all rows, after its score had been measured."""

    @property
    def fraction(self) -> float:
        """The share of the training rows that it saw."""
        return float(self.transforms.get(SAMPLE, {}).get("fraction", 1.0))

    @property
    def settings_key(self) -> str:
        """What two models share that differ in nothing but the machines on which they were trained."""
        return repr((self.algorithm, sorted(self.hyperparameters.items()), sorted(self.transforms.items())))

    def to_dict(self) -> dict[str, Any]:
        said = {**asdict(self), "fraction": self.fraction}
        return said if self.members else {name: each for name, each in said.items() if name != "members"}


def rank_key(entry: LeaderboardEntry) -> tuple[float, int]:
    """The key that puts the best model first; of equal ones the one that was tried first."""
    return -entry.score, entry.trial


@dataclass(frozen=True)
class TrialFailure:
    """A trial that gave no model, and why; `cut` if it might have, but was not worth its end."""

    trial: int
    algorithm: str
    hyperparameters: Mapping[str, Any]
    why: str
    cost_usd: float = 0.0
    cut: bool = False
    machines: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Leaderboard:
    """The ranking of a request, with the time and money it took."""

    entries: tuple[LeaderboardEntry, ...]
    failures: tuple[TrialFailure, ...]
    domain: str
    metric: str
    engine: str
    out: str
    time_s: float
    spent_usd: float
    ended: str
    """Why no further trial was started, for people."""
    recommended: Mapping[str, Any] = field(default_factory=dict)
    """Settings and machines that a search over machines recommends; empty where they were not open."""
    budget_usd: float | None = None
    interrupted_usd: float = 0.0
    """What of it was paid for trials that Ctrl-C, a kill or a crash ended before their time."""
    warnings: tuple[str, ...] = ()
    """Signs that scores are too good, such as a column that knows the answer; each names its remedy."""
    guess: float | None = None
    """The score that guessing reaches, where that is known."""
    tied: tuple[str, ...] = ()
    """Other algorithms whose best model cannot be told from the first."""
    unfinished: str = ""
    """What time or money did not allow for the first model, in a sentence."""

    @property
    def over_usd(self) -> float:
        """By how much the spending exceeds the budget; 0 if it does not."""
        over_usd = self.spent_usd - (math.inf if self.budget_usd is None else self.budget_usd)
        return over_usd if over_usd > ROUNDING_USD else 0.0

    @property
    def best(self) -> LeaderboardEntry | None:
        return self.entries[0] if self.entries else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be known of the first model beside its score, in sentences."""
        return tuple(note for note in (self.guessing, self.no_clear_leader, self.unfinished) if note)

    @property
    def guessing(self) -> str:
        """A warning where the best model is no better than guessing, as far as its interval tells."""
        best = self.best
        if best is None or best.interval is None or self.guess is None or best.interval[0] > self.guess:
            return ""
        return (
            f"The best model is no better than guessing, as far as these rows tell: guessing has a score of "
            f"{self.guess:.4g}, and the model's is between {best.interval[0]:.4g} and {best.interval[1]:.4g}."
        )

    @property
    def no_clear_leader(self) -> str:
        """A note where other algorithms are as good as the first, as far as the rows tell."""
        if self.best is None or not self.tied:
            return ""
        names = ", ".join(self.tied)
        return (
            f"These rows cannot tell the best model from the best of {names}; of such models the simpler and "
            "cheaper one stands first."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `leaderboard.json`."""
        return {
            "domain": self.domain,
            "metric": self.metric,
            "engine": self.engine,
            "out": self.out,
            "time_s": self.time_s,
            "budget_usd": self.budget_usd,
            "spent_usd": self.spent_usd,
            "over_usd": self.over_usd,
            "interrupted_usd": self.interrupted_usd,
            "ended": self.ended,
            "warnings": list(self.warnings),
            "entries": [entry.to_dict() for entry in self.entries],
            "guess": self.guess,
            "tied": list(self.tied),
            "notes": list(self.notes),
            "failures": [failure.to_dict() for failure in self.failures],
            **({"recommended": dict(self.recommended)} if self.recommended else {}),
        }


@dataclass(frozen=True)
class TrainingTrialStarted:
    """A trial begins."""

    number: int
    algorithm: str
    why: str


@dataclass(frozen=True)
class TrainingTrialReported:
    """A running trial reported its progress."""

    number: int
    algorithm: str
    progress: Progress


@dataclass(frozen=True)
class TrainingTrialEnded:
    """A trial ended, with a model or with a reason; `earlier` says that it did in a session before this."""

    result: LeaderboardEntry | TrialFailure
    earlier: bool = False


@dataclass(frozen=True)
class ClusterReady:
    """Machines have started and Spark runs on them; `ui` is the address of its pages."""

    text: str
    place: str
    master: str
    ui: str
    took_s: float


@dataclass(frozen=True)
class SpendingUpdated:
    """What the request has cost so far, in all its sessions: trials, and what machines cost beside them."""

    total_usd: float


TrainingEvent = (
    TrainingTrialStarted | TrainingTrialReported | TrainingTrialEnded | ClusterReady | SpendingUpdated
)
EventCallback = Callable[[TrainingEvent], None]
