"""Would more data help? One configuration, trained on parts of the rows, judged by the same other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prudent.training.ensembles.selection import OutOfFoldOutputs, score_difference

FRACTIONS = (0.25, 0.5)
"""The parts of the rows that are tried beside all of them."""


@dataclass(frozen=True)
class RowsPoint:
    """How good the configuration is when it learns from so many rows."""

    rows: int
    score: float


@dataclass(frozen=True)
class RowsCurve:
    """From few rows to all; what the last doubling brought, with its 95 % interval, and what the next may."""

    points: tuple[RowsPoint, ...]
    gain: float
    low: float
    high: float
    next_gain: float

    @property
    def helps(self) -> bool:
        """Whether the last doubling helped beyond chance."""
        return self.low > 0


def rows_curve(rows: Sequence[int], models: OutOfFoldOutputs, rng: np.random.Generator) -> RowsCurve:
    """The curve of models that learned from so many `rows`, each about twice as many as the one before.

    Gains shrink from one doubling to the next by the same factor again, as in a power law; they do not grow.
    """
    scores = [models.score_of(one) for one in models.outputs]
    last = score_difference(models.outputs[-1], models.outputs[-2], models, rng)
    gains = np.diff(scores)
    shrink = 1.0
    if len(gains) > 1 and gains[-2] > 0:
        shrink = float(np.clip(gains[-1] / gains[-2], 0.0, 1.0))
    points = tuple(RowsPoint(count, float(score)) for count, score in zip(rows, scores, strict=True))
    return RowsCurve(points, last.value, last.low, last.high, shrink * last.value)
