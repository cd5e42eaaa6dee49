"""The contract between a request's search and the engine that trains its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.training.algorithms.hyperparameter import SEED
from prudent.tuning.jobs.job import Run


@dataclass(frozen=True)
class TrialSpec:
    """One model to train: what, with which settings, on which share of the training rows, and where it goes.

    `folder` is made by the engine and holds, once the run has finished, `model.onnx` and `facts.json` (see
    `ModelFacts`). A run that is cut or fails leaves no `facts.json`.
    """

    number: int
    algorithm: str
    hyperparameters: Mapping[str, Any]
    transforms: Mapping[str, Any]
    fraction: float
    seed: int
    folder: Path
    limit_s: float | None = None
    """When the engine ends it, if the search has not."""
    soft_s: float | None = None
    """When an iterative algorithm ends by itself, with what it has learned so far."""
    refit: bool = False
    """Whether it trains on all rows, those of the test part too, and measures nothing."""
    iterations: int | None = None
    """In how many steps an iterative algorithm is refitted."""
    bar: Sequence[float] = ()
    """The scores, split by split, of the best model so far: one that is clearly behind need not go on."""

    @property
    def fit_seed(self) -> int:
        """The seed of everything random in a fit, the same for every fold: the hyper-parameter's own, or one
        drawn from the request's.
        """
        if (own := self.hyperparameters.get(SEED.name)) is not None:
            return int(own) if 0 <= own < 2**31 else int(rng_for(own, "fit").integers(2**31 - 1))
        return int(rng_for(self.seed, "fit", self.algorithm).integers(2**31 - 1))


@dataclass(frozen=True)
class ModelFacts:
    """What an engine knows about a model it trained, written as `facts.json` beside `model.onnx`.

    `value` is the metric as it is, `score` larger for better. `picture` holds what the report draws:
    confusion matrix, residuals, silhouettes, learning curve, importances, each as plain lists.
    """

    metric: str
    value: float
    score: float
    train_s: float
    predict_ms: float
    export_difference: float | None
    """Largest difference between the model's and its ONNX form's predictions on the validation rows."""
    rows_trained: int
    rows_validated: int
    versions: Mapping[str, str]
    extra_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What a user should know of this model, such as a form that was asked for and could not be written."""
    picture: Mapping[str, Any] = field(default_factory=dict)
    iterations: int | None = None
    """How many steps of an iterative algorithm were enough, on average over the splits."""
    split_scores: tuple[float, ...] = ()
    """The score in each split in which it was judged."""
    refitted: bool = False
    """Whether the model was trained on all rows, after its score had been measured on some of them."""

    @property
    def measures(self) -> dict[str, float]:
        """What a finished run reports."""
        return {
            "score": self.score,
            "value": self.value,
            "train_s": self.train_s,
            "predict_ms": self.predict_ms,
        }


@dataclass(frozen=True, eq=False)
class UnseenRows:
    """The test part: raw rows as `model.onnx` takes them, their target, and their numbers in the data set."""

    X: NDArray[Any]
    y: NDArray[Any]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.X)

    def at(self, places: NDArray[Any]) -> UnseenRows:
        """Those at some places."""
        return UnseenRows(self.X[places], self.y[places], self.rows[places])


@dataclass(frozen=True)
class DataShape:
    """What a search needs to know about the data before it trains anything."""

    rows: int
    columns: int
    classes: int
    fingerprint: str
    engine: str = "local"


class TrainingSession(Protocol):
    """An engine with the data of one request in it; trials run side by side."""

    @property
    def shape(self) -> DataShape: ...

    @property
    def description(self) -> Mapping[str, Any]:
        """How raw rows become the matrix that `model.onnx` takes: columns, categories, target, classes."""

    def start(self, spec: TrialSpec) -> Run:
        """Begin to train; the run's outcome measures `score`, `value`, `train_s` and `predict_ms`.

        An iterative algorithm reports progress with the `score` so far. A combination of hyper-parameters
        that the algorithm refuses is a failed outcome with the reason. What its models predicted for rows
        they had not seen is in the folder too (`Predictions`).
        """

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@runtime_checkable
class RefittingSession(TrainingSession, Protocol):
    """A session that can train on all rows (`TrialSpec.refit`), and may have kept a test part."""

    def test_rows(self) -> UnseenRows | None:
        """The rows that no trial has seen, for judging the few best; None where no such part was taken."""


@runtime_checkable
class ReadableSession(RefittingSession, Protocol):
    """A session whose rows can be looked at."""

    def rows_of(self, rows: NDArray[np.int64]) -> UnseenRows | None:
        """Rows by their numbers, in that order, as far as there are such; None of clusters."""


class Engine(Protocol):
    """Somewhere to train: this machine, or a Spark cluster."""

    @property
    def name(self) -> str: ...

    def open(self, request: Any, work: Path, parallelism: int) -> TrainingSession:
        """Read the request's data, split it, keep it ready. `work` is a folder for the engine's own files."""
