"""Searches: each proposes the trials of one method.

Random and grid search need no model and no history: the n-th configuration follows from the seed and n alone,
and memory holds one small number a trial. Every other search is a strategy of `prudent.tuning`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any, Protocol

from prudent.core.money import Price
from prudent.core.ranges import Integer
from prudent.core.sampling import sample
from prudent.core.seeds import rng_for
from prudent.core.space import Configuration, Space
from prudent.training.request.request import FRUGAL
from prudent.training.search.frugal import FrugalSearch
from prudent.training.search.methods import MethodPlan
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.problem import LISTED, Problem
from prudent.tuning.strategies.registry import build, register
from prudent.tuning.trial import Proposal, Trial

SCORE = "score"
QUEUED = "given"
"""The search of a plan whose configurations are chosen elsewhere."""


class MethodSearch(Protocol):
    """Proposes the trials of a method, in the method's own space."""

    def propose(self, started: int, pending: tuple[Proposal, ...]) -> Proposal | None:
        """The next trial, when so many were started of which some are under way; None: nothing now."""

    def take(self, trial: Trial) -> None:
        """A trial of the method has ended, in this session or an earlier one."""

    def has_more(self, started: int) -> bool:
        """Whether it may have another trial to propose."""

    def recommended(self) -> Configuration | None:
        """A configuration that the search believes in but has not run on all the data, if there is one."""


class EnumeratedSearch:
    """Random or grid search: the n-th configuration follows from the seed and n."""

    def __init__(self, plan: MethodPlan, seed: int) -> None:
        self._order = _ConfigurationOrder(plan.space, plan.search == "random", seed)

    def propose(self, started: int, pending: tuple[Proposal, ...]) -> Proposal | None:
        del pending
        configuration = self._order.at(started)
        why = "next in order" if self._order.listed else "drawn"
        return None if configuration is None else Proposal(configuration, why)

    def take(self, trial: Trial) -> None:
        pass

    def has_more(self, started: int) -> bool:
        return not self._order.listed or started < (self._order.size or 0)

    def recommended(self) -> Configuration | None:
        return None


class QueuedSearch:
    """Configurations that are put into a queue from outside, each tried once."""

    def __init__(self, plan: MethodPlan) -> None:
        self._space = plan.space
        self._known: set[str] = set()
        self._queue: list[Configuration] = []

    def enqueue(self, configuration: Configuration) -> None:
        self._queue.append(self._space.check(configuration))

    def propose(self, started: int, pending: tuple[Proposal, ...]) -> Proposal | None:
        known = self._known | {self._space.key(proposal.configuration) for proposal in pending}
        self._queue = [one for one in self._queue if self._space.key(one) not in known]
        return Proposal(self._queue[0], "the best so far, on more of the data") if self._queue else None

    def take(self, trial: Trial) -> None:
        self._known.add(self._space.key(trial.configuration))

    def has_more(self, started: int) -> bool:
        return bool(self._queue)

    def recommended(self) -> Configuration | None:
        return None


class StrategySearch:
    """Any other search: a strategy that knows the trials of this method alone."""

    def __init__(self, plan: MethodPlan, seed: int, price: Price, budget_s: float) -> None:
        register(FRUGAL, "prudent.training.search.frugal", "FrugalSearch", listed=False)
        self._predicts_full_data = plan.search in ("fabolas", "fabulinus")
        self._goal = Goal.parse(f"maximise {SCORE}" + (" at full data" if self._predicts_full_data else ""))
        self._problem = Problem(plan.space, self._goal, lambda _: price, (SCORE,), plan.fraction, False)
        starts = {"cheap": tuple(plan.cheap.items()), "good": tuple(plan.good.items()), "costly": plan.costly}
        options = starts if plan.search == FRUGAL else {}
        self._strategy = build(plan.search, self._problem, options, seed)
        if isinstance(self._strategy, FrugalSearch):
            # No option: a resumed request may have got more time.
            self._strategy.budget_s = budget_s
        self._trials: list[Trial] = []

    def propose(self, started: int, pending: tuple[Proposal, ...]) -> Proposal | None:
        return self._strategy.propose(History(self._goal, tuple(self._trials), pending), math.inf)

    def take(self, trial: Trial) -> None:
        """Whether it is an answer depends on the goal of this search, which may speak of all the data."""
        answers = trial.feasible and self._problem.answers(trial.configuration)
        self._trials.append(replace(trial, feasible=answers))

    def has_more(self, started: int) -> bool:
        return True

    def recommended(self) -> Configuration | None:
        if not self._predicts_full_data:
            return None
        return self._strategy.recommend(History(self._goal, tuple(self._trials)))


class _ConfigurationOrder:
    """The configurations of a space in a fixed order, by number: as they lie, or drawn without repetition."""

    def __init__(self, space: Space, shuffled: bool, seed: int) -> None:
        self._space, self._seed = space, seed
        self.size = space.size
        self.listed = self.size is not None and (not shuffled or self.size <= LISTED)
        self._places = None
        if shuffled and self.listed:
            self._places = rng_for(seed, "random").permutation(self.size or 0)
        self._seen: set[bytes] = set()
        self._draws = 0
        self._latest: Configuration | None = None

    def at(self, number: int) -> Configuration | None:
        """The configuration of that number, from 0; drawn ones are asked for in order."""
        if self.listed:
            if number >= (self.size or 0):
                return None
            return self._place(number if self._places is None else int(self._places[number]))
        while len(self._seen) <= number and (self.size is None or len(self._seen) < self.size):
            rng = rng_for(self._seed, "random", self._draws)
            self._draws += 1
            [configuration] = sample(self._space, 1, rng)
            mark = hashlib.blake2b(self._space.key(configuration).encode(), digest_size=8).digest()
            if mark not in self._seen:
                self._seen.add(mark)
                self._latest = configuration
        return self._latest if len(self._seen) == number + 1 else None

    def _place(self, number: int) -> Configuration:
        """The configuration at a place of the listing, the last parameter changing fastest."""
        chosen: dict[str, Any] = {}
        for parameter in reversed(self._space.parameters):
            values = parameter.range if isinstance(parameter, Integer) else parameter.values
            number, rank = divmod(number, len(values))
            chosen[parameter.name] = values[rank]
        return {name: chosen[name] for name in self._space.names}


def search_for(plan: MethodPlan, seed: int, price: Price, budget_s: float = math.inf) -> MethodSearch:
    """The search of a plan; `budget_s` is the training time of all plans together."""
    own_seed = int(rng_for(seed, "method", plan.index).integers(2**31))
    if plan.search == QUEUED:
        return QueuedSearch(plan)
    if plan.search in ("random", "grid"):
        return EnumeratedSearch(plan, own_seed)
    return StrategySearch(plan, own_seed, price, budget_s)
