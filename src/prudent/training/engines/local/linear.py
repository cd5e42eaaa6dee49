"""Linear models: least squares, logistic regression of two or more classes, support vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.dataset import Matrix
from prudent.training.engines.local.graph import Answer, Graph
from prudent.training.engines.local.lesson import Course, Lesson
from prudent.training.engines.local.solver import Line, Loss, Penalty, Standardised, Vector, minimise

_CORNER = 0.01  # within which the hinge is rounded off: quasi-Newton steps need a slope that does not jump


@dataclass(frozen=True, eq=False)
class LinearModel:
    """What linear models share."""

    line: Line
    importance: NDArray[np.float64] | None = None
    course: Course | None = None


class ValueModel(LinearModel):
    """Predicts a value."""

    def predict(self, X: Matrix) -> NDArray[Any]:
        return self.line.of(X)[:, 0]

    def probabilities(self, X: Matrix) -> None:
        return None

    def graph(self, graph: Graph, rows: str) -> Answer:
        raw = graph.affine(rows, self.line.weights, self.line.intercepts)
        return Answer(graph.flat(raw), whole=False)


class SoftmaxModel(LinearModel):
    """Predicts the likeliest of several classes."""

    def predict(self, X: Matrix) -> NDArray[Any]:
        return np.asarray(self.line.of(X).argmax(axis=1))

    def probabilities(self, X: Matrix) -> NDArray[np.float64]:
        return softmax(self.line.of(X))

    def graph(self, graph: Graph, rows: str) -> Answer:
        raw = graph.affine(rows, self.line.weights, self.line.intercepts)
        return Answer(graph.largest(raw), graph.add("Softmax", raw, axis=1))


@dataclass(frozen=True, eq=False)
class SideModel(LinearModel):
    """Predicts the second of two classes where the raw output is above a threshold."""

    threshold: float = 0.0
    logistic: bool = False

    def predict(self, X: Matrix) -> NDArray[Any]:
        return (self.line.of(X)[:, 0] > self.threshold).astype(np.int64)

    def probabilities(self, X: Matrix) -> NDArray[np.float64] | None:
        if not self.logistic:
            return None
        second = sigmoid(self.line.of(X)[:, 0])
        return np.stack([1.0 - second, second], axis=1)

    def graph(self, graph: Graph, rows: str) -> Answer:
        raw = graph.affine(rows, self.line.weights, self.line.intercepts)
        side = graph.flat(graph.add("Greater", raw, graph.constant(self.threshold)))
        if not self.logistic:
            return Answer(side)
        second = graph.add("Sigmoid", raw)
        first = graph.add("Sub", graph.constant(1.0), second)
        return Answer(side, graph.add("Concat", first, second, axis=1))


class RivalsModel(LinearModel):
    """Predicts the class whose line is furthest above all others; how likely it is, it cannot say."""

    def predict(self, X: Matrix) -> NDArray[Any]:
        return np.asarray(self.line.of(X).argmax(axis=1))

    def probabilities(self, X: Matrix) -> None:
        return None

    def graph(self, graph: Graph, rows: str) -> Answer:
        return Answer(graph.largest(graph.affine(rows, self.line.weights, self.line.intercepts)))


def linear_regression(lesson: Lesson, chosen: Mapping[str, Any]) -> ValueModel:
    """Least squares with elastic net, or Huber's loss.

    As in Spark (and glmnet) the target is scaled to deviation 1 as well, so that regParam = λ means
    |residual|²/2n + λ (α |w|₁ + (1 - α)/2 |w|²/σ(y)) with w for standardised features.
    """
    if chosen["loss"] == "huber":
        return _huber(lesson, chosen)
    data = Standardised.of(lesson.rows.X, chosen["fitIntercept"], sample=False)
    y = lesson.rows.target.astype(np.float64)
    mean, spread = (y.mean() if chosen["fitIntercept"] else 0.0), y.std()
    if spread == 0:
        return ValueModel(Line(np.zeros((data.Z.shape[1], 1)), np.full(1, mean)))
    penalty = _penalty(chosen, data, chosen["regParam"] / spread)
    weights = _least_squares(data.Z, (y - mean) / spread, penalty, chosen)
    line = data.line(weights[:, None] * spread, np.full(1, mean))
    return ValueModel(line, np.abs(weights))


def _least_squares(Z: Vector, y: Vector, penalty: Penalty, chosen: Mapping[str, Any]) -> Vector:
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

    weights, _ = minimise(root.T, loss, 1, None, penalty, chosen["maxIter"], chosen["tol"])
    return weights[:, 0]


def _huber(lesson: Lesson, chosen: Mapping[str, Any]) -> ValueModel:
    from sklearn.linear_model import HuberRegressor

    if chosen["elasticNetParam"] > 0 and chosen["regParam"] > 0:
        raise BadInput("The huber loss takes the squared penalty only; set elasticNetParam to 0.")
    data = Standardised.of(lesson.rows.X, chosen["fitIntercept"])
    y = lesson.rows.target
    fitted = HuberRegressor(
        epsilon=chosen["epsilon"],
        alpha=chosen["regParam"] * len(y),
        max_iter=max(chosen["maxIter"], 1),
        tol=max(chosen["tol"], 1e-12),
        fit_intercept=chosen["fitIntercept"],
    ).fit(data.Z, y)
    weights = np.asarray(fitted.coef_, dtype=np.float64)
    return ValueModel(data.line(weights[:, None], np.atleast_1d(float(fitted.intercept_))), np.abs(weights))


def logistic_regression(lesson: Lesson, chosen: Mapping[str, Any]) -> SideModel:
    """Logistic regression of two classes."""
    two_classes(lesson)
    y = lesson.rows.target.astype(np.float64)

    def loss(raw: Vector) -> tuple[float, Vector]:
        margin = raw[:, 0]
        return float((np.logaddexp(0.0, margin) - y * margin).mean()), (sigmoid(margin) - y)[:, None]

    share = np.clip(y.mean(), 1e-9, 1 - 1e-9)
    line, importance = _fit(lesson, chosen, loss, np.array([np.log(share / (1 - share))]))
    with np.errstate(divide="ignore"):  # at 0 and 1 it is infinite, and the answer always the same
        threshold = float(np.log(chosen["threshold"]) - np.log1p(-chosen["threshold"]))
    return SideModel(line, importance, threshold=threshold, logistic=True)


def multinomial_regression(lesson: Lesson, chosen: Mapping[str, Any]) -> SoftmaxModel:
    """Logistic regression of any number of classes."""
    y, classes = lesson.rows.target, lesson.classes
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
    line, importance = _fit(lesson, chosen, loss, shares - shares.mean())
    return SoftmaxModel(line, importance)


def support_vectors(lesson: Lesson, chosen: Mapping[str, Any]) -> SideModel | RivalsModel:
    """A linear support vector machine: mean hinge loss plus the squared penalty.

    More than two classes get a line each, which tells the class from all others, as on Spark.
    """
    y = lesson.rows.target
    if lesson.classes == 2:
        line, importance = _hinge(lesson, chosen, y == 1)
        return SideModel(line, importance, threshold=chosen["threshold"])
    found = [_hinge(lesson, chosen, y == number) for number in range(lesson.classes)]
    lines = Line(
        np.concatenate([line.weights for line, _ in found], axis=1),
        np.concatenate([line.intercepts for line, _ in found]),
    )
    return RivalsModel(lines, np.sum([weights for _, weights in found], axis=0))


def _hinge(
    lesson: Lesson, chosen: Mapping[str, Any], second: NDArray[np.bool_]
) -> tuple[Line, NDArray[np.float64]]:
    signs = np.where(second, 1.0, -1.0)

    def loss(raw: Vector) -> tuple[float, Vector]:
        short = 1.0 - signs * raw[:, 0]
        bent = np.clip(short, 0.0, _CORNER)
        value = bent**2 / (2 * _CORNER) + np.maximum(short - _CORNER, 0.0)
        return float(value.mean()), (-signs * bent / _CORNER)[:, None]

    return _fit(lesson, {**chosen, "elasticNetParam": 0.0}, loss, np.zeros(1))


def _fit(
    lesson: Lesson, chosen: Mapping[str, Any], loss: Loss, intercepts: Vector
) -> tuple[Line, NDArray[np.float64]]:
    data = Standardised.of(lesson.rows.X, chosen["fitIntercept"])
    weights, found = minimise(
        data.Z,
        loss,
        len(intercepts),
        intercepts if chosen["fitIntercept"] else None,
        _penalty(chosen, data, chosen["regParam"]),
        chosen["maxIter"],
        chosen["tol"],
    )
    return data.line(weights, found), np.abs(weights).mean(axis=1)


def _penalty(chosen: Mapping[str, Any], data: Standardised, weight: float) -> Penalty:
    scales = None if chosen["standardization"] else data.factor**2
    return Penalty(weight, chosen["elasticNetParam"], scales)


def two_classes(lesson: Lesson) -> None:
    if lesson.classes != 2:
        raise BadInput(
            f"It tells two classes apart, and the data have {lesson.classes}; use another algorithm."
        )


def sigmoid(raw: Vector) -> Vector:
    from scipy.special import expit

    return np.asarray(expit(raw))


def softmax(raw: Vector) -> Vector:
    weights = np.exp(raw - raw.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
