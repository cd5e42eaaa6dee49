"""Kernels and marginal likelihoods of the Gaussian processes, compiled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
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


def signal_variance(white: Array) -> float:
    """The signal variance expected from samples y, by white = L⁻¹ y (n,)."""
    shape = PRIOR_SHAPE + len(white) / 2.0 - 1.0
    return (PRIOR_SCALE + float(white @ white) / 2.0) / max(shape, 1.0)


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
def _evidence(matrix: Array, y: Array, white: Array) -> float:
    """Factor the lower half of the matrix in place; -log|L| - (a + n/2) log(b + |L⁻¹ y|² / 2)."""
    _factor(matrix)
    log_det, square = 0.0, 0.0
    for i in range(len(y)):
        total = y[i]
        for k in range(i):
            total -= matrix[i, k] * white[k]
        white[i] = total / matrix[i, i]
        log_det += math.log(matrix[i, i])
        square += white[i] * white[i]
    return -log_det - (PRIOR_SHAPE + len(y) / 2.0) * math.log(PRIOR_SCALE + square / 2.0)


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
        out[h] = _evidence(matrix, y, white)
    return out


@compiled
def axial(left: Array, right: Array, rates: Array, smooth: bool) -> Array:
    """Matérn 5/2 of |rates (x - x')|, or exp(-sum |rates (x - x')|) where not `smooth`: (left, right)."""
    rows, columns, width = left.shape[0], right.shape[0], left.shape[1]
    out = np.zeros((rows, columns))
    scaled_left, scaled_right = left * rates, np.ascontiguousarray((right * rates).T)
    for i in range(rows):
        row = out[i]
        for k in range(width):
            if rates[k] == 0.0:
                continue
            here = scaled_left[i, k]
            for j in range(columns):
                step = here - scaled_right[k, j]
                row[j] += step * step if smooth else abs(step)
        for j in range(columns):
            if smooth:
                r = math.sqrt(5.0 * row[j])
                row[j] = (1.0 + r + r * r / 3.0) * math.exp(-r)
            else:
                row[j] = math.exp(-row[j])
    return out


@compiled
def axial_evidences(
    X: Array,
    y: Array,
    trend: Array,
    extra: Array,
    rates: Array,
    smooth: NDArray[np.bool_],
    signal: Array,
    noise: Array,
) -> Array:
    """Log marginal likelihood, up to a constant, of h settings: covariance trend + signal · axial + noise.

    X (n, width); y, extra (n,): residuals and their own variances; trend (n, n); the others by setting.
    """
    size = len(y)
    out = np.empty(len(rates))
    white = np.empty(size)
    for h in range(len(rates)):
        matrix = trend + signal[h] * axial(X, X, rates[h], smooth[h])
        for i in range(size):
            matrix[i, i] += noise[h] + extra[i]
        _factor(matrix)
        out[h] = 0.0
        for i in range(size):
            total = y[i]
            for k in range(i):
                total -= matrix[i, k] * white[k]
            white[i] = total / matrix[i, i]
            out[h] -= math.log(matrix[i, i]) + 0.5 * white[i] * white[i]
    return out


BEND_SCALE = 0.3
"""Length scale of the bends, in the second coordinate of the basis (its range is about 1)."""


def product_kernel(
    left: tuple[Array, Array],
    right: tuple[Array, Array],
    scales: Array,
    cholesky: Array,
    bend: float,
    trend: float,
) -> Array:
    """k52(x, x') · (φᵀ Σ φ' + κ k52(φ₂, φ₂')) + τ φᵀ φ', for rows (X, φ); shape (left, right).

    Σ = L Lᵀ with cholesky = (l11, l21, l22). κ (bend) and τ (trend) of 0 leave the kernel of Fabolas.
    """
    along = through(left[1], cholesky) @ through(right[1], cholesky).T
    if bend > 0.0:
        along += bend * bends(left[1], right[1])
    return np.asarray(matern52(left[0], right[0], scales) * along + trend * (left[1] @ right[1].T))


@dataclass(frozen=True, eq=False)
class FactoredRows:
    """Rows (x, φ) by their distinct parts: few configurations times fewer fractions make many rows.

    row i is (X[x_of[i]], phi[phi_of[i]]).
    """

    X: Array
    phi: Array
    x_of: NDArray[np.int64]
    phi_of: NDArray[np.int64]

    @classmethod
    def of(cls, X: Array, phi: Array) -> FactoredRows:
        """From rows X (n, width) and phi (n, 2)."""
        parts_x, x_of = np.unique(X, axis=0, return_inverse=True)
        parts_phi, phi_of = np.unique(phi, axis=0, return_inverse=True)
        return cls(parts_x, parts_phi, x_of.reshape(-1), phi_of.reshape(-1))

    def subset(self, rows: NDArray[np.int64]) -> FactoredRows:
        used, x_of = np.unique(self.x_of[rows], return_inverse=True)
        return FactoredRows(self.X[used], self.phi, x_of, self.phi_of[rows])


def grid_kernel(
    left: FactoredRows, right: FactoredRows, scales: Array, cholesky: Array, bend: float, trend: float
) -> Array:
    """`product_kernel` of the rows of two grids, each distinct pair of parts computed once."""
    along = through(left.phi, cholesky) @ through(right.phi, cholesky).T
    along += bend * bends(left.phi, right.phi)
    common = trend * (left.phi @ right.phi.T)
    matern = matern52(left.X, right.X, scales)
    return _spread_out(matern, along, common, (left.x_of, left.phi_of), (right.x_of, right.phi_of))


@compiled
def _spread_out(
    matern: Array,
    along: Array,
    common: Array,
    left: tuple[NDArray[np.int64], NDArray[np.int64]],
    right: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> Array:
    out = np.empty((len(left[0]), len(right[0])))
    for i in range(len(left[0])):
        x, p = left[0][i], left[1][i]
        for j in range(len(right[0])):
            q = right[1][j]
            out[i, j] = matern[x, right[0][j]] * along[p, q] + common[p, q]
    return out


def through(phi: Array, cholesky: Array) -> Array:
    """Rows Lᵀ φ (n, 2), whose inner products are φᵀ Σ φ'."""
    return np.column_stack([cholesky[0] * phi[:, 0] + cholesky[1] * phi[:, 1], cholesky[2] * phi[:, 1]])


def bends(phi: Array, other: Array) -> Array:
    """Matérn 5/2 in the second coordinate of the basis, shape (n, m)."""
    scale = np.array([BEND_SCALE])
    return matern52(np.ascontiguousarray(phi[:, 1:]), np.ascontiguousarray(other[:, 1:]), scale)


def prior_variance(phi: Array, cholesky: Array, bend: float, trend: float) -> Array:
    """The kernel's diagonal (n,)."""
    own = (through(phi, cholesky) ** 2).sum(axis=1) + bend
    return np.asarray(own + trend * (phi**2).sum(axis=1))


@compiled
def product_log_evidences(
    distances: Array,
    common: tuple[Array, Array, Array],
    y: Array,
    weights: Array,
    cholesky: Array,
    bend: Array,
    noise: Array,
) -> Array:
    """Log marginal likelihood, up to a constant, of many settings; the signal variance is integrated out.

    distances (g, n, n): squared distances by group of features; common: φ(s) (n, 2), bends (n, n) and the
    trend's kernel (n, n), the same for all settings; weights (h, g): 1 / length scale²; cholesky (h, 3);
    bend (h,); noise (h, n): each sample's variance relative to the signal's.
    """
    phi, bent, trend = common
    groups, size = distances.shape[0], len(y)
    out = np.empty(len(weights))
    matrix, white = np.empty((size, size)), np.empty(size)
    first, second = np.empty(size), np.empty(size)
    for h in range(len(weights)):
        for i in range(size):
            first[i] = cholesky[h, 0] * phi[i, 0] + cholesky[h, 1] * phi[i, 1]
            second[i] = cholesky[h, 2] * phi[i, 1]
        for i in range(size):
            for j in range(i):
                square = 0.0
                for g in range(groups):
                    square += weights[h, g] * distances[g, i, j]
                r = math.sqrt(5.0 * square)
                along = first[i] * first[j] + second[i] * second[j] + bend[h] * bent[i, j]
                matrix[i, j] = (1.0 + r + r * r / 3.0) * math.exp(-r) * along + trend[i, j]
            matrix[i, i] = first[i] ** 2 + second[i] ** 2 + bend[h] * bent[i, i] + trend[i, i] + noise[h, i]
        out[h] = _evidence(matrix, y, white)
    return out
