"""Where a model errs more than elsewhere: by category, or by quarter of a number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import CATEGORICAL, Column, Matrix
from prudent.training.ensembles.selection import Outputs

_FEWEST_ROWS = 20
_CHANCE = 0.05
_QUARTERS = 4
_MOST = 8
_NOTICEABLE = 1.2  # times the error elsewhere


@dataclass(frozen=True)
class Segment:
    """Rows with something in common, the mean error there and in all other rows."""

    column: str
    label: str
    rows: int
    error: float
    elsewhere: float


def row_errors(outputs: Outputs, actual: NDArray[Any]) -> Outputs:
    """How far each row is off: 0 or 1 for classes, the distance for values."""
    if outputs.ndim == 2:
        return np.asarray(outputs.argmax(axis=1) != actual, dtype=np.float64)
    return np.asarray(np.abs(outputs - actual))


def weak_segments(
    errors: Outputs, X: Matrix, columns: Sequence[Column], places: Sequence[int]
) -> tuple[Segment, ...]:
    """The segments of the columns at `places` that are worse than all other rows beyond chance, worst first.

    By Welch's test of the mean errors, at 5 % for all segments together (Holm), and by a fifth at least.
    """
    found = [
        (
            Segment(columns[place].name, label, int(here.sum()), _mean(errors[here]), _mean(errors[~here])),
            chance,
        )
        for place in places
        for label, here in _parts(X[:, place], columns[place])
        if _FEWEST_ROWS <= here.sum() <= len(errors) - _FEWEST_ROWS
        for chance in [_chance(errors[here], errors[~here])]
    ]
    worse: list[Segment] = []
    for rank, (segment, chance) in enumerate(sorted(found, key=lambda pair: pair[1])):
        if chance > _CHANCE / (len(found) - rank):
            break
        if segment.error >= _NOTICEABLE * segment.elsewhere:
            worse.append(segment)
    return tuple(sorted(worse, key=lambda segment: segment.elsewhere - segment.error)[:_MOST])


def _parts(values: Matrix, column: Column) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The rows of each segment of a column, with what it is called."""
    absent = np.isnan(values)
    if absent.any():
        yield "missing", absent
    different = np.unique(values[~absent])
    if column.kind == CATEGORICAL:
        yield from ((column.categories[int(code)], values == code) for code in different)
        return
    if len(different) <= _QUARTERS:
        yield from ((f"{value:.4g}", values == value) for value in different)
        return
    edges = np.unique(np.quantile(values[~absent], np.linspace(0, 1, _QUARTERS + 1)))
    for number, (low, high) in enumerate(pairwise(edges)):
        last = number == len(edges) - 2
        yield (
            _between(number, low, high, last),
            (values >= low) & ((values <= high) if last else (values < high)),
        )


def _between(number: int, low: float, high: float, last: bool) -> str:
    if number == 0:
        return f"below {high:.4g}"
    return f"{low:.4g} and above" if last else f"{low:.4g} to {high:.4g}"


def _mean(errors: Outputs) -> float:
    return float(errors.mean())


def _chance(here: Outputs, elsewhere: Outputs) -> float:
    """How likely such a difference would be if there were none."""
    from scipy.special import stdtr  # Student's t without the whole of scipy.stats

    a, b = here.var(ddof=1) / len(here), elsewhere.var(ddof=1) / len(elsewhere)
    gap = abs(_mean(here) - _mean(elsewhere))
    if a + b == 0:
        return 1.0 if gap == 0 else 0.0
    freedom = (a + b) ** 2 / (a**2 / (len(here) - 1) + b**2 / (len(elsewhere) - 1))
    return float(2 * stdtr(freedom, -gap / np.sqrt(a + b)))
