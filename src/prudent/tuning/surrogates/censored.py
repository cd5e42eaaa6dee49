"""Learning from runs that were cut: all that is known is that they would have cost more.

A measured value is a Gaussian observation, a cut one the one-sided statement y > bound. Expectation
propagation turns each statement into the Gaussian pseudo-observation that changes the belief in the
same way, so that everything after it is plain Gaussian regression.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from prudent.tuning.surrogates.gp_kernels import cholesky, matern52, solve_lower_many

Array = NDArray[np.float64]

SWEEPS = 4
DAMPING = 0.7
VAGUE = 1e4
"""Noise of a pseudo-observation that says nothing, relative to the signal's variance."""


@njit(cache=True)
def _hazard(z: float) -> float:
    """φ(z) / Φ(z), by its asymptote in the far tail where Φ underflows."""
    if z < -30.0:
        return -z + 1.0 / -z
    return math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) / (0.5 * math.erfc(-z / math.sqrt(2.0)))


@njit(cache=True)
def _posterior(prior: Array, precision: Array, shift: Array) -> tuple[Array, Array]:
    """Covariance and mean from prior covariance and site parameters: (K⁻¹ + T)⁻¹ by B = I + √T K √T."""
    size = len(precision)
    root = np.sqrt(precision)
    matrix = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            matrix[i, j] = root[i] * prior[i, j] * root[j]
        matrix[i, i] += 1.0
    factor = cholesky(matrix)
    scaled = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            scaled[i, j] = root[i] * prior[i, j]
    half = solve_lower_many(factor, scaled)
    covariance = prior - half.T @ half
    return covariance, covariance @ shift


@njit(cache=True)
def pseudo_observations(
    X: Array, y: Array, is_cut: NDArray[np.bool_], noise: Array, scales: Array, variance: float
) -> tuple[Array, Array]:
    """Values and noise (both (n,)) of the Gaussian observations that stand for the data.

    y: measured values, or the lower bounds where `is_cut`; noise: variance of each observation, all in
    the units of standardised y; variance: the signal's. Measured rows come back as they were.
    """
    size = len(y)
    prior = matern52(X, X, scales) * variance
    precision, shift = np.zeros(size), np.zeros(size)
    for i in range(size):
        if not is_cut[i]:
            precision[i] = 1.0 / noise[i]
            shift[i] = y[i] / noise[i]
    covariance, mean = _posterior(prior, precision, shift)
    for _ in range(SWEEPS):
        for i in range(size):
            if not is_cut[i]:
                continue
            cavity_precision = max(1.0 / covariance[i, i] - precision[i], 1e-10)
            cavity_variance = 1.0 / cavity_precision
            cavity_mean = cavity_variance * (mean[i] / covariance[i, i] - shift[i])
            spread = math.sqrt(noise[i] + cavity_variance)
            z = (cavity_mean - y[i]) / spread
            hazard = _hazard(z)
            new_mean = cavity_mean + cavity_variance * hazard / spread
            shrink = cavity_variance / (spread * spread) * hazard * (z + hazard)
            new_variance = cavity_variance * max(1.0 - shrink, 1e-6)
            site = max(1.0 / new_variance - cavity_precision, 1.0 / VAGUE)
            site_shift = (site + cavity_precision) * new_mean - cavity_precision * cavity_mean
            step = DAMPING * (site - precision[i])
            precision[i] += step
            shift[i] += DAMPING * (site_shift - shift[i])
            column = covariance[:, i].copy()
            scale = step / (1.0 + step * column[i])
            for a in range(size):
                weight = scale * column[a]
                for b in range(size):
                    covariance[a, b] -= weight * column[b]
            mean = covariance @ shift
        covariance, mean = _posterior(prior, precision, shift)
    values, spreads = y.copy(), noise.copy()
    for i in range(size):
        if is_cut[i]:
            values[i] = shift[i] / precision[i]
            spreads[i] = 1.0 / precision[i]
    return values, spreads
