"""Planted leaks are told, each with its remedy; honest data raise no alarm."""

from __future__ import annotations

import numpy as np
import pytest

from prudent.training.data.dataset import CATEGORICAL, Column
from prudent.training.engines.engine import UnseenRows
from prudent.training.insight.leakage import column_powers, copies, leakage_warnings

COLUMNS = (Column("a"), Column("b"), Column("c", CATEGORICAL, ("x", "y", "z")))


def _data(seed: int = 0, rows: int = 400, regression: bool = False) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3)).astype(np.float32)
    X[:, 2] = rng.integers(0, 3, rows)
    y = 2 * X[:, 0] + X[:, 1] + rng.normal(size=rows)
    return X, y.astype(float) if regression else (y > 0).astype(int)


def _halves(X: np.ndarray, y: np.ndarray) -> tuple[UnseenRows, UnseenRows]:
    numbers = np.arange(len(X))
    cut = 3 * len(X) // 4
    return (
        UnseenRows(X[:cut], y[:cut], numbers[:cut]),
        UnseenRows(X[cut:], y[cut:], numbers[cut:]),
    )


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_honest_data_raise_no_alarm(seed: int, regression: bool) -> None:
    assert leakage_warnings(*_halves(*_data(seed, regression=regression)), COLUMNS) == ()


@pytest.mark.parametrize("regression", [False, True])
def test_a_column_that_knows_the_answer(regression: bool) -> None:
    X, y = _data(regression=regression)
    X[:, 1] = 7.0 - 0.01 * y + 1e-5 * np.random.default_rng(9).normal(size=len(y))
    (said,) = leakage_warnings(*_halves(X, y), COLUMNS)
    assert said.startswith('"b" alone predicts the target almost perfectly (')
    assert said.endswith('leave it out with "features".')


def test_a_value_that_is_missing_only_for_one_class_knows_the_answer() -> None:
    X, y = _data()
    X[y == 1, 0] = np.nan
    (said,) = leakage_warnings(*_halves(X, y), COLUMNS)
    assert '"a" alone' in said


def test_a_category_that_knows_the_answer() -> None:
    X, _ = _data()
    y = (X[:, 2] == 1).astype(int)
    (said,) = leakage_warnings(*_halves(X, y), COLUMNS)
    assert '"c" alone' in said


def test_a_strong_column_is_no_leak() -> None:
    X, y = _data()
    X[:, 0] = y + np.random.default_rng(1).normal(0, 0.3, len(y))
    powers = dict(column_powers(_halves(X, y)[0], COLUMNS))
    assert 0.7 < powers[0] < 0.97
    assert leakage_warnings(*_halves(X, y), COLUMNS) == ()


def test_copies_in_both_parts() -> None:
    X, y = _data()
    learned, judged = _halves(X, y)
    for place in range(8):
        judged.X[place], judged.y[place] = learned.X[3 * place], learned.y[3 * place]
    judged.y[7] = 1 - judged.y[7]  # the same features with another answer are no copy
    assert copies(learned, judged) == 7
    (said,) = leakage_warnings(learned, judged, COLUMNS)
    assert said.startswith("7 of 100 rows that judge models (7 %) are copies")


def test_in_folds_a_row_is_no_copy_of_itself() -> None:
    X, y = _data()
    whole = UnseenRows(X, y, np.arange(len(X)))
    assert copies(whole, whole) == 0
    X[5], y[5] = X[3], y[3]
    assert copies(whole, whole) == 2


def test_rows_that_are_alike_by_chance_are_no_copies() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (400, 3)).astype(np.float32), rng.integers(0, 2, 400)
    assert copies(*_halves(X, y)) > 50
    assert leakage_warnings(*_halves(X, y), COLUMNS) == ()


def test_missing_values_do_not_hide_a_copy() -> None:
    X, y = _data()
    X[::2, 1] = np.nan
    learned, judged = _halves(X, y)
    judged.X[:5], judged.y[:5] = learned.X[:5], learned.y[:5]
    assert copies(learned, judged) == 5


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("customer_id", np.random.default_rng(0).permutation(10**6)[:400]),
        ("count", np.arange(1000, 1400)),
    ],
)
def test_a_column_that_numbers_rows(name: str, values: np.ndarray) -> None:
    X, y = _data()
    X[:, 1] = values
    (said,) = leakage_warnings(*_halves(X, y), (Column("a"), Column(name), COLUMNS[2]))
    assert said.startswith(f'"{name}" numbers or names the rows')


def test_names_of_rows_and_honest_whole_numbers() -> None:
    X, y = _data()
    X[:, 2] = np.arange(400)
    names = Column("name", CATEGORICAL, tuple(f"n{number:03}" for number in range(400)))
    (said,) = leakage_warnings(*_halves(X, y), (Column("a"), Column("b"), names))
    assert said.startswith('"name" numbers or names')
    X[:, 2] = np.random.default_rng(0).permutation(10**6)[:400]
    assert leakage_warnings(*_halves(X, y), (Column("a"), Column("b"), Column("income"))) == ()


def test_copies_do_not_hide_a_column_that_numbers_rows() -> None:
    X, y = _data()
    X[:, 1] = np.arange(400)
    X[300:320], y[300:320] = X[:20], y[:20]
    twins, numbers = leakage_warnings(*_halves(X, y), (Column("a"), Column("at"), COLUMNS[2]))
    assert "20 of 100 rows that judge models (20 %) are copies" in twins
    assert numbers.startswith('"at" numbers or names the rows')
