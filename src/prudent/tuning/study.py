"""A study: folds trials into a history, keeps the money, and survives being killed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.core.ledger import Entry, Ledger, Reservation
from prudent.core.money import ROUNDING_USD, Price
from prudent.core.space import Space
from prudent.core.threads import one_thread
from prudent.core.units import format_money
from prudent.tuning import censoring
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.journal import Fact, Journal
from prudent.tuning.limits import NEVER, OUT_OF_MONEY, SURPRISE, Limit, early_limit
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.registry import build, default_strategy
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Outcome, Progress, Proposal, Trial

UNKNOWN_SHARE = 0.25
"""What is put aside for a run of which nothing is known: this share of the money left. The run may go on
beyond it while there is money, but others can start beside it."""


@dataclass(frozen=True)
class Ask:
    """A trial to run: its number, where, and at what price; `at_s` is when, on the study's own clock."""

    number: int
    configuration: Configuration
    price: Price
    why: str
    decision_s: float
    proposal: Proposal
    at_s: float = 0.0


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
        self.options = dict(options or {})
        self.seed = seed
        self.strategy = build(self.strategy_name, self.problem, self.options, seed)
        self.ledger = Ledger(budget_usd)
        check_budget(self.problem, budget_usd)
        self.clock_s = 0.0
        self.known = tuple(self._as_known(trial, -place) for place, trial in enumerate(warm_start, start=1))
        self._trials: list[Trial] = []
        self._open: dict[int, tuple[Ask, Reservation]] = {}
        self._again: list[tuple[Ask, float]] = []
        self._next_number = 1
        self._journal: Journal | None = None
        if journal is not None:
            header = self._header(fingerprint)
            self._journal = Journal.open(journal, header, resume)
            try:
                self.replay(self._journal.facts)
            except BaseException:
                self._journal.close()
                raise

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

    def ask(self, at_s: float = 0.0) -> Ask | None:
        """The next trial, its money reserved; None when the strategy has enough or the money is gone.

        Trials that were under way when a study was interrupted come first. `at_s` is the time on the
        clock of whoever runs the trials: with it a resumed study can put them side by side again.
        """
        left = self.ledger.left_usd
        if left <= ROUNDING_USD:
            return None
        if self._again:
            again, wish_usd = self._again[0]
            if again.price.seconds_for(left) <= 0:
                return None  # the session that was killed has used its money; with more it is taken up
            del self._again[0]
            return self._begin(again, wish_usd)
        clock = time.perf_counter()
        with one_thread():
            proposal = self.strategy.propose(self.history, left)
        decision_s = time.perf_counter() - clock
        if proposal is None:
            return None
        price = self.problem.price(proposal.configuration)
        if price.seconds_for(left) <= 0:
            return None
        number = self._next_number
        ask = Ask(number, proposal.configuration, price, proposal.why, decision_s, proposal, at_s)
        wish_usd = self._wish(ask, left)
        self._record(
            "asked",
            number=ask.number,
            configuration=ask.configuration,
            why=ask.why,
            decision_s=decision_s,
            expected_usd=_finite(proposal.expected_usd),
            likely_usd=_finite(proposal.likely_usd),
            cap_usd=_finite(proposal.cap_usd),
            reserved_usd=_finite(wish_usd),
            at_s=at_s,
        )
        return self._begin(ask, wish_usd)

    def limit(
        self, number: int, overhead_s: float = 0.0, lasts_s: Callable[[float], float] | None = None
    ) -> Limit:
        """When a trial under way must be cut; may come nearer when another trial ends well.

        `overhead_s` of its time was not its own (booting). Where it costs more than its time, `lasts_s` tells
        until when an amount of money lasts.
        """
        ask, reservation = self._open_trial(number)
        money = Limit((lasts_s or ask.price.seconds_for)(reservation.usd), OUT_OF_MONEY)
        early = early_limit(self.problem, ask.configuration, ask.price, self.best)
        cap_usd = ask.proposal.cap_usd if self.problem.early_stop else None
        surprise = NEVER if cap_usd is None else Limit(ask.price.seconds_for(cap_usd), SURPRISE)
        own = min(early, surprise)
        return min(Limit(overhead_s + own.seconds, own.why), money)

    def extend(self, number: int) -> bool:
        """Reserve more for a trial that used up its reservation: as much again, if it is there."""
        _, reservation = self._open_trial(number)
        more = self.ledger.extend_up_to(reservation, max(reservation.usd, ROUNDING_USD * 10))
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
        outcome = self._complete(replace(outcome, time_s=outcome.time_s - overhead_s))
        progress = _without(overhead_s, progress)
        charge = self._charge(ask, reservation, outcome)
        trial = self._trial(ask, outcome, charge.usd if charge else 0.0, progress)
        # On the disk first: if that fails the trial is still under way, and can be told again.
        self._record("told", trial=trial.to_dict(), charge=charge.to_dict() if charge else None)
        if charge is None:
            self.ledger.release(reservation)
        else:
            self.ledger.settle_usd(reservation, charge.usd, charge.seconds, charge.price, note=charge.note)
        del self._open[number]
        self._trials.append(trial)
        self.clock_s = max(self.clock_s, ask.at_s + overhead_s + trial.time_s)
        return trial

    def charge(self, label: str, usd: float, price: Price) -> None:
        """Charge what is no trial's: machines that were idle, or those of a session that was killed.

        It was paid already, so it counts; but the budget is a promise, so the charge stops there.
        """
        usd = min(usd, self.ledger.left_usd)
        if usd > ROUNDING_USD:
            entry = Entry(label, usd, price.seconds_for(usd) if price.usd_per_h else 0.0, price)
            self._record("charged", charge=entry.to_dict())
            self.ledger.restore(entry)

    def abandon(self, number: int) -> None:
        """Forget a trial under way without charging it; a resumed study begins it again."""
        _, reservation = self._open_trial(number)
        self.ledger.release(reservation)
        del self._open[number]

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    # Inside

    def _wish(self, ask: Ask, left: float) -> float:
        """How much to reserve first; a run that needs more asks for more."""
        likely = ask.proposal.likely_usd
        if likely is None:
            early = early_limit(self.problem, ask.configuration, ask.price, self.best)
            likely = min(ask.price.cost_usd(early.seconds), left * UNKNOWN_SHARE)
        return min(left, max(likely, ask.price.cost_usd(ask.price.minimum_s)))

    def _begin(self, ask: Ask, wish_usd: float) -> Ask:
        reserved = self.ledger.reserve(f"trial {ask.number}", min(wish_usd, self.ledger.left_usd))
        self._open[ask.number] = (ask, reserved)
        self._next_number = max(self._next_number, ask.number + 1)
        self.clock_s = max(self.clock_s, ask.at_s)
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

    def _charge(self, ask: Ask, reservation: Reservation, outcome: Outcome) -> Entry | None:
        """What a run costs; nothing if it could not start and no machine was rented for it."""
        if outcome.bill_usd is None and (not outcome.started or outcome.time_s == 0):
            return None
        usd = ask.price.cost_usd(outcome.time_s) if outcome.bill_usd is None else outcome.bill_usd
        if usd == 0 and outcome.time_s == 0:
            return None
        if usd > reservation.usd:
            self.ledger.extend_up_to(reservation, usd - reservation.usd)
        # A live run ends a blink after its limit; the budget is a promise, so the charge stops there.
        charge = min(usd, reservation.usd)
        seconds = outcome.time_s + outcome.overhead_s
        return Entry(reservation.label, charge, seconds, ask.price, note=outcome.status)

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
        """What progress tells: the likely full time of a cut run; of a finished one, how far off."""
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

    def replay(self, facts: Sequence[Fact]) -> None:
        """Take up where the journal ends: what it knew, what was paid, and what was under way."""
        asked: dict[int, tuple[Ask, float]] = {}
        try:
            self.known = tuple(self._recorded(trial) for trial in facts[0]["known"])
            for fact in facts[1:]:
                if fact["fact"] == "asked":
                    asked[fact["number"]] = (self._asked(fact), _amount(fact["reserved_usd"]))
                elif fact["fact"] == "extended":
                    ask, _ = asked[fact["number"]]
                    asked[fact["number"]] = (ask, _amount(fact["reserved_usd"]))
                elif fact["fact"] == "told":
                    self._told(fact, asked)
                elif fact["fact"] == "charged":
                    self.ledger.restore(Entry.from_dict(fact["charge"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"The journal lacks {error}; restore the file from a copy.") from error
        self._again = list(asked.values())

    def _asked(self, fact: Fact) -> Ask:
        configuration = self.problem.space.check(fact["configuration"])
        expected, likely, cap = fact["expected_usd"], fact["likely_usd"], fact["cap_usd"]
        proposal = Proposal(configuration, fact["why"], expected, likely, cap)
        price, number, at_s = self.problem.price(configuration), fact["number"], fact["at_s"]
        self._next_number = max(self._next_number, number + 1)
        self.clock_s = max(self.clock_s, at_s)
        return Ask(number, configuration, price, proposal.why, fact["decision_s"], proposal, at_s)

    def _told(self, fact: Fact, asked: dict[int, tuple[Ask, float]]) -> None:
        trial = self._recorded(fact["trial"])
        ask, _ = asked.pop(trial.number)
        self._trials.append(trial)
        self.clock_s = max(self.clock_s, ask.at_s + trial.time_s)
        if fact["charge"] is not None:
            self.ledger.restore(Entry.from_dict(fact["charge"]))

    def _recorded(self, said: Fact) -> Trial:
        trial = Trial.from_dict(said)
        # JSON knows no tuples; the space does.
        return replace(trial, configuration=self.problem.space.check(trial.configuration))


def check_budget(problem: Problem, budget_usd: float | None) -> None:
    """Refuse a budget that cannot pay for the shortest run of the cheapest configuration."""
    if budget_usd is None:
        return
    if budget_usd <= 0:
        raise BadInput(f"The budget is {format_money(budget_usd)}; give an amount above 0.")
    if not problem.listed:
        return
    everything = problem.everything
    least = float((everything.minimum_s * everything.usd_per_s).min())
    if least > budget_usd:
        raise BadInput(
            f"The budget of {format_money(budget_usd)} pays for no run: the cheapest configuration is billed "
            f"at least {format_money(least)}; raise the budget or add cheaper machines."
        )


def _without(overhead_s: float, progress: Sequence[Progress]) -> Sequence[Progress]:
    """What was shown, counted from the end of the set-up; what lost machines showed is gone with them."""
    if overhead_s == 0:
        return progress
    later = (shown for shown in progress if shown.elapsed_s >= overhead_s)
    return [replace(shown, elapsed_s=shown.elapsed_s - overhead_s) for shown in later]


def _finite(usd: float | None) -> float | None:
    """An amount for JSON, which has no infinity (a share of a budget without end)."""
    return usd if usd is not None and math.isfinite(usd) else None


def _amount(usd: float | None) -> float:
    return math.inf if usd is None else usd


def _priced(price: Callable[[Configuration], Price | float]) -> Callable[[Configuration], Price]:
    """A price function that may answer with plain dollars per hour."""

    def full_price(configuration: Configuration) -> Price:
        answer = price(configuration)
        return answer if isinstance(answer, Price) else Price(float(answer), "", "given by the program")

    return full_price
