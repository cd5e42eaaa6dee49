"""Naive Bayes by scikit-learn: multinomial, complement, Bernoulli, Gaussian, with the priors of Spark."""

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
_LEAST_SPREAD = 1e-9  # variance of features that are all constant
_UNLIKELY = 1e6
_CHUNK, _ROWS = 1 << 14, 1 << 16


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
    """Features independent of each other, given the class; scikit-learn counts, Spark's priors are taken."""
    from sklearn import naive_bayes as sklearns

    kind, smoothing = params["modelType"], params["smoothing"]
    if kind == "gaussian":
        return _gaussian(_counted(sklearns.GaussianNB(), fit_task))
    _check_counts(fit_task.rows.X, kind)
    if kind == "bernoulli":
        found = _counted(sklearns.BernoulliNB(alpha=smoothing, binarize=None), fit_task)
        hit, miss = _finite(found.feature_log_prob_), _finite(_log(-np.expm1(found.feature_log_prob_)))
        weights, shift = hit - miss, _priors(found.class_count_, smoothing) + miss.sum(axis=1)
    elif kind == "complement":
        found = _counted(sklearns.ComplementNB(alpha=smoothing), fit_task)
        weights, shift = -_finite(-found.feature_log_prob_), np.zeros(fit_task.classes)
    else:
        found = _counted(sklearns.MultinomialNB(alpha=smoothing), fit_task)
        weights, shift = _finite(found.feature_log_prob_), _priors(found.class_count_, smoothing)
    return SoftmaxClassifier(LinearFunction(weights.T.copy(), shift), weights.std(axis=0))


def _check_counts(X: Matrix, kind: str) -> None:
    if kind == "bernoulli":
        if not np.isin(X, (0.0, 1.0)).all():
            raise BadInput("Bernoulli naive Bayes takes features of 0 and 1 only; use modelType gaussian.")
    elif X.min() < 0:
        raise BadInput(f"{kind.capitalize()} naive Bayes takes no negative features; use modelType gaussian.")


def _counted(estimator: Any, fit_task: FitTask) -> Any:
    """The estimator, shown some rows at a time in double precision: no second copy of large data."""
    X, y, classes = fit_task.rows.X, fit_task.rows.target, np.arange(fit_task.classes)
    with np.errstate(divide="ignore", invalid="ignore"):  # a class without rows, or no smoothing
        for start in range(0, len(X), _ROWS):
            part = slice(start, start + _ROWS)
            estimator.partial_fit(X[part].astype(np.float64), y[part], classes=classes)
    return estimator


def _gaussian(found: Any) -> GaussianNaiveBayes:
    """Means and variances; nothing is counted, so there is nothing to smooth."""
    variances = np.where(found.var_ > 0, found.var_, _LEAST_SPREAD)
    spread = found.theta_.std(axis=0) / np.sqrt(variances.mean(axis=0))
    return GaussianNaiveBayes(found.theta_, variances, _priors(found.class_count_, smoothing=0.0), spread)


def _priors(counts: Vector, smoothing: float) -> Vector:
    return _finite(_log(counts + smoothing) - np.log(counts.sum() + len(counts) * smoothing))


def _log(values: Vector) -> Vector:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def _finite(logs: Vector) -> Vector:
    """Impossible as very unlikely: 0 x -∞ is not a number."""
    return np.maximum(np.nan_to_num(logs, nan=-_UNLIKELY), -_UNLIKELY)
