"""Compiled pieces of the Gaussian process: the kernel matrix and the marginal likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """Compile once, keep on disk; sums may be reordered."""
    return cast(_Function, numba.njit(cache=True, fastmath=True)(function))


PIVOT_FLOOR = 1e-10
"""Smallest pivot of a Cholesky factor: duplicates of a row must not make it fail."""

# Shape and scale of the inverse-gamma prior of the signal variance. With y standardised the prior
# mean is 1; integrating the variance out keeps two samples from claiming certainty.
PRIOR_SHAPE, PRIOR_SCALE = 2.0, 1.0


@compiled
def matern52(left: Array, right: Array, scales: Array) -> Array:
    """k(x, x') = (1 + r + r²/3) exp(-r), r = sqrt(5) · |(x - x') / scales|; shape (left, right)."""
    rows, columns, width = left.shape[0], right.shape[0], left.shape[1]
    out = np.empty((rows, columns))
    scaled_left, scaled_right = left / scales, np.ascontiguousarray((right / scales).T)
    for i in range(rows):
        row = np.zeros(columns)
        for k in range(width):
            here = scaled_left[i, k]
            for j in range(columns):
                step = here - scaled_right[k, j]
                row[j] += step * step
        for j in range(columns):
            r = math.sqrt(5.0 * row[j])
            out[i, j] = (1.0 + r + r * r / 3.0) * math.exp(-r)
    return out


@compiled
def _factor(matrix: Array) -> None:
    """The lower Cholesky factor, in place of the matrix's lower half."""
    size = matrix.shape[0]
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            if i == j:
                matrix[i, i] = math.sqrt(max(total, PIVOT_FLOOR))
            else:
                matrix[i, j] = total / matrix[j, j]


@compiled
def log_evidences(distances: Array, y: Array, weights: Array, noise: Array) -> Array:
    """Log marginal likelihood, up to a constant, of many settings; the signal variance is integrated out.

    distances (g, n, n): squared distances by group of features; weights (h, g): 1 / length scale² of each;
    noise (h, n): each sample's variance relative to the signal's.
    """
    groups, size = distances.shape[0], len(y)
    out = np.empty(len(weights))
    matrix, white = np.empty((size, size)), np.empty(size)
    for h in range(len(weights)):
        for i in range(size):
            for j in range(i):
                square = 0.0
                for g in range(groups):
                    square += weights[h, g] * distances[g, i, j]
                r = math.sqrt(5.0 * square)
                matrix[i, j] = (1.0 + r + r * r / 3.0) * math.exp(-r)
            matrix[i, i] = 1.0 + noise[h, i]
        _factor(matrix)
        log_det, square = 0.0, 0.0
        for i in range(size):
            total = y[i]
            for k in range(i):
                total -= matrix[i, k] * white[k]
            white[i] = total / matrix[i, i]
            log_det += math.log(matrix[i, i])
            square += white[i] * white[i]
        out[h] = -log_det - (PRIOR_SHAPE + size / 2.0) * math.log(PRIOR_SCALE + square / 2.0)
    return out
