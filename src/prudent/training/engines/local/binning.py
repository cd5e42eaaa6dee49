"""Where a feature may be split: at most `maxBins` - 1 places, chosen as Spark chooses them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.training.dataset import Matrix

_SAMPLE = 10_000  # rows, as in Spark, or the square of the number of bins


@dataclass(frozen=True, eq=False)
class Bins:
    """For each feature the values between which its bins lie; bin b holds what is at most `edges[b]`."""

    edges: tuple[NDArray[np.float64], ...]

    @classmethod
    def of(cls, X: Matrix, most: int, rng: np.random.Generator) -> Bins:
        """Quantiles of a sample; midpoints between neighbours where a feature has few values."""
        wanted = max(most * most, _SAMPLE)
        if len(X) > wanted:
            X = X[np.sort(rng.choice(len(X), wanted, replace=False))]
        return cls(tuple(_edges(column, most) for column in np.asarray(X.T, dtype=np.float64)))

    def numbers(self, X: Matrix) -> Matrix:
        """The number of each value's bin."""
        out = np.empty(X.shape, dtype=np.float32)
        for column, edges in enumerate(self.edges):
            out[:, column] = np.searchsorted(edges, X[:, column], side="left")
        return out

    def threshold(self, feature: int, number: float) -> float:
        """The value that parts the bins below `number` from those above."""
        return float(self.edges[feature][int(np.floor(number))])


def _edges(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    found, counts = np.unique(values, return_counts=True)
    between = (found[1:] + found[:-1]) / 2
    if len(found) <= most:
        return np.asarray(between)
    # As many rows in each bin as equal shares allow.
    share = len(values) / most
    reached = np.cumsum(counts)[:-1]
    chosen = np.unique(np.searchsorted(reached, share * np.arange(1, most), side="left"))
    return np.asarray(between[chosen[chosen < len(between)]])
