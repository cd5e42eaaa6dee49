"""A study: folds trials into a history, keeps the money, and survives being killed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.core.journal import Fact
from prudent.core.ledger import CREDIT, Ledger, LedgerEntry, Reservation
from prudent.core.money import ROUNDING_USD, Price
from prudent.core.processes import one_thread
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.history import History, best_of
from prudent.tuning.journal import Journal, JournalState
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.registry import build, default_strategy
from prudent.tuning.strategies.strategy import Strategy
from prudent.tuning.study.limits import NEVER, OUT_OF_MONEY, SURPRISE, Limit, early_limit, noticed
from prudent.tuning.study.settlement import (
    charge_of,
    completed,
    interrupted_charge,
    interrupted_outcome,
    known_trial,
    progress_after,
    trial_of,
)
from prudent.tuning.trial import FINISHED, Configuration, Outcome, PendingTrial, Progress, Trial

UNKNOWN_SHARE = 0.25
"""What is put aside for a run of which nothing is known: this share of the money left. The run may go on
beyond it while there is money, but others can start beside it."""


class Study:
    """Ask for the next configuration, tell how it went; no more money is given out than there is.

    A program that runs things itself uses `ask` and `tell`; `prudent.tune` does it for a job.

    >>> from prudent.core.ranges import Integer
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
        strategy: str | Strategy | None = None,
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
        outlived_s: Mapping[int, float] | None = None,
    ) -> None:
        """`strategy` is one by name, or one that the caller has built.

        `outlived_s`: how long trials of a killed session went on until they were ended, where known.
        """
        self.problem = Problem(space, Goal.parse(goal), _priced(price), tuple(measures), fraction, early_stop)
        self.options, self.seed = dict(options or {}), seed
        self.strategy_name, self.strategy = self._built(strategy)
        self.ledger = Ledger(budget_usd)
        self.problem.check_budget(budget_usd)
        self.clock_s = 0.0
        self.known = tuple(
            known_trial(self.problem, trial, -place) for place, trial in enumerate(warm_start, start=1)
        )
        self._trials: list[Trial] = []
        self._best: Trial | None = None
        self._note_best(*self.known)
        self._open: dict[int, tuple[PendingTrial, Reservation]] = {}
        self._interrupted_trials: list[tuple[PendingTrial, float]] = []
        self._next_number = 1
        self._journal: Journal | None = None
        if journal is not None:
            header = self._header(fingerprint)
            self._journal = Journal.open(journal, header, resume)
            try:
                self.replay(self._journal.facts, outlived_s or {})
                self._journal.facts.clear()
            except BaseException:
                self._journal.close()
                raise

    @property
    def goal(self) -> Goal:
        return self.problem.goal

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Every trial of this study that ended, in the order of ending."""
        return tuple(self._trials)

    @property
    def pending(self) -> tuple[PendingTrial, ...]:
        return tuple(ask for ask, _ in self._open.values())

    @property
    def history(self) -> History:
        pending = tuple(ask.proposal for ask, _ in self._open.values())
        return History(self.goal, (*self.known, *self._trials), pending)

    @property
    def best(self) -> Trial | None:
        return self._best

    @property
    def recommended(self) -> Configuration | None:
        return self.strategy.recommend(self.history)

    @property
    def spent_usd(self) -> float:
        return self.ledger.spent_usd

    def ask(self, at_s: float = 0.0, room_s: float = 0.0) -> PendingTrial | None:
        """The next trial, its money reserved; None when the strategy has enough or the money is gone.

        Trials that were under way when a study was interrupted come first. `at_s` is the time on the
        clock of whoever runs the trials: with it a resumed study can put them side by side again. `room_s` is
        how long it takes to end a run: no trial is begun that the money left would not see to its end.
        """
        left = self.ledger.left_usd
        if left <= ROUNDING_USD:
            return None
        if self._interrupted_trials:
            trial, reserve_usd = self._interrupted_trials[0]
            if trial.price.lasts_s(left) <= room_s:
                return None  # the session that was killed has used its money; with more it is taken up
            del self._interrupted_trials[0]
            return self._begin(trial, reserve_usd)
        clock = time.perf_counter()
        with one_thread():
            proposal = self.strategy.propose(self.history, left)
        decision_s = time.perf_counter() - clock
        if proposal is None:
            return None
        price = self.problem.price(proposal.configuration)
        if price.lasts_s(left) <= room_s:
            return None
        number = self._next_number
        ask = PendingTrial(number, proposal.configuration, price, proposal.why, decision_s, proposal, at_s)
        reserve_usd = self._first_reservation_usd(ask, left)
        self._record(
            "asked",
            number=ask.number,
            configuration=ask.configuration,
            why=ask.why,
            decision_s=decision_s,
            expected_usd=_finite(proposal.expected_usd),
            likely_usd=_finite(proposal.likely_usd),
            cap_usd=_finite(proposal.cap_usd),
            reserved_usd=_finite(reserve_usd),
            at_s=at_s,
            **({"check_s": proposal.check_s} if proposal.check_s else {}),
        )
        return self._begin(ask, reserve_usd)

    def limit(
        self,
        number: int,
        overhead_s: float = 0.0,
        lasts_s: Callable[[float], float] | None = None,
    ) -> Limit:
        """When a trial under way must be cut; may come nearer when another trial ends well.

        `overhead_s` of its time was not its own (booting). Where it costs more than its time, `lasts_s` tells
        until when an amount of money lasts, its end included.
        """
        ask, reservation = self._open_trial(number)
        money = Limit(max((lasts_s or ask.price.lasts_s)(reservation.usd), 0.0), OUT_OF_MONEY)
        early = early_limit(self.problem, ask.configuration, ask.price, self.best)
        cap_usd = ask.proposal.cap_usd if self.problem.early_stop else None
        surprise = NEVER if cap_usd is None else Limit(ask.price.seconds_for(cap_usd), SURPRISE)
        own = noticed(min(early, surprise), ask.proposal.check_s)
        return min(Limit(overhead_s + own.seconds, own.why), money)

    def reserved_usd(self, number: int) -> float:
        """What is put aside for a trial under way."""
        return self._open_trial(number)[1].usd

    def extend(self, number: int, more_usd: float | None = None) -> bool:
        """Reserve more for a trial, as far as it is there: as much again, or `more_usd`."""
        _, reservation = self._open_trial(number)
        wanted_usd = reservation.usd if more_usd is None else more_usd
        more = self.ledger.extend_up_to(reservation, max(wanted_usd, ROUNDING_USD * 10))
        if more <= ROUNDING_USD:
            return False
        self._record("extended", number=number, reserved_usd=_finite(reservation.usd))
        return True

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
        overhead_s = min(outcome.overhead_s, outcome.time_s)
        outcome = completed(self.goal, replace(outcome, time_s=outcome.time_s - overhead_s))
        progress = progress_after(overhead_s, progress)
        charge = charge_of(reservation.label, ask.price, outcome, reservation.usd)
        trial = trial_of(self.problem, ask, outcome, charge.usd if charge else 0.0, progress)
        # On the disk first: if that fails the trial is still under way, and can be told again.
        self._record("told", trial=trial.to_dict(), charge=charge.to_dict() if charge else None)
        if charge is None:
            self.ledger.release(reservation)
        else:
            self.ledger.settle_usd(reservation, charge.usd, charge.seconds, charge.price, note=charge.note)
        del self._open[number]
        self._trials.append(trial)
        self._note_best(trial)
        self.clock_s = max(self.clock_s, ask.at_s + overhead_s + trial.time_s + outcome.ending_s)
        return trial

    def charge(self, label: str, usd: float, price: Price) -> None:
        """Charge what is not a trial's: machines that were idle, or those of a session that was killed.

        Below zero it takes back what trials were charged for machines that were gone, as turned out later.
        """
        if abs(usd) > ROUNDING_USD:
            seconds = price.seconds_for(usd) if price.usd_per_h and usd > 0 else 0.0
            entry = LedgerEntry(label, usd, seconds, price, note=CREDIT if usd < 0 else "")
            self._record("charged", charge=entry.to_dict())
            self.ledger.restore(entry)

    def alive(self, lasted_s: Mapping[int, float]) -> None:
        """Note on the disk how long trials under way have lasted: after a crash that much is charged."""
        if lasted_s:
            self._record("alive", lasted_s={str(number): seconds for number, seconds in lasted_s.items()})

    def interrupt(self, number: int, outcome: Outcome) -> None:
        """Charge a trial under way for the time it had, and forget it; a resumed study begins it again."""
        ask, _ = self._open_trial(number)
        self._interrupted(ask, outcome)
        self.abandon(number)

    def abandon(self, number: int) -> None:
        """Forget a trial under way that has cost nothing; a resumed study begins it again."""
        _, reservation = self._open_trial(number)
        self.ledger.release(reservation)
        del self._open[number]

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _built(self, strategy: str | Strategy | None) -> tuple[str, Strategy]:
        if strategy is not None and not isinstance(strategy, str):
            return str(getattr(strategy, "name", type(strategy).__name__)), strategy
        name = strategy or default_strategy(self.problem)
        return name, build(name, self.problem, self.options, self.seed)

    def _note_best(self, *trials: Trial) -> None:
        """Keep the best so far up to date: limits ask for it all the time."""
        before = () if self._best is None else (self._best,)
        self._best = best_of(self.goal, (*before, *trials))

    def _first_reservation_usd(self, ask: PendingTrial, left: float) -> float:
        """How much to reserve first; a run that needs more asks for more."""
        likely = ask.proposal.likely_usd
        if likely is None:
            early = early_limit(self.problem, ask.configuration, ask.price, self.best)
            likely = min(ask.price.bill_usd(early.seconds), left * UNKNOWN_SHARE)
        elif ask.price.overhead_s:
            likely += ask.price.cost_usd(ask.price.overhead_s)
        return min(left, max(likely, ask.price.least_usd))

    def _begin(self, ask: PendingTrial, reserve_usd: float) -> PendingTrial:
        reserved = self.ledger.reserve(f"trial {ask.number}", min(reserve_usd, self.ledger.left_usd))
        self._open[ask.number] = (ask, reserved)
        self._next_number = max(self._next_number, ask.number + 1)
        self.clock_s = max(self.clock_s, ask.at_s)
        return ask

    def _open_trial(self, number: int) -> tuple[PendingTrial, Reservation]:
        if number not in self._open:
            raise BadInput(f"Trial {number} is not under way; ask for it first, and tell it once.")
        return self._open[number]

    def _interrupted(self, ask: PendingTrial, outcome: Outcome) -> None:
        charge = interrupted_charge(f"trial {ask.number}", ask.price, outcome)
        if charge is not None:
            self._record("interrupted", number=ask.number, charge=charge.to_dict())
            self.ledger.restore(charge)

    def _header(self, fingerprint: str) -> dict[str, Any]:
        return {
            "job": fingerprint or self.problem.space.fingerprint(),
            "goal": str(self.goal),
            "strategy": self.strategy_name,
            "options": self.options,
            "early_stop": self.problem.early_stop,
            "seed": self.seed,
            "known": [trial.to_dict() for trial in self.known],
        }

    def _record(self, fact: str, **values: Any) -> None:
        if self._journal is not None:
            self._journal.write({"fact": fact, **values})

    def replay(self, facts: Sequence[Fact], outlived_s: Mapping[int, float] | None = None) -> None:
        """Take up where the journal ends: what it knew, what was paid, and what was under way.

        What was under way has cost its time up to its last sign of life; that is charged here.
        """
        state = JournalState.of(facts, self.problem)
        self.known, self._trials = state.known, state.trials
        self._next_number = state.numbers + 1
        self.clock_s = state.clock_s
        self._note_best(*self.known, *self._trials)
        for entry in state.entries:
            self.ledger.restore(entry)
        for number, one in state.under_way.items():
            lasted_s = max(one.lasted_s, (outlived_s or {}).get(number, 0.0))
            self._interrupted(one.ask, interrupted_outcome(lasted_s))
        self._interrupted_trials = [(one.ask, one.reserved_usd) for one in state.under_way.values()]


def _finite(usd: float | None) -> float | None:
    """An amount for JSON, which has no infinity (a share of a budget without end)."""
    return usd if usd is not None and math.isfinite(usd) else None


def _priced(price: Callable[[Configuration], Price | float]) -> Callable[[Configuration], Price]:
    """A price function that may answer with plain dollars per hour."""

    def full_price(configuration: Configuration) -> Price:
        answer = price(configuration)
        return answer if isinstance(answer, Price) else Price(float(answer), "", "given by the program")

    return full_price
