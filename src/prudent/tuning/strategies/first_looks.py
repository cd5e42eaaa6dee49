"""The first trials on parts of the data: a few configurations, and how one of them scales."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prudent.core.money import ROUNDING_USD
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.start import initial_configurations
from prudent.tuning.trial import Configuration, Proposal


class ScalingDesign:
    """Different configurations on the least data, then the cheapest of them on more: a few cents.

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
        """The next of the first trials that the money can start; None when they are over, or none is left."""
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
        """Configurations that differ in more than their fraction; the same for the same count, always."""
        if count not in self._different:
            least, key = self._fractions[0], self._problem.space.key
            drawn = initial_configurations(self._problem, self._method, 4 * count, self._seed)
            at_least = (self._problem.with_fraction(c, least) for c in drawn)
            self._different[count] = list({key(c): c for c in at_least}.values())[:count]
        return self._different[count]
