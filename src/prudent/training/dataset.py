"""A data set in memory: one number matrix, one target, and what the columns mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

NUMERIC, CATEGORICAL = "numeric", "categorical"


@dataclass(frozen=True)
class Column:
    """A feature: its name, its kind, and for a categorical one the categories in the order of their codes."""

    name: str
    kind: str = NUMERIC
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of features, with the target if there is one.

    X (rows, columns) is float32, as ONNX will see it: a categorical value is the number of its category, a
    missing value is NaN. y is None for clustering, float64 for regression, and the number of the class
    (int64) for classification; `classes` are then the labels as the user has them, in the order of these
    numbers.
    `fingerprint` names the data: the same rows give the same one.
    """

    X: Matrix
    y: NDArray[Any] | None
    columns: tuple[Column, ...]
    classes: tuple[Any, ...] = ()
    target: str | None = None
    fingerprint: str = ""

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> Dataset:
        """Some of the rows, as a data set of its own."""
        y = None if self.y is None else self.y[rows]
        return Dataset(self.X[rows], y, self.columns, self.classes, self.target, self.fingerprint)
