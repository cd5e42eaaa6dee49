"""What a model looks at: how much worse it gets when a column is shuffled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import Matrix
from prudent.training.ensembles.selection import Outputs, ScoreFunction

Predict = Callable[[Matrix], Outputs]
"""What a model says of raw rows, as they are before its transforms."""
REPEATS = 8
_FEWEST = 3  # repeats that make an interval
_SPREAD = 1.96


@dataclass(frozen=True)
class ColumnImportance:
    """By how much the score falls without a column, with its 95 % interval."""

    column: str
    value: float
    low: float
    high: float

    @property
    def matters(self) -> bool:
        """Whether it falls beyond chance."""
        return self.low > 0


@dataclass(frozen=True)
class PermutationImportance:
    """Columns as the user has them, the most important first."""

    columns: tuple[ColumnImportance, ...]
    rows: int
    repeats: int
    left_out: int = 0
    """Columns that there was no time for."""


def permutation_importance(
    predict: Predict,
    X: Matrix,
    actual: NDArray[Any],
    columns: Sequence[tuple[int, str]],
    score: ScoreFunction,
    rng: np.random.Generator,
    is_over: Callable[[], bool] = lambda: False,
) -> PermutationImportance:
    """Shuffle a column, predict, and see how far the score falls; some repeats for each column.

    Breiman, "Random forests" (2001). Every repeat is judged by a bootstrap sample of the rows, so the
    interval holds what another shuffle and other rows would change. `columns` are places in X with their
    names, in the order of which they are looked at; once `is_over` says so no further repeat begins, and in
    the first one no further column.
    """
    told = predict(X)
    full = score(actual, told)
    falls: list[list[float]] = [[] for _ in columns]
    drawn: list[list[float]] = [[] for _ in columns]
    shuffled = X.copy()
    for repeat in range(REPEATS):
        if repeat >= _FEWEST and is_over():
            break
        rows = rng.integers(len(X), size=len(X))
        drawn_full = score(actual[rows], told[rows])
        for number, (place, _) in enumerate(columns):
            if (repeat and not falls[number]) or (number and not repeat and is_over()):
                break
            shuffled[:, place] = X[rng.permutation(len(X)), place]
            found = predict(shuffled)
            shuffled[:, place] = X[:, place]
            falls[number].append(full - score(actual, found))
            drawn[number].append(drawn_full - score(actual[rows], found[rows]))
    known = [
        _summary(name, falls[number], drawn[number])
        for number, (_, name) in enumerate(columns)
        if falls[number]
    ]
    ranked = sorted(known, key=lambda column: -column.value)
    repeats = min((len(each) for each in falls if each), default=0)
    return PermutationImportance(tuple(ranked), len(X), repeats, len(columns) - len(known))


def _summary(name: str, falls: Sequence[float], drawn: Sequence[float]) -> ColumnImportance:
    value = float(np.mean(falls))
    spread = _SPREAD * float(np.std(drawn, ddof=1)) if len(drawn) > 1 else 0.0
    return ColumnImportance(name, value, value - spread, value + spread)
