"""Random and grid search, with which other strategies are compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prudent.core.money import ROUNDING_USD
from prudent.core.seeds import rng_for
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.strategy import best_configuration, untried
from prudent.tuning.trial import Configuration, Proposal


@dataclass(frozen=True)
class NoOptions:
    """There is nothing to set."""


class RandomSearch:
    """Draws without replacement; log-uniform where the parameter is on a log scale."""

    Options = NoOptions

    def __init__(self, problem: Problem, options: NoOptions, seed: int) -> None:
        del options
        self._problem = problem
        self._seed = seed

    def propose(self, history: History, money_left: float) -> Proposal | None:
        taken = len(history) + len(history.pending)
        rng = rng_for(self._seed, "random", taken)
        if self._problem.listed:
            payable = self._problem.everything.payable(money_left)
            free = np.flatnonzero(untried(self._problem, history) & payable)
            if not len(free):
                return None
            choice = self._problem.everything.configurations[int(rng.choice(free))]
            return Proposal(choice, why="drawn at random")
        tried = {self._problem.space.key(c) for c in history.configurations}
        for configuration in self._problem.space.sample(len(tried) + 1, rng, "random"):
            if self._problem.space.key(configuration) not in tried:
                return Proposal(configuration, why="drawn at random")
        return None

    def recommend(self, history: History) -> Configuration | None:
        return best_configuration(history)


class GridSearch:
    """Every configuration in turn, in the order of the space."""

    Options = NoOptions

    def __init__(self, problem: Problem, options: NoOptions, seed: int) -> None:
        del options, seed
        self._problem = problem

    def propose(self, history: History, money_left: float) -> Proposal | None:
        space = self._problem.space
        tried = {space.key(configuration) for configuration in history.configurations}
        for configuration in space.configurations():
            if space.key(configuration) in tried:
                continue
            if self._problem.price(configuration).least_usd <= money_left + ROUNDING_USD:
                return Proposal(configuration, why="next on the grid")
        return None

    def recommend(self, history: History) -> Configuration | None:
        return best_configuration(history)
