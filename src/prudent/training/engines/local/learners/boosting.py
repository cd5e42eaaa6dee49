"""Boosted trees of any library: their classes, when they stop, and the model that they become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.training.algorithms.algorithm import CLASSIFICATION
from prudent.training.data.dataset import Matrix
from prudent.training.engines.fit_task import EarlyStopping, FitTask, LearningCurve
from prudent.training.engines.local.learners.scored_classes import sigmoid, softmax
from prudent.training.engines.local.learners.tree_arrays import SummedTrees
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph

Vector = NDArray[np.float64]
_NEVER = -1e9  # raw output of a class that had no rows to learn from
_TRAIN_SAMPLE = 10_000  # training rows that are scored after every round
_LEAST_SHARE = 1e-15


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """A sum of trees, as it is exported, and the library's own model that predicts with it here."""

    exported: SummedTrees
    raw_scores: Callable[[Matrix], Vector] | None
    """The library's sums of trees; None where there are no trees."""
    outputs: NDArray[np.int64]
    """Which outputs the library's own are."""
    importance: Vector | None = None
    learning_curve: LearningCurve | None = None

    def predict(self, X: Matrix) -> NDArray[Any]:
        raw = self._raw(X)
        if not self.exported.classifies:
            return np.asarray(raw[:, 0])
        return np.asarray((raw[:, 0] > 0).astype(np.int64) if raw.shape[1] == 1 else raw.argmax(axis=1))

    def probabilities(self, X: Matrix) -> Vector | None:
        if not self.exported.classifies:
            return None
        raw = self._raw(X)
        if raw.shape[1] > 1:
            return softmax(raw)
        second = sigmoid(raw)
        return np.concatenate([1.0 - second, second], axis=1)

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        return self.exported.graph(graph, rows)

    def _raw(self, X: Matrix) -> Vector:
        raw = np.tile(self.exported.base, (len(X), 1))
        if self.raw_scores is not None and len(X):
            raw[:, self.outputs] = self.raw_scores(X).reshape(len(X), -1)
        return raw


@dataclass(frozen=True, eq=False)
class GrownTrees:
    """What a library has grown: its trees as they are exported, and its own sums."""

    exported: SummedTrees
    raw_scores: Callable[[Matrix], Vector]
    importance: Vector


class GrowTrees(Protocol):
    """Grows so many rounds of trees with one library, telling the task's `step` after each."""

    def __call__(self, task: BoostingTask) -> GrownTrees: ...


class BoostingTask:
    """A task as boosting sees it: the classes that have rows, and what is watched from round to round."""

    def __init__(self, fit_task: FitTask, rounds: int) -> None:
        self.fit_task = fit_task
        self.rounds = rounds
        self.classifies = fit_task.scorer.task == CLASSIFICATION
        y = fit_task.rows.target
        self.present = np.unique(y) if self.classifies else np.zeros(1, dtype=np.int64)
        self.base, self.outputs = self._layout()
        self.stopping = None if fit_task.watched is None else EarlyStopping(fit_task, max(rounds, 1))
        self.sample = _sample(len(y), fit_task.seed)

    @property
    def labels(self) -> NDArray[Any]:
        """The target of the training rows: values, or numbers of the classes that are present."""
        y = self.fit_task.rows.target
        return np.searchsorted(self.present, y) if self.classifies else y

    @property
    def best_rounds(self) -> int:
        """How many rounds of those that were grown make the model."""
        return self.rounds if self.stopping is None else max(self.stopping.best_step, 1)

    @property
    def is_constant(self) -> bool:
        """Whether there is nothing to grow: one class only, or no rounds."""
        return self.rounds == 0 or (self.classifies and len(self.present) == 1)

    def step(self, watched: NDArray[Any], sample: NDArray[Any]) -> bool:
        """Record a round by its answers for the watched rows and for the sample; whether it was the last.

        Answers are values, or probabilities of the second of two classes, or of all that are present.
        """
        stopping, known = self.stopping, self.fit_task.watched
        assert stopping is not None
        assert known is not None
        y, X = self.fit_task.rows.target[self.sample], self.fit_task.rows.X[self.sample[:0]]
        if not self.classifies:
            loss = float(np.square(watched - known.target).mean())
            return stopping.step(watched, loss, self.fit_task.scorer.score(y, sample, X))
        shares = self._of_all_classes(watched)
        likely = shares[np.arange(len(shares)), known.target]
        loss = -float(np.log(np.maximum(likely, _LEAST_SHARE)).mean())
        predicted = self._of_all_classes(sample).argmax(axis=1)
        return stopping.step(shares.argmax(axis=1), loss, self.fit_task.scorer.score(y, predicted, X))

    def model(self, grow: GrowTrees) -> BoostedTrees:
        """The trees that are grown, or a constant where there is nothing to grow."""
        if self.is_constant:
            return BoostedTrees(SummedTrees((), self._constant(), self.classifies), None, self.outputs)
        grown = grow(self)
        curve = None if self.stopping is None else self.stopping.learning_curve()
        return BoostedTrees(grown.exported, grown.raw_scores, self.outputs, grown.importance, curve)

    def _layout(self) -> tuple[Vector, NDArray[np.int64]]:
        """Outputs of a model for all classes, and which of them the library has for those that are present.

        Two classes share one output, the log-odds of the second; a class without rows is never predicted.
        """
        present, classes = self.present, self.fit_task.classes
        if not self.classifies or (classes == 2 and len(present) == 2):
            return np.zeros(1), np.zeros(1, dtype=np.int64)
        base = np.full(classes, _NEVER)
        base[present] = 0.0
        return base, present[1:] if len(present) == 2 else present

    def _constant(self) -> Vector:
        y = self.fit_task.rows.target
        if not self.classifies:
            return np.array([float(np.mean(y))])
        if len(self.present) == 1:
            return self.base
        logs = np.log(np.bincount(y, minlength=self.fit_task.classes)[self.present] / len(y))
        if len(self.present) == 2:
            logs = logs[1:] - logs[0]
        base = self.base.copy()
        base[self.outputs] = logs
        return base

    def _of_all_classes(self, answers: NDArray[Any]) -> Vector:
        shares = np.zeros((len(answers), self.fit_task.classes))
        if answers.ndim == 1:
            shares[:, self.present[0]], shares[:, self.present[1]] = 1.0 - answers, answers
        else:
            shares[:, self.present] = answers
        return shares


def rounds_of(fit_task: FitTask, asked: int) -> int:
    """How many rounds are grown: as many as were best before where that is known."""
    return asked if fit_task.iterations is None else fit_task.iterations


def _sample(rows: int, seed: int) -> NDArray[np.int64]:
    if rows <= _TRAIN_SAMPLE:
        return np.arange(rows)
    return np.sort(rng_for(seed, "train score").choice(rows, _TRAIN_SAMPLE, replace=False))
