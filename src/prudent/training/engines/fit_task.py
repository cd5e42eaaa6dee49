"""What a model is fitted on, what fitting gives back, and when an iterative algorithm stops."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import Matrix
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph
from prudent.training.engines.scoring import Scorer

ReportProgress = Callable[[float, float], None]
"""Takes the score so far and how far training is (0..1)."""


def unreported(score: float, done: float) -> None:
    """Nobody is told: the score so far is not measured, as in the final fit after k folds."""


def fold_progress(report: ReportProgress, fold: int, folds: int) -> ReportProgress:
    """Progress of one fold as progress of all."""
    return lambda score, done: report(score, (fold + done) / folds)


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Rows after all transforms, with their target."""

    X: Matrix
    y: NDArray[Any] | None

    @property
    def target(self) -> NDArray[Any]:
        assert self.y is not None
        return self.y


@dataclass(frozen=True, eq=False)
class FitTask:
    """Everything a fit function may use; the rows by which models are ranked are not among it.

    `watched` are an inner part of the training rows, by which an iterative algorithm finds out how many steps
    are enough; others get none. Where `iterations` says how many steps there are, nothing is watched.
    """

    rows: PreparedRows
    watched: PreparedRows | None
    scorer: Scorer
    seed: int
    threads: int = 1
    report: ReportProgress = unreported
    iterations: int | None = None
    until_s: float = math.inf
    """When an iterative algorithm comes to an end, on the monotonic clock."""
    by_loss: bool = False
    """Whether the step of the least loss is the best one, rather than that of the best score."""
    categories: tuple[int, ...] = ()
    """For each feature how many categories it has, 0 for a number; empty where all are numbers."""

    @property
    def classes(self) -> int:
        return self.scorer.classes


@dataclass(frozen=True)
class LearningCurve:
    """How the training of an iterative algorithm went: scores by step, and where it ended and why."""

    step: tuple[int, ...]
    train: tuple[float, ...]
    validation: tuple[float, ...]
    best_step: int
    most_steps: int
    stop_reason: str = ""


class FittedModel(Protocol):
    """A trained model, on prepared features."""

    def predict(self, X: Matrix) -> NDArray[Any]:
        """Numbers of classes or clusters (int64), or values (float64)."""

    def probabilities(self, X: Matrix) -> NDArray[np.float64] | None:
        """(rows, classes), or None where the algorithm has none."""

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs: ...

    @property
    def importance(self) -> NDArray[np.float64] | None:
        """What each feature weighs, in the model's own terms; None where it does not say."""

    @property
    def learning_curve(self) -> LearningCurve | None: ...


class FitFunction(Protocol):
    """Trains; BadInput is how it refuses a combination of hyper-parameters."""

    def __call__(self, fit_task: FitTask, params: Mapping[str, Any]) -> FittedModel: ...


_REPORT_S = 0.05  # between reports; a thousand in a second help nobody
_POINTS = 200  # of a learning curve
_LEAST_PATIENCE, _MOST_PATIENCE = 10, 30


def patience_of(most_steps: int) -> int:
    """After how many steps without a better one training stops."""
    return min(max(_LEAST_PATIENCE, most_steps // 10), _MOST_PATIENCE)


class EarlyStopping:
    """Follows score and loss on the watched rows, step by step.

    Training stops when neither has improved for a tenth of all steps, 10 to 30, or when time is up. The score
    moves in jumps where few rows are watched, while the loss tells that something is still being learned.
    The best step is the one with the best score, and of several the one with the least loss.
    """

    def __init__(self, fit_task: FitTask, most_steps: int) -> None:
        self._fit_task = fit_task
        self._most_steps = most_steps
        self._patience = patience_of(most_steps)
        self._best = (-math.inf, math.inf)
        self._least_loss, self._best_score = math.inf, -math.inf
        self._last_improvement = self._best_step = self._step = 0
        self._out_of_time = False
        self._reported_s = -math.inf
        self._points: list[tuple[int, float, float]] = []

    def step(self, predicted: NDArray[np.float64], loss: float, train_score: float) -> bool:
        """Record one more step; returns whether it was the last one.

        `predicted` is for the watched rows, `loss` on them as well, `train_score` on training rows.
        """
        watched = self._fit_task.watched
        assert watched is not None
        score = self._fit_task.scorer.score(watched.y, predicted, watched.X)
        self._step += 1
        self._points.append((self._step, train_score, score))
        if score > self._best_score or loss < self._least_loss:
            self._last_improvement = self._step
        ranked = -loss if self._fit_task.by_loss else score
        if (ranked, -loss) > (self._best[0], -self._best[1]):
            self._best, self._best_step = (ranked, loss), self._step
        self._least_loss, self._best_score = min(self._least_loss, loss), max(self._best_score, score)
        self._report()
        self._out_of_time = time.monotonic() >= self._fit_task.until_s
        return self._stuck or self._out_of_time

    @property
    def is_best(self) -> bool:
        """Whether the last step was the best so far."""
        return self._best_step == self._step

    @property
    def best_step(self) -> int:
        return self._best_step

    @property
    def _stuck(self) -> bool:
        return self._step - self._last_improvement >= self._patience

    def learning_curve(self) -> LearningCurve:
        """How it went, thinned out to what a picture can show."""
        every = max(1, -(-len(self._points) // _POINTS))
        kept = self._points[::every]
        if self._points and kept[-1] != self._points[-1]:
            kept.append(self._points[-1])
        steps, train, validation = zip(*kept, strict=True) if kept else ((), (), ())
        time_up = "the time was up" if self._out_of_time else ""
        reason = f"no better for {self._patience} steps" if self._stuck else time_up
        why = reason if self._step < self._most_steps else ""
        return LearningCurve(steps, train, validation, self._best_step, self._most_steps, why)

    def _report(self) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= _REPORT_S:
            self._reported_s = now_s
            self._fit_task.report(self._best_score, min(self._step / self._most_steps, 1.0))
