"""Gaussian process with its hyper-parameters averaged out, made for a few to a few hundred samples.

Why not a library: look-ahead asks for thousands of conditioned posteriors per decision, at a finite
set of candidates. With one Cholesky factor per setting of the hyper-parameters each of them costs
O(candidates), a refit costs O(samples³). scikit-learn needs 100 ms for the fit alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.tuning.surrogates import kernels

Array = NDArray[np.float64]

# Settings of the hyper-parameters weighed in the first round, drawn around the best of them in the second,
# and kept for predictions, by the number of samples: more samples leave less doubt and cost more to weigh.
_EFFORTS = ((40, 96, 48, 8), (120, 64, 32, 4), (10**9, 32, 16, 2))
_MEDIAN_SCALE, _SPREAD_SCALE = 1.0, 1.0
_MEDIAN_NOISE, _SPREAD_NOISE = 0.005, 1.5


@dataclass(frozen=True)
class GPHyperparameters:
    """Hyper-parameters with weights: scales (h, width), noise (h,), weights (h,) that sum to 1."""

    scales: Array
    noise: Array
    weights: Array


@dataclass(frozen=True)
class Standardization:
    """How y is standardised before a fit, and back."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, y: Array, usual: float | None = None) -> Standardization:
        """From samples; `usual` is the deviation expected before there are any, worth three of them.

        Without it three alike samples would pass for certainty about all the rest.
        """
        count = len(y)
        mean, variance = (float(y.mean()), float(y.var())) if count else (0.0, 0.0)
        if usual is not None:
            variance = (count * variance + 3.0 * usual**2) / (count + 3.0)
        return cls(mean, max(math.sqrt(variance), 1e-6 * max(abs(mean), 1.0)))


def weigh_hyperparameters(
    X: Array, y: Array, groups: Sequence[slice], seed: int, extra_noise: Array | None = None
) -> GPHyperparameters:
    """A weighted sample of the posterior of the hyper-parameters, by importance sampling in two rounds.

    The first round spreads settings over the prior (log-normal length scales, one per parameter, and
    noise), the second draws around the best. Few samples leave many settings alive, and so an honest
    uncertainty; a point estimate would be sure too early.
    """
    rng = rng_for(seed, "gp settings", len(groups))
    spread, refined, keep = next(effort[1:] for effort in _EFFORTS if len(y) <= effort[0])
    extra = np.zeros(len(y)) if extra_noise is None else extra_noise
    distances = np.stack([square_distances(X[:, group]) for group in groups])
    first = stratified_normals(spread, len(groups) + 1, rng)
    score = _score(first, distances, y, extra)
    best = first[np.argsort(-score, kind="stable")[:keep]]
    second = np.repeat(best, -(-refined // len(best)), axis=0)[:refined]
    second = second + 0.35 * rng.standard_normal(second.shape)
    draws = np.concatenate([first, second])
    score = np.concatenate([score, _score(second, distances, y, extra)])
    order = np.argsort(-score, kind="stable")[:keep]
    weights = np.exp(score[order] - score[order[0]])
    scales, noise = _decode(draws[order])
    return GPHyperparameters(by_column(scales, groups, X.shape[1]), noise, weights / weights.sum())


def stratified_normals(count: int, width: int, rng: np.random.Generator) -> Array:
    """Standard normal draws, stratified along each axis (Latin hypercube)."""
    from scipy.special import ndtri

    strata = np.stack([rng.permutation(count) for _ in range(width)], axis=1)
    return np.asarray(ndtri((strata + rng.random((count, width))) / count), dtype=np.float64)


def square_distances(columns: Array) -> Array:
    """Squared distances (n, n) between rows."""
    return np.asarray(((columns[:, None, :] - columns[None, :, :]) ** 2).sum(axis=2))


def _score(draws: Array, distances: Array, y: Array, extra: Array) -> Array:
    scales, noise = _decode(draws)
    prior = -0.5 * (draws**2).sum(axis=1)
    return np.asarray(
        kernels.log_evidences(distances, y, scales**-2, noise[:, None] + extra[None, :]) + prior
    )


def _decode(draws: Array) -> tuple[Array, Array]:
    """Length scales (h, groups) and noise (h,) behind standard normal draws (h, groups + 1)."""
    scales = _MEDIAN_SCALE * np.exp(_SPREAD_SCALE * draws[:, :-1])
    return scales, _MEDIAN_NOISE * np.exp(_SPREAD_NOISE * draws[:, -1])


def by_column(scales: Array, groups: Sequence[slice], width: int) -> Array:
    """Length scales (h, groups) laid out for the columns of the features (h, width)."""
    out = np.ones((len(scales), width))
    for place, group in enumerate(groups):
        out[:, group] = scales[:, [place]]
    return out


@dataclass(frozen=True)
class GPComponent:
    """One setting conditioned on the samples: what is needed to predict at the candidates.

    With the factor (n, n) of K + noise: white = factor⁻¹ y (n,); reach = factor⁻¹ K(X, candidates) (n, m).
    variance: the signal variance expected from the samples.
    """

    scales: Array
    noise: float
    white: Array
    reach: Array
    variance: float
    weight: float

    @property
    def mean(self) -> Array:
        return np.asarray(self.white @ self.reach)

    @property
    def share(self) -> Array:
        """The part of the prior variance that is left at each candidate."""
        return np.asarray(np.maximum(1.0 - np.einsum("ij,ij->j", self.reach, self.reach), 1e-9))


class GaussianProcess:
    """The belief over a finite set of candidates, given samples.

    >>> X = np.linspace(0, 1, 9)[:, None]
    >>> belief = GaussianProcess.fit(X[::2], np.sin(3 * X[::2, 0]), X, [slice(0, 1)], seed=1)
    >>> bool(np.abs(belief.mean - np.sin(3 * X[:, 0])).max() < 0.1)
    True
    """

    def __init__(self, components: Sequence[GPComponent], scale: Standardization, candidates: Array) -> None:
        self.components = tuple(components)
        self.scale = scale
        self.candidates = candidates
        weights = np.array([component.weight for component in self.components])
        self._weights = weights / weights.sum()
        means = np.stack([component.mean for component in self.components])
        shares = np.stack([component.variance * component.share for component in self.components])
        mean = self._weights @ means
        variance = self._weights @ (shares + means**2) - mean**2
        self.mean: Array = mean * scale.deviation + scale.mean
        self.std: Array = np.sqrt(np.maximum(variance, 1e-10)) * scale.deviation

    @classmethod
    def fit(
        cls,
        X: Array,
        y: Array,
        candidates: Array,
        groups: Sequence[slice],
        seed: int,
        settings: GPHyperparameters | None = None,
        extra_noise: Array | None = None,
        usual: float | None = None,
    ) -> GaussianProcess:
        """Condition on samples X (n, width), y (n,); predict at candidates (m, width).

        `extra_noise` (n,) is added to the noise of single samples, relative to the variance of y:
        an estimate (of a run that was cut) weighs less than a measurement. `usual`: see `Standardization.of`.
        """
        scale = Standardization.of(y, usual)
        standard = (y - scale.mean) / scale.deviation
        if settings is None:
            settings = weigh_hyperparameters(X, standard, groups, seed, extra_noise)
        components = [
            _condition(X, standard, candidates, settings, h, extra_noise)
            for h in range(len(settings.weights))
            if settings.weights[h] > 1e-3
        ]
        return cls(components, scale, candidates)

    def narrowed(self, indices: NDArray[np.int64]) -> GaussianProcess:
        """The same belief at some of the candidates only."""
        components = [replace(part, reach=part.reach[:, indices]) for part in self.components]
        return GaussianProcess(components, self.scale, self.candidates[indices])

    def given(self, indices: NDArray[np.int64], values: Array, keep: int = 2) -> tuple[Array, Array]:
        """Mean and deviation (k, m) after pretending paths of samples: indices (k, h), values (k, h).

        Rank-one conditioning of the `keep` weightiest settings; nothing is refitted.
        """
        order = np.argsort(-self._weights, kind="stable")[:keep]
        weights = self._weights[order] / self._weights[order].sum()
        standard = (values - self.scale.mean) / self.scale.deviation
        mean = np.zeros((len(indices), len(self.candidates)))
        square = np.zeros_like(mean)
        for weight, place in zip(weights, order, strict=True):
            component = self.components[place]
            part_mean, part_share = _condition_on_paths(component, self.candidates, indices, standard)
            mean += weight * part_mean
            square += weight * (component.variance * part_share + part_mean**2)
        variance = np.maximum(square - mean**2, 1e-10)
        return mean * self.scale.deviation + self.scale.mean, np.sqrt(variance) * self.scale.deviation


def _condition(
    X: Array, y: Array, candidates: Array, settings: GPHyperparameters, h: int, extra_noise: Array | None
) -> GPComponent:
    from scipy.linalg import solve_triangular

    scales, noise = settings.scales[h], float(settings.noise[h])
    matrix = kernels.matern52(X, X, scales)
    matrix[np.diag_indices(len(y))] += noise if extra_noise is None else noise + extra_noise
    factor = safe_cholesky(matrix)
    white = solve_triangular(factor, y, lower=True, check_finite=False)
    reach = solve_triangular(
        factor, kernels.matern52(X, candidates, scales), lower=True, check_finite=False, overwrite_b=True
    )
    variance = kernels.signal_variance(white)
    return GPComponent(scales, noise, white, reach, variance, float(settings.weights[h]))


def _condition_on_paths(
    component: GPComponent, candidates: Array, indices: NDArray[np.int64], values: Array
) -> tuple[Array, Array]:
    """Condition one component on each path, a step at a time: O(paths · candidates · steps)."""
    unique, places = np.unique(indices, return_inverse=True)
    places = places.reshape(indices.shape)
    prior = kernels.matern52(candidates[unique], candidates, component.scales)
    reach = component.reach
    covariance = prior - reach[:, unique].T @ reach
    mean = np.broadcast_to(component.mean, (len(indices), len(candidates))).copy()
    share = np.broadcast_to(component.share, mean.shape).copy()
    rows = np.arange(len(indices))
    steps: list[Array] = []
    for step in range(indices.shape[1]):
        spot = indices[:, step]
        column = covariance[places[:, step]].copy()
        for earlier in steps:
            column -= earlier[rows, spot][:, None] * earlier
        pivot = np.maximum(share[rows, spot] + component.noise, 1e-9)
        gain = column / np.sqrt(pivot)[:, None]
        surprise = (values[:, step] - mean[rows, spot]) / np.sqrt(pivot)
        mean += gain * surprise[:, None]
        share = np.maximum(share - gain**2, 1e-9)
        steps.append(gain)
    return mean, share


def safe_cholesky(matrix: Array) -> Array:
    """The lower factor, with as much added to the diagonal as it takes: duplicates of a row must not fail."""
    jitter = kernels.PIVOT_FLOOR
    while True:
        try:
            return np.asarray(np.linalg.cholesky(matrix + jitter * np.eye(len(matrix))))
        except np.linalg.LinAlgError:
            jitter *= 100.0


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
    return pseudo_observations_given(kernels.matern52(X, X, scales), y, is_cut, noise)


def pseudo_observations_given(
    prior: Array, y: Array, is_cut: NDArray[np.bool_], noise: Array
) -> tuple[Array, Array]:
    """The same for a covariance (n, n) of values of mean 0."""
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
