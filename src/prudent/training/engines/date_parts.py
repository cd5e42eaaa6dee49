"""Dates as numbers that a model can use: year, month, day, weekday, hour, and the day itself.

A date is held as days since 1970-01-01 (UTC where a zone is said), with the time as a fraction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import Matrix
from prudent.training.engines.onnx_export import OnnxGraph

PARTS = ("year", "month", "day", "weekday", "hour")
_DAYS_TO_1970 = 719_468  # from the first of March of the year 0, with which the count begins
_HOUR_ROUNDING = 1e-6  # hours; an hour as a fraction of a day may fall short of it by less


@dataclass(frozen=True, eq=False)
class SplitDates:
    """Columns of dates become columns of their parts, behind all others.

    `kept` are the columns that stay. First come the years of all `sources`, then the months, and so on; the
    days themselves are last.
    """

    kept: NDArray[np.int64]
    sources: NDArray[np.int64]

    def apply(self, X: Matrix) -> Matrix:
        days = X[:, self.sources].astype(np.float64)
        return np.concatenate([X[:, self.kept], *parts_of(days, np.floor), days], axis=1, dtype=X.dtype)

    def graph(self, graph: OnnxGraph, rows: str) -> str:
        chosen = graph.add("Gather", rows, graph.constant(self.sources, np.int64), axis=1)
        days = _GraphNumbers(graph, graph.to_double(chosen))
        parts = [graph.cast(part.name, graph.kind) for part in parts_of(days, _GraphNumbers.floor)]
        rest = graph.add("Gather", rows, graph.constant(self.kept, np.int64), axis=1)
        return graph.add("Concat", *([rest] if len(self.kept) else []), *parts, chosen, axis=1)

    def names(self, names: Sequence[str]) -> list[str]:
        parts = [f"{part} of {names[source]}" for part in (*PARTS, "days") for source in self.sources]
        return [*(names[column] for column in self.kept), *parts]


def parts_of(days: Any, floor: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Year, month, day, weekday (1 for Monday) and hour, for anything that has + - * / and a floor.

    The calendar is counted from March, so that the leap day is the last of its year; see Howard Hinnant,
    "chrono-Compatible Low-Level Date Algorithms".

    >>> [float(part) for part in parts_of(np.float64(19_782.75), np.floor)]  # 2024-02-29 18:00
    [2024.0, 2.0, 29.0, 4.0, 18.0]
    """
    whole = floor(days)
    since = whole + _DAYS_TO_1970
    era = floor(since / 146_097)
    of_era = since - era * 146_097
    leaps = floor(of_era / 1460) - floor(of_era / 36_524) + floor(of_era / 146_096)
    year_of_era = floor((of_era - leaps) / 365)
    of_year = of_era - (year_of_era * 365 + floor(year_of_era / 4) - floor(year_of_era / 100))
    from_march = floor((of_year * 5 + 2) / 153)
    day = of_year - floor((from_march * 153 + 2) / 5) + 1
    turned = floor((from_march + 2) / 12)  # 1 in January and February, which belong to the next year
    month = from_march + 3 - turned * 12
    year = year_of_era + era * 400 + turned
    weekday = whole + 3 - floor((whole + 3) / 7) * 7 + 1
    hour = floor((days - whole) * 24 + _HOUR_ROUNDING)
    return year, month, day, weekday, hour


@dataclass(frozen=True)
class _GraphNumbers:
    """A result of a graph with which one calculates as with a number."""

    graph: OnnxGraph
    name: str

    def floor(self) -> _GraphNumbers:
        return _GraphNumbers(self.graph, self.graph.add("Floor", self.name))

    def __add__(self, other: _GraphNumbers | float) -> _GraphNumbers:
        return self._with("Add", other)

    def __sub__(self, other: _GraphNumbers | float) -> _GraphNumbers:
        return self._with("Sub", other)

    def __mul__(self, other: _GraphNumbers | float) -> _GraphNumbers:
        return self._with("Mul", other)

    def __truediv__(self, other: _GraphNumbers | float) -> _GraphNumbers:
        return self._with("Div", other)

    def _with(self, operator: str, other: _GraphNumbers | float) -> _GraphNumbers:
        second = other.name if isinstance(other, _GraphNumbers) else self.graph.constant(float(other))
        return _GraphNumbers(self.graph, self.graph.add(operator, self.name, second))
