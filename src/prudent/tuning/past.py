"""What a journal tells of earlier sessions: trials, charges, and what was under way when it ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from prudent.core.errors import BadInput
from prudent.core.ledger import LedgerEntry
from prudent.tuning.journal import Fact
from prudent.tuning.problem import Problem
from prudent.tuning.trial import PendingTrial, Proposal, Trial


@dataclass
class InterruptedTrial:
    """A trial that was asked for and not told: what was put aside, and how long it lasted at least."""

    ask: PendingTrial
    reserved_usd: float
    lasted_s: float = 0.0


@dataclass
class JournalState:
    """The facts of a journal, folded."""

    problem: Problem
    known: tuple[Trial, ...] = ()
    trials: list[Trial] = field(default_factory=list)
    entries: list[LedgerEntry] = field(default_factory=list)
    under_way: dict[int, InterruptedTrial] = field(default_factory=dict)
    numbers: int = 0
    clock_s: float = 0.0

    @classmethod
    def of(cls, facts: Sequence[Fact], problem: Problem) -> JournalState:
        """Read a journal; facts of kinds that this version does not know are passed over."""
        past = cls(problem)
        try:
            past.known = tuple(past._trial(trial) for trial in facts[0]["known"])
            for fact in facts[1:]:
                past._take(fact)
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"The journal lacks {error}; restore the file from a copy.") from error
        return past

    def _take(self, fact: Fact) -> None:
        kind = fact["fact"]
        if kind == "asked":
            self._asked(fact)
        elif kind == "extended":
            self.under_way[fact["number"]].reserved_usd = _amount(fact["reserved_usd"])
        elif kind == "alive":
            for number, lasted_s in fact["lasted_s"].items():
                self.under_way[int(number)].lasted_s = float(lasted_s)
        elif kind == "interrupted":
            self.under_way[fact["number"]].lasted_s = 0.0  # it is charged, and begins anew
            self._charged(fact)
        elif kind == "told":
            self._told(fact)
        elif kind == "charged":
            self._charged(fact)

    def _asked(self, fact: Fact) -> None:
        configuration = self.problem.space.check(fact["configuration"])
        usd = (fact["expected_usd"], fact["likely_usd"], fact["cap_usd"])
        proposal = Proposal(configuration, fact["why"], *usd)
        price, number, at_s = self.problem.price(configuration), fact["number"], fact["at_s"]
        ask = PendingTrial(number, configuration, price, proposal.why, fact["decision_s"], proposal, at_s)
        self.under_way[number] = InterruptedTrial(ask, _amount(fact["reserved_usd"]))
        self.numbers = max(self.numbers, number)
        self.clock_s = max(self.clock_s, at_s)

    def _told(self, fact: Fact) -> None:
        trial = self._trial(fact["trial"])
        ended = self.under_way.pop(trial.number)
        self.trials.append(trial)
        self.clock_s = max(self.clock_s, ended.ask.at_s + trial.time_s)
        self._charged(fact)

    def _charged(self, fact: Fact) -> None:
        if fact["charge"] is not None:
            self.entries.append(LedgerEntry.from_dict(fact["charge"]))

    def _trial(self, said: Fact) -> Trial:
        trial = Trial.from_dict(said)
        # JSON knows no tuples; the space does.
        return replace(trial, configuration=self.problem.space.check(trial.configuration))


def _amount(usd: float | None) -> float:
    return math.inf if usd is None else usd
