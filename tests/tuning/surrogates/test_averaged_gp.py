"""Averaged Gaussian processes beside dense inverses, and what the evidence makes of their forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prudent.tuning.surrogates import kernels
from prudent.tuning.surrogates.averaged_gp import AveragedGP, Draws, Form, Rows, TrendPrior, weigh

Array = np.ndarray[Any, Any]
X = np.linspace(0.0, 1.0, 21)[:, None]
PLACES = Rows(X, X - 0.5)
NONE = np.empty(0, dtype=np.int64)
PLAIN = np.zeros(1, dtype=np.bool_)


def prior(*forms: Form, slope: float = -1.0) -> TrendPrior:
    slopes, groups = np.array([slope]), [slice(0, 1)]
    return TrendPrior(3.0, 1.0, slopes, np.array([0.5]), 0.5, groups, forms or [Form((True,))])


def dense(rates: float, smooth: bool, left: Array, right: Array) -> Array:
    gap = np.abs(left[:, None, 0] - right[None, :, 0]) * rates
    r = np.sqrt(5.0) * gap
    return (1 + r + r * r / 3) * np.exp(-r) if smooth else np.exp(-gap)


@pytest.mark.parametrize("smooth", [True, False])
def test_a_setting_predicts_as_dense_inverses_do(smooth: bool) -> None:
    values = (np.array([smooth]), np.array([0.7]), np.array([0.1]), np.ones(1), PLAIN)
    draws = Draws(np.array([[2.0]]), *values)
    at, y, extra = np.array([2, 9, 17]), np.array([3.4, 2.2, 2.9]), np.array([0.0, 0.3, 0.0])
    belief = AveragedGP(PLACES.at(at), y, extra, PLACES, prior(), 1, draws)

    def covariance(left: Array, right: Array) -> Array:
        return 1.0 + 0.25 * (left - 0.5) @ (right - 0.5).T + 0.49 * dense(2.0, smooth, left, right)

    inverse = np.linalg.inv(covariance(X[at], X[at]) + np.diag(0.01 + extra))
    gain = covariance(X, X[at]) @ inverse
    mean = 3.0 - (X[:, 0] - 0.5) + gain @ (y - 3.0 + (X[at, 0] - 0.5))
    variance = np.diag(covariance(X, X) - gain @ covariance(X[at], X))
    assert belief.mean == pytest.approx(mean)
    assert belief.std == pytest.approx(np.sqrt(variance), abs=1e-4)


@pytest.mark.parametrize("smooth", [True, False])
def test_evidence_is_the_density_of_the_samples(smooth: bool) -> None:
    rows, y, extra = X[[0, 5, 11, 20]], np.array([0.3, -0.2, 0.9, 0.1]), np.array([0.0, 0.2, 0.0, 0.0])
    trend = 0.5 + rows @ rows.T
    flags, rates = np.array([smooth, smooth]), np.array([[1.0], [4.0]])
    said = kernels.axial_evidences(
        rows, y, trend, extra, rates, flags, np.array([0.5, 0.2]), np.array([0.01, 0.1])
    )
    for h, (signal, noise) in enumerate([(0.5, 0.01), (0.2, 0.1)]):
        matrix = trend + signal * dense(rates[h, 0], smooth, rows, rows) + np.diag(noise + extra)
        density = -0.5 * (np.linalg.slogdet(matrix)[1] + y @ np.linalg.solve(matrix, y))
        assert said[h] == pytest.approx(density)


def test_before_the_first_sample_it_says_the_prior() -> None:
    belief = AveragedGP(PLACES.at(NONE), np.empty(0), np.empty(0), PLACES, prior(), 1)
    assert belief.mean == pytest.approx(3.0 - (X[:, 0] - 0.5))
    assert (belief.std > 1.0).all()


def test_a_cliff_is_told_by_the_rough_form_and_a_bend_by_the_smooth_one() -> None:
    forms = (Form((True,)), Form((True,), smooth=False))

    def share_smooth(y: Array) -> float:
        draws = weigh(PLACES, y, np.zeros(21), prior(*forms, slope=0.0), seed=2)
        return float(draws.weights[draws.smooth].sum())

    assert share_smooth(3.0 + np.where(X[:, 0] < 0.42, 1.5, 0.0)) < 0.3
    assert share_smooth(3.0 + np.sin(3.0 * X[:, 0])) > 0.7


def test_samples_turn_the_slope_of_the_prior_round() -> None:
    at = np.array([3, 6, 9])
    belief = AveragedGP(PLACES.at(at), 3.0 + 2.0 * X[at, 0], np.zeros(3), PLACES, prior(), 1)
    assert belief.mean[9] > belief.mean[3] + 0.4
    assert belief.mean[20] > belief.mean[3]


def test_pretending_is_the_same_as_knowing() -> None:
    at, y = np.array([1, 8, 15]), np.array([3.0, 2.5, 2.0])
    draws = weigh(PLACES.at(at), y, np.zeros(3), prior(), seed=3)
    belief = AveragedGP(PLACES.at(at[:2]), y[:2], np.zeros(2), PLACES, prior(), 3, draws)
    mean, std = belief.given(np.array([[15]]), np.array([[2.0]]))
    known = AveragedGP(PLACES.at(at), y, np.zeros(3), PLACES, prior(), 3, draws)
    assert mean[0] == pytest.approx(known.mean)
    assert std[0] == pytest.approx(known.std)
    assert belief.narrowed(np.array([4, 7])).mean == pytest.approx(belief.mean[[4, 7]])


def test_pretended_samples_change_a_belief_as_real_ones_do() -> None:
    draws = Draws(np.array([[2.0]]), np.array([True]), np.array([0.7]), np.array([0.1]), np.ones(1), PLAIN)
    at, y, extra = np.array([2, 17]), np.array([3.4, 2.9]), np.array([0.0, 0.3])
    belief = AveragedGP(PLACES.at(at), y, extra, PLACES, prior(), 1, draws)
    paths, values = np.array([[5, 9], [9, 12], [1, 20]]), np.array([[3.0, 2.0], [2.5, 2.5], [4.0, 3.0]])
    means, stds = belief.given(paths, values)
    assert means.shape == stds.shape == (3, len(X))
    for path, told, mean, std in zip(paths, values, means, stds, strict=True):
        rows = PLACES.at(np.concatenate([at, path]))
        really = AveragedGP(
            rows, np.concatenate([y, told]), np.concatenate([extra, np.zeros(2)]), PLACES, prior(), 1, draws
        )
        assert mean == pytest.approx(really.mean)
        assert std == pytest.approx(really.std)
