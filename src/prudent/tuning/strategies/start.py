"""The first trials, chosen before anything was measured."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from prudent.core.money import ROUNDING_USD
from prudent.core.seeds import rng_for
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.pool import on_full_data
from prudent.tuning.trial import Configuration

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
    """The first that can be paid whole: as long as the goal allows, else at least its shortest run.

    A first run that is cut for lack of money tells little and costs all the same.
    """
    longest_s, left = problem.goal.max_time_s, money_left + ROUNDING_USD
    priced = [(configuration, problem.price(configuration)) for configuration in configurations]
    whole = (configuration for configuration, price in priced if price.bill_usd(longest_s) <= left)
    begun = (configuration for configuration, price in priced if price.least_usd <= left)
    return next(itertools.chain(whole, begun), None)


def _cheap_and_different(pool: Candidates, count: int, rng: np.random.Generator) -> list[Configuration]:
    """Price-aware: the first at random among the cheapest, each next the farthest from those chosen.

    Nothing is known of run times yet, but prices are: a bad guess on a cheap cluster costs little. Spread
    over the other parameters it teaches as much about them as one on a dear cluster.
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
