"""Naive Bayes in closed form: multinomial, complement, Bernoulli, Gaussian, as Spark counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.data.dataset import Matrix
from prudent.training.engines.fit_task import FitTask, LearningCurve
from prudent.training.engines.local.learners.linear import SoftmaxClassifier
from prudent.training.engines.local.learners.scored_classes import ScoredClasses
from prudent.training.engines.local.learners.solver import LinearFunction
from prudent.training.engines.onnx_export import OnnxGraph

Vector = NDArray[np.float64]
_LEAST_SPREAD = 1e-9  # of the largest variance, added to all: a constant feature must not decide everything
_CHUNK = 1 << 14


@dataclass(frozen=True, eq=False)
class GaussianNaiveBayes(ScoredClasses):
    """A normal distribution for each feature and class."""

    means: Vector
    variances: Vector
    priors: Vector
    importance: NDArray[np.float64] | None = None
    learning_curve: LearningCurve | None = None

    @property
    def offsets(self) -> Vector:
        return np.asarray(self.priors - 0.5 * np.log(2 * np.pi * self.variances).sum(axis=1))

    def scores(self, X: Matrix) -> Vector:
        raw = np.empty((len(X), len(self.priors)))
        for start in range(0, len(X), _CHUNK):
            away = X[start : start + _CHUNK, None, :] - self.means
            raw[start : start + _CHUNK] = (-0.5 * away**2 / self.variances).sum(axis=2)
        return raw + self.offsets

    def scores_graph(self, graph: OnnxGraph, rows: str) -> str:
        # (rows, 1, features) against (classes, features): no squares that cancel each other.
        wide = graph.add("Unsqueeze", graph.to_double(rows), graph.constant([1], np.int64))
        away = graph.add("Sub", wide, graph.constant(self.means))
        scaled = graph.add("Mul", graph.add("Mul", away, away), graph.constant(-0.5 / self.variances))
        total = graph.add("ReduceSum", scaled, graph.constant([2], np.int64), keepdims=0)
        return graph.add("Add", total, graph.constant(self.offsets))


def naive_bayes(fit_task: FitTask, params: Mapping[str, Any]) -> SoftmaxClassifier | GaussianNaiveBayes:
    """Features independent of each other, given the class."""
    kind = params["modelType"]
    return _gaussian(fit_task) if kind == "gaussian" else _discrete(fit_task, kind, params["smoothing"])


def _discrete(fit_task: FitTask, kind: str, smoothing: float) -> SoftmaxClassifier:
    """Counts: log-probabilities are linear in the features."""
    X = fit_task.rows.X
    if kind == "bernoulli":
        if not np.isin(X, (0.0, 1.0)).all():
            raise BadInput("Bernoulli naive Bayes takes features of 0 and 1 only; use modelType gaussian.")
    elif X.min() < 0:
        raise BadInput(f"{kind.capitalize()} naive Bayes takes no negative features; use modelType gaussian.")
    sums, counts = _sums(X, fit_task)
    priors = _priors(counts, smoothing)
    with np.errstate(divide="ignore"):  # without smoothing, what was never seen is impossible
        if kind == "bernoulli":
            hit = np.log(sums + smoothing) - np.log(counts + 2 * smoothing)[:, None]
            miss = np.log(counts[:, None] - sums + smoothing) - np.log(counts + 2 * smoothing)[:, None]
            weights, shift = _finite(hit) - _finite(miss), priors + _finite(miss).sum(axis=1)
        elif kind == "complement":
            others = sums.sum(axis=0) - sums + smoothing
            weights = -_finite(np.log(others / others.sum(axis=1, keepdims=True)))
            shift = np.zeros(len(counts))
        else:
            smooth = sums + smoothing
            weights, shift = _finite(np.log(smooth / smooth.sum(axis=1, keepdims=True))), priors
    return SoftmaxClassifier(LinearFunction(weights.T.copy(), shift), weights.std(axis=0))


def _gaussian(fit_task: FitTask) -> GaussianNaiveBayes:
    """Means and variances; nothing is counted, so there is nothing to smooth."""
    X, y = fit_task.rows.X, fit_task.rows.target
    sums, counts = _sums(X, fit_task)
    means = sums / np.maximum(counts, 1)[:, None]
    squares = np.zeros_like(means)
    for number in range(fit_task.classes):
        squares[number] = np.square(X[y == number] - means[number]).sum(axis=0)
    overall = X.mean(axis=0, dtype=np.float64)
    largest = float(np.square(X - overall).mean(axis=0).max())
    variances = squares / np.maximum(counts, 1)[:, None] + (_LEAST_SPREAD * largest or _LEAST_SPREAD)
    spread = means.std(axis=0) / np.sqrt(variances.mean(axis=0))
    return GaussianNaiveBayes(means, variances, _priors(counts, smoothing=0.0), spread)


def _sums(X: Matrix, fit_task: FitTask) -> tuple[Vector, Vector]:
    """Sums of features and numbers of rows, by class."""
    y = fit_task.rows.target
    counts = np.bincount(y, minlength=fit_task.classes).astype(np.float64)
    sums = [np.bincount(y, weights=column, minlength=fit_task.classes) for column in X.T]
    return np.stack(sums, axis=1).astype(np.float64), counts


def _priors(counts: Vector, smoothing: float) -> Vector:
    with np.errstate(divide="ignore"):
        return _finite(np.log(counts + smoothing) - np.log(counts.sum() + len(counts) * smoothing))


def _finite(logs: Vector) -> Vector:
    """Impossible as very unlikely: 0 x -∞ is not a number."""
    return np.maximum(logs, -1e6)
