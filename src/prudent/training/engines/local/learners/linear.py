"""Linear models: least squares, logistic regression of two or more classes, support vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.data.dataset import Matrix
from prudent.training.engines.fit_task import FitTask, LearningCurve
from prudent.training.engines.local.learners.scored_classes import ScoredClasses, sigmoid
from prudent.training.engines.local.learners.solver import (
    ElasticNetPenalty,
    LinearFunction,
    Loss,
    StandardisedFeatures,
    Vector,
    minimise,
)
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph

_SMOOTHING = 0.01  # within which the hinge is rounded off: quasi-Newton steps need a slope that does not jump


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Base of the linear models."""

    linear: LinearFunction
    importance: NDArray[np.float64] | None = None
    learning_curve: LearningCurve | None = None


class LinearRegressor(LinearModel):
    """Predicts a value."""

    def predict(self, X: Matrix) -> NDArray[Any]:
        return self.linear.apply(X)[:, 0]

    def probabilities(self, X: Matrix) -> None:
        return None

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        raw = graph.affine(rows, self.linear.weights, self.linear.intercepts)
        return GraphOutputs(graph.flatten(raw), is_integer=False)


class SoftmaxClassifier(LinearModel, ScoredClasses):
    """Predicts the likeliest of several classes."""

    def scores(self, X: Matrix) -> Vector:
        return self.linear.apply(X)

    def scores_graph(self, graph: OnnxGraph, rows: str) -> str:
        return graph.affine(rows, self.linear.weights, self.linear.intercepts)


class OneVsRest(SoftmaxClassifier):
    """Predicts the class with the highest of its linear functions; it has no probabilities."""

    probable = False


@dataclass(frozen=True, eq=False)
class BinaryLinearClassifier(LinearModel):
    """Predicts the second of two classes where the raw output is above a threshold."""

    threshold: float = 0.0
    probable: bool = False
    """Whether the raw output is the logarithm of the odds."""

    def predict(self, X: Matrix) -> NDArray[Any]:
        return (self.linear.apply(X)[:, 0] > self.threshold).astype(np.int64)

    def probabilities(self, X: Matrix) -> NDArray[np.float64] | None:
        if not self.probable:
            return None
        second = sigmoid(self.linear.apply(X)[:, 0])
        return np.stack([1.0 - second, second], axis=1)

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        raw = graph.affine(rows, self.linear.weights, self.linear.intercepts)
        return graph.second_class(raw, self.threshold, self.probable)


def linear_regression(fit_task: FitTask, params: Mapping[str, Any]) -> LinearRegressor:
    """Least squares with elastic net, or Huber's loss.

    As in Spark (and glmnet) the target is scaled to deviation 1 as well, so that regParam = λ means
    |residual|²/2n + λ (α |w|₁ + (1 - α)/2 |w|²/σ(y)) with w for standardised features.
    """
    if params["loss"] == "huber":
        return _huber(fit_task, params)
    data = StandardisedFeatures.of(fit_task.rows.X, params["fitIntercept"], sample=False)
    y = fit_task.rows.target.astype(np.float64)
    mean, spread = (y.mean() if params["fitIntercept"] else 0.0), y.std()
    if spread == 0:
        return LinearRegressor(LinearFunction(np.zeros((data.Z.shape[1], 1)), np.full(1, mean)))
    penalty = _penalty(params, data, params["regParam"] / spread)
    weights = _least_squares(data.Z, (y - mean) / spread, penalty, params)
    linear = data.unscaled(weights[:, None] * spread, np.full(1, mean))
    return LinearRegressor(linear, np.abs(weights))


def _least_squares(Z: Vector, y: Vector, penalty: ElasticNetPenalty, params: Mapping[str, Any]) -> Vector:
    """Exactly where the penalty is square; through products of columns, so that rows are passed once."""
    rows, features = Z.shape
    gram, toward = Z.T @ Z / rows, Z.T @ y / rows
    scales = np.ones(features) if penalty.scales is None else penalty.scales
    if penalty.absolute == 0:
        return np.asarray(np.linalg.lstsq(gram + np.diag(penalty.square * scales), toward, rcond=1e-12)[0])
    # The loss as if it were over `features` rows: |L'w - L⁻¹c|²/2 with gram = L L'.
    values, axes = np.linalg.eigh(gram)
    kept = values > values.max() * 1e-12
    root = axes[:, kept] * np.sqrt(values[kept])
    aim = (axes[:, kept].T @ toward) / np.sqrt(values[kept])

    def loss(raw: Vector) -> tuple[float, Vector]:
        missed = raw[:, 0] - aim
        return float(missed @ missed) / 2, missed[:, None] * len(aim)

    weights, _ = minimise(root.T, loss, 1, None, penalty, params["maxIter"], params["tol"])
    return weights[:, 0]


def _huber(fit_task: FitTask, params: Mapping[str, Any]) -> LinearRegressor:
    from sklearn.linear_model import HuberRegressor

    if params["elasticNetParam"] > 0 and params["regParam"] > 0:
        raise BadInput("The huber loss takes the squared penalty only; set elasticNetParam to 0.")
    data = StandardisedFeatures.of(fit_task.rows.X, params["fitIntercept"])
    y = fit_task.rows.target
    fitted = HuberRegressor(
        epsilon=params["epsilon"],
        alpha=params["regParam"] * len(y),
        max_iter=max(params["maxIter"], 1),
        tol=max(params["tol"], 1e-12),
        fit_intercept=params["fitIntercept"],
    ).fit(data.Z, y)
    weights = np.asarray(fitted.coef_, dtype=np.float64)
    return LinearRegressor(
        data.unscaled(weights[:, None], np.atleast_1d(float(fitted.intercept_))), np.abs(weights)
    )


def logistic_regression(fit_task: FitTask, params: Mapping[str, Any]) -> BinaryLinearClassifier:
    """Logistic regression of two classes."""
    two_classes(fit_task)
    y = fit_task.rows.target.astype(np.float64)

    def loss(raw: Vector) -> tuple[float, Vector]:
        margin = raw[:, 0]
        return float((np.logaddexp(0.0, margin) - y * margin).mean()), (sigmoid(margin) - y)[:, None]

    share = np.clip(y.mean(), 1e-9, 1 - 1e-9)
    linear, importance = _fit(fit_task, params, loss, np.array([np.log(share / (1 - share))]))
    with np.errstate(divide="ignore"):  # at 0 and 1 it is infinite, and the answer always the same
        threshold = float(np.log(params["threshold"]) - np.log1p(-params["threshold"]))
    return BinaryLinearClassifier(linear, importance, threshold=threshold, probable=True)


def multinomial_regression(fit_task: FitTask, params: Mapping[str, Any]) -> SoftmaxClassifier:
    """Logistic regression of any number of classes."""
    y, classes = fit_task.rows.target, fit_task.classes
    every = np.arange(len(y))

    def loss(raw: Vector) -> tuple[float, Vector]:
        raw = raw - raw.max(axis=1, keepdims=True)
        weights = np.exp(raw)
        totals = weights.sum(axis=1)
        value = float((np.log(totals) - raw[every, y]).mean())
        weights /= totals[:, None]
        weights[every, y] -= 1.0
        return value, weights

    shares = np.log(np.maximum(np.bincount(y, minlength=classes), 1e-9) / len(y))
    linear, importance = _fit(fit_task, params, loss, shares - shares.mean())
    return SoftmaxClassifier(linear, importance)


def support_vectors(fit_task: FitTask, params: Mapping[str, Any]) -> BinaryLinearClassifier | OneVsRest:
    """A linear support vector machine: mean hinge loss plus the squared penalty.

    More than two classes get a line each, which tells the class from all others, as on Spark.
    """
    y = fit_task.rows.target
    if fit_task.classes == 2:
        linear, importance = _hinge(fit_task, params, y == 1)
        return BinaryLinearClassifier(linear, importance, threshold=params["threshold"])
    found = [_hinge(fit_task, params, y == number) for number in range(fit_task.classes)]
    functions = LinearFunction(
        np.concatenate([linear.weights for linear, _ in found], axis=1),
        np.concatenate([linear.intercepts for linear, _ in found]),
    )
    return OneVsRest(functions, np.sum([weights for _, weights in found], axis=0))


def _hinge(
    fit_task: FitTask, params: Mapping[str, Any], second: NDArray[np.bool_]
) -> tuple[LinearFunction, NDArray[np.float64]]:
    signs = np.where(second, 1.0, -1.0)

    def loss(raw: Vector) -> tuple[float, Vector]:
        short = 1.0 - signs * raw[:, 0]
        bent = np.clip(short, 0.0, _SMOOTHING)
        value = bent**2 / (2 * _SMOOTHING) + np.maximum(short - _SMOOTHING, 0.0)
        return float(value.mean()), (-signs * bent / _SMOOTHING)[:, None]

    return _fit(fit_task, {**params, "elasticNetParam": 0.0}, loss, np.zeros(1))


def _fit(
    fit_task: FitTask, params: Mapping[str, Any], loss: Loss, intercepts: Vector
) -> tuple[LinearFunction, NDArray[np.float64]]:
    data = StandardisedFeatures.of(fit_task.rows.X, params["fitIntercept"])
    weights, found = minimise(
        data.Z,
        loss,
        len(intercepts),
        intercepts if params["fitIntercept"] else None,
        _penalty(params, data, params["regParam"]),
        params["maxIter"],
        params["tol"],
    )
    return data.unscaled(weights, found), np.abs(weights).mean(axis=1)


def _penalty(params: Mapping[str, Any], data: StandardisedFeatures, weight: float) -> ElasticNetPenalty:
    scales = None if params["standardization"] else data.factor**2
    return ElasticNetPenalty(weight, params["elasticNetParam"], scales)


def two_classes(fit_task: FitTask) -> None:
    if fit_task.classes != 2:
        raise BadInput(
            f"It tells two classes apart, and the data have {fit_task.classes}; use another algorithm."
        )
