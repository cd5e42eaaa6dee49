"""How a model's answer goes with one column, all others as they are: partial dependence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import CATEGORICAL, DATE, Column, Matrix
from prudent.training.ensembles.selection import Outputs
from prudent.training.insight.importance import Predict

_STEPS, _ROWS, _CATEGORIES = 16, 250, 12
_CLASSES = 4
_EPOCH = np.datetime64("1970-01-01")


@dataclass(frozen=True)
class PartialDependence:
    """The mean answer at some values of a column: numbers in order, or categories, the most frequent first.

    `answers` has a curve for each class in `classes` (its mean probability), or one of values.
    """

    column: str
    values: tuple[float | str, ...]
    answers: tuple[tuple[float, ...], ...]
    classes: tuple[str, ...] = ()


def partial_dependence(
    predict: Predict,
    X: Matrix,
    place: int,
    column: Column,
    classes: tuple[Any, ...],
    rng: np.random.Generator,
) -> PartialDependence | None:
    """Friedman, "Greedy function approximation" (2001): set the column of all rows to a value, average.

    Answered at quantiles, on some hundred rows. None where the column has one value only.
    """
    codes, shown = _grid(X[:, place], column)
    if len(codes) < 2:
        return None
    rows = X[rng.choice(len(X), min(len(X), _ROWS), replace=False)]
    every = np.tile(rows, (len(codes), 1))
    every[:, place] = np.repeat(codes, len(rows))
    means = predict(every).reshape(len(codes), len(rows), -1).mean(axis=1)
    if not classes:
        return PartialDependence(column.name, shown, (_digits(means[:, 0]),))
    told = [1] if len(classes) == 2 else np.argsort(-means.mean(axis=0), kind="stable")[:_CLASSES].tolist()
    curves = tuple(_digits(means[:, number]) for number in told)
    return PartialDependence(column.name, shown, curves, tuple(str(classes[number]) for number in told))


def _grid(values: Matrix, column: Column) -> tuple[NDArray[Any], tuple[float | str, ...]]:
    """Values to try, as the matrix has them and as people know them."""
    known = values[~np.isnan(values)]
    different, counts = np.unique(known, return_counts=True)
    if column.kind == CATEGORICAL:
        frequent = different[np.argsort(-counts, kind="stable")[:_CATEGORIES]]
        return frequent, tuple(column.categories[int(code)] for code in frequent)
    if len(different) > _STEPS:
        # Between the ends lie 98 % of the rows: beyond them few rows say anything.
        different = np.unique(np.quantile(known, np.linspace(0.01, 0.99, _STEPS)))
    if column.kind == DATE:
        return different, tuple(str(_EPOCH + np.timedelta64(int(day), "D")) for day in different)
    return different, tuple(float(f"{value:.6g}") for value in different)


def _digits(values: Outputs) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
