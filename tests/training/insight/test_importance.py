"""Importance and dependence of columns where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from prudent.training.data.dataset import CATEGORICAL, DATE, Column
from prudent.training.ensembles.selection import Outputs
from prudent.training.insight.dependence import partial_dependence
from prudent.training.insight.importance import REPEATS, permutation_importance
from prudent.training.models.metrics import rmse

COLUMNS = list(enumerate(["strong", "weak", "unused", "noise"]))


def _score(actual: np.ndarray, said: Outputs) -> float:
    return -rmse(actual, said)


def _model(rows: np.ndarray) -> Outputs:
    """It has learned a little of the noise too."""
    return 3.0 * rows[:, 0] + 1.0 * rows[:, 1] + 0.05 * rows[:, 3].astype(float)


def _rows(seed: int = 0, rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4)).astype(np.float32)
    return X, 3.0 * X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=rows)


def test_columns_are_ranked_as_they_matter() -> None:
    X, y = _rows()
    found = permutation_importance(_model, X, y, COLUMNS, _score, np.random.default_rng(0))
    by_name = {each.column: each for each in found.columns}
    assert [each.column for each in found.columns[:2]] == ["strong", "weak"]
    assert [by_name[name].matters for _, name in COLUMNS] == [True, True, False, False]
    assert by_name["unused"].value == 0
    # Without the column the error is that of two rows that have nothing to do with each other.
    assert by_name["strong"].value == pytest.approx(np.sqrt(2 * 9 + 0.25) - 0.5, rel=0.1)
    assert (found.rows, found.repeats, found.left_out) == (600, REPEATS, 0)


def test_the_interval_holds_what_other_rows_say() -> None:
    found = [
        permutation_importance(_model, *_rows(seed, 200), COLUMNS, _score, np.random.default_rng(seed))
        for seed in range(20)
    ]
    weak = [next(each for each in one.columns if each.column == "weak") for one in found]
    truth = float(np.mean([each.value for each in weak]))
    assert sum(each.low <= truth <= each.high for each in weak) >= 16


def test_what_there_was_no_time_for_is_told() -> None:
    asked: list[int] = []

    def is_over() -> bool:
        asked.append(1)
        return len(asked) > 1

    X, y = _rows()
    found = permutation_importance(_model, X, y, COLUMNS, _score, np.random.default_rng(0), is_over)
    assert [each.column for each in found.columns] == ["strong", "weak"]
    assert found.left_out == 2


def test_rows_are_left_as_they_were() -> None:
    X, y = _rows()
    before = X.copy()
    permutation_importance(_model, X, y, COLUMNS, _score, np.random.default_rng(0))
    np.testing.assert_array_equal(X, before)


def test_a_rising_answer_is_drawn_rising() -> None:
    X, _ = _rows()
    told = partial_dependence(_model, X, 0, Column("strong"), (), np.random.default_rng(0))
    assert told is not None
    (answers,) = told.answers
    slopes = np.diff(answers) / np.diff(np.asarray(told.values, float))
    np.testing.assert_allclose(slopes, 3.0, rtol=1e-3)
    assert told.classes == ()


def test_a_class_is_told_by_its_probability_and_a_category_by_its_name() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, 300), rng.normal(size=300)]).astype(np.float32)
    X[:9, 0] = np.nan

    def predict(rows: np.ndarray) -> Outputs:
        second = np.where(rows[:, 0] == 2, 0.9, 0.2)
        return np.column_stack([1 - second, second])

    column = Column("colour", CATEGORICAL, ("blue", "green", "red"))
    told = partial_dependence(predict, X, 0, column, ("no", "yes"), rng)
    assert told is not None
    assert dict(zip(told.values, told.answers[0], strict=True)) == {"red": 0.9, "blue": 0.2, "green": 0.2}
    assert told.classes == ("yes",)


def test_a_column_of_one_value_has_no_dependence() -> None:
    X = np.ones((50, 1), np.float32)
    assert partial_dependence(_model, X, 0, Column("same"), (), np.random.default_rng(0)) is None


def test_dates_are_told_as_dates() -> None:
    X = np.array([[0.0], [365.0]])
    told = partial_dependence(
        lambda rows: rows[:, 0], X, 0, Column("day", DATE), (), np.random.default_rng(0)
    )
    assert told is not None
    assert told.values == ("1970-01-01", "1971-01-01")
