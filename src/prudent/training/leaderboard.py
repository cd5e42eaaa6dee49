"""What a training request comes to: every model, best first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SAMPLE = "sample"
"""The transform under which an entry tells that its model saw a share of the rows."""


@dataclass(frozen=True)
class Entry:
    """One trained model. `score` is larger for a better model (RMSE is negated); `value` is the metric as is.

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

    @property
    def fraction(self) -> float:
        """The share of the training rows that it saw."""
        return float(self.transforms.get(SAMPLE, {}).get("fraction", 1.0))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "fraction": self.fraction}


def standing(entry: Entry) -> tuple[float, int]:
    """The key that puts the best model first; of equal ones the one that was tried first."""
    return -entry.score, entry.trial


@dataclass(frozen=True)
class Failure:
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

    entries: tuple[Entry, ...]
    failures: tuple[Failure, ...]
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

    @property
    def best(self) -> Entry | None:
        return self.entries[0] if self.entries else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `leaderboard.json`."""
        return {
            "domain": self.domain,
            "metric": self.metric,
            "engine": self.engine,
            "out": self.out,
            "time_s": self.time_s,
            "spent_usd": self.spent_usd,
            "ended": self.ended,
            "entries": [entry.to_dict() for entry in self.entries],
            "failures": [failure.to_dict() for failure in self.failures],
            **({"recommended": dict(self.recommended)} if self.recommended else {}),
        }
