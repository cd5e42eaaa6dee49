"""Markov chain Monte Carlo with an ensemble of walkers (Goodman and Weare): needs no gradients, no tuning."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Score = Callable[[Array], Array]

_STRETCH = 2.0


def stratified_normals(count: int, width: int, rng: np.random.Generator) -> Array:
    """Standard normal draws (count, width), stratified along each axis (Latin hypercube)."""
    from scipy.special import ndtri

    strata = np.stack([rng.permutation(count) for _ in range(width)], axis=1)
    return np.asarray(ndtri((strata + rng.random((count, width))) / count), dtype=np.float64)


def stretch_moves(state: Array, score: Score, steps: int, rng: np.random.Generator) -> Array:
    """Where walkers that start at `state` (walkers, width) are after so many stretch moves each.

    `score` gives the log density (k,) of places (k, width). Each half of the ensemble moves along lines to
    members of the other, all of them scored in one call.
    """
    state, scores = state.copy(), score(state)
    middle = len(state) // 2
    for _ in range(steps):
        for half, rest in ((slice(0, middle), slice(middle, None)), (slice(middle, None), slice(0, middle))):
            partner = state[rest][rng.integers(len(state[rest]), size=len(state[half]))]
            z = (1.0 + (_STRETCH - 1.0) * rng.random(len(partner))) ** 2 / _STRETCH
            moved = partner + z[:, None] * (state[half] - partner)
            new = score(moved)
            odds = (state.shape[1] - 1) * np.log(z) + new - scores[half]
            taken = np.log(rng.random(len(partner))) < odds
            state[half] = np.where(taken[:, None], moved, state[half])
            scores[half] = np.where(taken, new, scores[half])
    return state
