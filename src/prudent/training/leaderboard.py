"""What a training request comes to: every model, best first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Failure:
    """A trial that gave no model, and why; `cut` if it might have, but was not worth its end."""

    trial: int
    algorithm: str
    hyperparameters: Mapping[str, Any]
    why: str
    cost_usd: float = 0.0
    cut: bool = False

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
        }
