"""A study: folds trials into a history, keeps the money, and survives being killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.core.ledger import Entry, Ledger, Reservation
from prudent.core.money import ROUNDING_USD, Price
from prudent.core.space import Space
from prudent.tuning import censoring
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.journal import Journal
from prudent.tuning.limits import OUT_OF_MONEY, Limit, early_limit
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.registry import build, default_strategy
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Outcome, Progress, Proposal, Trial


@dataclass(frozen=True)
class Ask:
    """A trial to run: its number, where, and at what price."""

    number: int
    configuration: Configuration
    price: Price
    why: str
    decision_s: float
    proposal: Proposal


class Study:
    """Ask for the next configuration, tell how it went; the budget is never overrun.

    A program that runs things itself uses `ask` and `tell`; `prudent.tune` does it for a job.

    >>> from prudent.core.parameters import Integer
    >>> study = Study(Space([Integer("n", 1, 4)]), "minimise cost_usd", lambda c: 3.6 * c["n"],
    ...               budget_usd=1.0, strategy="grid")
    >>> ask = study.ask()
    >>> trial = study.tell(ask.number, time_s=100.0)
    >>> ask.configuration, trial.cost_usd, study.spent_usd
    ({'n': 1}, 0.1, 0.1)
    """

    def __init__(
        self,
        space: Space,
        goal: Goal | str,
        price: Callable[[Configuration], Price | float],
        budget_usd: float | None = None,
        strategy: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        measures: Sequence[str] = (),
        fraction: str | None = None,
        early_stop: bool = True,
        seed: int = 0,
        fingerprint: str = "",
        journal: str | Path | None = None,
        resume: bool = False,
        warm_start: Iterable[Trial] = (),
    ) -> None:
        self.problem = Problem(space, Goal.parse(goal), _priced(price), tuple(measures), fraction, early_stop)
        self.strategy_name = strategy or default_strategy(self.problem)
        self.seed = seed
        self.strategy = build(self.strategy_name, self.problem, dict(options or {}), seed)
        self.ledger = Ledger(budget_usd)
        self.known = tuple(self._as_known(trial, -place) for place, trial in enumerate(warm_start, start=1))
        self._trials: list[Trial] = []
        self._open: dict[int, tuple[Ask, Reservation]] = {}
        self._again: list[Ask] = []
        self._next_number = 1
        self._journal: Journal | None = None
        if journal is not None:
            header = self._header(fingerprint, dict(options or {}))
            self._journal = Journal.open(journal, header, resume)
            self._replay(self._journal.facts)

    # What there is

    @property
    def goal(self) -> Goal:
        return self.problem.goal

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every trial of this study that ended, in the order of ending."""
        return tuple(self._trials)

    @property
    def pending(self) -> tuple[Ask, ...]:
        return tuple(ask for ask, _ in self._open.values())

    @property
    def history(self) -> History:
        pending = tuple(ask.proposal for ask, _ in self._open.values())
        return History(self.goal, (*self.known, *self._trials), pending)

    @property
    def best(self) -> Trial | None:
        return self.history.best

    @property
    def recommended(self) -> Configuration | None:
        return self.strategy.recommend(self.history)

    @property
    def spent_usd(self) -> float:
        return self.ledger.spent_usd

    # Ask and tell

    def ask(self) -> Ask | None:
        """The next trial, its money reserved; None when the strategy has enough or the money is gone."""
        if self._again:
            return self._begin(self._again.pop(0))
        left = self.ledger.left_usd
        if left <= ROUNDING_USD:
            return None
        clock = time.perf_counter()
        proposal = self.strategy.propose(self.history, left)
        decision_s = time.perf_counter() - clock
        if proposal is None:
            return None
        price = self.problem.price(proposal.configuration)
        if price.seconds_for(left) <= 0:
            return None
        ask = Ask(self._next_number, proposal.configuration, price, proposal.why, decision_s, proposal)
        self._record(
            "asked",
            number=ask.number,
            configuration=ask.configuration,
            why=ask.why,
            decision_s=decision_s,
            expected_usd=proposal.expected_usd,
            likely_usd=proposal.likely_usd,
        )
        return self._begin(ask)

    def limit(self, number: int) -> Limit:
        """When a trial under way must be cut; may come nearer when another trial ends well."""
        ask, reservation = self._open_trial(number)
        money = Limit(ask.price.seconds_for(reservation.usd), OUT_OF_MONEY)
        return min(early_limit(self.problem, ask.configuration, ask.price, self.best), money)

    def extend(self, number: int) -> bool:
        """Reserve more for a trial that used up its reservation: as much again, if it is there."""
        _, reservation = self._open_trial(number)
        return self.ledger.extend_up_to(reservation, max(reservation.usd, ROUNDING_USD * 10)) > ROUNDING_USD

    def tell(
        self,
        number: int,
        outcome: Outcome | None = None,
        progress: Sequence[Progress] = (),
        *,
        time_s: float | None = None,
        measures: Mapping[str, float] | None = None,
        status: str = FINISHED,
        why: str = "",
    ) -> Trial:
        """Say how a trial ended: an `Outcome`, or its time and measures."""
        if outcome is None:
            if time_s is None:
                raise BadInput("Tell the trial's time_s, or hand in an Outcome.")
            outcome = Outcome(status, time_s, measures or {}, why)
        ask, reservation = self._open_trial(number)
        outcome = self._complete(outcome)
        entry = self._settle(ask, reservation, outcome)
        trial = self._trial(ask, outcome, entry.usd if entry else 0.0, progress)
        self._record("told", trial=trial.to_dict(), charge=entry.to_dict() if entry else None)
        del self._open[number]
        self._trials.append(trial)
        return trial

    def abandon(self, number: int) -> None:
        """Forget a trial under way without charging it; a resumed study begins it again."""
        _, reservation = self._open_trial(number)
        self.ledger.release(reservation)
        del self._open[number]

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    # Inside

    def _begin(self, ask: Ask) -> Ask:
        left = self.ledger.left_usd
        minimum = ask.price.cost_usd(ask.price.minimum_s)
        likely = ask.proposal.likely_usd
        wish = left if likely is None else min(left, max(likely, minimum))
        self._open[ask.number] = (ask, self.ledger.reserve(f"trial {ask.number}", wish))
        self._next_number = max(self._next_number, ask.number + 1)
        return ask

    def _open_trial(self, number: int) -> tuple[Ask, Reservation]:
        if number not in self._open:
            raise BadInput(f"Trial {number} is not under way; ask for it first, and tell it once.")
        return self._open[number]

    def _complete(self, outcome: Outcome) -> Outcome:
        """A finished run that lacks a measure of the goal has failed."""
        if outcome.status != FINISHED:
            return outcome
        missing = [m for m in self.goal.measures if m not in ("cost_usd", "time_s", *outcome.measures)]
        if not missing:
            return outcome
        return replace(outcome, status=FAILED, why=f"it ended without reporting {missing[0]}")

    def _settle(self, ask: Ask, reservation: Reservation, outcome: Outcome) -> Entry | None:
        if not outcome.started or outcome.time_s == 0:
            self.ledger.release(reservation)
            return None
        usd = ask.price.cost_usd(outcome.time_s)
        if usd > reservation.usd:
            self.ledger.extend_up_to(reservation, usd - reservation.usd)
        # A live run ends a blink after its limit; the budget is a promise, so the charge stops there.
        charge = min(usd, reservation.usd)
        return self.ledger.settle_usd(reservation, charge, outcome.time_s, ask.price, note=outcome.status)

    def _trial(self, ask: Ask, outcome: Outcome, spent_usd: float, progress: Sequence[Progress]) -> Trial:
        cost_usd = ask.price.cost_usd(outcome.time_s)
        values = {**outcome.measures, "time_s": outcome.time_s, "cost_usd": cost_usd}
        finished = outcome.status == FINISHED
        feasible = finished and self.problem.answers(ask.configuration) and self.goal.feasible(values)
        estimate = self._estimate(outcome, progress)
        return Trial(
            ask.number,
            ask.configuration,
            outcome.status,
            outcome.time_s,
            cost_usd,
            spent_usd,
            dict(outcome.measures),
            feasible,
            ask.decision_s,
            outcome.why,
            ask.why,
            estimate,
        )

    def _estimate(self, outcome: Outcome, progress: Sequence[Progress]) -> dict[str, float]:
        """What progress tells: the likely full time of a cut run; of a finished one, how good that guess is."""
        if not progress:
            return {}
        if outcome.status == CUT:
            time_s = censoring.estimate_time_s(self.goal, progress, outcome.time_s)
            return {} if time_s is None else {"time_s": time_s}
        if outcome.status == FINISHED:
            error = censoring.hindsight(self.goal, progress, outcome.time_s)
            return {} if error is None else {"log_error": error}
        return {}

    def _as_known(self, trial: Trial, number: int) -> Trial:
        configuration = self.problem.space.check(trial.configuration)
        feasible = trial.finished and self.problem.answers(configuration) and self.goal.feasible(trial.values)
        return replace(
            trial, configuration=configuration, number=number, spent_usd=0.0, feasible=feasible, known=True
        )

    # The journal

    def _header(self, fingerprint: str, options: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "job": fingerprint or self.problem.space.fingerprint(),
            "goal": str(self.goal),
            "strategy": self.strategy_name,
            "options": dict(options),
            "early_stop": self.problem.early_stop,
            "seed": self.seed,
        }

    def _record(self, fact: str, **values: Any) -> None:
        if self._journal is not None:
            self._journal.write({"fact": fact, **values})

    def _replay(self, facts: Sequence[Mapping[str, Any]]) -> None:
        asked: dict[int, Ask] = {}
        for fact in facts:
            if fact["fact"] == "asked":
                ask = self._asked(fact)
                asked[ask.number] = ask
                self._next_number = ask.number + 1
            elif fact["fact"] == "told":
                trial = Trial.from_dict(fact["trial"])
                asked.pop(trial.number, None)
                self._trials.append(trial)
                if fact["charge"] is not None:
                    self.ledger.restore(Entry.from_dict(fact["charge"]))
        self._again = list(asked.values())

    def _asked(self, fact: Mapping[str, Any]) -> Ask:
        proposal = Proposal(fact["configuration"], fact["why"], fact["expected_usd"], fact["likely_usd"])
        price = self.problem.price(proposal.configuration)
        return Ask(fact["number"], proposal.configuration, price, proposal.why, fact["decision_s"], proposal)


def _priced(price: Callable[[Configuration], Price | float]) -> Callable[[Configuration], Price]:
    """A price function that may answer with plain dollars per hour."""

    def full_price(configuration: Configuration) -> Price:
        answer = price(configuration)
        return answer if isinstance(answer, Price) else Price(float(answer), "", "given by the program")

    return full_price
