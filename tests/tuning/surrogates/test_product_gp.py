"""The process over (configuration, fraction): kernel, conditioning, what it says of full data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.tuning.surrogates import kernels
from prudent.tuning.surrogates.gp import Standardization
from prudent.tuning.surrogates.kernels import PRIOR_SCALE, PRIOR_SHAPE
from prudent.tuning.surrogates.product_gp import (
    FractionSamples,
    FractionShape,
    ProductHyperparameters,
    ProductProcess,
    draw_hyperparameters,
    power_law,
    proportional,
    saturating,
    stratified_normals,
    stretch_moves,
)

GROUPS = [slice(0, 1), slice(1, 3)]
SHAPES = [FractionShape(), FractionShape(saturating, plain=True), FractionShape(proportional, plain=True)]


def samples(count: int, seed: int = 0) -> FractionSamples:
    """Values that rise with the data, each configuration at its own rate."""
    rng = np.random.default_rng(seed)
    X, s = rng.random((count, 3)), rng.choice([0.02, 0.1, 0.3, 0.5], count)
    y = np.sin(3 * X[:, 0]) + X[:, 1] + (0.3 + 0.2 * X[:, 2]) * np.log(s) + 0.01 * rng.standard_normal(count)
    return FractionSamples(X, s, y, np.zeros(count))


def one_setting(width: int = 3) -> ProductHyperparameters:
    return ProductHyperparameters(
        np.full((1, width), 0.7), np.array([[1.0, -0.3, 0.6]]), np.array([0.2]), np.array([0.01])
    )


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 12),
    st.integers(0, 10_000),
    st.floats(-3, 3),
    st.floats(0.01, 3),
    st.floats(0, 2),
    st.floats(0, 5),
)
def test_the_kernel_is_positive_semi_definite(
    count: int, seed: int, tilt: float, slope: float, bend: float, trend: float
) -> None:
    some = samples(count, seed)
    for basis in (power_law, saturating, proportional):
        here = some.X, basis(some.s)
        scales, cholesky = np.array([0.5, 1.0, 2.0]), np.array([1.0, tilt, slope])
        matrix = kernels.product_kernel(here, here, scales, cholesky, bend, trend)
        assert np.allclose(matrix, matrix.T)
        assert np.linalg.eigvalsh(matrix).min() > -1e-9 * np.abs(matrix).max()
        assert np.allclose(np.diag(matrix), kernels.prior_variance(here[1], cholesky, bend, trend))


def test_without_our_terms_the_kernel_is_the_papers() -> None:
    here = np.array([[0.1], [0.7]]), saturating(np.array([0.25, 1.0]))
    cholesky = np.array([1.0, 0.4, 0.5])
    found = kernels.product_kernel(here, here, np.array([0.8]), cholesky, 0.0, 0.0)
    factor = np.array([[1.0, 0.0], [0.4, 0.5]])
    sigma = factor @ factor.T
    r = math.sqrt(5) * 0.6 / 0.8
    matern = (1 + r + r * r / 3) * math.exp(-r)
    phi = np.array([[1.0, 0.75**2], [1.0, 0.0]])
    assert found[0, 1] == pytest.approx(matern * phi[0] @ sigma @ phi[1])
    assert found[0, 0] == pytest.approx(phi[0] @ sigma @ phi[0])


def test_rows_that_share_their_parts_have_the_same_kernel() -> None:
    rng = np.random.default_rng(5)
    X, phi = rng.random((4, 2))[rng.integers(4, size=12)], power_law(rng.choice([0.1, 0.5, 1.0], 12))
    args = np.array([0.5, 2.0]), np.array([1.0, -0.4, 0.7]), 0.3, 4.0
    grid, rows = kernels.FactoredRows.of(X, phi), np.array([3, 0, 7])
    expected = kernels.product_kernel((X, phi), (X, phi), *args)
    assert np.allclose(kernels.grid_kernel(grid, grid, *args), expected)
    assert np.allclose(kernels.grid_kernel(grid.subset(rows), grid, *args), expected[rows])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_evidence_is_that_of_a_multivariate_t(shape: FractionShape) -> None:
    some, found = samples(9), one_setting()
    phi = shape.basis(some.s)
    distances = np.stack(
        [((some.X[:, None, g] - some.X[None, :, g]) ** 2).sum(axis=2) for g in (slice(0, 3),)]
    )
    common = phi, kernels.bends(phi, phi), shape.trend * (phi @ phi.T)
    got = kernels.product_log_evidences(
        distances,
        common,
        some.y,
        found.scales[:, :1] ** -2,
        found.cholesky,
        found.bend,
        np.full((1, 9), found.noise[0]),
    )
    matrix = kernels.product_kernel(
        (some.X, phi), (some.X, phi), found.scales[0], found.cholesky[0], float(found.bend[0]), shape.trend
    ) + found.noise[0] * np.eye(9)
    _, log_det = np.linalg.slogdet(matrix)
    square = some.y @ np.linalg.solve(matrix, some.y)
    expected = -0.5 * log_det - (PRIOR_SHAPE + 4.5) * math.log(PRIOR_SCALE + square / 2)
    assert got[0] == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_conditioning_is_that_of_the_textbook(shape: FractionShape) -> None:
    some, found = samples(12), one_setting()
    rng = np.random.default_rng(3)
    places, fractions = rng.random((5, 3)), np.array([1.0, 1.0, 0.1, 0.5, 1.0])
    belief = ProductProcess.fit(some, places, fractions, shape, GROUPS, 1, found)
    scale = Standardization.of(some.y)
    y = (some.y - scale.mean) / scale.deviation
    here, there = (some.X, shape.basis(some.s)), (places, shape.basis(fractions))
    args = found.scales[0], found.cholesky[0], float(found.bend[0]), shape.trend
    K = kernels.product_kernel(here, here, *args) + 0.01 * np.eye(12)
    cross = kernels.product_kernel(here, there, *args)
    part = belief.components[0]
    assert np.allclose(part.mean, cross.T @ np.linalg.solve(K, y))
    covariance = kernels.product_kernel(there, there, *args) - cross.T @ np.linalg.solve(K, cross)
    assert np.allclose(part.share, np.diag(covariance), atol=1e-8)
    every = np.arange(5)
    assert np.allclose(belief.between(0, every, every), covariance, atol=1e-8)


def test_a_test_that_comes_out_as_predicted_narrows_as_a_refit_would() -> None:
    some, found, shape = samples(12), one_setting(), FractionShape()
    rng = np.random.default_rng(3)
    places, fractions = rng.random((6, 3)), np.array([0.1, 0.5, 1.0, 1.0, 1.0, 1.0])
    belief = ProductProcess.fit(some, places, fractions, shape, GROUPS, 1, found)
    tests, targets = np.array([0, 1]), np.array([2, 3, 4, 5])
    quick = belief.std_after(tests, targets)
    before = belief.components[0]
    for row, test in enumerate(tests):
        more = FractionSamples(
            np.vstack([some.X, places[test]]),
            np.append(some.s, fractions[test]),
            np.append(some.y, belief.mean[test]),
            np.zeros(13),
        )
        after = ProductProcess.fit(more, places, fractions, shape, GROUPS, 1, found).components[0]
        # The refit scales its variances anew; what is compared is the share of the prior that is left.
        expected = np.sqrt(before.variance * after.share[targets]) * belief.scale.deviation
        assert np.allclose(quick[row], expected, rtol=1e-6)
    shrunk = belief.shrinkage(tests, targets)
    gone = before.share[targets] - (quick / belief.scale.deviation) ** 2 / before.variance
    assert np.allclose(shrunk, before.variance * gone.sum(axis=1), rtol=1e-6)


def test_it_learns_the_full_data_from_parts_and_knows_what_it_does_not_know() -> None:
    some = samples(40)
    places = np.random.default_rng(9).random((60, 3))
    truth = np.sin(3 * places[:, 0]) + places[:, 1]
    belief = ProductProcess.fit(some, places, np.ones(60), FractionShape(), GROUPS, 4)
    assert np.abs(belief.mean - truth).mean() < 0.2 * truth.std()
    assert (np.abs(belief.mean - truth) < 3 * belief.std).mean() > 0.9
    near = ProductProcess.fit(some, places, np.full(60, 0.5), FractionShape(), GROUPS, 4)
    assert near.std.mean() < belief.std.mean()


def test_hyper_parameters_are_a_sample_not_a_point() -> None:
    some = samples(15)
    standard = some.scaled(Standardization.of(some.y))
    found = draw_hyperparameters(standard, FractionShape(), GROUPS, seed=1)
    assert len(found) >= 4
    assert len(np.unique(found.scales[:, 0])) > len(found) // 2
    again = draw_hyperparameters(standard, FractionShape(), GROUPS, seed=1)
    assert (found.scales == again.scales).all()
    assert (draw_hyperparameters(standard, FractionShape(plain=True), GROUPS, seed=1).bend == 0).all()


def test_extra_noise_weighs_a_sample_down() -> None:
    some, found = samples(10), one_setting()
    doubtful = FractionSamples(some.X, some.s, some.y, np.where(np.arange(10) == 0, 50.0, 0.0))
    there = some.X[:1], some.s[:1]
    sure = ProductProcess.fit(some, *there, FractionShape(), GROUPS, 1, found)
    unsure = ProductProcess.fit(doubtful, *there, FractionShape(), GROUPS, 1, found)
    assert unsure.std[0] > sure.std[0]
    assert abs(sure.mean[0] - some.y[0]) < abs(unsure.mean[0] - some.y[0])


def test_walkers_find_the_moments_of_a_gaussian() -> None:
    rng = np.random.default_rng(0)
    centre, deviation = np.array([1.0, -2.0]), np.array([0.5, 2.0])

    def score(places: np.ndarray) -> np.ndarray:
        return -0.5 * (((places - centre) / deviation) ** 2).sum(axis=1)

    ended = stretch_moves(stratified_normals(400, 2, rng), score, 60, rng)
    assert np.allclose(ended.mean(axis=0), centre, atol=0.35)
    assert np.allclose(ended.std(axis=0), deviation, rtol=0.25)


def test_the_power_expected_is_what_is_believed_where_nothing_speaks_against_it() -> None:
    rng = np.random.default_rng(2)
    X = rng.random((6, 1))
    cost = FractionSamples(X, np.full(6, 0.1), X[:, 0] + math.log(0.1), np.zeros(6))
    there = X[:3], np.ones(3)
    belief = ProductProcess.fit(cost, *there, FractionShape(power=1.0), [slice(0, 1)], 1)
    # Only a tenth of the data was seen: all of it is expected to take ten times as long, with a doubt.
    assert np.allclose(belief.mean, X[:3, 0], atol=0.3)
    same = ProductProcess.fit(cost, X[:3], np.full(3, 0.1), FractionShape(power=1.0), [slice(0, 1)], 1)
    assert np.allclose(same.mean, cost.y[:3], atol=0.1)
    assert (belief.std > same.std).all()


@pytest.mark.parametrize(
    ("count", "spread_over", "walkers", "steps", "keep"),
    [
        (1, 192, 32, 24, 8),
        (40, 192, 32, 24, 8),
        (41, 128, 24, 16, 8),
        (100, 128, 24, 16, 8),
        (101, 64, 16, 10, 6),
        (200, 64, 16, 10, 6),
        (201, 32, 12, 6, 4),
    ],
)
def test_more_samples_draw_fewer_settings(
    count: int, spread_over: int, walkers: int, steps: int, keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def evidences(*given: Any) -> np.ndarray:
        asked.append(len(given[3]))
        return np.zeros(len(given[3]))

    monkeypatch.setattr(kernels, "product_log_evidences", evidences)
    found = draw_hyperparameters(samples(count), FractionShape(), GROUPS, seed=1)
    assert asked == [spread_over, walkers] + [walkers // 2] * (2 * steps)
    assert len(found) == keep


def test_the_bases_are_those_of_the_papers() -> None:
    s = np.array([1.0, 0.5, 0.01])
    np.testing.assert_allclose(saturating(s), [[1, 0], [1, 0.25], [1, 0.99**2]])
    np.testing.assert_allclose(proportional(s), [[1, 1], [1, 0.5], [1, 0.01]])
    np.testing.assert_allclose(power_law(s), [[1, 0], [1, math.log(2) / math.log(100)], [1, 1]], atol=1e-15)
    assert FractionShape() == FractionShape(power_law, plain=False, power=0.0)
    assert (FractionShape().trend, FractionShape(plain=True).trend) == (4.0, 0.0)


def test_bends_are_matern_in_the_second_coordinate() -> None:
    phi = np.array([[1.0, 0.0], [1.0, 0.3], [1.0, 0.9]])
    r = math.sqrt(5) * np.abs(phi[:, 1:] - phi[:, 1]) / 0.3
    np.testing.assert_allclose(kernels.bends(phi, phi), (1 + r + r**2 / 3) * np.exp(-r), rtol=1e-9)


def test_the_belief_mixes_its_settings_evenly_and_adds_the_power_expected() -> None:
    some, shape = samples(12), FractionShape(power=0.6)
    both = ProductHyperparameters(
        np.array([[0.7] * 3, [0.3, 1.2, 1.2]]),
        np.array([[1.0, -0.3, 0.6], [1.0, 0.4, 0.2]]),
        np.array([0.2, 0.05]),
        np.array([0.01, 0.1]),
    )
    rng = np.random.default_rng(3)
    places, fractions = rng.random((4, 3)), np.array([1.0, 0.1, 0.5, 1.0])
    belief = ProductProcess.fit(some, places, fractions, shape, GROUPS, 1, both, usual=2.0)
    plain = some.y - 0.6 * np.log(some.s)
    mean, deviation = plain.mean(), math.sqrt((12 * plain.var() + 3 * 4.0) / 15)
    y = (plain - mean) / deviation
    here, there = (some.X, power_law(some.s)), (places, power_law(fractions))
    means, variances, noises = [], [], []
    for h in range(2):
        args = both.scales[h], both.cholesky[h], float(both.bend[h]), 4.0
        inverse = np.linalg.inv(kernels.product_kernel(here, here, *args) + both.noise[h] * np.eye(12))
        cross = kernels.product_kernel(here, there, *args)
        signal = (PRIOR_SCALE + y @ inverse @ y / 2) / (PRIOR_SHAPE + 6 - 1)
        prior = np.diag(kernels.product_kernel(there, there, *args))
        means.append(cross.T @ inverse @ y)
        variances.append(signal * (prior - np.diag(cross.T @ inverse @ cross)))
        noises.append(signal * both.noise[h])
    assert np.allclose(belief.mean, np.mean(means, axis=0) * deviation + mean + 0.6 * np.log(fractions))
    spread_of = np.mean(variances, axis=0) + np.var(means, axis=0)
    assert np.allclose(belief.std, np.sqrt(spread_of) * deviation, rtol=1e-6)
    assert belief.noise_std == pytest.approx(math.sqrt(np.mean(noises)) * deviation)
    tests, targets = np.array([1, 2]), np.array([0, 3])
    shrunk, left = np.zeros(2), np.zeros((2, 2))
    for h, part in enumerate(belief.components):
        between = belief.between(h, tests, targets) ** 2 / (part.share[tests] + both.noise[h])[:, None]
        shrunk += part.variance * between.sum(axis=1)
        left += part.variance * (part.share[targets] - between) / 2
    assert np.allclose(belief.shrinkage(tests, targets), shrunk)
    after = np.sqrt(left + np.var(means, axis=0)[targets]) * deviation
    assert np.allclose(belief.std_after(tests, targets), after)


def test_the_first_samples_are_the_first_of_everything() -> None:
    some = FractionSamples(
        *(np.arange(12.0).reshape(4, 3), np.arange(4.0), np.arange(4.0) + 1, np.arange(4.0) + 2)
    )
    few = some.first(2)
    assert (len(few.X), few.s.tolist(), few.y.tolist(), few.extra_noise.tolist()) == (
        2,
        [0, 1],
        [1, 2],
        [2, 3],
    )


def test_duplicates_of_a_sample_have_an_evidence() -> None:
    phi, nothing = np.array([[1.0, 0.0]] * 2), np.zeros((2, 2))
    found = kernels.product_log_evidences(
        np.zeros((1, 2, 2)),
        (phi, nothing, nothing),
        np.ones(2),
        np.ones((1, 1)),
        np.array([[1.0, 0.0, 0.0]]),
        np.zeros(1),
        np.zeros((1, 2)),
    )
    assert found[0] == pytest.approx(-0.5 * math.log(1e-10) - 3.0 * math.log(1.5), rel=1e-9)
