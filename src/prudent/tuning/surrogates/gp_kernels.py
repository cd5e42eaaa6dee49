"""Compiled pieces of the Gaussian process: kernel matrix, growing Cholesky factor, marginal likelihood."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

PIVOT_FLOOR = 1e-10
"""Smallest pivot of a Cholesky factor: duplicates of a row must not make it fail."""

# Shape and scale of the inverse-gamma prior of the signal variance. With y standardised the prior
# mean is 1; integrating the variance out keeps two samples from claiming certainty.
PRIOR_SHAPE, PRIOR_SCALE = 2.0, 1.0


@njit(cache=True)
def matern52(left: Array, right: Array, scales: Array) -> Array:
    """k(x, x') = (1 + r + r²/3) exp(-r), r = sqrt(5) · |(x - x') / scales|; shape (left, right)."""
    rows, columns, width = left.shape[0], right.shape[0], left.shape[1]
    out = np.empty((rows, columns))
    scaled_left, scaled_right = left / scales, right / scales
    for i in range(rows):
        for j in range(columns):
            square = 0.0
            for k in range(width):
                step = scaled_left[i, k] - scaled_right[j, k]
                square += step * step
            r = math.sqrt(5.0 * square)
            out[i, j] = (1.0 + r + r * r / 3.0) * math.exp(-r)
    return out


@njit(cache=True)
def cholesky(matrix: Array) -> Array:
    """The lower factor, row by row, so that a longer history only adds rows."""
    size = matrix.shape[0]
    factor = np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i == j:
                factor[i, i] = math.sqrt(max(total, PIVOT_FLOOR))
            else:
                factor[i, j] = total / factor[j, j]
    return factor


@njit(cache=True)
def solve_lower(factor: Array, right: Array) -> Array:
    """factor⁻¹ · right for one vector."""
    out = right.copy()
    for i in range(len(out)):
        total = out[i]
        for k in range(i):
            total -= factor[i, k] * out[k]
        out[i] = total / factor[i, i]
    return out


@njit(cache=True)
def solve_lower_many(factor: Array, right: Array) -> Array:
    """factor⁻¹ · right for a matrix, sweeping along its rows."""
    out = right.copy()
    rows, columns = out.shape
    for i in range(rows):
        for k in range(i):
            weight = factor[i, k]
            for j in range(columns):
                out[i, j] -= weight * out[k, j]
        pivot = factor[i, i]
        for j in range(columns):
            out[i, j] /= pivot
    return out


@njit(cache=True)
def evidence(X: Array, y: Array, scales: Array, noise: Array) -> float:
    """Log marginal likelihood, up to a constant, with the signal variance integrated out.

    `noise` is each sample's variance relative to the signal's.
    """
    size = len(y)
    matrix = matern52(X, X, scales)
    for i in range(size):
        matrix[i, i] += noise[i]
    factor = cholesky(matrix)
    white = solve_lower(factor, y)
    log_det, square = 0.0, 0.0
    for i in range(size):
        log_det += math.log(factor[i, i])
        square += white[i] * white[i]
    return -log_det - (PRIOR_SHAPE + size / 2.0) * math.log(PRIOR_SCALE + square / 2.0)


@njit(cache=True)
def evidences(X: Array, y: Array, scales: Array, noise: Array) -> Array:
    """The evidence of many hyper-parameter settings: scales (h, width), noise (h, samples)."""
    out = np.empty(scales.shape[0])
    for h in range(scales.shape[0]):
        out[h] = evidence(X, y, scales[h], noise[h])
    return out
