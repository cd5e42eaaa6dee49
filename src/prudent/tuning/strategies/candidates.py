"""Candidates for a decision: all of a listed space or a sample, and each at several fractions of the data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.core.parameters import Parameter
from prudent.core.seeds import rng_for
from prudent.tuning.history import History
from prudent.tuning.problem import Candidates, Problem
from prudent.tuning.strategies.strategy import untried
from prudent.tuning.trial import Configuration

SAMPLED = 1500
"""Candidates drawn for a decision where the space cannot be listed."""
NEIGHBOURS = 60
"""Small steps tried around each of the best trials, in such a space."""
LEADERS = 5


def candidate_pool(
    problem: Problem, history: History, seed: int, full_only: bool = False
) -> tuple[Candidates, NDArray[np.bool_]]:
    """Candidates for the next decision, and which of them are still untried.

    A listed space is looked at whole. In a larger or continuous one candidates are drawn anew each time:
    spread over the space, and close to the best trials so far (local improvement). With `full_only` they all
    use the whole data (from a listed space the caller removes the others).
    """
    if problem.listed:
        return problem.everything, untried(problem, history)
    rng = rng_for(seed, "pool", len(history) + len(history.pending))
    drawn = problem.space.sample(SAMPLED, rng, "sobol" if len(history) % 2 else "latin")
    for configuration in _leaders(history):
        drawn += problem.space.neighbours(configuration, rng, NEIGHBOURS)
    if full_only:
        drawn = on_full_data(problem, drawn)
    tried = {problem.space.key(c) for c in history.configurations}
    distinct = {problem.space.key(c): c for c in drawn}
    fresh = [c for key, c in distinct.items() if key not in tried]
    return problem.candidates(fresh), np.ones(len(fresh), dtype=np.bool_)


def on_full_data(problem: Problem, configurations: Iterable[Configuration]) -> list[Configuration]:
    """The same configurations on all the data: each once, and only those that the space has."""
    full = (problem.with_fraction(c, 1.0) for c in configurations)
    return list({problem.space.key(c): problem.space.check(c) for c in full if c in problem.space}.values())


def _leaders(history: History) -> list[dict[str, object]]:
    ended = [t for t in history if t.finished and history.goal.measure in t.values]
    ended.sort(key=lambda t: (not t.feasible, history.goal.loss(t.values[history.goal.measure])))
    return [dict(trial.configuration) for trial in ended[:LEADERS]]


Array = NDArray[np.float64]
Indices = NDArray[np.int64]

WHOLE = 5000
"""A list of configurations x fractions up to this size is looked at whole, else a part is drawn."""
FRACTION_DRAWN = 300
FRACTION_NEIGHBOURS = 20
LADDER = 5
"""Fractions looked at where they are a range or a long list: so many, evenly spaced on a log scale."""
CHEAPEST_USD_PER_S = 1e-9 / 3600.0


def shares_of(parameter: Parameter) -> tuple[float, ...]:
    """The shares of the data to look at, ascending, the last one 1: a short list whole, else a ladder."""
    listed = sorted(float(str(value)) for value in parameter.values) if parameter.finite else []
    if listed and len(listed) <= 4 * LADDER:
        return tuple(listed)
    low = listed[0] if listed else float(str(parameter.from_unit(0.0)))
    steps = [float(step) for step in np.geomspace(low, 1.0, LADDER)]
    if listed:
        # Of a list only its own values can be run.
        return tuple(sorted({min(listed, key=lambda own: abs(math.log(own / step))) for step in steps}))
    return (*(float(str(parameter.check(step))) for step in steps[:-1]), 1.0)


@dataclass(frozen=True, eq=False)
class FractionCandidates:
    """What a decision looks at: p places (x, s).

    features (p, width): the configuration x, without its fraction; fractions (p,): s; log_price (p,): log of
    dollars per second; full: places at s = 1, which can be recommended; tests: untried places at s < 1.
    """

    candidates: Candidates
    features: Array
    fractions: Array
    full: Indices
    tests: Indices

    @cached_property
    def log_price(self) -> Array:
        return np.log(np.maximum(self.candidates.usd_per_s, CHEAPEST_USD_PER_S))

    def __len__(self) -> int:
        return len(self.fractions)


class FractionGrid:
    """The places of a problem with a fraction."""

    def __init__(self, problem: Problem, seed: int) -> None:
        if problem.fraction is None:
            raise BadInput(
                "This strategy learns from runs on a part of the data, but the job names no fraction; "
                'add "fraction: PARAMETER" to the job, or choose another strategy such as lynceus.'
            )
        self._problem, self._seed = problem, seed
        self._name: str = problem.fraction
        if not self.ladder[:-1]:
            raise BadInput(f'The fraction "{self._name}" has no value below 1; add smaller ones.')

    @cached_property
    def ladder(self) -> tuple[float, ...]:
        """The fractions, ascending; the last is the full data."""
        return shares_of(self._problem.space[self._name])

    @cached_property
    def columns(self) -> Indices:
        """The columns of the features that tell about the configuration, not about its fraction."""
        own = next(columns for name, columns in self._problem.space.groups if name == self._name)
        width = max(group.stop for group in self._problem.groups)
        return np.array([column for column in range(width) if not own.start <= column < own.stop])

    @cached_property
    def groups(self) -> list[slice]:
        """Those columns by parameter, for length scales."""
        own = next(columns for name, columns in self._problem.space.groups if name == self._name)
        groups, start = [], 0
        for group in self._problem.groups:
            if group != own:
                groups.append(slice(start, start + group.stop - group.start))
                start += group.stop - group.start
        return groups

    def rows(self, configurations: Iterable[Configuration]) -> tuple[Array, Array, Array]:
        """Features (n, width), fractions (n,) and log price per second (n,) of configurations."""
        candidates = self._problem.candidates(configurations)
        log_price = np.log(np.maximum(candidates.usd_per_s, CHEAPEST_USD_PER_S))
        return self.features(candidates), self._fractions(candidates), log_price

    def features(self, candidates: Candidates) -> Array:
        return np.ascontiguousarray(candidates.features[:, self.columns])

    def _fractions(self, candidates: Candidates) -> Array:
        return np.array([float(c[self._name]) for c in candidates.configurations], dtype=np.float64)

    def pool_for(self, history: History) -> FractionCandidates:
        """The places for the next decision: all of a short list, else a part drawn for this decision."""
        pool = self.pool_of(self._whole if self._whole is not None else self._drawn(history), history)
        if not len(pool.full):
            raise BadInput("No configuration can be run on the full data; add some with a fraction of 1.")
        return pool

    def pool_of(self, candidates: Candidates, history: History) -> FractionCandidates:
        """Candidates as a pool."""
        fractions, key = self._fractions(candidates), self._problem.space.key
        tried = {key(c) for c in history.configurations}
        keys = self._keys if candidates is self._whole else [key(c) for c in candidates.configurations]
        is_fresh = np.array([k not in tried for k in keys], dtype=np.bool_)
        is_full = np.isclose(fractions, 1.0)
        return FractionCandidates(
            candidates,
            self.features(candidates),
            fractions,
            np.flatnonzero(is_full),
            np.flatnonzero(~is_full & is_fresh),
        )

    @cached_property
    def _keys(self) -> list[str]:
        whole = self._whole
        return [] if whole is None else [self._problem.space.key(c) for c in whole.configurations]

    @cached_property
    def _whole(self) -> Candidates | None:
        if self._problem.listed and len(self._problem.everything) <= WHOLE:
            return self._problem.everything
        return None

    def _drawn(self, history: History) -> Candidates:
        space = self._problem.space
        rng = rng_for(self._seed, "field", len(history) + len(history.pending))
        drawn = space.sample(FRACTION_DRAWN, rng, "random")
        tried = [dict(c) for c in history.configurations]
        for configuration in self._leaders(history):
            drawn += space.neighbours(configuration, rng, FRACTION_NEIGHBOURS)
        return self._problem.candidates(self.climbed([*tried, *drawn]))

    def _leaders(self, history: History) -> list[Configuration]:
        goal = history.goal
        told = [trial for trial in history if trial.finished and goal.measure in trial.values]
        told.sort(key=lambda trial: goal.loss(trial.values[goal.measure]))
        return [trial.configuration for trial in told[:LADDER]]

    def climbed(self, configurations: Iterable[Configuration]) -> list[Configuration]:
        """Every distinct configuration at every fraction of the ladder where the space allows it."""
        space, top = self._problem.space, self.ladder[-1]
        distinct = {space.key({**c, self._name: top}): c for c in configurations}
        every = ({**c, self._name: fraction} for c in distinct.values() for fraction in self.ladder)
        return [c for c in every if c in space]
