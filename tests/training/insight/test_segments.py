"""Rows where a model errs more than elsewhere, beyond chance."""

from __future__ import annotations

import numpy as np
import pytest

from prudent.training.data.dataset import CATEGORICAL, Column
from prudent.training.insight.segments import row_errors, weak_segments

COLUMNS = (Column("town", CATEGORICAL, ("A", "B", "C")), Column("age"))


def _rows(seed: int = 0, rows: int = 900) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(0, 3, rows), rng.uniform(0, 80, rows)]).astype(np.float32)


def test_a_town_where_it_errs_twice_as_much_is_found() -> None:
    X = _rows()
    rng = np.random.default_rng(1)
    errors = np.abs(rng.normal(size=900)) * np.where(X[:, 0] == 1, 2.0, 1.0)
    (found,) = weak_segments(errors, X, COLUMNS, [0, 1])
    assert (found.column, found.label, found.rows) == ("town", "B", int((X[:, 0] == 1).sum()))
    assert found.error / found.elsewhere == pytest.approx(2, rel=0.15)


def test_an_end_of_a_number_and_missing_values_are_found() -> None:
    X = _rows()
    X[:60, 1] = np.nan
    wrong = np.random.default_rng(2).random(900) < np.where(np.isnan(X[:, 1]) | (X[:, 1] > 60), 0.5, 0.1)
    found = weak_segments(wrong.astype(float), X, COLUMNS, [1])
    assert {each.label for each in found} == {"missing", next(f.label for f in found if "above" in f.label)}


@pytest.mark.parametrize("seed", range(8))
def test_chance_is_not_a_segment(seed: int) -> None:
    errors = np.abs(np.random.default_rng(100 + seed).normal(size=900))
    assert weak_segments(errors, _rows(seed), COLUMNS, [0, 1]) == ()


def test_errors_of_classes_and_values() -> None:
    assert row_errors(np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0, 0])).tolist() == [0, 1]
    assert row_errors(np.array([1.0, 5.0]), np.array([2.0, 3.0])).tolist() == [1, 2]
