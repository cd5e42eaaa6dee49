"""Features as expressions of Spark's SQL, on their way from the columns of a frame to one vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import CATEGORICAL, Column
from prudent.training.engines.date_parts import PARTS

ENCODING_PART = "encoding_part"
"""The column of training rows that says in which part of the target encoding they are."""


@dataclass(frozen=True)
class FeatureExpression:
    """One feature: an SQL expression, and how many categories it numbers, 0 for a number.

    `learned` is what training rows have in place of it, where that differs.
    """

    value: str
    categories: int = 0
    learned: str | None = None

    @classmethod
    def of(cls, column: Column, name: str) -> FeatureExpression:
        """The feature that a column of a frame holds."""
        many = max(len(column.categories), 1) if column.kind == CATEGORICAL else 0
        return cls(f"CAST({name} AS DOUBLE)", many)

    @property
    def is_category(self) -> bool:
        return self.categories > 0

    @property
    def trained(self) -> str:
        """The expression for training rows."""
        return self.value if self.learned is None else self.learned

    @property
    def known(self) -> str:
        """The same, null where a value is missing."""
        return f"CASE WHEN isnan({self.trained}) THEN NULL ELSE {self.trained} END"

    def through(self, change: Callable[[str], str]) -> FeatureExpression:
        """The feature after a change of its values."""
        learned = None if self.learned is None else change(self.learned)
        return replace(self, value=change(self.value), learned=learned)

    def code(self) -> str:
        """The number of its category, or the number behind the last one where it is missing."""
        return f"CASE WHEN isnan({self.trained}) THEN {self.categories} ELSE CAST({self.trained} AS INT) END"

    def encoded(self, table: NDArray[np.float64], own: NDArray[np.float64]) -> FeatureExpression:
        """A number for each category: of a table, and for training rows of `own` (parts, categories)."""
        place = replace(self, learned=None).code()
        learned = _entry(own.ravel(), f"{ENCODING_PART} * {own.shape[1]} + {self.code()}")
        return FeatureExpression(_entry(table, place), learned=learned)


def part_of_date(days: FeatureExpression, part: str) -> FeatureExpression:
    """The year, month, day, weekday or hour of a feature that holds days since 1970."""
    date = "date_from_unix_date(CAST(floor({0}) AS INT))"
    said = {
        "year": f"year({date})",
        "month": f"month({date})",
        "day": f"day({date})",
        "weekday": f"weekday({date}) + 1",
        "hour": "floor(({0} - floor({0})) * 24D + 1e-6D)",
    }
    assert set(said) == set(PARTS)
    return days.through(
        lambda v: f"CASE WHEN isnan({v}) THEN {v} ELSE CAST({said[part].format(v)} AS DOUBLE) END"
    )


def sql_number(number: float) -> str:
    """A number as Spark's SQL writes a double.

    >>> sql_number(-1e-05)
    "CAST('-1e-05' AS DOUBLE)"
    """
    return f"CAST('{float(number)!r}' AS DOUBLE)"


def _entry(numbers: Sequence[float] | NDArray[np.float64], place: str) -> str:
    """The number at a place that begins at 0; all of them are one text, which Spark parses once."""
    told = ",".join(repr(float(number)) for number in numbers)
    return f"element_at(CAST(split('{told}', ',') AS ARRAY<DOUBLE>), {place} + 1)"
