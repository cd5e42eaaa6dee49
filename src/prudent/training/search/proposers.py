"""Proposers: each proposes the trials of one method, and keeps on the disk what they gave.

Random and grid search need no model and no history: the n-th configuration follows from the seed and n alone,
and memory holds one small number a trial. Every other search is a study of `prudent.tuning`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from prudent.core.money import Price
from prudent.core.ranges import Integer
from prudent.core.sampling import sample
from prudent.core.seeds import rng_for
from prudent.core.space import Configuration, Space
from prudent.training.request.request import FRUGAL
from prudent.training.search.frugal import FrugalSearch
from prudent.training.search.methods import MethodPlan
from prudent.tuning.journal import Journal
from prudent.tuning.problem import LISTED
from prudent.tuning.strategies.registry import register
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Outcome, Progress

SCORE = "score"
ENQUEUED = "given"
"""The search of a plan whose configurations are chosen elsewhere."""


@dataclass(frozen=True)
class TrialProposal:
    """A trial that is proposed for a method: its number among that method's trials, and its configuration."""

    number: int
    configuration: Configuration
    why: str


@dataclass(frozen=True)
class Observation:
    """A trial of a method that ended, in this session or an earlier one."""

    number: int
    configuration: Configuration
    outcome: Outcome
    cost_usd: float


class Proposer(Protocol):
    """Proposes the trials of a method when asked; `tell` writes what they gave to the disk."""

    def ask(self) -> TrialProposal | None: ...

    def tell(
        self, proposal: TrialProposal, outcome: Outcome, progress: list[Progress], cost_usd: float
    ) -> None: ...

    def has_more(self) -> bool:
        """Whether it may have another trial to ask for."""

    def abandon(self, proposal: TrialProposal) -> None:
        """Forget a trial under way; a resumed search begins it again."""

    def earlier_trials(self) -> Iterator[Observation]:
        """The trials of earlier sessions."""

    def recommended(self) -> Configuration | None:
        """A configuration that the search believes in but has not run on all the data, if there is one."""

    def close(self) -> None: ...


class _JournalledProposer:
    """A search that needs no history: observations go to the journal and are not kept in memory."""

    def __init__(self, space: Space, header: dict[str, Any], journal: Path, resume: bool) -> None:
        self._journal = Journal.open(journal, header, resume)
        facts = [fact for fact in self._journal.facts if fact["fact"] == "told"]
        self._earlier = [
            Observation(
                fact["number"],
                space.check(fact["configuration"]),
                Outcome(fact["status"], fact["time_s"], fact["measures"], fact["why"], fact["started"]),
                fact["cost_usd"],
            )
            for fact in facts
        ]
        self._journal.facts.clear()

    def tell(
        self, proposal: TrialProposal, outcome: Outcome, progress: list[Progress], cost_usd: float
    ) -> None:
        del progress
        self._journal.write(
            {
                "fact": "told",
                "number": proposal.number,
                "configuration": proposal.configuration,
                "status": outcome.status,
                "time_s": outcome.time_s,
                "measures": dict(outcome.measures),
                "why": outcome.why,
                "started": outcome.started,
                "cost_usd": cost_usd,
            }
        )
        self._journal.facts.clear()  # they are on the disk; ten thousand trials need no memory

    def abandon(self, proposal: TrialProposal) -> None:
        del proposal

    def earlier_trials(self) -> Iterator[Observation]:
        yield from self._earlier
        self._earlier = []

    def recommended(self) -> Configuration | None:
        return None

    def close(self) -> None:
        self._journal.close()


class EnumeratedProposer(_JournalledProposer):
    """Random or grid search: the n-th configuration follows from the seed and n."""

    def __init__(self, plan: MethodPlan, seed: int, fingerprint: str, journal: Path, resume: bool) -> None:
        header = {"job": fingerprint, "search": plan.search, "seed": seed}
        super().__init__(plan.space, header, journal, resume)
        self._order = _ConfigurationOrder(plan.space, plan.search == "random", seed)
        self._done = {observation.number for observation in self._earlier}
        self._next = 0

    def has_more(self) -> bool:
        if not self._order.listed:
            return True
        return any(number not in self._done for number in range(self._next + 1, (self._order.size or 0) + 1))

    def ask(self) -> TrialProposal | None:
        while True:
            self._next += 1
            configuration = self._order.at(self._next - 1)
            if configuration is None:
                return None
            if self._next not in self._done:
                return TrialProposal(
                    self._next, configuration, "next in order" if self._order.listed else "drawn"
                )


class EnqueuedProposer(_JournalledProposer):
    """Configurations that are enqueued from outside, each tried once, in this session or an earlier one."""

    def __init__(self, plan: MethodPlan, fingerprint: str, journal: Path, resume: bool) -> None:
        super().__init__(plan.space, {"job": fingerprint, "search": "given"}, journal, resume)
        self._space = plan.space
        self._known = {plan.space.key(observation.configuration) for observation in self._earlier}
        self._next = max((observation.number for observation in self._earlier), default=0)
        self._queue: list[Configuration] = []

    def enqueue(self, configuration: Configuration) -> None:
        """Add a configuration to the queue; one that was enqueued before is skipped."""
        key = self._space.key(configuration)
        if key not in self._known:
            self._known.add(key)
            self._queue.append(self._space.check(configuration))

    def has_more(self) -> bool:
        return bool(self._queue)

    def ask(self) -> TrialProposal | None:
        if not self._queue:
            return None
        self._next += 1
        return TrialProposal(self._next, self._queue.pop(0), "the best so far, on more of the data")


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
        self._drawn = 0

    def at(self, number: int) -> Configuration | None:
        """The configuration of that number; drawn ones are asked for in order, from 0."""
        if self.listed:
            if number >= (self.size or 0):
                return None
            return self._place(number if self._places is None else int(self._places[number]))
        assert number == self._drawn
        while self.size is None or len(self._seen) < self.size:
            rng = rng_for(self._seed, "random", self._draws)
            self._draws += 1
            [configuration] = sample(self._space, 1, rng)
            mark = hashlib.blake2b(self._space.key(configuration).encode(), digest_size=8).digest()
            if mark not in self._seen:
                self._seen.add(mark)
                self._drawn += 1
                return configuration
        return None

    def _place(self, number: int) -> Configuration:
        """The configuration at a place of the listing, the last parameter changing fastest."""
        chosen: dict[str, Any] = {}
        for parameter in reversed(self._space.parameters):
            values = parameter.range if isinstance(parameter, Integer) else parameter.values
            number, rank = divmod(number, len(values))
            chosen[parameter.name] = values[rank]
        return {name: chosen[name] for name in self._space.names}


class StudyProposer:
    """Any other strategy: a study of its own proposes the trials."""

    def __init__(
        self,
        plan: MethodPlan,
        seed: int,
        fingerprint: str,
        journal: Path,
        resume: bool,
        price: Price,
        budget_s: float,
    ) -> None:
        register(FRUGAL, "prudent.training.search.frugal", "FrugalSearch", listed=False)
        self._predicts_full_data = plan.search in ("fabolas", "fabulinus")
        starts = {"cheap": tuple(plan.cheap.items()), "good": tuple(plan.good.items()), "costly": plan.costly}
        options = starts if plan.search == FRUGAL else {}
        self._study = Study(
            plan.space,
            f"maximise {SCORE}" + (" at full data" if self._predicts_full_data else ""),
            lambda configuration: price,
            None,
            plan.search,
            options,
            measures=(SCORE,),
            fraction=plan.fraction,
            early_stop=False,
            seed=seed,
            fingerprint=fingerprint,
            journal=journal,
            resume=resume,
        )
        self._before = len(self._study.trials)
        if isinstance(self._study.strategy, FrugalSearch):
            # No option of the study: a resumed request may have got more time.
            self._study.strategy.budget_s = budget_s

    def has_more(self) -> bool:
        return True

    def ask(self) -> TrialProposal | None:
        ask = self._study.ask()
        return None if ask is None else TrialProposal(ask.number, ask.configuration, ask.why)

    def tell(
        self, proposal: TrialProposal, outcome: Outcome, progress: list[Progress], cost_usd: float
    ) -> None:
        self._study.tell(proposal.number, replace(outcome, bill_usd=cost_usd), progress)

    def abandon(self, proposal: TrialProposal) -> None:
        self._study.abandon(proposal.number)

    def earlier_trials(self) -> Iterator[Observation]:
        for trial in self._study.trials[: self._before]:
            outcome = Outcome(trial.status, trial.time_s, trial.measures, trial.why)
            yield Observation(trial.number, trial.configuration, outcome, trial.spent_usd)

    def recommended(self) -> Configuration | None:
        return self._study.recommended if self._predicts_full_data else None

    def close(self) -> None:
        self._study.close()


def proposer_for(
    plan: MethodPlan,
    seed: int,
    fingerprint: str,
    journal: Path,
    resume: bool,
    price: Price,
    budget_s: float = math.inf,
) -> Proposer:
    """The proposer of a plan; `budget_s` is the training time of all plans together."""
    own_seed = int(rng_for(seed, "method", plan.index).integers(2**31))
    named = f"{fingerprint} {plan.index} {plan.algorithm.name} {plan.space.fingerprint()}"
    if plan.search == ENQUEUED:
        return EnqueuedProposer(plan, named, journal, resume)
    if plan.search in ("random", "grid"):
        return EnumeratedProposer(plan, own_seed, named, journal, resume)
    return StudyProposer(plan, own_seed, named, journal, resume, price, budget_s)
