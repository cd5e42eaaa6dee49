"""How good a model is, in one number: of classes, of values, of clusters.

Plain arithmetic on arrays, the same for both engines, with Spark's definitions where definitions differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown

Array = NDArray[Any]

ONE_CLUSTER = "All rows fall into one cluster, which has no silhouette; ask for more clusters, or other data."


def confusion(actual: Array, predicted: Array, classes: int) -> NDArray[np.int64]:
    """Counts by class: row i, column j is how many of class i were taken for class j.

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    pairs = actual.astype(np.int64) * classes + predicted.astype(np.int64)
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def mcc(counts: Array) -> float:
    """Matthews' correlation of a confusion matrix, for any number of classes; 0 where it is undefined.

    >>> mcc(np.array([[5, 0], [0, 5]])), mcc(np.array([[5, 0], [5, 0]]))
    (1.0, 0.0)
    """
    counts = counts.astype(np.float64)
    actual, predicted, total = counts.sum(1), counts.sum(0), counts.sum()
    covariance = np.trace(counts) * total - actual @ predicted
    spread = (total**2 - actual @ actual) * (total**2 - predicted @ predicted)
    return float(covariance / np.sqrt(spread)) if spread > 0 else 0.0


def accuracy(counts: Array) -> float:
    """Share of the rows that were told right."""
    return float(np.trace(counts) / counts.sum())


def precision(counts: Array) -> float:
    """Share of a class's predictions that are right, averaged over classes by how frequent each is."""
    return _weighted(counts, _ratio(np.diagonal(counts), counts.sum(0)))


def recall(counts: Array) -> float:
    """Share of a class's rows that are found, averaged over classes by how frequent each is."""
    return _weighted(counts, _ratio(np.diagonal(counts), counts.sum(1)))


def f1(counts: Array) -> float:
    """F1 of each class, averaged by how frequent the class is, as Spark has it.

    >>> f1(np.array([[2, 0], [1, 1]])).__round__(4)
    0.7333
    """
    right = np.diagonal(counts)
    return _weighted(counts, _ratio(2.0 * right, counts.sum(0) + counts.sum(1)))


def balanced_accuracy(counts: Array) -> float:
    """Share of a class's rows that are found, averaged over the classes that there are.

    >>> balanced_accuracy(np.array([[8, 0], [1, 1]]))
    0.75
    """
    there = counts.sum(1) > 0
    return float(_ratio(np.diagonal(counts), counts.sum(1))[there].mean())


def mse(actual: Array, predicted: Array) -> float:
    """Mean squared error."""
    error = predicted.astype(np.float64) - actual
    return float(error @ error / len(error))


def rmse(actual: Array, predicted: Array) -> float:
    """Root of the mean squared error, in the target's own unit."""
    return float(np.sqrt(mse(actual, predicted)))


def mae(actual: Array, predicted: Array) -> float:
    """Mean absolute error."""
    return float(np.abs(predicted.astype(np.float64) - actual).mean())


def r2(actual: Array, predicted: Array) -> float:
    """Share of the target's variance that is explained; 0 for a constant target that is not met."""
    spread = float(np.square(actual - actual.mean()).sum())
    missed = len(actual) * mse(actual, predicted)
    if spread == 0:
        return 1.0 if missed == 0 else 0.0
    return 1.0 - missed / spread


def mape(actual: Array, predicted: Array) -> float:
    """Mean absolute error as a share of the actual value; a value of 0 counts as the smallest number."""
    least = np.finfo(np.float64).eps
    return float((np.abs(predicted.astype(np.float64) - actual) / np.maximum(np.abs(actual), least)).mean())


def silhouettes(X: Array, clusters: Array) -> NDArray[np.float64]:
    """The silhouette of every row, with squared Euclidean distance, in time rows x clusters.

    The mean squared distance from x to the n members of a cluster is |x|² + (Σ|y|²)/n - 2 x·(Σy)/n, so sums
    per cluster suffice (Spark computes it so). A row alone in its cluster has silhouette 0.
    """
    _, numbers = np.unique(clusters, return_inverse=True)
    sizes = np.bincount(numbers)
    k = len(sizes)
    if k < 2:
        raise BadInput(ONE_CLUSTER)
    # Centred: the terms below would cancel each other's digits in data far from the origin.
    rows = X.astype(np.float64)
    rows -= rows.mean(axis=0)
    squares = np.einsum("ij,ij->i", rows, rows)
    sums = np.stack([np.bincount(numbers, weights=column) for column in rows.T], axis=1)
    square_sums = np.bincount(numbers, weights=squares)
    distances = squares[:, None] + square_sums / sizes - 2.0 * rows @ (sums / sizes[:, None]).T
    np.maximum(distances, 0.0, out=distances)
    every = np.arange(len(rows))
    own_size = sizes[numbers]
    # The row itself is among its cluster's members, at distance 0, and does not count.
    own = distances[every, numbers] * own_size / np.maximum(own_size - 1, 1)
    distances[every, numbers] = np.inf
    other = distances.min(axis=1)
    larger = np.maximum(own, other)
    values = np.divide(other - own, larger, out=np.zeros(len(rows)), where=larger > 0)
    return np.where(own_size > 1, values, 0.0)


def silhouette(X: Array, clusters: Array) -> float:
    """Mean silhouette with squared Euclidean distance.

    >>> silhouette(np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([0, 0, 1, 1])).__round__(3)
    0.99
    """
    return float(silhouettes(X, clusters).mean())


_OF_COUNTS: dict[str, Callable[[Array], float]] = {
    "mcc": mcc,
    "f1": f1,
    "accuracy": accuracy,
    "precision": precision,
    "recall": recall,
    "balanced-accuracy": balanced_accuracy,
}
_OF_VALUES: dict[str, Callable[[Array, Array], float]] = {
    "rmse": rmse,
    "mae": mae,
    "mse": mse,
    "r2": r2,
    "mape": mape,
}


def value_of_counts(metric: str, counts: Array) -> float:
    """A metric of a confusion matrix, by name."""
    if metric not in _OF_COUNTS:
        raise unknown("metric of a classification", metric, _OF_COUNTS)
    return _OF_COUNTS[metric](counts)


def value_of_numbers(metric: str, actual: Array, predicted: Array) -> float:
    """A metric of predicted numbers, by name."""
    if metric not in _OF_VALUES:
        raise unknown("metric of a regression", metric, _OF_VALUES)
    return _OF_VALUES[metric](actual, predicted)


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros(len(below)), where=below > 0)


def _weighted(counts: Array, by_class: Array) -> float:
    return float(by_class @ counts.sum(1) / counts.sum())
