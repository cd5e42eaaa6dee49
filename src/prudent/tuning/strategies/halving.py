"""First trials where a run may use a part of the data: many on the least, the best of them on more.

A run on the least data tells little about accuracy at full data, but it costs next to nothing, and it tells
which values of the other parameters are worth more. That is Hyperband's first bracket, used as a start.
"""

from __future__ import annotations

import itertools
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.brackets import Rung, rank_key
from prudent.tuning.strategies.hyperband import BracketState, ConfigurationKey
from prudent.tuning.strategies.subsampling import shares_of
from prudent.tuning.trial import Configuration

ETA = 3
DRAWN = 512
BINS = 4
"""Values of a numeric parameter that count as different in the design."""
CHEAP_SHARE = 0.3
"""The design chooses among this share of the configurations, the cheapest per hour."""


class HalvingDesign:
    """`count` configurations on the least data, a third of them on the next share, and so on."""

    def __init__(self, problem: Problem, count: int, seed: int) -> None:
        assert problem.fraction is not None
        self._problem, self._count, self._seed = problem, count, seed
        self._name: str = problem.fraction

    def next(self, history: History) -> Configuration | None:
        """The next configuration to run; None when the design is done or waits for trials under way."""
        record = BracketState(self._problem, history)
        members = {record.place(c): c for c in self._design}
        share = self._rungs[0].fraction
        for place, configuration in members.items():
            if (place, share) not in record.trials and (place, share) not in record.pending:
                return configuration
        survivors: list[ConfigurationKey] = list(members)
        for rung, above in itertools.pairwise(self._rungs):
            if any((place, rung.fraction) in record.pending for place in survivors):
                return None
            ended = [(place, record.trials[place, rung.fraction]) for place in survivors]
            goal = self._problem.goal
            ended.sort(key=lambda pair: rank_key(goal, pair[1], rung.fraction, record.beta))
            climbed = {
                place: self._problem.with_fraction(members[place], above.fraction) for place, _ in ended
            }
            survivors = [place for place, c in climbed.items() if c in self._problem.space][: above.count]
            for place in survivors:
                spot = (place, above.fraction)
                if spot not in record.trials and spot not in record.pending:
                    return climbed[place]
        return None

    @cached_property
    def _rungs(self) -> list[Rung]:
        shares = shares_of(self._problem.space[self._name])
        counts = itertools.takewhile(bool, (self._count // ETA**step for step in itertools.count()))
        # Never on the full data: that is for the model to decide.
        return [Rung(share, count) for share, count in zip(shares[:-1] or shares, counts, strict=False)]

    @cached_property
    def _design(self) -> list[Configuration]:
        """Cheap configurations on the least data that use every value of every parameter alike often."""
        rng = rng_for(self._seed, "halving")
        pool = self._pool(rng)
        if not len(pool):
            return []
        cheap = np.argsort(pool.usd_per_h, kind="stable")
        cheap = cheap[: max(self._count, int(CHEAP_SHARE * len(cheap)))]
        levels = self._levels(pool.features[cheap])
        return [pool.configurations[cheap[place]] for place in balanced_rows(levels, self._count, rng)]

    def _pool(self, rng: np.random.Generator) -> Candidates:
        share = self._rungs[0].fraction
        if self._problem.listed:
            everything = self._problem.everything
            here = [float(c[self._name]) == share for c in everything.configurations]
            return everything.subset(np.flatnonzero(here))
        space = self._problem.space
        drawn = (self._problem.with_fraction(c, share) for c in space.sample(DRAWN, rng, "latin"))
        return self._problem.candidates(space.check(c) for c in drawn if c in space)

    def _levels(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """For each candidate and parameter the number of its value, near ones taken together: (m, groups)."""
        columns = [np.round(features[:, group] * BINS) for group in self._problem.groups]
        return np.stack([np.unique(c, axis=0, return_inverse=True)[1].reshape(-1) for c in columns], axis=1)


def balanced_rows(levels: NDArray[np.int64], count: int, rng: np.random.Generator) -> list[int]:
    """Rows chosen one by one, each with the values used least so far; chance decides between equals.

    >>> balanced(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), 2, np.random.default_rng(1)) in ([0, 3], [1, 2],
    ...     [2, 1], [3, 0])
    True
    """
    used = [np.zeros(int(column.max()) + 1) for column in levels.T]
    chosen: list[int] = []
    free = np.ones(len(levels), dtype=np.bool_)
    while len(chosen) < min(count, len(levels)):
        crowd = np.sum([uses[column] for uses, column in zip(used, levels.T, strict=True)], axis=0)
        score = np.where(free, crowd + 1e-3 * rng.random(len(levels)), np.inf)
        row = int(score.argmin())
        chosen.append(row)
        free[row] = False
        for uses, value in zip(used, levels[row], strict=True):
            uses[value] += 1
    return chosen
