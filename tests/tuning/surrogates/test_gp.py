"""The Gaussian process beside the textbook: dense inverses, no factors, no shortcuts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from prudent.tuning.surrogates import kernels as gp_kernels
from prudent.tuning.surrogates.gp import (
    GaussianProcess,
    GPComponent,
    GPHyperparameters,
    Standardization,
    safe_cholesky,
    weigh_hyperparameters,
)

Array = np.ndarray[Any, Any]
GROUPS = [slice(0, 1), slice(1, 3)]
PRIOR_SHAPE, PRIOR_SCALE = 2.0, 1.0
SETTINGS = GPHyperparameters(
    np.array([[0.4, 1.1, 1.1], [0.9, 0.6, 0.6], [2.0, 2.0, 2.0]]),
    np.array([0.01, 0.05, 0.2]),
    np.array([0.5, 0.3, 0.2]),
)


def data(count: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.random((count, 3))
    return X, np.sin(4 * X[:, 0]) + 2 * X[:, 1] * X[:, 2] + 5.0


def matern(left: Array, right: Array, scales: Array) -> Array:
    out = np.empty((len(left), len(right)))
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            r = math.sqrt(5.0) * float(np.linalg.norm((a - b) / scales))
            out[i, j] = (1.0 + r + r**2 / 3.0) * math.exp(-r)
    return out


def log_evidence(K: Array, y: Array) -> float:
    """Of a multivariate t, up to a constant: the signal variance has an inverse-gamma prior."""
    _, log_det = np.linalg.slogdet(K)
    square = float(y @ np.linalg.inv(K) @ y)
    return float(-0.5 * log_det - (PRIOR_SHAPE + len(y) / 2) * math.log(PRIOR_SCALE + square / 2))


def posterior(X: Array, y: Array, there: Array, scales: Array, noise: Array) -> tuple[Array, Array, float]:
    """Mean, share of the prior variance that is left, and the signal variance that is expected."""
    inverse = np.linalg.inv(matern(X, X, scales) + np.diag(noise))
    cross = matern(X, there, scales)
    share = 1.0 - np.diag(cross.T @ inverse @ cross)
    # The mean of an inverse gamma of shape a and scale b is b / (a - 1).
    signal = (PRIOR_SCALE + float(y @ inverse @ y) / 2) / (PRIOR_SHAPE + len(y) / 2 - 1)
    return cross.T @ inverse @ y, share, signal


def mixed(parts: list[tuple[Array, Array]], weights: Array, scale: Standardization) -> tuple[Array, Array]:
    """Mean and deviation of a mixture of (mean, variance), brought back to the scale of y."""
    weights = weights / weights.sum()
    mean = sum(w * m for w, (m, _) in zip(weights, parts, strict=True))
    square = sum(w * (v + m**2) for w, (m, v) in zip(weights, parts, strict=True))
    return mean * scale.deviation + scale.mean, np.sqrt(square - mean**2) * scale.deviation


def test_the_kernel_is_matern() -> None:
    X, _ = data(5)
    scales = np.array([0.3, 1.0, 2.5])
    np.testing.assert_allclose(gp_kernels.matern52(X, X[:3], scales), matern(X, X[:3], scales), rtol=1e-9)


def test_the_evidence_is_that_of_the_dense_matrix() -> None:
    X, y = data(7)
    y = y - y.mean()
    scales = np.array([[0.4, 1.1], [2.0, 0.5]])
    noise = np.array([[0.01] * 7, np.linspace(0.01, 2.0, 7)])
    distances = np.stack([((X[:, None, g] - X[None, :, g]) ** 2).sum(axis=2) for g in GROUPS])
    found = gp_kernels.log_evidences(distances, y, scales**-2, noise)
    for h in range(2):
        K = matern(X, X, scales[h][[0, 1, 1]]) + np.diag(noise[h])
        assert found[h] == pytest.approx(log_evidence(K, y), rel=1e-7)


def test_duplicates_of_a_row_have_an_evidence() -> None:
    found = gp_kernels.log_evidences(np.zeros((1, 2, 2)), np.ones(2), np.ones((1, 1)), np.zeros((1, 2)))
    # The second pivot is 0, of which 1e-10 is made; what is left of the second value is 0.
    assert found[0] == pytest.approx(-0.5 * math.log(1e-10) - 3.0 * math.log(1.5), rel=1e-9)


def test_settings_weigh_as_evidence_times_prior() -> None:
    """Length scales are log-normal around 1 (deviation 1), noise around 0.005 (1.5)."""
    X, y = data(12)
    y = (y - y.mean()) / y.std()
    extra = np.where(np.arange(12) == 3, 0.5, 0.0)
    found = weigh_hyperparameters(X, y, GROUPS, seed=5, extra_noise=extra)
    assert (found.scales[:, 1] == found.scales[:, 2]).all()
    logs = np.column_stack([np.log(found.scales[:, :2]), np.log(found.noise / 0.005) / 1.5])
    scores = np.array(
        [
            log_evidence(matern(X, X, scales) + np.diag(noise + extra), y)
            for scales, noise in zip(found.scales, found.noise, strict=True)
        ]
    )
    scores -= 0.5 * (logs**2).sum(axis=1)
    expected = np.exp(scores - scores.max())
    np.testing.assert_allclose(found.weights, expected / expected.sum(), rtol=1e-6)
    assert (np.diff(found.weights) <= 0).all()


@pytest.mark.parametrize(
    ("count", "spread", "refined", "keep"),
    [(1, 96, 48, 8), (40, 96, 48, 8), (41, 64, 32, 4), (120, 64, 32, 4), (121, 32, 16, 2)],
)
def test_more_samples_weigh_fewer_settings(
    count: int, spread: int, refined: int, keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def evidences(distances: Array, y: Array, weights: Array, noise: Array) -> Array:
        asked.append(len(weights))
        return np.zeros(len(weights))

    monkeypatch.setattr(gp_kernels, "log_evidences", evidences)
    found = weigh_hyperparameters(*data(count), GROUPS, seed=1)
    assert asked == [spread, refined]
    assert len(found.weights) == keep
    assert found.weights.sum() == pytest.approx(1.0)


def test_the_belief_is_the_mixture_of_its_settings() -> None:
    (X, y), there = data(8), np.random.default_rng(9).random((5, 3))
    extra = np.linspace(0.0, 0.7, 8)
    belief = GaussianProcess.fit(X, y, there, GROUPS, 1, SETTINGS, extra)
    scale = Standardization(float(y.mean()), float(y.std()))
    standard = (y - scale.mean) / scale.deviation
    parts = []
    for scales, noise in zip(SETTINGS.scales, SETTINGS.noise, strict=True):
        mean, share, signal = posterior(X, standard, there, scales, noise + extra)
        parts.append((mean, signal * share))
    mean, std = mixed(parts, SETTINGS.weights, scale)
    np.testing.assert_allclose(belief.mean, mean, rtol=1e-7)
    np.testing.assert_allclose(belief.std, std, rtol=1e-6)


def test_settings_that_weigh_next_to_nothing_are_left_out() -> None:
    (X, y), weights = data(4), np.array([1e-3, 0.9979, 0.0011])
    belief = GaussianProcess.fit(
        X, y, X, GROUPS, 1, GPHyperparameters(SETTINGS.scales, SETTINGS.noise, weights)
    )
    assert [part.noise for part in belief.components] == [0.05, 0.2]
    assert [part.weight for part in belief.components] == [0.9979, 0.0011]


def test_a_belief_at_fewer_candidates_is_the_same_there() -> None:
    (X, y), there = data(8), np.random.default_rng(9).random((5, 3))
    belief, chosen = GaussianProcess.fit(X, y, there, GROUPS, 1, SETTINGS), np.array([3, 0])
    narrow = belief.narrowed(chosen)
    np.testing.assert_allclose(narrow.mean, belief.mean[chosen], rtol=1e-12)
    np.testing.assert_allclose(narrow.std, belief.std[chosen], rtol=1e-12)
    np.testing.assert_array_equal(narrow.candidates, there[chosen])


@pytest.mark.parametrize("path", [[1], [1, 4], [2, 2], [0, 3, 1]])
def test_what_is_pretended_is_conditioned_on_as_a_sample_is(path: list[int]) -> None:
    (X, y), there = data(8), np.random.default_rng(9).random((5, 3))
    belief = GaussianProcess.fit(X, y, there, GROUPS, 1, SETTINGS)
    values = np.linspace(4.0, 7.0, len(path))
    pretended = np.array([path, path[::-1]]), np.array([values, values[::-1]])
    for keep in (2, 3):
        mean, std = belief.given(*pretended, keep)
        scale = belief.scale
        standard = (np.append(y, values) - scale.mean) / scale.deviation
        parts = []
        for h in range(keep):
            scales, noise = SETTINGS.scales[h], SETTINGS.noise[h]
            _, _, signal = posterior(X, standard[:8], there, scales, np.full(8, noise))
            more = np.vstack([X, there[path]])
            part_mean, share, _ = posterior(more, standard, there, scales, np.full(len(more), noise))
            parts.append((part_mean, signal * share))
        expected_mean, expected_std = mixed(parts, SETTINGS.weights[:keep], scale)
        np.testing.assert_allclose(mean, np.tile(expected_mean, (2, 1)), rtol=1e-6)
        np.testing.assert_allclose(std, np.tile(expected_std, (2, 1)), rtol=1e-5)
    np.testing.assert_array_equal(belief.given(*pretended)[0], belief.given(*pretended, 2)[0])


def test_nothing_is_ever_certain() -> None:
    """Where a sample is, without noise, a billionth of the variance is left; of a mixture 1e-10."""
    one = GPHyperparameters(np.ones((1, 1)), np.zeros(1), np.ones(1))
    X = np.zeros((1, 1))
    belief = GaussianProcess.fit(X, np.full(1, 50.0), X, [slice(0, 1)], 1, one)
    # One sample: its deviation is 1e-6 of 50, the signal's variance expected 1 / 1.5.
    assert belief.components[0].share == pytest.approx([1e-9])
    assert belief.std == pytest.approx([math.sqrt(1e-9 / 1.5) * 5e-5], rel=1e-6)
    same = np.zeros((1, 1), np.int64)
    assert belief.given(same, np.full((1, 1), 50.0))[1][0] == pytest.approx(belief.std, rel=1e-6)
    sure = GPComponent(np.ones(1), 0.0, np.empty(0), np.empty((0, 1)), 1e-11, 1.0)
    known = GaussianProcess([sure], Standardization(0.0, 1.0), X)
    assert known.std == pytest.approx([1e-5])
    assert known.given(same, np.zeros((1, 1)))[1] == pytest.approx(np.array([[1e-5]]))


@pytest.mark.parametrize(
    ("y", "usual", "mean", "deviation"),
    [
        ([], None, 0.0, 1e-6),
        ([], 2.0, 0.0, 2.0),
        ([3.0], None, 3.0, 3e-6),
        ([0.5], None, 0.5, 1e-6),
        ([-4.0], None, -4.0, 4e-6),
        ([1.0, 5.0], None, 3.0, 2.0),
        # Three samples' worth of the usual deviation: (2 · 4 + 3 · 9) / 5.
        ([1.0, 5.0], 3.0, 3.0, math.sqrt(7.0)),
    ],
)
def test_values_are_standardised(y: list[float], usual: float | None, mean: float, deviation: float) -> None:
    scale = Standardization.of(np.array(y), usual)
    assert scale.mean == pytest.approx(mean)
    assert scale.deviation == pytest.approx(deviation)


def test_a_fit_takes_the_usual_deviation_into_account() -> None:
    X, y = data(3)
    belief = GaussianProcess.fit(X, y, X, GROUPS, 1, SETTINGS, usual=7.0)
    assert belief.scale == Standardization.of(y, 7.0)


def test_as_much_is_added_to_the_diagonal_as_it_takes() -> None:
    np.testing.assert_allclose(safe_cholesky(np.zeros((2, 2))), 1e-5 * np.eye(2))
    np.testing.assert_allclose(safe_cholesky(-1e-9 * np.eye(2)), math.sqrt(9e-9) * np.eye(2), rtol=1e-6)
    good = np.array([[2.0, 0.6], [0.6, 1.0]])
    factor = safe_cholesky(good)
    np.testing.assert_allclose(factor @ factor.T, good, rtol=1e-9)
    assert factor[0, 1] == 0.0
