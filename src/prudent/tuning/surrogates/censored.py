"""Learning from runs that were cut: all that is known is that they would have cost more.

A measured value is a Gaussian observation, a cut one the one-sided statement y > bound. Expectation
propagation turns each statement into the Gaussian pseudo-observation that changes the belief in the
same way, so that everything after it is plain Gaussian regression.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from prudent.tuning.surrogates.gp import safe_cholesky
from prudent.tuning.surrogates.gp_kernels import matern52

Array = NDArray[np.float64]

ROUNDS = 12
SETTLED = 1e-3
"""Rounds end when no precision changes by more than this share of itself."""
DAMPING = 0.7
VAGUE = 1e-4
"""Least precision of a pseudo-observation, relative to the signal's: it says nothing, but is finite."""


def pseudo_observations(
    X: Array, y: Array, is_cut: NDArray[np.bool_], noise: Array, scales: Array
) -> tuple[Array, Array]:
    """Values and noise (both (n,)) of the Gaussian observations that stand for the data.

    y: measured values, or lower bounds where `is_cut`, standardised; noise: variance of each observation
    relative to the signal's. Measured rows come back as they were. All sites are updated together, damped,
    until they settle: O(n³) a round.
    """
    prior = matern52(X, X, scales)
    precision = np.where(is_cut, VAGUE, 1.0 / noise)
    shift = precision * y
    for _ in range(ROUNDS):
        variance, mean = _marginals(prior, precision, shift)
        site, site_shift = _sites(
            variance[is_cut], mean[is_cut], precision[is_cut], shift[is_cut], y[is_cut], noise[is_cut]
        )
        change = np.abs(site - precision[is_cut]) / site
        precision[is_cut] += DAMPING * (site - precision[is_cut])
        shift[is_cut] += DAMPING * (site_shift - shift[is_cut])
        if float(change.max()) < SETTLED:
            break
    values, spreads = y.copy(), noise.copy()
    values[is_cut] = shift[is_cut] / precision[is_cut]
    spreads[is_cut] = 1.0 / precision[is_cut]
    return values, spreads


def _marginals(prior: Array, precision: Array, shift: Array) -> tuple[Array, Array]:
    """Variance and mean (n,) of (K⁻¹ + T)⁻¹ = √T⁻¹ (I - B⁻¹) √T⁻¹, B = I + √T K √T well-conditioned."""
    from scipy.linalg.lapack import dtrtri

    root = np.sqrt(precision)
    matrix = prior * root
    matrix *= root[:, None]
    matrix[np.diag_indices(len(root))] += 1.0
    inverse, _ = dtrtri(safe_cholesky(matrix).T, lower=0, overwrite_c=1)  # B⁻¹ = inverse · inverseᵀ
    variance = np.maximum(1.0 - np.einsum("ij,ij->i", inverse, inverse), 1e-12) / precision
    scaled = shift / root
    return variance, (scaled - inverse @ (inverse.T @ scaled)) / root


def _sites(
    variance: Array, mean: Array, precision: Array, shift: Array, bound: Array, noise: Array
) -> tuple[Array, Array]:
    """Precision and shift of each one-sided statement that match the moments of its tilted marginal."""
    cavity_precision = np.maximum(1.0 / variance - precision, 1e-6)
    cavity_mean = (mean / variance - shift) / cavity_precision
    cavity_variance = 1.0 / cavity_precision
    spread = np.sqrt(noise + cavity_variance)
    z = (cavity_mean - bound) / spread
    hazard = _hazard(z)
    new_mean = cavity_mean + cavity_variance * hazard / spread
    shrink = cavity_variance / spread**2 * hazard * (z + hazard)
    new_variance = cavity_variance * np.clip(1.0 - shrink, 1e-6, 1.0)
    site = np.maximum(1.0 / new_variance - cavity_precision, VAGUE)
    return site, (site + cavity_precision) * new_mean - cavity_precision * cavity_mean


def _hazard(z: Array) -> Array:
    """φ(z) / Φ(z), by logarithms where Φ underflows."""
    from scipy.special import log_ndtr

    return np.asarray(np.exp(-0.5 * z * z - 0.5 * math.log(2 * math.pi) - log_ndtr(z)))
