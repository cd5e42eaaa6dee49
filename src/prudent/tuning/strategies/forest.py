"""Bagged trees as a belief over a pool of candidates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prudent.tuning.surrogates.trees import Trees

Array = NDArray[np.float64]


class TreesBelief:
    """Trees fitted to samples, seen through a pool of candidates; `given` refits for every path."""

    def __init__(self, trees: Trees, pool: Array) -> None:
        self._trees = trees
        self._pool = pool
        self.mean, self.std = trees.predict(pool)

    @classmethod
    def fit(cls, X: Array, y: Array, pool: Array, rng: np.random.Generator, n_trees: int) -> TreesBelief:
        # Trees that agree are not sure: never below a twentieth of the spread of what was seen.
        floor = max((0.05 * float(y.std())) ** 2, 1e-6)
        return cls(Trees.fit(X, y, rng, n_trees=n_trees, variance_floor=floor), pool)

    def narrowed(self, indices: NDArray[np.int64]) -> TreesBelief:
        return TreesBelief(self._trees, self._pool[indices])

    def given(self, indices: NDArray[np.int64], values: Array) -> tuple[Array, Array]:
        mean, std = self._trees.fantasies(self._pool[indices], values, self._pool)
        return mean, std
