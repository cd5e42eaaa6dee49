"""The search of a request: trials of all methods side by side, until a limit is reached or all is tried."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from prudent.core.money import ROUNDING_USD
from prudent.core.units import format_duration, format_money
from prudent.training.engines.engine import TrainingSession, TrialSpec
from prudent.training.leaderboard import (
    EventCallback,
    LeaderboardEntry,
    SpendingUpdated,
    TrainingTrialEnded,
    TrainingTrialReported,
    TrainingTrialStarted,
    TrialFailure,
)
from prudent.training.request.request import TrainingRequest
from prudent.training.search.accounting import CostAccounting, TrialHeartbeats
from prudent.training.search.methods import MethodPlan, MethodProgress, choose_method
from prudent.training.search.monitor import TrialInProgress, TrialMonitor
from prudent.training.search.proposers import ENQUEUED, EnqueuedProposer, Observation, Proposer, TrialProposal
from prudent.training.search.results import TIME_UP, TOO_LONG, TrialResults, gave_model, promotions
from prudent.training.search.stopping import (
    OTHERS_BETTER,
    SAFE_SHARE,
    FinishedCurves,
    SearchLimits,
    TrialTimes,
)
from prudent.tuning.endings import ShutdownMargin
from prudent.tuning.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FAILED, Outcome, Progress

GIVE_UP = 25
"""A method whose first trials all failed, so many of them, is not tried further (a grid is)."""
LEFT_FOR_MORE_DATA = 0.2
"""The share of a budget that a search on parts of the data leaves for training the best on all of them."""

GRACE_S = 5.0
"""The search cuts a trial in time; an engine that has heard nothing so much later ends it by itself."""

INTERRUPTED = "it was interrupted"


class TrainingSearch:
    """Runs the trials of some plans; `results` grow as trials end.

    Trials of earlier sessions are taken in first, and paid for already. The clock is that of the whole
    request: what earlier sessions took counts. The last `later` plans repeat the others, for what did best on
    a part of the data: they come at the end, when only what the terms put by is left.
    """

    def __init__(
        self,
        plans: Sequence[MethodPlan],
        seekers: Sequence[Proposer],
        session: TrainingSession,
        request: TrainingRequest,
        work: Path,
        terms: SearchLimits,
        charging: CostAccounting,
        signs: TrialHeartbeats,
        watch: EventCallback | None = None,
        later: int = 0,
    ) -> None:
        self._plans, self._seekers, self._session = plans, seekers, session
        self._request, self._work, self._terms = request, work, terms
        self._charging, self._turns, self._endings = charging, TrialTimes(terms), ShutdownMargin()
        self._signs = signs
        self._watch = watch or (lambda event: None)
        self.results = TrialResults(terms.metric)
        self.ended = ""
        self._standings = [MethodProgress() for _ in plans]
        self._later = range(len(plans) - later, len(plans))
        self._open = set(range(len(plans) - later))
        self._waiting: set[int] = set()
        self._futile = False
        self._peers = FinishedCurves()
        self._listener = TrialMonitor(
            self._limit_s, charging.every_s, self._endings.noticed, self._sign, lambda: signs.due_s
        )
        self._members = self._listener.members
        for index, seeker in enumerate(seekers):
            for told in seeker.earlier():
                self._take_in(index, told)
        lost_s = signs.lost_s(self.results.numbers)
        self._turns.used_before(lost_s / terms.parallelism)
        self.interrupted_usd = charging.lost(lost_s)
        if len(self.results) or lost_s:
            self._watch(SpendingUpdated(charging.spent_usd))

    # The loop

    def run(self) -> bool:
        """Work until nothing is left to do; True if it was interrupted."""
        try:
            self._fill()
            while self._members:
                member, event = self._listener.hear()
                self._handle(member, event)
                self._fill()
        except KeyboardInterrupt:
            self.ended = INTERRUPTED
            self._drop()
            return True
        except BaseException:
            self._drop()
            raise
        finally:
            self._listener.close()
        return False

    def _fill(self) -> None:
        while len(self._members) < self._terms.parallelism:
            over = self._over()
            ready = [index for index in sorted(self._open) if index not in self._waiting]
            if not over and not ready and self._start_again():
                continue
            if over or not ready:
                self.ended = self.ended or over or ("" if self._members else self._all_tried())
                if not self._later or not (over or not self._members):
                    return
                self._go_on_with_the_best()
                continue
            index = choose_method(
                self._standings, ready, self._in_turn, self._request.seed, self._turns.left_s()
            )
            if not self._start(index):
                if any(member.index == index for member in self._members.values()):
                    self._waiting.add(index)
                else:
                    self._open.discard(index)

    def _go_on_with_the_best(self) -> None:
        """From now on only what did best on a part of the data, or promises to, is trained on more.

        Where nothing is left to train on more data, the search goes on as before until the end.
        """
        first, self._later = self._later, range(0)
        self._terms = replace(self._terms, put_by=0.0)
        foretold = [
            (place, seeker.recommended()) for place, seeker in enumerate(self._seekers[: first.start])
        ]
        chosen = [(place, self._plans[place].on(1.0, found)) for place, found in foretold if found]
        left_s = SAFE_SHARE * self._turns.left_s()
        entries, plans = self.results.entries, self._plans[: first.start]
        chosen = chosen or promotions(entries, plans, left_s, self._terms.parallelism)
        if not chosen:
            self.ended = ""
            return
        self._open, self._waiting = set(first), set()
        for place, configuration in chosen:
            again = self._seekers[first.start + place]
            assert isinstance(again, EnqueuedProposer)
            again.add(configuration)

    @property
    def _in_turn(self) -> bool:
        return self._plans[0].search in ("random", "grid")

    def _over(self) -> str:
        """Why no further trial may start; empty while it may."""
        terms, charging = self._terms, self._charging
        if len(self.results) + len(self._members) >= terms.most_trials:
            return f"{terms.trials} trials were made"
        spent = charging.left_usd <= max(ROUNDING_USD, terms.put_by_usd())
        if spent or self._futile or charging.paid_s <= self._endings.least_s:
            return f"the budget of {format_money(terms.price_of_all_usd or 0.0)} is spent"
        if self._turns.left_s() <= terms.put_by_s():
            if terms.time_s is not None and terms.time_s <= terms.deadline_left_s:
                return f"the {format_duration(terms.time_s)} are over"
            return "the deadline has come"
        return ""

    def _all_tried(self) -> str:
        if not self.results.cut_short:
            return "everything was tried"
        left = format_duration(max(self._turns.left_s(), 0.0))
        return f"everything was tried, and the {left} left are too short for what was cut"

    def _start(self, index: int) -> bool:
        """Begin a trial of a method; False if it has none to begin now."""
        plan, standing = self._plans[index], self._standings[index]
        if not self._terms.limited and standing.started >= plan.enough:
            return False
        wish = self._seekers[index].ask()
        if wish is None:
            return False
        left_s = self._turns.left_s()
        limit_s = self._turns.limit_s(left_s, standing.needed_s, not self.results.entries)
        self._begin(index, wish, limit_s, self._turns.turn_s(left_s))
        return True

    def _start_again(self) -> bool:
        """Begin a trial again that was cut short, with all the time that is left; False if there is none."""
        left_s = self._turns.left_s()
        for number, short in self.results.cut_short.items():
            if short.lasted_s < left_s and number not in self._members:
                self._begin(short.index, short.wish, left_s, SAFE_SHARE * left_s)
                return True
        return False

    def _begin(self, index: int, wish: TrialProposal, limit_s: float, soft_s: float) -> None:
        """Begin a trial; it should end by itself after `soft_s`, and is cut after `limit_s`."""
        plan, standing, left_s = self._plans[index], self._standings[index], self._turns.left_s()
        number = self._number(index, wish.number)
        hyperparameters, transforms, fraction = plan.parts(wish.configuration)
        soft_s = min(soft_s, SAFE_SHARE * self._charging.paid_s)
        spec = TrialSpec(
            number,
            plan.algorithm.name,
            plan.algorithm.complete(hyperparameters),
            transforms,
            fraction,
            self._request.seed,
            self._folder(index, wish.number),
            None if math.isinf(left_s) else left_s + GRACE_S,
            None if math.isinf(soft_s) else soft_s,
        )
        self._charging.begin(number, standing.spent_s / standing.ended if standing.ended else math.inf)
        standing.started += 1
        began_s = time.monotonic()
        run = self._session.start(spec)
        self._listener.add(TrialInProgress(number, index, wish, run, began_s, limit_s))
        self._watch(TrainingTrialStarted(number, plan.algorithm.name, wish.why))

    def _number(self, index: int, own: int) -> int:
        """A number for each trial of the request that follows from its method and its place there."""
        return (own - 1) * self._terms.methods + self._plans[index].index + 1

    def _folder(self, index: int, own: int) -> Path:
        return self._work / str(self._number(index, own))

    # Runs under way

    def _limit_s(self, member: TrialInProgress, age_s: float) -> float:
        """At which age a trial has had its time, or its money but for what its end takes."""
        paid_s = self._charging.lasts_s(member.number, age_s) - self._endings.least_s
        return min(member.limit_s, paid_s)

    def _handle(self, member: TrialInProgress, event: Progress | Outcome | None) -> None:
        if isinstance(event, Progress):
            member.progress.append(event)
            self._watch(TrainingTrialReported(member.number, self._plans[member.index].algorithm.name, event))
            if self._may_cut(member) and self._peers.outdone(self._kind(member), member.progress):
                self._cut(member, OTHERS_BETTER)
        elif isinstance(event, Outcome):
            self._end(member, event)
        elif member.heard_s >= member.limit_s:
            self._late(member)
        elif not self._charging.more(member.number):
            # Where the money ends a trial that has hardly begun, it would end the next one too.
            self._futile = self._futile or member.heard_s <= self._endings.least_s
            self._cut(member, OUT_OF_MONEY)

    def _late(self, member: TrialInProgress) -> None:
        """Cut a trial that had its time, unless it keeps nobody waiting: then it may use what is left."""
        left_s = self._turns.left_s()
        if left_s > 0 and not self._others_wait():
            member.limit_s = member.heard_s + left_s
        else:
            self._cut(member, TIME_UP if left_s <= 0 else TOO_LONG)

    def _others_wait(self) -> bool:
        """Whether there is another trial to begin, and no room for it."""
        full = len(self._members) == self._terms.parallelism
        return full and any(self._seekers[index].more() for index in self._open)

    def _may_cut(self, member: TrialInProgress) -> bool:
        """Whether the request lets trials be cut for others; those on the most data at the end never are."""
        search, asked = self._plans[member.index].search, self._request.early_stopping
        return search != ENQUEUED and (search != "grid" if asked is None else asked)

    def _kind(self, member: TrialInProgress) -> tuple[int, float]:
        """Trials of the same method on as much data can be compared from stage to stage."""
        return member.index, self._plans[member.index].parts(member.wish.configuration)[2]

    def _cut(self, member: TrialInProgress, why: str) -> None:
        """End a trial early; what that takes is paid for, and expected of the next one."""
        if member.clocked is None:
            self._end(member, self._stopped(member, why))
        else:
            self._listener.end_aside(member, lambda: self._stopped(member, why))

    def _stopped(self, member: TrialInProgress, why: str) -> Outcome:
        begun_s = time.monotonic()
        member.heard_s = max(member.heard_s, begun_s - member.began_s)
        outcome = member.run.cut(member.heard_s, why)
        ending_s = time.monotonic() - begun_s
        self._endings.stopped(ending_s, 0.0)
        return replace(outcome, ending_s=ending_s)

    def _end(self, member: TrialInProgress, outcome: Outcome) -> None:
        del self._members[member.number]
        index = member.index
        self._waiting.discard(index)
        if outcome.status == FAILED and self._charging.broke:
            outcome = replace(outcome, status=CUT, why=OUT_OF_MONEY)  # its machines are gone
        cost_usd = self._charging.settle(member.number, outcome)
        if gave_model(outcome):
            self._peers.add(self._kind(member), member.progress, outcome.measures["score"])
        # On the disk first: a model that is paid for is never lost.
        self._seekers[index].tell(member.wish, outcome, member.progress, cost_usd)
        result = self._record(index, member.wish, outcome, cost_usd)
        self._watch(SpendingUpdated(self._charging.spent_usd))
        self._watch(TrainingTrialEnded(result))

    def _sign(self) -> None:
        """Note now and then that the trials live, and for how long."""
        if (now_s := time.monotonic()) >= self._signs.due_s:
            self._signs.note(now_s, {number: member.age_s for number, member in self._members.items()})

    def _drop(self) -> None:
        """Stop what is under way, and charge its time; a resumed request begins it again."""
        for member in list(self._members.values()):
            outcome = self._listener.end_of(member) or self._stopped(member, INTERRUPTED)
            self._signs.lose(outcome.time_s + outcome.ending_s)
            self.interrupted_usd += self._charging.settle(member.number, outcome)
            self._seekers[member.index].abandon(member.wish)
        self._members.clear()
        self._watch(SpendingUpdated(self._charging.spent_usd))

    # What is known

    def _take_in(self, index: int, told: Observation) -> None:
        """A trial of an earlier session."""
        self._standings[index].started += 1
        self._charging.restore(self._number(index, told.number), told.outcome, told.cost_usd)
        self._turns.used_before(told.outcome.time_s / self._terms.parallelism)
        wish = TrialProposal(told.number, told.configuration, "once more, with more time")
        self._watch(TrainingTrialEnded(self._record(index, wish, told.outcome, told.cost_usd), earlier=True))

    def _record(
        self, index: int, wish: TrialProposal, outcome: Outcome, cost_usd: float
    ) -> LeaderboardEntry | TrialFailure:
        plan, standing = self._plans[index], self._standings[index]
        standing.note(outcome.time_s, outcome.measures["score"] if gave_model(outcome) else None)
        hopeless = standing.ended >= GIVE_UP and math.isinf(standing.best) and plan.search != "grid"
        if hopeless:
            self._open.discard(index)
        number, folder = self._number(index, wish.number), self._folder(index, wish.number)
        return self.results.add(index, plan, wish, number, folder, outcome, cost_usd)
