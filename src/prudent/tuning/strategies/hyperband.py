"""Hyperband: many configurations on little data, the best third of them on three times as much, and so on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prudent.core.errors import BadInput
from prudent.core.seeds import rng_for
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.brackets import Bracket, brackets, rank_key, time_exponent
from prudent.tuning.strategies.options import require
from prudent.tuning.strategies.strategy import best_configuration
from prudent.tuning.trial import Configuration, Proposal, Trial

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
            climber = self._climber(record, bracket, members)
            if climber is not None:
                return climber
            empty = 0 if members else empty + 1
            if empty == len(cycle):
                break
        return None

    def recommend(self, history: History) -> Configuration | None:
        return best_configuration(history)

    def _climber(
        self, record: BracketState, bracket: Bracket, members: list[ConfigurationKey]
    ) -> Proposal | None:
        """The next member of a bracket to be given more data; None when all is done or waits."""
        survivors = members
        for rung, above in itertools.pairwise(bracket):
            spots = [(place, rung.fraction) for place in survivors]
            if any(spot in record.pending for spot in spots):
                return None
            ended = [
                (place, record.trials[spot])
                for place, spot in zip(survivors, spots, strict=True)
                if spot in record.trials
            ]
            goal = self._problem.goal
            ended.sort(key=lambda pair: rank_key(goal, pair[1], rung.fraction, record.beta))
            survivors = [place for place, _ in ended if self._at(record, place, above.fraction)][
                : above.count
            ]
            for place in survivors:
                spot = (place, above.fraction)
                if spot not in record.trials and spot not in record.pending:
                    configuration = self._at(record, place, above.fraction)
                    assert configuration is not None
                    share = f"{rung.fraction:.3g}"
                    return Proposal(
                        configuration, f"among the best on {share} of the data, now {above.fraction:.3g}"
                    )
        return None

    def _at(self, record: BracketState, place: ConfigurationKey, fraction: float) -> Configuration | None:
        """A drawn configuration on that share of the data, if the space has it."""
        configuration = self._problem.with_fraction(record.drawn[place], fraction)
        return configuration if configuration in self._problem.space else None

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
        """Which of the choices is drawn: any. The seam for a strategy that knows better."""
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
