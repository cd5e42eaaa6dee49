"""Frugal search: begin with cheap trials, move to better ones nearby, use more data when it pays.

The idea is that of cost-frugal optimisation (Wu, Wang and Huang, AAAI 2021) as FLAML has it: a step in a
random direction from the best so far, then the opposite one, in ever smaller steps; training cost grows only
as far as the score asks for it. Ours draws one trial in five anywhere in the space, so that a poor start is
left, and decides from the history alone: trials may run side by side, and an interrupted search goes on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from prudent.core.parameters import Ordinal, Parameter
from prudent.core.seeds import rng_for
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.strategy import best_configuration
from prudent.tuning.trial import Configuration, Proposal, Trial

MOST_DRAWS = 40
"""How often to draw for a configuration that was not tried yet."""
RANDOM_EVERY = 5
"""One trial in so many is drawn at random."""
MOST_TIME_ON_PARTS = 0.06
"""The share of the time budget after which a method goes on to more data in any case."""
STEP, LEAST_STEP = 0.35, 0.02
"""The first step and the smallest, as shares of a parameter's range, for each of its dimensions."""


@dataclass(frozen=True)
class FrugalOptions:
    """Where to begin, and where to look next: configurations of the space as pairs of name and value.

    `costly` names the parameters that decide how long a trial takes: they are not drawn anywhere, but only
    moved step by step from what did best.
    """

    cheap: tuple[tuple[str, Any], ...] = ()
    good: tuple[tuple[str, Any], ...] = ()
    costly: tuple[str, ...] = ()


class FrugalSearch:
    """Steps around the best so far on the most data used yet; more data when the steps stop helping.

    `budget_s` is the training time that all methods have together, where it is limited.
    """

    Options = FrugalOptions

    def __init__(self, problem: Problem, options: FrugalOptions, seed: int) -> None:
        self._problem, self._seed = problem, seed
        self._cheap: Configuration = dict(options.cheap)
        self._good: Configuration = dict(options.good)
        self._costly = frozenset(options.costly)
        self.budget_s = math.inf
        self._varied = [p for p in problem.space.parameters if p.size != 1 and p.name != problem.fraction]
        self._keys: dict[int, str] = {}

    def propose(self, history: History, money_left: float) -> Proposal | None:
        del money_left
        taken = len(history) + len(history.pending)
        tried = {self._key(trial) for trial in history.trials}
        tried |= {self._problem.space.key(proposal.configuration) for proposal in history.pending}
        if not taken:
            return Proposal(self._start(), "cheap to begin with")
        if taken == 1 and self._good and self._problem.space.key(self._good) not in tried:
            return Proposal(self._problem.space.check(self._good), "often good")
        share = self._current_share(history)
        ended = [trial for trial in history if trial.finished and self._share_of(trial) == share]
        best = min(
            ended, key=lambda trial: history.goal.loss(trial.values[history.goal.measure]), default=None
        )
        if best is not None and (more := self._next_share(history, best, ended, share)):
            grown = self._problem.with_fraction(best.configuration, more)
            if self._problem.space.key(grown) not in tried:
                return Proposal(grown, f"the best so far on {more:.3g} of the data")
        return self._next_configuration(history, best, share, taken, tried)

    def recommend(self, history: History) -> Configuration | None:
        return best_configuration(history)

    def _start(self) -> Configuration:
        if self._cheap:
            return self._problem.space.check(self._cheap)
        return {p.name: p.from_unit(0.5) for p in self._problem.space.parameters}

    # The share of the data

    def _share_of(self, trial: Trial) -> float:
        name = self._problem.fraction
        return 1.0 if name is None else float(trial.configuration[name])

    def _current_share(self, history: History) -> float:
        """The largest share of the data that a trial has used or uses."""
        name = self._problem.fraction
        if name is None:
            return 1.0
        used = [float(str(configuration[name])) for configuration in history.configurations]
        return max(used)

    def _next_share(self, history: History, best: Trial, ended: list[Trial], share: float) -> float | None:
        """The next share, once steps on this one have cost half of what the best would cost on the next."""
        if self._problem.fraction is None or share >= 1.0:
            return None
        larger = [
            float(value) for value in self._problem.space[self._problem.fraction].values if value > share
        ]
        since = [trial for trial in ended if trial.number > best.number]
        dearer = best.time_s * larger[0] / share
        patience = len(self._varied) + 1
        spent_s = sum(trial.time_s for trial in ended)
        waited_s = sum(trial.time_s for trial in since)
        if waited_s >= dearer / 2 or len(since) >= patience or spent_s >= MOST_TIME_ON_PARTS * self.budget_s:
            return larger[0]
        return None

    # The next place

    def _next_configuration(
        self, history: History, best: Trial | None, share: float, taken: int, tried: set[str]
    ) -> Proposal | None:
        here = self._start() if best is None else best.configuration
        stale = 0 if best is None else sum(trial.number > best.number for trial in history)
        for attempt in range(MOST_DRAWS):
            at_random = best is None or attempt > MOST_DRAWS // 2 or taken % RANDOM_EVERY == RANDOM_EVERY - 1
            direction = rng_for(self._seed, "direction", (taken - 1) // 2, attempt)
            configuration = self._step_from(here, stale, direction, -1 if taken % 2 else 1)
            if at_random:
                configuration |= self._random_values(rng_for(self._seed, "frugal", taken, attempt))
            if self._problem.fraction is not None:
                configuration[self._problem.fraction] = share
            if configuration in self._problem.space and self._problem.space.key(configuration) not in tried:
                return Proposal(configuration, "drawn anywhere" if at_random else "a step from the best")
        return self._untried(tried, share)

    def _random_values(self, rng: np.random.Generator) -> Configuration:
        """Random values of the parameters, except those that decide how long a trial takes."""
        free = [p for p in self._problem.space.parameters if p.name not in self._costly]
        return {p.name: p.from_unit(float(rng.random())) for p in free}

    def _step_from(
        self, here: Configuration, stale: int, rng: np.random.Generator, sign: int
    ) -> Configuration:
        """A step in a random direction; the longer nothing better was found, the smaller it is."""
        there = dict(here)
        count = max(len(self._varied), 1)
        step = max(STEP * 0.5 ** (stale / (2 * count)), LEAST_STEP) * math.sqrt(count)
        direction = rng.normal(size=count)
        direction *= sign * step / max(float(np.linalg.norm(direction)), 1e-12)
        switch = rng.random(count)
        for parameter, move, chance in zip(self._varied, direction, switch, strict=False):
            there[parameter.name] = _stepped(
                parameter, here[parameter.name], float(move), float(chance), sign
            )
        return there

    def _untried(self, tried: set[str], share: float) -> Proposal | None:
        """The next untried configuration in order, once draws find none; None if all were tried."""
        space = self._problem.space
        if not self._problem.listed:
            return None
        for configuration in space.configurations():
            name = self._problem.fraction
            if (name is None or float(configuration[name]) == share) and space.key(
                configuration
            ) not in tried:
                return Proposal(configuration, "one of the last untried")
        return None

    def _key(self, trial: Trial) -> str:
        if trial.number not in self._keys:
            self._keys[trial.number] = self._problem.space.key(trial.configuration)
        return self._keys[trial.number]


def _stepped(parameter: Parameter, value: Any, move: float, chance: float, sign: int) -> Any:
    """The value one step further; a category changes now and then, more rarely as steps get smaller."""
    if isinstance(parameter, Ordinal):
        u = (parameter.rank(value) + 0.5) / parameter.size + move
        return parameter.from_unit(_within_unit(u))
    if parameter.width == 1 and not hasattr(parameter, "rank"):
        place = parameter.encode(value)[0] + move
        return parameter.from_unit(_within_unit(place) if parameter.finite else min(max(place, 0.0), 1.0))
    if chance < 0.3 * min(1.0, abs(move) * 4):
        values = list(parameter.values)
        return values[(values.index(value) + sign) % len(values)]
    return value


def _within_unit(u: float) -> float:
    return min(max(u, 0.0), 1.0 - 1e-12)
