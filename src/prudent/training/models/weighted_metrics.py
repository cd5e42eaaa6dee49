"""Every metric under many weightings of the rows at once, as the bootstrap needs it.

`weights` are (draws, rows): how often each row was drawn. The answer is a value for each draw. Metrics of
probabilities are defined here alone; the others agree with `metrics` where all rows count the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown
from prudent.training.models.metrics import Array

Values = NDArray[np.float64]

OF_PROBABILITIES = ("auc", "log-loss", "brier")
"""Metrics of the probabilities of classes."""
_LEAST = 1e-15
"""No probability counts as less than this in the log-loss."""


def weighted_values(
    metric: str,
    weights: Array,
    actual: Array,
    predicted: Array,
    probabilities: Array | None = None,
    classes: int = 0,
) -> Values:
    """A metric by name under each row of `weights`; `classes` is 0 for a regression.

    >>> rows = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1])
    >>> weighted_values("accuracy", np.array([[1, 1, 1, 1], [2, 0, 1, 1]]), *rows, classes=2).tolist()
    [0.75, 1.0]
    """
    weights = np.asarray(weights, np.float64)
    if metric in OF_PROBABILITIES:
        if probabilities is None:
            raise BadInput(f"The model gives no probabilities, which {metric} needs; take another metric.")
        return _PROBABILISTIC[metric](weights, actual, np.asarray(probabilities, np.float64))
    if classes:
        if metric not in _OF_CLASSES:
            raise unknown("metric of a classification", metric, [*_OF_CLASSES, *OF_PROBABILITIES])
        return _OF_CLASSES[metric](*_margins(weights, actual, predicted, classes))
    if metric not in _OF_NUMBERS:
        raise unknown("metric of a regression", metric, _OF_NUMBERS)
    return _OF_NUMBERS[metric](weights, np.asarray(actual, np.float64), np.asarray(predicted, np.float64))


# Classes: who was found, who was there, who was told, each (draws, classes)


def _margins(weights: Values, actual: Array, predicted: Array, classes: int) -> tuple[Values, Values, Values]:
    every = np.arange(classes)
    there, told = actual[:, None] == every, predicted[:, None] == every
    return weights @ (there & told), weights @ there.astype(float), weights @ told.astype(float)


def _mcc(found: Values, there: Values, told: Values) -> Values:
    total = there.sum(1)
    covariance = found.sum(1) * total - (there * told).sum(1)
    spread = (total**2 - (told**2).sum(1)) * (total**2 - (there**2).sum(1))
    return _ratio(covariance, np.sqrt(np.maximum(spread, 0.0)))


def _accuracy(found: Values, there: Values, told: Values) -> Values:
    del told
    return _ratio(found.sum(1), there.sum(1))


def _balanced(found: Values, there: Values, told: Values) -> Values:
    del told
    return _ratio(_ratio(found, there).sum(1), (there > 0).sum(1).astype(float))


def _f1(found: Values, there: Values, told: Values) -> Values:
    return _ratio((_ratio(2.0 * found, there + told) * there).sum(1), there.sum(1))


def _precision(found: Values, there: Values, told: Values) -> Values:
    return _ratio((_ratio(found, told) * there).sum(1), there.sum(1))


_OF_CLASSES: dict[str, Callable[[Values, Values, Values], Values]] = {
    "mcc": _mcc,
    "f1": _f1,
    "accuracy": _accuracy,
    "precision": _precision,
    "recall": _accuracy,
    "balanced-accuracy": _balanced,
}


# Probabilities


def _log_loss(weights: Values, actual: Array, probabilities: Values) -> Values:
    said = probabilities[np.arange(len(actual)), actual]
    return _mean(weights, -np.log(np.clip(said, _LEAST, 1.0)))


def _brier(weights: Values, actual: Array, probabilities: Values) -> Values:
    """Squared distance from the truth; of two classes that of one of them, as is usual."""
    truth = actual[:, None] == np.arange(probabilities.shape[1])
    each = np.square(probabilities - truth).sum(1)
    return _mean(weights, each / 2.0 if probabilities.shape[1] == 2 else each)


def _auc(weights: Values, actual: Array, probabilities: Values) -> Values:
    """Area under the ROC curve: of two classes that of the second; of more each against all others, averaged
    by how frequent it is."""
    if probabilities.shape[1] == 2:
        return _auc_of_one(weights, actual == 1, probabilities[:, 1])
    there = np.stack([weights @ (actual == each) for each in range(probabilities.shape[1])], axis=1)
    areas = [
        _auc_of_one(weights, actual == each, probabilities[:, each]) for each in range(probabilities.shape[1])
    ]
    return _ratio((np.stack(areas, axis=1) * there).sum(1), there.sum(1))


def _auc_of_one(weights: Values, positive: Array, scores: Values) -> Values:
    """How often a positive row scores higher than another one; ties count half."""
    order = np.argsort(scores, kind="stable")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(scores[order])) + 1])
    above = np.add.reduceat(weights[:, order] * positive[order], starts, axis=1)
    below = np.add.reduceat(weights[:, order] * ~positive[order], starts, axis=1)
    before = np.cumsum(below, axis=1) - below / 2.0
    pairs = above.sum(1) * below.sum(1)
    return np.where(pairs > 0, _ratio((above * before).sum(1), pairs), 0.5)


_PROBABILISTIC: dict[str, Callable[[Values, Array, Values], Values]] = {
    "auc": _auc,
    "log-loss": _log_loss,
    "brier": _brier,
}


# Numbers


def _mse(weights: Values, actual: Values, predicted: Values) -> Values:
    return _mean(weights, np.square(predicted - actual))


def _r2(weights: Values, actual: Values, predicted: Values) -> Values:
    centred = actual - actual.mean()
    spread = _mean(weights, np.square(centred)) - np.square(_mean(weights, centred))
    missed = _mse(weights, actual, predicted)
    constant = np.where(missed > 0, 0.0, 1.0)
    return np.where(spread > 0, 1.0 - _ratio(missed, spread), constant)


_OF_NUMBERS: dict[str, Callable[[Values, Values, Values], Values]] = {
    "mse": _mse,
    "rmse": lambda weights, actual, predicted: np.sqrt(_mse(weights, actual, predicted)),
    "mae": lambda weights, actual, predicted: _mean(weights, np.abs(predicted - actual)),
    "mape": lambda weights, actual, predicted: _mean(
        weights, np.abs(predicted - actual) / np.maximum(np.abs(actual), np.finfo(np.float64).eps)
    ),
    "r2": _r2,
}


def _mean(weights: Values, each: Values) -> Values:
    return _ratio(weights @ each, weights.sum(1))


def _ratio(above: Values, below: Values) -> Values:
    return np.divide(above, below, out=np.zeros_like(above, dtype=np.float64), where=below > 0)
