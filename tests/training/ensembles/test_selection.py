"""Weights of an ensemble: what must win wins, and noise is not taken for more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.training.ensembles.selection import (
    MOST_MEMBERS,
    OutOfFoldOutputs,
    Outputs,
    cross_fitted,
    score_difference,
    select_weights,
)
from prudent.training.models.metrics import confusion, mcc, rmse


def _mcc(actual: np.ndarray, said: Outputs) -> float:
    return mcc(confusion(actual, said.argmax(axis=1), said.shape[1]))


def _negative_rmse(actual: np.ndarray, said: Outputs) -> float:
    return -rmse(actual, said)


def _views(models: int, rows: int, signal: float, seed: int) -> OutOfFoldOutputs:
    """Models of which each sees the truth through noise of its own."""
    rng = np.random.default_rng(seed)
    actual = rng.integers(0, 2, rows)
    odds = signal * (2 * actual - 1) + rng.normal(size=(models, rows))
    second = 1 / (1 + np.exp(-odds))
    return OutOfFoldOutputs(np.stack([1 - second, second], axis=2), actual, _mcc)


def _leader(candidates: OutOfFoldOutputs) -> Outputs:
    return candidates.outputs[candidates.ranking()[0]]


def _compared(candidates: OutOfFoldOutputs, seed: int = 0):
    """The ensemble beside the best model, on rows that chose no weights."""
    rng = np.random.default_rng(seed)
    ensemble = cross_fitted(candidates, rng)
    return score_difference(ensemble, _leader(candidates), candidates, rng)


def test_models_with_errors_of_their_own_are_better_together() -> None:
    candidates = _views(8, 600, signal=0.6, seed=1)
    weights = select_weights(candidates, np.random.default_rng(0))
    assert np.count_nonzero(weights) >= 4
    fresh = _views(8, 20_000, signal=0.6, seed=2)
    together = fresh.score_of(fresh.weighted(weights))
    assert together > max(fresh.score_of(one) for one in fresh.outputs) + 0.1
    assert _compared(candidates).is_clear


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_not_better_beyond_chance(seed: int) -> None:
    assert not _compared(_views(20, 300, signal=0.0, seed=seed), seed).is_clear


def test_copies_of_the_best_bring_nothing() -> None:
    one = _views(1, 400, signal=1.0, seed=3)
    worse = 1 - one.outputs
    candidates = OutOfFoldOutputs(np.concatenate([one.outputs, one.outputs, worse]), one.actual, _mcc)
    assert select_weights(candidates, np.random.default_rng(0)).tolist() == [1, 0, 0]
    compared = _compared(candidates)
    assert (compared.value, compared.is_clear) == (0, False)


def test_values_too_high_and_too_low_meet_in_the_middle() -> None:
    rng = np.random.default_rng(0)
    actual = rng.normal(size=200)
    outputs = np.stack([actual + 1, actual - 3, actual + rng.normal(0, 9, 200)])
    weights = select_weights(OutOfFoldOutputs(outputs, actual, _negative_rmse), rng)
    np.testing.assert_allclose(weights, [0.75, 0.25, 0], atol=0.05)


@given(st.integers(1, 14), st.integers(0, 1000))
def test_weights_are_shares(models: int, seed: int) -> None:
    candidates = _views(models, 30, signal=0.3, seed=seed)
    weights = select_weights(candidates, np.random.default_rng(seed))
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert np.count_nonzero(weights) <= MOST_MEMBERS
    assert (
        candidates.score_of(candidates.weighted(weights)) >= candidates.score_of(_leader(candidates)) - 1e-9
    )


def test_the_same_seed_gives_the_same_weights() -> None:
    candidates = _views(12, 200, signal=0.5, seed=4)
    one, other = (select_weights(candidates, np.random.default_rng(7)) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_a_row_that_was_judged_several_times_counts_once() -> None:
    candidates = _views(6, 150, signal=0.6, seed=5)
    thrice = OutOfFoldOutputs(
        np.repeat(candidates.outputs, 3, axis=1),
        np.repeat(candidates.actual, 3),
        _mcc,
        np.repeat(np.arange(150), 3),
    )
    one, three = _compared(candidates), _compared(thrice)
    assert three.value == pytest.approx(one.value)
    assert three.high - three.low == pytest.approx(one.high - one.low, rel=0.2)
