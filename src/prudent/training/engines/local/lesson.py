"""What a builder gets to learn from, and what it gives back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.domains import CLASSIFICATION, CLUSTERING, score_of
from prudent.training.dataset import Matrix
from prudent.training.engines.local.graph import Answer, Graph
from prudent.training.metrics import silhouette, value_of_classes, value_of_numbers

Report = Callable[[float, float], None]
"""Takes the score so far and how far training is (0..1)."""


@dataclass(frozen=True)
class Judge:
    """Measures predictions by the request's metric."""

    task: str
    metric: str
    classes: int = 0

    def value(self, actual: NDArray[Any] | None, predicted: NDArray[Any], X: Matrix) -> float:
        """The metric as it is; X is needed for clusters only."""
        if self.task == CLUSTERING:
            return silhouette(X, predicted)
        assert actual is not None
        if self.task == CLASSIFICATION:
            return value_of_classes(self.metric, actual, predicted, self.classes)
        return value_of_numbers(self.metric, actual, predicted)

    def score(self, actual: NDArray[Any] | None, predicted: NDArray[Any], X: Matrix) -> float:
        return score_of(self.metric, self.value(actual, predicted, X))


@dataclass(frozen=True, eq=False)
class Part:
    """Rows, prepared, with their target."""

    X: Matrix
    y: NDArray[Any] | None

    @property
    def target(self) -> NDArray[Any]:
        assert self.y is not None
        return self.y


@dataclass(frozen=True, eq=False)
class Lesson:
    """Everything a builder may use. `held_out` is None where the final model of k folds is made.

    `steps` is then how many iterations were best in the folds, for algorithms that stop early.
    """

    rows: Part
    held_out: Part | None
    judge: Judge
    seed: int
    threads: int = 1
    report: Report = field(default=lambda score, done: None)
    steps: int | None = None
    until_s: float = math.inf
    """When an iterative algorithm comes to an end, on the monotonic clock."""

    @property
    def classes(self) -> int:
        return self.judge.classes


@dataclass(frozen=True)
class Course:
    """How the training of an iterative algorithm went: scores by step, and where it ended and why."""

    step: tuple[int, ...]
    train: tuple[float, ...]
    validation: tuple[float, ...]
    best: int
    of: int
    why: str = ""


class Model(Protocol):
    """A trained model, on prepared features."""

    def predict(self, X: Matrix) -> NDArray[Any]:
        """Numbers of classes or clusters (int64), or values (float64)."""

    def probabilities(self, X: Matrix) -> NDArray[np.float64] | None:
        """(rows, classes), or None where the algorithm has none."""

    def graph(self, graph: Graph, rows: str) -> Answer: ...

    @property
    def importance(self) -> NDArray[np.float64] | None:
        """What each feature weighs, in the model's own terms; None where it does not say."""

    @property
    def course(self) -> Course | None: ...


class Builder(Protocol):
    """Trains; BadInput is how it refuses a combination of hyper-parameters."""

    def __call__(self, lesson: Lesson, chosen: Mapping[str, Any]) -> Model: ...
