"""A data set inside Spark: numbers in columns, cached once, with what the columns mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from prudent.training.data.dataset import CATEGORICAL, Column

ROW, LABEL, FEATURES, PART, PLACE = "row", "label", "features", "part", "place"


@dataclass(frozen=True, eq=False)
class SparkDataset:
    """A cached frame of `row` (a number for each row), `label` (unless there is none) and the features.

    Features are one vector column `features` where all are numbers and none is missing; else a column for
    each, `c0` and on: categories by their numbers, NaN where a value is missing. All are float32 numbers, as
    the exported model will get them.
    """

    frame: Any
    columns: tuple[Column, ...]
    classes: tuple[Any, ...]
    target: str | None
    rows: int
    fingerprint: str
    is_vector: bool
    missing: tuple[bool, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the frame that hold features."""
        return (FEATURES,) if self.is_vector else column_names(len(self.columns))

    @property
    def categorical(self) -> tuple[bool, ...]:
        return tuple(column.kind == CATEGORICAL for column in self.columns)

    @property
    def description(self) -> Mapping[str, Any]:
        """How raw rows become the matrix that a model takes."""
        return {
            "columns": [asdict(column) for column in self.columns],
            "target": self.target,
            "classes": list(self.classes),
        }


def column_names(number: int) -> tuple[str, ...]:
    return tuple(f"c{place}" for place in range(number))
