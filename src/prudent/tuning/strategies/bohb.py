"""BOHB's idea: Hyperband's brackets, but configurations are drawn where good ones were found."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.tuning.strategies.brackets import rank_key
from prudent.tuning.strategies.hyperband import BracketState, Hyperband, HyperbandOptions
from prudent.tuning.strategies.options import require
from prudent.tuning.trial import Configuration

Array = NDArray[np.float64]

LEAST_WIDTH = 0.15
"""Kernels are never narrower than this (features lie in [0, 1]): neighbours of a good value get a chance."""


@dataclass(frozen=True)
class BohbOptions(HyperbandOptions):
    """random_share: so many draws stay random; good_share: the best so many make the model of the good."""

    random_share: float = 1 / 3
    good_share: float = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.random_share <= 1, "random_share must be 0 to 1; a third is usual.")
        require(0 < self.good_share < 1, "good_share must be above 0 and below 1; 0.15 is usual.")


class Bohb(Hyperband):
    """Draws the configuration with the best ratio of two densities: that of the good and that of the rest.

    Both are kernel densities over the configurations that were run on the largest share of the data of which
    there are enough runs to tell (twice as many as parameters, and two).
    """

    Options = BohbOptions
    name = "bohb"
    _options: BohbOptions

    def _pick(
        self, record: BracketState, choices: list[Configuration], rng: np.random.Generator
    ) -> Configuration:
        split = self._split(record)
        if split is None or rng.random() < self._options.random_share:
            return super()._pick(record, choices, rng)
        good, bad = (self._features(part) for part in split)
        points = self._features(choices)
        ratio = log_density(good, points) - log_density(bad, points)
        return choices[int((ratio + 1e-9 * rng.random(len(ratio))).argmax())]

    def _split(self, record: BracketState) -> tuple[list[Configuration], list[Configuration]] | None:
        """The good and the other configurations, by the largest share of the data that tells enough."""
        by_share: dict[float, list[tuple[tuple[float, float, float, int], Configuration]]] = {}
        for (_, share), trial in record.trials.items():
            key = rank_key(self._problem.goal, trial, share, record.beta)
            by_share.setdefault(share, []).append((key, trial.configuration))
        least = len(self._problem.groups) + 1
        enough = [share for share, told in by_share.items() if len(told) >= 2 * least]
        if not enough:
            return None
        ranked = [
            configuration for _, configuration in sorted(by_share[max(enough)], key=lambda pair: pair[0])
        ]
        count = max(least, math.ceil(self._options.good_share * len(ranked)))
        return ranked[:count], ranked[count:]

    def _features(self, configurations: list[Configuration]) -> Array:
        """Features (n, width) without those of the fraction."""
        own = next(columns for name, columns in self._problem.space.groups if name == self._name)
        return np.delete(self._problem.candidates(configurations).features, own, axis=1)


def log_density(samples: Array, points: Array) -> Array:
    """Log of a Gaussian kernel density of samples (n, d) at points (m,), a width per column (Scott's rule).

    >>> density = log_density(np.array([[0.1], [0.2]]), np.array([[0.15], [0.9]]))
    >>> bool(density[0] > density[1])
    True
    """
    count, width = samples.shape
    spread = np.maximum(samples.std(axis=0) * count ** (-1.0 / (width + 4)), LEAST_WIDTH)
    squares = (((points[:, None, :] - samples[None, :, :]) / spread) ** 2).sum(axis=2)
    nearest = squares.min(axis=1)
    total = np.exp(-0.5 * (squares - nearest[:, None])).sum(axis=1)
    return np.asarray(np.log(total) - 0.5 * nearest - np.log(spread).sum())
