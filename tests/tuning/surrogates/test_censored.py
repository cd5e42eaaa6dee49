"""Runs that were cut: expectation propagation beside integrals over a grid and dense inverses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from prudent.tuning.surrogates.gp import pseudo_observations
from prudent.tuning.surrogates.kernels import matern52

Array = np.ndarray[Any, Any]
SCALES = np.array([0.5])


def bell(z: Any) -> Any:
    return np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)


def tilted(mean: float, variance: float, bound: float, noise: float) -> tuple[float, float]:
    """Mean and variance of N(mean, variance) times the chance of an observation above the bound."""
    f = mean + np.sqrt(variance) * np.linspace(-12.0, 12.0, 8001)
    density = bell((f - mean) / np.sqrt(variance)) * ndtr((f - bound) / np.sqrt(noise))
    density /= density.sum()
    centre = float(density @ f)
    return centre, float(density @ (f - centre) ** 2)


def propagated(X: Array, y: Array, is_cut: Array, noise: Array) -> tuple[Array, Array]:
    """All sites at once, damped by 0.7, at most 12 rounds, until none changes by a thousandth."""
    prior = np.linalg.inv(matern52(X, X, SCALES))
    precision = np.where(is_cut, 1e-4, 1.0 / noise)
    shift = precision * y
    for _ in range(12):
        covariance = np.linalg.inv(prior + np.diag(precision))
        mean, largest = covariance @ shift, 0.0
        for i in np.flatnonzero(is_cut):
            own = 1.0 / covariance[i, i] - precision[i]
            cavity = (mean[i] / covariance[i, i] - shift[i]) / own
            new_mean, new_variance = tilted(cavity, 1.0 / own, y[i], noise[i])
            site = max(1.0 / new_variance - own, 1e-4)
            largest = max(largest, abs(site - precision[i]) / site)
            site_shift = (site + own) * new_mean - own * cavity
            precision[i] += 0.7 * (site - precision[i])
            shift[i] += 0.7 * (site_shift - shift[i])
        if largest < 1e-3:
            break
    return np.where(is_cut, shift / precision, y), np.where(is_cut, 1.0 / precision, noise)


@pytest.mark.parametrize("cut", [[0], [1, 4], [0, 2, 5]])
@pytest.mark.parametrize("noise", [0.02, 0.5])
def test_every_statement_becomes_the_gaussian_of_its_moments(cut: list[int], noise: float) -> None:
    rng = np.random.default_rng(len(cut))
    X, y = rng.random((6, 1)), rng.normal(size=6)
    is_cut, spread = np.isin(np.arange(6), cut), noise * np.linspace(1.0, 2.0, 6)
    values, spreads = pseudo_observations(X, y, is_cut, spread, SCALES)
    expected = propagated(X, y, is_cut, spread)
    np.testing.assert_allclose(values, expected[0], rtol=1e-5)
    np.testing.assert_allclose(spreads, expected[1], rtol=1e-5)
    np.testing.assert_array_equal(values[~is_cut], y[~is_cut])
    np.testing.assert_array_equal(spreads[~is_cut], spread[~is_cut])


@pytest.mark.parametrize("bound", [-1.0, 0.0, 1.5])
def test_alone_a_statement_leaves_a_truncated_normal(bound: float) -> None:
    """One cut run and no noise to speak of: what is believed of it is the normal above the bound."""
    value, spread = pseudo_observations(
        np.zeros((1, 1)), np.array([bound]), np.array([True]), np.array([1e-6]), SCALES
    )
    hazard = bell(bound) / ndtr(-bound)
    variance = 1.0 - hazard * (hazard - bound)
    # The prior is standard normal; the pseudo-observation turns it into this.
    assert value[0] / (1.0 + spread[0]) == pytest.approx(hazard, rel=2e-3)
    assert spread[0] / (1.0 + spread[0]) == pytest.approx(variance, rel=2e-3)


def test_what_was_known_anyway_says_next_to_nothing() -> None:
    X, y = np.zeros((2, 1)), np.array([0.0, -50.0])
    values, spreads = pseudo_observations(X, y, np.array([False, True]), np.array([0.1, 0.1]), SCALES)
    assert spreads[1] == pytest.approx(1e4, rel=1e-6)
    assert spreads[0] == 0.1
    assert values[0] == 0.0


def test_a_bound_far_beyond_what_was_expected_is_believed() -> None:
    X, y = np.zeros((1, 1)), np.array([60.0])
    value, spread = pseudo_observations(X, y, np.array([True]), np.array([0.01]), SCALES)
    assert np.isfinite(value).all()
    # Far out the truncated normal is nearly exponential beyond its bound.
    assert value[0] / (1.0 + spread[0]) == pytest.approx(60.0, rel=0.02)
