"""A search for training: begin where it is cheap, move to what is better nearby, use more data when it pays.

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

TRIES = 40
"""Draws for something that was not tried yet."""
EVERYWHERE = 5
"""One trial in so many is drawn anywhere."""
MOST_ON_PARTS = 0.06
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
        share = self._share(history)
        ended = [trial for trial in history if trial.finished and self._share_of(trial) == share]
        best = min(
            ended, key=lambda trial: history.goal.loss(trial.values[history.goal.measure]), default=None
        )
        if best is not None and (more := self._more(history, best, ended, share)):
            grown = self._problem.with_fraction(best.configuration, more)
            if self._problem.space.key(grown) not in tried:
                return Proposal(grown, f"the best so far on {more:.3g} of the data")
        return self._new(history, best, share, taken, tried)

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

    def _share(self, history: History) -> float:
        """The largest share of the data that a trial has used or uses."""
        name = self._problem.fraction
        if name is None:
            return 1.0
        used = [float(str(configuration[name])) for configuration in history.configurations]
        return max(used)

    def _more(self, history: History, best: Trial, ended: list[Trial], share: float) -> float | None:
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
        if waited_s >= dearer / 2 or len(since) >= patience or spent_s >= MOST_ON_PARTS * self.budget_s:
            return larger[0]
        return None

    # The next place

    def _new(
        self, history: History, best: Trial | None, share: float, taken: int, tried: set[str]
    ) -> Proposal | None:
        here = self._start() if best is None else best.configuration
        stale = 0 if best is None else sum(trial.number > best.number for trial in history)
        for attempt in range(TRIES):
            anywhere = best is None or attempt > TRIES // 2 or taken % EVERYWHERE == EVERYWHERE - 1
            direction = rng_for(self._seed, "direction", (taken - 1) // 2, attempt)
            configuration = self._near(here, stale, direction, -1 if taken % 2 else 1)
            if anywhere:
                configuration |= self._drawn(rng_for(self._seed, "frugal", taken, attempt))
            if self._problem.fraction is not None:
                configuration[self._problem.fraction] = share
            if configuration in self._problem.space and self._problem.space.key(configuration) not in tried:
                return Proposal(configuration, "drawn anywhere" if anywhere else "a step from the best")
        return self._left(tried, share)

    def _drawn(self, rng: np.random.Generator) -> Configuration:
        """Values from anywhere, but for those that decide how long a trial takes."""
        free = [p for p in self._problem.space.parameters if p.name not in self._costly]
        return {p.name: p.from_unit(float(rng.random())) for p in free}

    def _near(self, here: Configuration, stale: int, rng: np.random.Generator, sign: int) -> Configuration:
        """A step of random direction; smaller the longer nothing better was found."""
        there = dict(here)
        count = max(len(self._varied), 1)
        step = max(STEP * 0.5 ** (stale / (2 * count)), LEAST_STEP) * math.sqrt(count)
        direction = rng.normal(size=count)
        direction *= sign * step / max(float(np.linalg.norm(direction)), 1e-12)
        switch = rng.random(count)
        for parameter, move, chance in zip(self._varied, direction, switch, strict=False):
            there[parameter.name] = _moved(parameter, here[parameter.name], float(move), float(chance), sign)
        return there

    def _left(self, tried: set[str], share: float) -> Proposal | None:
        """In a space that is nearly used up: whatever was not tried, in order."""
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


def _moved(parameter: Parameter, value: Any, move: float, chance: float, sign: int) -> Any:
    """A value some way along; a category changes now and then, rarer as steps get smaller."""
    if isinstance(parameter, Ordinal):
        u = (parameter.rank(value) + 0.5) / parameter.size + move
        return parameter.from_unit(_inside(u))
    if parameter.width == 1 and not hasattr(parameter, "rank"):
        place = parameter.encode(value)[0] + move
        return parameter.from_unit(_inside(place) if parameter.finite else min(max(place, 0.0), 1.0))
    if chance < 0.3 * min(1.0, abs(move) * 4):
        values = list(parameter.values)
        return values[(values.index(value) + sign) % len(values)]
    return value


def _inside(u: float) -> float:
    return min(max(u, 0.0), 1.0 - 1e-12)
