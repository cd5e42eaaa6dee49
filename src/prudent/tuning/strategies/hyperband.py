"""Hyperband and BOHB: many configurations on little data, the best of them on more, and so on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.core.seeds import rng_for
from prudent.tuning.goal import COST, TIME, Goal
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.strategy import best_configuration, require
from prudent.tuning.trial import CUT, FINISHED, Configuration, Proposal, Trial


@dataclass(frozen=True)
class Rung:
    """How many configurations are run on which share of the data."""

    fraction: float
    count: int


Bracket = tuple[Rung, ...]


def brackets(fractions: Sequence[float], eta: float, least: float) -> list[Bracket]:
    """Hyperband's brackets, one cycle of them: from many on the least data to a few on all of it.

    With s_max = ⌊log_η(1 / least)⌋, bracket b = s_max … 0 starts ⌈(s_max + 1) / (b + 1) · η^b⌉ configurations
    at the share η^-b; each rung keeps one in η and gives it η times the data. A share that the job does not
    offer becomes the nearest one it does (`fractions`; empty: any is offered); rungs that thereby fall
    together are one.

    >>> [(rung.fraction, rung.count) for rung in brackets([0.1, 0.25, 1.0], 3.0, 0.1)[0]]
    [(0.1, 9), (0.25, 3), (1.0, 1)]
    """
    deepest = math.floor(math.log(1.0 / least) / math.log(eta) + 1e-9)
    return [_bracket(fractions, eta, least, depth, deepest) for depth in range(deepest, -1, -1)]


def _bracket(fractions: Sequence[float], eta: float, least: float, depth: int, deepest: int) -> Bracket:
    start = math.ceil((deepest + 1) / (depth + 1) * eta**depth - 1e-9)
    rungs: dict[float, int] = {}
    for step in range(depth + 1):
        share = _nearest(fractions, max(eta ** (step - depth), least))
        rungs.setdefault(share, max(1, math.floor(start * eta**-step + 1e-9)))
    return tuple(Rung(share, count) for share, count in sorted(rungs.items()))


def _nearest(fractions: Sequence[float], share: float) -> float:
    return min(fractions, key=lambda f: abs(math.log(f / share)), default=share)


def time_exponent(trials: Sequence[tuple[object, float, Trial]]) -> float:
    """How time grows with the data: the β of time ∝ fraction^β, from runs of one configuration on two shares.

    `trials`: (configuration without its fraction, fraction, trial). The median over such pairs, within 0 and
    1; in proportion (1) while there are none.
    """
    seen: dict[object, list[tuple[float, float]]] = {}
    slopes = []
    for place, fraction, trial in trials:
        if trial.status != FINISHED or trial.time_s <= 0:
            continue
        for other, time_s in seen.setdefault(place, []):
            if not math.isclose(other, fraction):
                slopes.append(math.log(trial.time_s / time_s) / math.log(fraction / other))
        seen[place].append((fraction, trial.time_s))
    if not slopes:
        return 1.0
    slopes.sort()
    return min(max(slopes[len(slopes) // 2], 0.0), 1.0)


def rank_key(goal: Goal, trial: Trial, fraction: float, beta: float) -> tuple[float, float, float, int]:
    """A key by which the trials of one rung are ranked, the best first.

    Finished before cut before failed; then by how far constraints are missed, then by the objective. Where
    the goal speaks of the full data, time and cost are taken to grow as fraction^-β on the way there.
    """
    status = {FINISHED: 0.0, CUT: 1.0}.get(trial.status, 2.0)
    now, full = trial.values, dict(trial.values)
    for measure in (TIME, COST):
        full[measure] *= fraction**-beta
    misses = [c.excess((full if c.at_full_data else now).get(c.measure)) for c in goal.constraints]
    value = (full if goal.at_full_data else now).get(goal.measure)
    return status, math.fsum(misses), math.inf if value is None else goal.loss(value), trial.number


DRAWS = 64
"""Configurations drawn for a choice where the space cannot be listed."""

ConfigurationKey = tuple[object, ...]
"""A configuration without its fraction."""


@dataclass(frozen=True)
class HyperbandOptions:
    """eta: each rung keeps one in eta, with eta times the data."""

    eta: float = 3.0

    def __post_init__(self) -> None:
        require(self.eta > 1, "eta must be above 1; 3 is usual.")


class BracketState:
    """What a history says about brackets: who was drawn, in which order, and how each did at each share."""

    def __init__(self, problem: Problem, history: History) -> None:
        assert problem.fraction is not None
        self._name = problem.fraction
        self.trials: dict[tuple[ConfigurationKey, float], Trial] = {}
        self.pending: set[tuple[ConfigurationKey, float]] = set()
        self.drawn: dict[ConfigurationKey, Configuration] = {}
        for trial in sorted(history.trials, key=lambda trial: trial.number):
            self.trials[self.spot(trial.configuration)] = trial
            if not trial.known:
                self.drawn.setdefault(self.place(trial.configuration), trial.configuration)
        for proposal in history.pending:
            self.pending.add(self.spot(proposal.configuration))
            self.drawn.setdefault(self.place(proposal.configuration), proposal.configuration)
        self.beta = time_exponent([(place, share, trial) for (place, share), trial in self.trials.items()])

    def place(self, configuration: Configuration) -> ConfigurationKey:
        return tuple(value for name, value in configuration.items() if name != self._name)

    def by_start(self) -> dict[float, list[ConfigurationKey]]:
        """Those drawn, in order, by the share of the data they began on."""
        out: dict[float, list[ConfigurationKey]] = {}
        for place, configuration in self.drawn.items():
            out.setdefault(float(configuration[self._name]), []).append(place)
        return out

    def spot(self, configuration: Configuration) -> tuple[ConfigurationKey, float]:
        return self.place(configuration), float(configuration[self._name])


def next_climber(
    problem: Problem,
    record: BracketState,
    rungs: Sequence[Rung],
    members: Mapping[ConfigurationKey, Configuration],
) -> tuple[Configuration, float] | None:
    """The next member to be run on more data, and the share it was run on before.

    The best of each rung climb to the next one. None when all have, or when one must be waited for.
    """
    survivors = list(members)
    for rung, above in itertools.pairwise(rungs):
        spots = [(place, rung.fraction) for place in survivors]
        if any(spot in record.pending for spot in spots):
            return None
        ended = [(spot[0], record.trials[spot]) for spot in spots if spot in record.trials]
        ended.sort(key=lambda pair: rank_key(problem.goal, pair[1], rung.fraction, record.beta))
        more = {place: problem.with_fraction(members[place], above.fraction) for place, _ in ended}
        survivors = [place for place, c in more.items() if c in problem.space][: above.count]
        for place in survivors:
            spot = (place, above.fraction)
            if spot not in record.trials and spot not in record.pending:
                return more[place], rung.fraction
    return None


class Hyperband:
    """Successive halving over the fraction of the data, in brackets that start on ever more of it.

    Which bracket a configuration is in follows from the share of the data it began on and from the order of
    beginning, so a resumed study goes on where it was. While a bracket waits for trials under way the next
    one begins.
    """

    Options: type[HyperbandOptions] = HyperbandOptions
    name = "hyperband"

    def __init__(self, problem: Problem, options: HyperbandOptions, seed: int) -> None:
        if problem.fraction is None:
            raise BadInput(
                f"{self.name} runs on parts of the data first, but the job names no fraction; "
                'add "fraction: PARAMETER" to the job, or choose another strategy such as lynceus.'
            )
        self._problem, self._options, self._seed = problem, options, seed
        self._name: str = problem.fraction

    def propose(self, history: History, money_left: float) -> Proposal | None:
        del money_left
        record = BracketState(self._problem, history)
        waiting = record.by_start()
        cycle = brackets(self._fractions, self._options.eta, self._least)
        empty = 0
        for bracket in itertools.cycle(cycle):
            first = bracket[0]
            queue = waiting.get(first.fraction, [])
            members, waiting[first.fraction] = queue[: first.count], queue[first.count :]
            if len(members) < first.count:
                fresh = self._fresh(record, history, first.fraction)
                if fresh is not None:
                    return Proposal(fresh, f"drawn for a bracket from {first.fraction:.3g} of the data")
            climber = next_climber(
                self._problem, record, bracket, {key: record.drawn[key] for key in members}
            )
            if climber is not None:
                configuration, below = climber
                now = float(configuration[self._name])
                return Proposal(configuration, f"among the best on {below:.3g} of the data, now {now:.3g}")
            empty = 0 if members else empty + 1
            if empty == len(cycle):
                break
        return None

    def recommend(self, history: History) -> Configuration | None:
        return best_configuration(history)

    def _fresh(self, record: BracketState, history: History, fraction: float) -> Configuration | None:
        """A configuration that was not drawn before, on that share of the data; None when there is none."""
        rng = rng_for(self._seed, self.name, len(record.drawn))
        choices = [
            configuration
            for configuration in self._choices(history, fraction, rng)
            if record.place(configuration) not in record.drawn
            and record.spot(configuration) not in record.trials
        ]
        return self._pick(record, choices, rng) if choices else None

    def _pick(
        self, record: BracketState, choices: list[Configuration], rng: np.random.Generator
    ) -> Configuration:
        """Draw one of the choices at random; a subclass may choose by what it knows."""
        del record
        return choices[int(rng.integers(len(choices)))]

    def _choices(
        self, history: History, fraction: float, rng: np.random.Generator
    ) -> Iterator[Configuration] | list[Configuration]:
        """Configurations on that share of the data: all of a listed space, else some drawn at random."""
        if self._problem.listed:
            return self._listed(fraction)
        space, tried = self._problem.space, len(history) + len(history.pending)
        drawn = (self._problem.with_fraction(c, fraction) for c in space.sample(DRAWS + tried, rng))
        return (space.check(c) for c in drawn if c in space)

    def _listed(self, fraction: float) -> list[Configuration]:
        if fraction not in self._by_fraction:
            everything = self._problem.everything.configurations
            self._by_fraction[fraction] = [c for c in everything if float(c[self._name]) == fraction]
        return self._by_fraction[fraction]

    @cached_property
    def _by_fraction(self) -> dict[float, list[Configuration]]:
        return {}

    @cached_property
    def _fractions(self) -> tuple[float, ...]:
        """The shares of the data that the job offers; empty when it offers any within a range."""
        parameter = self._problem.space[self._name]
        return tuple(sorted(float(str(value)) for value in parameter.values)) if parameter.finite else ()

    @cached_property
    def _least(self) -> float:
        parameter = self._problem.space[self._name]
        return self._fractions[0] if self._fractions else float(str(parameter.from_unit(0.0)))


Array = NDArray[np.float64]

LEAST_WIDTH = 0.15
"""Kernels are never narrower than this (features lie in [0, 1]): neighbours of a good value get a chance."""


@dataclass(frozen=True)
class BohbOptions(HyperbandOptions):
    """random_share: how many draws stay random; good_share: how many trials count as good."""

    random_share: float = 1 / 3
    good_share: float = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.random_share <= 1, "random_share must be 0 to 1; a third is usual.")
        require(0 < self.good_share < 1, "good_share must be above 0 and below 1; 0.15 is usual.")


class Bohb(Hyperband):
    """Draws the configuration with the best ratio of two densities: of good trials, and of the others.

    Both are kernel densities over the configurations that were run on one share of the data: the largest with
    enough runs (two more than twice the number of parameters).
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
