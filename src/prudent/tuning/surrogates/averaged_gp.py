"""Gaussian processes of several forms around a trend, averaged by how well each explains the samples.

    y(x) = offset + slopes · trend(x) + amplitude · g(x) + noise

The offset and the slopes are Gaussian and integrated out, so the belief is proper before the first sample.
g has a smooth kernel (Matérn 5/2) or a rough one (exponential along each axis, the limit of averaged random
trees, which follows cliffs), on all columns or on some of them. Forms and their hyper-parameters are drawn
from a prior and weighed by their marginal likelihood: what explains the samples stays, what does not
leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.tuning.surrogates import kernels
from prudent.tuning.surrogates.gp import pseudo_observations_given, safe_cholesky, stratified_normals

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_EFFORTS = ((16, 120, 48, 10), (40, 80, 32, 8), (120, 48, 24, 4), (10**9, 24, 12, 2))
"""Draws of the first round, of the second, and kept, by the number of samples."""
_SCALE, _SPREAD_SCALE = 1.0, 1.0
_SPREAD_AMPLITUDE = 0.5
_NOISE, _SPREAD_NOISE = 0.05, 1.0
"""Median and log deviation of a length scale (features span 1), of the amplitude, of the noise's
deviation."""
LEAST_WEIGHT = 1e-3


@dataclass(frozen=True, eq=False)
class Rows:
    """Where the function is sampled or predicted: features (n, width) of the kernel, trend (n, k)."""

    features: Array
    trend: Array

    def __len__(self) -> int:
        return len(self.features)

    def joined(self, other: Rows) -> Rows:
        return Rows(
            np.concatenate([self.features, other.features]), np.concatenate([self.trend, other.trend])
        )

    def at(self, places: NDArray[np.int64] | Flags) -> Rows:
        return Rows(self.features[places], self.trend[places])


@dataclass(frozen=True)
class Form:
    """Which groups of columns a kernel looks at, whether it is smooth, and its share of the amplitude.

    An informed form has the slopes that `TrendPrior.informed` says.
    """

    groups: tuple[bool, ...]
    smooth: bool = True
    share: float = 1.0
    informed: bool = False


@dataclass(frozen=True, eq=False)
class TrendPrior:
    """What is believed before the first sample, in the unit of y.

    `informed` are other slopes and their deviations, known from something else than y.
    """

    offset: float
    offset_std: float
    slopes: Array
    slopes_std: Array
    amplitude: float
    groups: Sequence[slice]
    forms: Sequence[Form]
    informed: tuple[Array, Array] | None = None

    def of(self, informed: bool) -> TrendPrior:
        """As forms of one of the two kinds see it."""
        if not informed or self.informed is None:
            return self
        return replace(self, slopes=self.informed[0], slopes_std=self.informed[1])

    def mean(self, rows: Rows) -> Array:
        return np.asarray(self.offset + rows.trend @ self.slopes)

    def covariance(self, left: Rows, right: Rows) -> Array:
        """That of offset and slopes."""
        scaled = left.trend * self.slopes_std**2
        return np.asarray(self.offset_std**2 + scaled @ right.trend.T)

    def variance(self, rows: Rows) -> Array:
        return np.asarray(self.offset_std**2 + (rows.trend**2) @ self.slopes_std**2)


@dataclass(frozen=True, eq=False)
class Draws:
    """h settings: rates (h, width), 1 / length scale; smooth, amplitude, noise (deviations), weights (h,).

    informed (h,): which of them have the informed slopes.
    """

    rates: Array
    smooth: Flags
    amplitude: Array
    noise: Array
    weights: Array
    informed: Flags

    def __len__(self) -> int:
        return len(self.weights)

    def covariance(self, h: int, prior: TrendPrior, left: Rows, right: Rows) -> Array:
        kernel = kernels.axial(left.features, right.features, self.rates[h], bool(self.smooth[h]))
        trend = prior.of(bool(self.informed[h])).covariance(left, right)
        return np.asarray(trend + self.amplitude[h] ** 2 * kernel)

    def mean(self, h: int, prior: TrendPrior, rows: Rows) -> Array:
        return prior.of(bool(self.informed[h])).mean(rows)


def weigh(rows: Rows, y: Array, extra: Array, prior: TrendPrior, seed: int) -> Draws:
    """Settings from the prior, weighed by the samples (n,), then others around the best of them.

    extra (n,): the variance of single samples beyond the noise.
    """
    rng = rng_for(seed, "averaged gp", len(prior.groups))
    spread, refined, keep = next(effort[1:] for effort in _EFFORTS if len(y) <= effort[0])
    width = len(prior.groups) + 2
    first = stratified_normals(spread, width, rng)
    forms = rng.permutation(np.arange(spread) % len(prior.forms))
    score = _scores(first, forms, rows, y, extra, prior)
    if len(y):
        best = np.argsort(-score, kind="stable")[:keep]
        again = np.resize(best, refined)
        second = first[again] + 0.35 * rng.standard_normal((refined, width))
        score = np.concatenate([score, _scores(second, forms[again], rows, y, extra, prior)])
        first, forms = np.concatenate([first, second]), np.concatenate([forms, forms[again]])
    order = np.argsort(-score, kind="stable")[: keep if len(y) else 3 * keep]
    weights = np.exp(score[order] - score[order[0]])
    decoded = _decode(first[order], forms[order], prior, rows.features.shape[1])
    return replace(decoded, weights=weights / weights.sum())


def _decode(draws: Array, forms: NDArray[np.int64], prior: TrendPrior, width: int) -> Draws:
    """The settings behind standard normal draws (h, groups + 2)."""
    rates = np.zeros((len(draws), width))
    scales = _SCALE * np.exp(_SPREAD_SCALE * draws[:, :-2])
    for place, group in enumerate(prior.groups):
        used = np.array([prior.forms[form].groups[place] for form in forms])
        rates[:, group] = np.where(used, 1.0 / scales[:, place], 0.0)[:, None]
    share = np.array([prior.forms[form].share for form in forms])
    smooth = np.array([prior.forms[form].smooth for form in forms], dtype=np.bool_)
    informed = np.array([prior.forms[form].informed for form in forms], dtype=np.bool_)
    amplitude = share * prior.amplitude * np.exp(_SPREAD_AMPLITUDE * draws[:, -2])
    noise = _NOISE * np.exp(_SPREAD_NOISE * draws[:, -1])
    weights = np.full(len(draws), 1.0 / max(len(draws), 1))
    return Draws(rates, smooth, amplitude, noise, weights, informed)


def _scores(
    draws: Array, forms: NDArray[np.int64], rows: Rows, y: Array, extra: Array, prior: TrendPrior
) -> Array:
    density = -0.5 * (draws**2).sum(axis=1)
    if not len(y):
        return np.asarray(0.0 * density)
    settings = _decode(draws, forms, prior, rows.features.shape[1])
    evidences = np.empty(len(draws))
    for informed in (False, True):
        mine, seen = settings.informed == informed, prior.of(informed)
        if mine.any():
            evidences[mine] = kernels.axial_evidences(
                rows.features,
                y - seen.mean(rows),
                seen.covariance(rows, rows),
                extra,
                settings.rates[mine],
                settings.smooth[mine],
                settings.amplitude[mine] ** 2,
                settings.noise[mine] ** 2,
            )
    return np.asarray(evidences + density)


class AveragedGP:
    """The belief at a finite set of places, given samples.

    >>> x = np.linspace(0, 1, 9)[:, None]
    >>> prior = TrendPrior(0.0, 1.0, np.zeros(1), np.ones(1), 1.0, [slice(0, 1)], [Form((True,))])
    >>> places, y = Rows(x, x), np.sin(3 * x[:, 0])
    >>> belief = AveragedGP(places.at(np.arange(0, 9, 2)), y[::2], np.zeros(5), places, prior, seed=1)
    >>> bool(np.abs(belief.mean - y).max() < 0.1)
    True
    """

    def __init__(
        self,
        rows: Rows,
        y: Array,
        extra: Array,
        places: Rows,
        prior: TrendPrior,
        seed: int,
        settings: Draws | None = None,
    ) -> None:
        self.samples, self.y, self.extra, self.places, self.prior = rows, y, extra, places, prior
        self.settings = weigh(rows, y, extra, prior, seed) if settings is None else settings
        kept = np.flatnonzero(self.settings.weights > LEAST_WEIGHT)
        weights = self.settings.weights[kept] / self.settings.weights[kept].sum()
        parts = [_condition(rows, y, extra, places, prior, self.settings, int(h)) for h in kept]
        means, variances = np.stack([mean for mean, _ in parts]), np.stack([spread for _, spread in parts])
        self.mean: Array = np.asarray(weights @ means)
        square = weights @ (variances + means**2)
        self.std: Array = np.sqrt(np.maximum(square - self.mean**2, 1e-10))

    def narrowed(self, indices: NDArray[np.int64]) -> AveragedGP:
        """The same belief at some of the places only."""
        return self._again(self.samples, self.y, self.extra, self.places.at(indices))

    def given(self, indices: NDArray[np.int64], values: Array) -> tuple[Array, Array]:
        """Mean and deviation (k, m) after pretending paths of samples (k, h): O(n³) for each of them."""
        sure = np.zeros(indices.shape[1])
        beliefs = [
            self._again(
                self.samples.joined(self.places.at(path)),
                np.concatenate([self.y, told]),
                np.concatenate([self.extra, sure]),
                self.places,
            )
            for path, told in zip(indices, values, strict=True)
        ]
        return np.stack([belief.mean for belief in beliefs]), np.stack([belief.std for belief in beliefs])

    def _again(self, rows: Rows, y: Array, extra: Array, places: Rows) -> AveragedGP:
        return AveragedGP(rows, y, extra, places, self.prior, 0, self.settings)


def _condition(
    rows: Rows, y: Array, extra: Array, places: Rows, prior: TrendPrior, draws: Draws, h: int
) -> tuple[Array, Array]:
    """Mean and variance (m,) by one setting."""
    from scipy.linalg import solve_triangular

    mean = draws.mean(h, prior, places)
    variance = prior.of(bool(draws.informed[h])).variance(places) + draws.amplitude[h] ** 2
    if not len(y):
        return mean, variance
    matrix = draws.covariance(h, prior, rows, rows)
    matrix[np.diag_indices(len(y))] += draws.noise[h] ** 2 + extra
    factor = safe_cholesky(matrix)
    white = solve_triangular(factor, y - draws.mean(h, prior, rows), lower=True, check_finite=False)
    reach = solve_triangular(
        factor, draws.covariance(h, prior, rows, places), lower=True, check_finite=False, overwrite_b=True
    )
    return mean + white @ reach, np.maximum(variance - np.einsum("ij,ij->j", reach, reach), 1e-9)


def without_bounds(
    rows: Rows, y: Array, is_bound: Flags, extra: Array, prior: TrendPrior, draws: Draws
) -> tuple[Array, Array]:
    """Values and extra variance, lower bounds replaced by the Gaussian observations that stand for them."""
    if not is_bound.any():
        return y, extra
    h = int(np.argmax(draws.weights))
    mean, base = draws.mean(h, prior, rows), float(draws.noise[h] ** 2)
    covariance = draws.covariance(h, prior, rows, rows)
    values, spreads = pseudo_observations_given(covariance, y - mean, is_bound, base + extra)
    return values + mean, np.maximum(spreads - base, 0.0)
