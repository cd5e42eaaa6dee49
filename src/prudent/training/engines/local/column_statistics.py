"""Means, deviations and covariances of columns, a chunk of rows at a time: no second copy of large data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
_CHUNK = 1 << 16


def mean_and_deviation(X: NDArray[Any]) -> tuple[Vector, Vector]:
    """Of each column of a sample (n - 1, as Spark has it), missing values left out; 0 where there is none.

    >>> mean, spread = mean_and_deviation(np.array([[1.0, 5.0], [3.0, np.nan]]))
    >>> mean.tolist(), spread.round(4).tolist()
    ([2.0, 5.0], [1.4142, 0.0])
    """
    count, total = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in _chunks(X):
        known = ~np.isnan(rows)
        count += known.sum(axis=0)
        total += np.where(known, rows, 0.0).sum(axis=0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros(X.shape[1])
    for rows in _chunks(X):
        moved = np.nan_to_num(rows - mean)
        squares += np.einsum("ij,ij->j", moved, moved)
    return mean, np.sqrt(squares / np.maximum(count - 1, 1))


def covariance(X: NDArray[Any], mean: Vector) -> NDArray[np.float64]:
    """Of the columns among each other."""
    total = np.zeros((X.shape[1], X.shape[1]))
    for rows in _chunks(X):
        moved = rows - mean
        total += moved.T @ moved
    return total / max(len(X) - 1, 1)


def _chunks(X: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(X), _CHUNK):
        yield X[start : start + _CHUNK].astype(np.float64)
