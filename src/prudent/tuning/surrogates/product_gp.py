"""Gaussian process over (configuration x, fraction of the data s), made to speak about s = 1.

k((x, s), (x', s')) = k52(x, x') · φ(s)ᵀ Σ φ(s') (Fabolas): Matérn 5/2 with a length scale per parameter, and
Σ = L Lᵀ positive semi-definite through its Cholesky factor. Two terms are ours, both for the step from little
data to all of it: a trend in s common to all configurations, under a vague prior, so that every run on
little data teaches how all scale; and bends, smooth departures of a configuration from its curve, so that
the step is not believed more than it deserves. Without them (`FractionShape.plain`) the kernel is the
paper's.

Hyper-parameters are averaged over an ensemble drawn by Markov chain Monte Carlo; a point estimate would be
sure of the full data too early.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.tuning.surrogates import kernels
from prudent.tuning.surrogates.gp import (
    Standardization,
    by_column,
    safe_cholesky,
    square_distances,
    stratified_normals,
)

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Basis = Callable[[Array], Array]

# By the number of samples: settings spread over the prior, walkers that start at the best, their steps, and
# how many are kept. More samples leave less doubt and cost more.
_EFFORTS = ((40, 192, 32, 24, 8), (100, 128, 24, 16, 8), (200, 64, 16, 10, 6), (10**9, 32, 12, 6, 4))
# Medians (where not 1 or 0) and spreads of the priors; all but the tilt are log-normal.
_SPREAD_SCALE = 1.0
_SPREAD_TILT = 0.7
_MEDIAN_SLOPE, _SPREAD_SLOPE = 0.5, 0.8
_MEDIAN_NOISE, _SPREAD_NOISE = 0.005, 1.5
_MEDIAN_BEND, _SPREAD_BEND = 0.2, 1.0
_VAGUE_TREND = 4.0


def saturating(s: Array) -> Array:
    """φ(s) = (1, (1 - s)²): accuracy, as Fabolas has it. Shape (n, 2)."""
    return np.column_stack([np.ones_like(s), (1.0 - s) ** 2])


def proportional(s: Array) -> Array:
    """φ(s) = (1, s): log cost, as Fabolas has it. Shape (n, 2)."""
    return np.column_stack([np.ones_like(s), s])


def power_law(s: Array) -> Array:
    """φ(s) = (1, -log s / log 100): log error and log cost follow powers of the data size. Shape (n, 2).

    0 at full data, 1 at a hundredth: the first coefficient is what is wanted, the value at s = 1.
    """
    return np.column_stack([np.ones_like(s), -np.log(s) / math.log(100.0)])


def saturating_in_log(s: Array) -> Array:
    """`saturating` of the fraction on a log scale, as the code of Fabolas has it. Shape (n, 2)."""
    return saturating(1.0 + np.log(s) / math.log(100.0))


def proportional_in_log(s: Array) -> Array:
    """`proportional` of the fraction on a log scale, as the code of Fabolas has it. Shape (n, 2)."""
    return proportional(1.0 + np.log(s) / math.log(100.0))


@dataclass(frozen=True)
class FractionShape:
    """How values depend on s: the basis, whether there are a common trend and bends, and the power expected.

    `power` is the slope in log s expected before anything was seen: 1 for a log cost, since work grows with
    the data. The process learns how values depart from it.
    """

    basis: Basis = power_law
    plain: bool = False
    power: float = 0.0

    @property
    def trend(self) -> float:
        """Prior variance of the common trend's two coefficients, relative to a configuration's own."""
        return 0.0 if self.plain else _VAGUE_TREND


@dataclass(frozen=True, eq=False)
class ProductHyperparameters:
    """Hyper-parameters, equally likely: scales (h, width), cholesky (h, 3), bend (h,), noise (h,)."""

    scales: Array
    cholesky: Array
    bend: Array
    noise: Array

    def __len__(self) -> int:
        return len(self.noise)


@dataclass(frozen=True, eq=False)
class FractionSamples:
    """What was seen: features X (n, width), fractions s (n,), values y (n,), and noise beyond the usual (n,).

    Values are standardised where a function says so; extra noise is relative to the variance of y.
    """

    X: Array
    s: Array
    y: Array
    extra_noise: Array

    def scaled(self, scale: Standardization) -> FractionSamples:
        return FractionSamples(self.X, self.s, (self.y - scale.mean) / scale.deviation, self.extra_noise)

    def without(self, shape: FractionShape) -> FractionSamples:
        """What is left of the values after the power expected of them."""
        return FractionSamples(self.X, self.s, self.y - shape.power * np.log(self.s), self.extra_noise)

    def first(self, count: int) -> FractionSamples:
        return FractionSamples(self.X[:count], self.s[:count], self.y[:count], self.extra_noise[:count])


def draw_hyperparameters(
    samples: FractionSamples, shape: FractionShape, groups: Sequence[slice], seed: int
) -> ProductHyperparameters:
    """A sample of the posterior of the hyper-parameters, given standardised samples.

    Settings spread over the prior are weighed; the best of them are where the walkers of an ensemble start,
    and where these end is the sample.
    """
    rng = rng_for(seed, "product settings", len(groups))
    count, walkers, steps, keep = next(e[1:] for e in _EFFORTS if len(samples.y) <= e[0])
    phi = shape.basis(samples.s)
    distances = np.stack([square_distances(samples.X[:, group]) for group in groups])
    common = phi, kernels.bends(phi, phi), shape.trend * (phi @ phi.T)

    def score(draws: Array) -> Array:
        found = _decoded(draws, len(groups), shape)
        noise = found.noise[:, None] + samples.extra_noise
        evidence = kernels.product_log_evidences(
            distances, common, samples.y, found.scales**-2, found.cholesky, found.bend, noise
        )
        return np.asarray(evidence - 0.5 * (draws**2).sum(axis=1))

    first = stratified_normals(count, len(groups) + 4, rng)
    best = rng.permutation(np.argsort(-score(first), kind="stable")[:walkers])
    ended = stretch_moves(first[best], score, steps, rng)
    found = _decoded(ended[rng.permutation(walkers)[:keep]], len(groups), shape)
    scales = by_column(found.scales, groups, samples.X.shape[1])
    return ProductHyperparameters(scales, found.cholesky, found.bend, found.noise)


def _decoded(draws: Array, groups: int, shape: FractionShape) -> ProductHyperparameters:
    """Settings (scales by group) behind standard normal draws (h, groups + 4).

    The factor's first entry is 1: the overall variance is integrated out.
    """
    tilt = _SPREAD_TILT * draws[:, groups]
    slope = _MEDIAN_SLOPE * np.exp(_SPREAD_SLOPE * draws[:, groups + 1])
    noise = _MEDIAN_NOISE * np.exp(_SPREAD_NOISE * draws[:, groups + 2])
    bend = _MEDIAN_BEND * np.exp(_SPREAD_BEND * draws[:, groups + 3]) * (not shape.plain)
    cholesky = np.column_stack([np.ones_like(tilt), tilt, slope])
    return ProductHyperparameters(np.exp(_SPREAD_SCALE * draws[:, :groups]), cholesky, bend, noise)


@dataclass(frozen=True, eq=False)
class ProductComponent:
    """One setting conditioned on the samples, seen at m places.

    reach = factor⁻¹ K(samples, places) (n, m); white = factor⁻¹ y (n,); mean (m,); share (m,): the variance
    left at each place. `variance` is the signal variance expected from the samples; all others are relative
    to it.
    """

    scales: Array
    cholesky: Array
    bend: float
    noise: float
    reach: Array
    mean: Array
    share: Array
    variance: float


class ProductProcess:
    """The belief over places (x, s), given samples: the mixture of the settings' posteriors.

    >>> X, s = np.repeat(np.linspace(0, 1, 5), 3)[:, None], np.tile([0.1, 0.3, 0.5], 5)
    >>> samples = FractionSamples(X, s, np.sin(3 * X[:, 0]) - 0.2 * np.log(s), np.zeros(15))
    >>> places = np.linspace(0, 1, 5)[:, None]
    >>> belief = ProductProcess.fit(samples, places, np.ones(5), FractionShape(), [slice(0, 1)], seed=1)
    >>> bool(np.abs(belief.mean - np.sin(3 * places[:, 0])).max() < 0.15)
    True
    """

    def __init__(
        self,
        components: Sequence[ProductComponent],
        scale: Standardization,
        grid: kernels.FactoredRows,
        trend: float,
        offset: Array,
    ) -> None:
        self.components = tuple(components)
        self.scale, self.offset, self._grid, self._trend = scale, offset, grid, trend
        means = np.stack([part.mean for part in self.components])
        inner = np.mean([part.variance * part.share for part in self.components], axis=0)
        self.mean: Array = means.mean(axis=0) * scale.deviation + scale.mean + offset
        self.std: Array = np.sqrt(np.maximum(inner + means.var(axis=0), 1e-10)) * scale.deviation
        noise = float(np.mean([part.variance * part.noise for part in self.components]))
        self.noise_std: float = math.sqrt(noise) * scale.deviation

    @classmethod
    def fit(
        cls,
        samples: FractionSamples,
        places: Array,
        fractions: Array,
        shape: FractionShape,
        groups: Sequence[slice],
        seed: int,
        settings: ProductHyperparameters | None = None,
        usual: float | None = None,
    ) -> ProductProcess:
        """Condition on samples; predict at places (m, width) and fractions (m,).

        `settings` saves drawing them; `usual` is the deviation of y expected before there are samples.
        """
        samples = samples.without(shape)
        scale = Standardization.of(samples.y, usual)
        standard = samples.scaled(scale)
        if settings is None:
            settings = draw_hyperparameters(standard, shape, groups, seed)
        grid = kernels.FactoredRows.of(places, shape.basis(fractions))
        components = [_conditioned(standard, grid, settings, h, shape) for h in range(len(settings))]
        return cls(components, scale, grid, shape.trend, shape.power * np.log(fractions))

    def between(self, h: int, rows: Indices, columns: Indices) -> Array:
        """Posterior covariance (r, c) of setting h between places, relative to its signal variance."""
        part = self.components[h]
        left, right = self._grid.subset(rows), self._grid.subset(columns)
        prior = kernels.grid_kernel(left, right, part.scales, part.cholesky, part.bend, self._trend)
        return np.asarray(prior - part.reach[:, rows].T @ part.reach[:, columns])

    def shrinkage(self, tests: Indices, targets: Indices) -> Array:
        """How much each of k tests would shrink the variance at targets, summed over them (k,)."""
        out = np.zeros(len(tests))
        for h, part in enumerate(self.components):
            square = (self.between(h, tests, targets) ** 2).sum(axis=1)
            out += part.variance * square / (part.share[tests] + part.noise)
        return out

    def std_after(self, tests: Indices, targets: Indices) -> Array:
        """Deviation (k, t) at targets after each of k tests came out at its mean: rank-one, no refit.

        Conditioning on the mean leaves every mean, so the settings' disagreement stays what it was.
        """
        inner = np.zeros((len(tests), len(targets)))
        for h, part in enumerate(self.components):
            pivot = part.share[tests] + part.noise
            left = part.share[targets] - self.between(h, tests, targets) ** 2 / pivot[:, None]
            inner += part.variance * np.maximum(left, 1e-9)
        means = np.stack([part.mean[targets] for part in self.components])
        variance = inner / len(self.components) + means.var(axis=0)
        return np.asarray(np.sqrt(np.maximum(variance, 1e-10)) * self.scale.deviation)


def _conditioned(
    samples: FractionSamples,
    there: kernels.FactoredRows,
    settings: ProductHyperparameters,
    h: int,
    shape: FractionShape,
) -> ProductComponent:
    from scipy.linalg import solve_triangular

    scales, cholesky = settings.scales[h], settings.cholesky[h]
    bend, noise, trend = float(settings.bend[h]), float(settings.noise[h]), shape.trend
    here = samples.X, shape.basis(samples.s)
    matrix = kernels.product_kernel(here, here, scales, cholesky, bend, trend)
    matrix[np.diag_indices(len(samples.y))] += noise + samples.extra_noise
    factor = safe_cholesky(matrix)
    white = solve_triangular(factor, samples.y, lower=True, check_finite=False)
    cross = kernels.grid_kernel(kernels.FactoredRows.of(*here), there, scales, cholesky, bend, trend)
    reach = solve_triangular(factor, cross, lower=True, check_finite=False, overwrite_b=True)
    variance = kernels.signal_variance(white)
    prior = kernels.prior_variance(there.phi, cholesky, bend, trend)[there.phi_of]
    share = np.maximum(prior - np.einsum("ij,ij->j", reach, reach), 1e-9)
    return ProductComponent(scales, cholesky, bend, noise, reach, white @ reach, share, variance)


Score = Callable[[Array], Array]

_STRETCH = 2.0


def stretch_moves(state: Array, score: Score, steps: int, rng: np.random.Generator) -> Array:
    """Where walkers that start at `state` (walkers, width) are after so many stretch moves each.

    `score` gives the log density (k,) of places (k, width). Each half of the ensemble moves along lines to
    members of the other, all of them scored in one call.
    """
    state, scores = state.copy(), score(state)
    middle = len(state) // 2
    for _ in range(steps):
        for half, rest in ((slice(0, middle), slice(middle, None)), (slice(middle, None), slice(0, middle))):
            partner = state[rest][rng.integers(len(state[rest]), size=len(state[half]))]
            z = (1.0 + (_STRETCH - 1.0) * rng.random(len(partner))) ** 2 / _STRETCH
            moved = partner + z[:, None] * (state[half] - partner)
            new = score(moved)
            odds = (state.shape[1] - 1) * np.log(z) + new - scores[half]
            taken = np.log(rng.random(len(partner))) < odds
            state[half] = np.where(taken[:, None], moved, state[half])
            scores[half] = np.where(taken, new, scores[half])
    return state
