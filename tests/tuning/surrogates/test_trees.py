"""Bagged trees: honest answers, exact fantasies, reproducible whatever the order, as good as a library's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.core.seeds import rng_for
from prudent.tuning.surrogates.trees import Trees

Array = np.ndarray[Any, Any]
FLOOR = 1e-9


def answers_of(trees: Trees, Xc: Array) -> Array:
    """What each tree answers, (n_trees, m)."""
    answers: Array = trees._placed(trees._candidates(Xc))[0][2]
    return answers


@st.composite
def samples(draw: st.DrawFn) -> tuple[Array, Array]:
    """Few-valued or continuous features, duplicates and ties included."""
    n, d = draw(st.integers(1, 40)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = (
        rng.integers(0, draw(st.integers(1, 5)), (n, d)).astype(float)
        if draw(st.booleans())
        else rng.normal(size=(n, d))
    )
    y = rng.normal(size=n) * 10.0 ** draw(st.integers(-6, 6))
    return X, np.round(y, 1) if draw(st.booleans()) else y


def smooth(X: Array) -> Array:
    answer: Array = np.exp(1.5 * X[:, 0] - 2 * X[:, 1]) + np.sin(3 * X[:, 2]) * X[:, 3] + X[:, 4] ** 2
    return answer


def r2(y: Array, predicted: Array) -> float:
    return 1 - float(((y - predicted) ** 2).mean() / y.var())


@settings(deadline=None, max_examples=80)
@given(samples(), st.integers(1, 12))
def test_answers_stay_within_what_was_seen(data: tuple[Array, Array], n_trees: int) -> None:
    X, y = data
    Xc = np.vstack([X, X[:3] + 0.3, X[:3] * 50 - 100])
    trees = Trees.fit(X, y, rng_for(1, "t"), n_trees, variance_floor=FLOOR)
    answers = answers_of(trees, Xc)
    mean, std = trees.predict(Xc)
    assert answers.shape == (n_trees, len(Xc))
    assert answers.min() >= y.min()
    assert answers.max() <= y.max()
    np.testing.assert_allclose(mean, answers.mean(axis=0), rtol=1e-9, atol=1e-9 * np.abs(y).max())
    spread = answers.var(axis=0, ddof=1) if n_trees > 1 else np.zeros(len(Xc))
    np.testing.assert_allclose(std, np.sqrt(np.maximum(spread, FLOOR)), rtol=1e-6)


@settings(deadline=None, max_examples=80)
@given(samples(), st.integers(1, 3), st.integers(0, 2**32))
def test_fantasies_are_refits_to_the_last_bit(data: tuple[Array, Array], q: int, seed: int) -> None:
    X, y = data
    rng = np.random.default_rng(seed)
    pool = np.vstack([X, X + rng.normal(size=X.shape)])
    Xf = pool[rng.integers(len(pool), size=(6, q))]
    yf = rng.choice(y, size=(6, q)) + rng.integers(-1, 2, size=(6, q)) * y.std()
    mean, std = Trees.fit(X, y, rng_for(seed), variance_floor=FLOOR).fantasies(Xf, yf, pool)
    for i in range(6):
        more = np.vstack([X, Xf[i]]), np.append(y, yf[i])
        expected = Trees.fit(*more, rng_for(seed), variance_floor=FLOOR).predict(pool)
        np.testing.assert_array_equal(mean[i], expected[0])
        np.testing.assert_allclose(std[i], expected[1], rtol=1e-12)


def test_a_bootstrap_that_drew_nothing_gives_way_to_a_fantasy() -> None:
    X, y = np.array([[0.0], [1.0]]), np.array([1.0, 2.0])
    trees = Trees.fit(X, y, rng_for(1), 200, variance_floor=FLOOR)
    assert 10 < trees.bare.sum() < 50  # exp(-2) of 200
    more = Trees.fit(np.vstack([X, [[2.0]]]), np.append(y, 9.0), rng_for(1), 200, variance_floor=FLOOR)
    after, _ = trees.fantasies(np.array([[2.0]]), np.array([9.0]), X)
    np.testing.assert_array_equal(after[0], more.predict(X)[0])


@settings(deadline=None, max_examples=40)
@given(samples(), st.randoms(use_true_random=False))
def test_order_of_candidates_and_fantasies_is_nothing(data: tuple[Array, Array], random: Any) -> None:
    X, y = data
    trees = Trees.fit(X, y, rng_for(3))
    shuffle = np.array(random.sample(range(len(X)), len(X)))
    mean, std = trees.predict(X)
    np.testing.assert_array_equal(trees.predict(X[shuffle]), (mean[shuffle], std[shuffle]))
    means, _ = trees.fantasies(X, y + 1, X)
    shuffled, _ = trees.fantasies(X[shuffle], y[shuffle] + 1, X[shuffle])
    np.testing.assert_array_equal(shuffled, means[shuffle][:, shuffle])
    np.testing.assert_array_equal(trees.fantasies(X[:1], y[:1] + 1, X)[0], means[:1])


def test_seed_decides_and_threads_do_not() -> None:
    rng = rng_for(5)
    X = rng.normal(size=(50, 4))
    y = X[:, 0] * X[:, 1]
    trees = Trees.fit(X, y, rng_for(1))
    mean, _ = trees.fantasies(X, y + 1, X)
    with ThreadPoolExecutor(4) as pool:
        for answer, _ in pool.map(lambda _: trees.fantasies(X, y + 1, X), range(8)):
            np.testing.assert_array_equal(answer, mean)
    assert not np.array_equal(Trees.fit(X, y, rng_for(2)).predict(X)[0], trees.predict(X)[0])


def test_corners() -> None:
    one = Trees.fit(np.array([[1.0, 2.0]]), np.array([5.0]), rng_for(1), variance_floor=0.04)
    mean, std = one.predict(np.array([[0.0, 0.0], [9.0, 9.0]]))
    assert mean.tolist() == [5.0, 5.0]
    assert std == pytest.approx([0.2, 0.2])
    line = np.arange(20.0)[:, None]
    constant = Trees.fit(line, np.full(20, 3.3), rng_for(1))
    assert set(constant.predict(line)[0]) == {3.3}
    assert (constant.predict(line)[1] > 0).all()
    twins = Trees.fit(np.ones((6, 2)), np.array([1.0, 1, 1, 3, 3, 3]), rng_for(1), 400)
    assert twins.predict(np.ones((1, 2)))[0][0] == pytest.approx(2.0, abs=0.1)
    assert one.predict(np.empty((0, 2)))[0].shape == (0,)
    assert one.fantasies(np.empty((0, 2)), np.empty(0), np.ones((3, 2)))[0].shape == (0, 3)


def test_bootstrap_weights_are_poisson() -> None:
    weight = Trees.fit(np.arange(2000.0)[:, None], np.zeros(2000), rng_for(4), 50).samples[2]
    assert weight.mean() == pytest.approx(1.0, abs=0.02)
    assert weight.var() == pytest.approx(1.0, abs=0.03)
    assert (weight == 0).mean() == pytest.approx(np.exp(-1), abs=0.01)
    assert np.abs(np.corrcoef(weight) - np.eye(50)).max() < 0.12


def test_one_feature_that_parts_the_answers_is_found() -> None:
    """With as few features as a node looks at, every tree parts there, whatever the others say."""
    rng = rng_for(9)
    X = np.column_stack([rng.normal(size=200), np.where(rng.random(200) > 0.5, 4.0, 2.0)])
    trees = Trees.fit(X, np.where(X[:, 1] > 3, 10.0, -10.0), rng)
    Xc = np.column_stack([rng.normal(size=50) * 9, np.tile([2.0, 4.0], 25)])
    np.testing.assert_array_equal(answers_of(trees, Xc), np.tile([-10.0, 10.0], (10, 25)))


def test_as_good_as_scikit_learn() -> None:
    import sklearn.ensemble as library

    ours, theirs = [], []
    for seed in range(12):
        rng = rng_for(seed, "quality")
        X, Xt = rng.random((60, 6)), rng.random((400, 6))
        ours.append(r2(smooth(Xt), Trees.fit(X, smooth(X), rng, 20).predict(Xt)[0]))
        model = library.ExtraTreesRegressor(20, max_features=0.67, bootstrap=True, random_state=seed)
        theirs.append(r2(smooth(Xt), model.fit(X, smooth(X)).predict(Xt)))
    assert np.mean(ours) > np.mean(theirs) - 0.03
    assert np.mean(ours) > 0.6


GOOD = np.ones((3, 2)), np.arange(3.0)


@pytest.mark.parametrize(
    ("X", "y", "how", "remedy"),
    [
        (np.array([[1.0, np.nan], [1.0, 2.0]]), np.ones(2), {}, "drop or fill"),
        (np.ones((2, 2)), np.array([1.0, np.inf]), {}, "drop or fill"),
        (np.array([["a", "b"]]), np.ones(1), {}, "encode words"),
        (np.ones((3, 2)), np.ones(4), {}, "3 rows and y 4"),
        (np.empty((0, 2)), np.empty(0), {}, "1 or more"),
        (np.ones(3), np.ones(3), {}, "rows x features"),
        (np.ones((3, 2)), np.ones((3, 1)), {}, "one number a row"),
        (*GOOD, {"n_trees": 0}, "at least 1"),
        (*GOOD, {"variance_floor": 0.0}, "positive"),
    ],
)
def test_bad_samples_are_refused(X: Array, y: Array, how: dict[str, Any], remedy: str) -> None:
    with pytest.raises(BadInput, match=remedy):
        Trees.fit(X, y, rng_for(1), **how)


@pytest.mark.parametrize(
    ("ask", "remedy"),
    [
        (lambda t: t.predict(np.full((1, 2), np.nan)), "drop or fill"),
        (lambda t: t.predict(np.ones((1, 3))), "3 features, the samples 2"),
        (lambda t: t.fantasies(np.ones((2, 2)), np.ones(3), np.ones((1, 2))), "or \\(k, q, 2\\)"),
        (lambda t: t.fantasies(np.ones((2, 3)), np.ones(2), np.ones((1, 2))), "or \\(k, q, 2\\)"),
        (lambda t: t.fantasies(np.ones((2, 2)), np.array([1.0, np.nan]), np.ones((1, 2))), "drop or fill"),
    ],
)
def test_bad_questions_are_refused(ask: Callable[[Trees], Any], remedy: str) -> None:
    trees = Trees.fit(*GOOD, rng_for(1))
    with pytest.raises(BadInput, match=remedy):
        ask(trees)


def test_what_is_not_said_of_trees_is_as_documented() -> None:
    X = rng_for(1).random((9, 6))
    trees = Trees.fit(X, X[:, 0], rng_for(1))
    assert answers_of(trees, X).shape[0] == 10
    assert trees.variance_floor == pytest.approx(1e-4 * X[:, 0].var() + 1e-12)


def test_numbers_up_to_a_googol_are_taken() -> None:
    most = np.array([[1e100], [-1e100]])
    assert Trees.fit(most, np.array([1.0, 2.0]), rng_for(1)).predict(most)[0].shape == (2,)
    with pytest.raises(BadInput, match="above 1e100"):
        Trees.fit(1.01 * most, np.array([1.0, 2.0]), rng_for(1))


def test_one_tree_deviates_by_the_floor() -> None:
    X = rng_for(1).random((9, 2))
    std = Trees.fit(X, X[:, 0], rng_for(1), 1, variance_floor=0.25).predict(X)[1]
    assert std == pytest.approx(np.full(9, 0.5))
