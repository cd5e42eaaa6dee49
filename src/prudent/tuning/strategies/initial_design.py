"""The first trials, chosen before a model can be fitted: spread over the space, or on parts of the data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prudent.core.money import ROUNDING_USD
from prudent.core.seeds import rng_for
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.candidates import on_full_data, shares_of
from prudent.tuning.strategies.hyperband import BracketState, Rung, next_climber
from prudent.tuning.trial import Configuration, Proposal

CHEAP_SHARE = 0.15
"""The price-aware start chooses among this share of the configurations, the cheapest per hour."""
POOL = 4096
ON_FULL = 16
"""So many times more are drawn where only their versions on all the data are wanted."""


def initial_configurations(
    problem: Problem, method: str, count: int, seed: int, full_only: bool = False
) -> list[Configuration]:
    """The configurations of the initial design, in the order in which they are to be run.

    With `full_only` all of them use all the data.
    """
    rng = rng_for(seed, "start", method)
    if method == "price":
        return _cheap_and_different(_pool(problem, rng, full_only), count, rng)
    if not full_only:
        return problem.space.sample(count, rng, method)
    # Several that differ only in their fraction become one: enough of them for what is asked.
    size = problem.space.size
    enough = ON_FULL * count if size is None else min(ON_FULL * count, size)
    return on_full_data(problem, problem.space.sample(enough, rng, method))[:count]


def first_affordable(
    problem: Problem, configurations: Sequence[Configuration], money_left: float
) -> Configuration | None:
    """The first whose longest run (by the goal) the money pays; else the first whose shortest run it pays.

    A first run that is cut for lack of money tells little and costs all the same.
    """
    longest_s, left = problem.goal.max_time_s, money_left + ROUNDING_USD
    priced = [(configuration, problem.price(configuration)) for configuration in configurations]
    whole = (configuration for configuration, price in priced if price.bill_usd(longest_s) <= left)
    begun = (configuration for configuration, price in priced if price.least_usd <= left)
    return next(itertools.chain(whole, begun), None)


def _cheap_and_different(pool: Candidates, count: int, rng: np.random.Generator) -> list[Configuration]:
    """Price-aware: the first is drawn among the cheapest, each next one is the farthest from those chosen.

    Run times are not known yet, but prices are: a bad guess on a cheap cluster costs little. Cheap runs that
    are spread over the other parameters teach as much about them as runs on dear clusters.
    """
    bound = np.quantile(pool.usd_per_h, CHEAP_SHARE)
    cheap = np.flatnonzero(pool.usd_per_h <= bound)
    if len(cheap) < count:
        # A small space: as many of the cheapest as are asked for, so that the start never runs dry.
        cheap = np.argsort(pool.usd_per_h, kind="stable")[:count]
    features = pool.features[cheap]
    chosen = [int(rng.integers(len(cheap)))]
    distance = np.full(len(cheap), np.inf)
    while len(chosen) < min(count, len(cheap)):
        step = ((features - features[chosen[-1]]) ** 2).sum(axis=1)
        distance = np.minimum(distance, step)
        ties = distance + 1e-6 * rng.random(len(cheap))
        ties[chosen] = -1.0
        chosen.append(int(ties.argmax()))
    return [pool.configurations[cheap[place]] for place in chosen]


def _pool(problem: Problem, rng: np.random.Generator, full_only: bool) -> Candidates:
    if not problem.listed:
        drawn = problem.space.sample(POOL, rng, "random")
        return problem.candidates(on_full_data(problem, drawn) if full_only else drawn)
    if not full_only:
        return problem.everything
    is_full = [problem.is_full(c) for c in problem.everything.configurations]
    return problem.everything.subset(np.flatnonzero(is_full))


class ScalingDesign:
    """Different configurations on the least data, then the cheapest of them on more data.

    The paper runs each of them at every fraction (`every`). That costs a hundred times more and teaches
    little besides: a model with a trend common to all configurations learns it from one of them.
    """

    def __init__(
        self, problem: Problem, fractions: Sequence[float], method: str, count: int, every: bool, seed: int
    ) -> None:
        self._problem, self._fractions, self._every = problem, tuple(fractions), every
        self._method, self._count, self._seed = method, count, seed
        self._different: dict[int, list[Configuration]] = {}

    @property
    def size(self) -> int:
        """How many trials there are at first."""
        others = len(self._fractions) - 1
        return self._count + (self._count if self._every else 1) * others

    def next(self, history: History, money_left: float) -> Proposal | None:
        """The next of the first trials that the money can start; None: all are done, or none can be paid."""
        told = self._told(history)
        taken = len(history) + len(history.pending)
        if taken >= self.size and told:
            return None
        tried = {self._problem.space.key(c) for c in history.configurations}
        for configuration, why in self._plan(history, taken):
            key = self._problem.space.key(configuration)
            if key in tried or configuration not in self._problem.space:
                continue
            if self._problem.price(configuration).least_usd <= money_left + ROUNDING_USD:
                return Proposal(configuration, why)
        return None

    def _told(self, history: History) -> bool:
        measure = self._problem.goal.measure
        ended = [
            trial for trial in history if trial.finished and measure in trial.values and trial.time_s > 0
        ]
        name = self._problem.fraction or ""
        return len({float(t.configuration[name]) for t in ended}) >= min(2, len(self._fractions))

    def _plan(self, history: History, taken: int) -> Iterator[tuple[Configuration, str]]:
        least, *others = self._fractions
        firsts = self._configurations(self._count)
        for configuration in firsts:
            yield self._problem.with_fraction(configuration, least), "first look, on the least data"
        ended = [trial for trial in history if trial.finished and trial.time_s > 0]
        scaled = firsts if self._every else []
        if not self._every and ended:
            scaled = [min(ended[: self._count], key=lambda trial: trial.cost_usd).configuration]
        for configuration in scaled:
            for fraction in others:
                yield self._problem.with_fraction(configuration, fraction), "first look, at how it scales"
        # Nothing came of these: go on with others.
        for configuration in self._configurations(2 * (taken + 1) + self._count):
            yield self._problem.with_fraction(configuration, least), "first look, on the least data"

    def _configurations(self, count: int) -> list[Configuration]:
        """Configurations that differ in more than their fraction; the same ones for the same count."""
        if count not in self._different:
            least, key = self._fractions[0], self._problem.space.key
            drawn = initial_configurations(self._problem, self._method, 4 * count, self._seed)
            at_least = (self._problem.with_fraction(c, least) for c in drawn)
            self._different[count] = list({key(c): c for c in at_least}.values())[:count]
        return self._different[count]


ETA = 3
HALVING_DRAWN = 512
BINS = 4
"""Values of a numeric parameter that count as different in the design."""
HALVING_CHEAP_SHARE = 0.3
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
        climber = next_climber(self._problem, record, self._rungs, members)
        return None if climber is None else climber[0]

    @cached_property
    def _rungs(self) -> list[Rung]:
        shares = shares_of(self._problem.space[self._name])
        counts = itertools.takewhile(bool, (self._count // ETA**step for step in itertools.count()))
        # Never on the full data: that is for the model to decide.
        return [Rung(share, count) for share, count in zip(shares[:-1] or shares, counts, strict=False)]

    @cached_property
    def _design(self) -> list[Configuration]:
        """Cheap configurations on the least data that use every value of a parameter about equally often."""
        rng = rng_for(self._seed, "halving")
        pool = self._pool(rng)
        if not len(pool):
            return []
        cheap = np.argsort(pool.usd_per_h, kind="stable")
        cheap = cheap[: max(self._count, int(HALVING_CHEAP_SHARE * len(cheap)))]
        levels = self._levels(pool.features[cheap])
        return [pool.configurations[cheap[place]] for place in balanced_rows(levels, self._count, rng)]

    def _pool(self, rng: np.random.Generator) -> Candidates:
        share = self._rungs[0].fraction
        if self._problem.listed:
            everything = self._problem.everything
            here = [float(c[self._name]) == share for c in everything.configurations]
            return everything.subset(np.flatnonzero(here))
        space = self._problem.space
        drawn = (self._problem.with_fraction(c, share) for c in space.sample(HALVING_DRAWN, rng, "latin"))
        return self._problem.candidates(space.check(c) for c in drawn if c in space)

    def _levels(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """The number of each candidate's value, by parameter; near values count as one: (m, groups)."""
        columns = [np.round(features[:, group] * BINS) for group in self._problem.groups]
        return np.stack([np.unique(c, axis=0, return_inverse=True)[1].reshape(-1) for c in columns], axis=1)


def balanced_rows(levels: NDArray[np.int64], count: int, rng: np.random.Generator) -> list[int]:
    """Rows chosen one by one, each with the values used least so far; chance decides between equals.

    >>> levels = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    >>> balanced_rows(levels, 2, np.random.default_rng(1)) in ([0, 3], [1, 2], [2, 1], [3, 0])
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
