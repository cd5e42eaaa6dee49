"""The loop of a study: ask, run, cut in time, tell, until the money or the ideas are gone."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import FrameType

from prudent.core.errors import RunFailed
from prudent.tuning.jobs.job import GracefulRun, Job, RentingJob, StoppableRun, SupervisingJob
from prudent.tuning.study.active_trials import ActiveTrial, ActiveTrials, LimitReached
from prudent.tuning.study.limits import NEVER, OUT_OF_MONEY, OUT_OF_TIME, Limit, ShutdownMargin
from prudent.tuning.study.settlement import HEARTBEAT_S, INTERRUPTED, heartbeat_after_s
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, Outcome, PendingTrial, Progress, Trial


@dataclass(frozen=True)
class TrialStarted:
    """A trial begins."""

    ask: PendingTrial


@dataclass(frozen=True)
class TrialReported:
    """A trial under way reported something."""

    number: int
    progress: Progress


@dataclass(frozen=True)
class TrialExtended:
    """A trial under way got more money reserved."""

    number: int


@dataclass(frozen=True)
class TrialEnded:
    """A trial ended; the study's best and money are up to date."""

    trial: Trial


Event = TrialStarted | TrialReported | TrialExtended | TrialEnded
Watch = Callable[[Event, Study], None]

GIVE_UP = 10
"""So many runs in a row that could not start, free of charge, mean that the job itself is broken, or that
what is left of the money starts nothing."""


class StudyRunner:
    """The life of one call to `tune`."""

    def __init__(
        self, job: Job, study: Study, crew: ActiveTrials, parallel: int, watch: Watch, max_trials: int | None
    ) -> None:
        self._job, self._study, self._crew = job, study, crew
        self._parallel, self._watch = parallel, watch
        self._max_trials = math.inf if max_trials is None else max_trials
        self._supervisor = job if isinstance(job, SupervisingJob) else None
        self._endings = ShutdownMargin()
        # What replays and leases tell needs no sign of life: the one costs nothing, the other is remembered.
        self._signs = not job.virtual and not isinstance(job, RentingJob)
        self._sign_s = -math.inf
        self._limits: dict[int, Limit] = {}
        self._unstarted = 0
        self._unpaid = 0

    def run(self) -> bool:
        """Work until nothing is left to do; True if it was interrupted."""
        try:
            self._fill()
            while self._crew.members:
                happened = self._crew.wait(self._limit_of, self._until_s)
                begun_s = time.monotonic()
                if happened is not None:
                    self._handle(*happened)
                self._sign()
                # While this was done nobody looked at the limits of others: that, too, is measured.
                busy_s = time.monotonic() - begun_s if self._parallel > 1 else 0.0
                if self._endings.noticed(max(self._crew.late_s, busy_s)):
                    self._limits.clear()
        except KeyboardInterrupt:
            self._drop()
            return True
        except BaseException:
            self._drop()
            raise
        return False

    @property
    def _until_s(self) -> float:
        """Until when nobody has to look if nothing happens."""
        until_s = self._sign_s if self._signs else math.inf
        if self._supervisor is not None:
            until_s = min(until_s, self._crew.now_s + self._supervisor.poll_every_s)
        return until_s

    def _limit_of(self, number: int) -> Limit:
        """When a run must end by its money, by what it could still be good for, and by its own time."""
        limit = self._paid_limit(number)
        if self._supervisor is None:
            return limit
        lasted_s = self._crew.members[number].lasted_s
        return min(limit, Limit(self._supervisor.limit_s(number, lasted_s), OUT_OF_TIME))

    def _paid_limit(self, number: int) -> Limit:
        member, study = self._crew.members[number], self._study
        if member.rented is not None:
            noticing_s = 0.0 if self._job.virtual else self._endings.noticing_s
            lasts_s = member.rented.lasts_s
            return study.limit(number, member.rented.overhead_s, lambda usd: lasts_s(usd) - noticing_s)
        if number not in self._limits:  # what a run reports does not move its limit
            price = member.price
            room_s = 0.0 if self._job.virtual else self._endings.room_s(member.run, self._paid_s(member))
            self._limits[number] = study.limit(number, lasts_s=lambda usd: price.lasts_s(usd) - room_s)
            if isinstance(member.run, StoppableRun):
                paid_s = price.lasts_s(study.reserved_usd(number))
                member.run.stop_by(max(paid_s - self._endings.stopping_s, 0.0))
        return self._limits[number]

    def _paid_s(self, member: ActiveTrial) -> float:
        """How long a run could last if it got all the money there is."""
        reserved_usd = self._study.reserved_usd(member.number)
        return member.price.lasts_s(reserved_usd + self._study.ledger.left_usd)

    def _pay_for_deciding(self) -> bool:
        """Reserve for the runs under way what they cost while the next is chosen; False if it is not there.

        To choose takes time in which nobody looks at them. Rented machines are told how much they may cost.
        """
        for number, member in self._crew.members.items():
            if member.rented is not None or member.ending:
                continue
            lacking_s = self._endings.deciding_s - (self._limit_of(number).seconds - member.lasted_s)
            if lacking_s <= 0 or self._limits[number].why != OUT_OF_MONEY:
                continue
            reserved_usd = self._study.reserved_usd(number)
            wanted_usd = member.price.bill_usd(member.price.lasts_s(reserved_usd) + lacking_s) - reserved_usd
            if not self._study.extend(number, wanted_usd):
                return False
            del self._limits[number]
            self._watch(TrialExtended(number), self._study)
            if self._limit_of(number).seconds - member.lasted_s < self._endings.deciding_s:
                return False
        return True

    def _fill(self) -> None:
        # Runs that wait in vain for the money to start cost nothing: nothing else would end this.
        while len(self._crew.members) < self._parallel and self._unpaid < GIVE_UP:
            if len(self._study.trials) + len(self._crew.members) >= self._max_trials:
                return
            if self._supervisor is not None and self._supervisor.stop_reason():
                return
            if not self._job.virtual and not self._pay_for_deciding():
                return
            ask = self._study.ask(self._crew.now_s, self._room_s)
            if ask is None:
                return
            self._limits.clear()
            self._watch(TrialStarted(ask), self._study)
            limit = self._study.limit(ask.number)
            if limit.seconds <= 0 and limit.why != OUT_OF_MONEY:
                # Even its shortest run could not be the answer: it is not begun.
                trial = self._study.tell(ask.number, Outcome(CUT, 0.0, {}, limit.why, started=False))
                self._watch(TrialEnded(trial), self._study)
                continue
            with interrupt_later():  # a run that is begun is one that will be ended
                run = self._job.start(dict(ask.configuration), ask.number)
                self._crew.add(ask.number, run, ask.at_s, ask.price)
            self._limit_of(ask.number)  # tells a run how much its machines may cost: it waits for that
            self._sign_s = -math.inf
            self._sign()

    @property
    def _room_s(self) -> float:
        """How much longer than nothing the money must last for another run."""
        return 0.0 if self._job.virtual or isinstance(self._job, RentingJob) else self._endings.least_s

    def _sign(self) -> None:
        """Note that runs are alive: every second, or every hundredth of the time the youngest has lasted."""
        if not self._signs or self._crew.now_s < self._sign_s:
            return
        lasted_s = {number: member.lasted_s for number, member in self._crew.members.items()}
        self._study.alive(lasted_s)
        self._sign_s = self._crew.now_s + heartbeat_after_s(min(lasted_s.values(), default=0.0))

    def _handle(self, member: ActiveTrial, event: Progress | Outcome | LimitReached) -> None:
        if isinstance(event, Progress):
            member.progress.append(event)
            self._watch(TrialReported(member.number, event), self._study)
            if self._supervisor is not None and not member.ending:
                why = self._supervisor.cut_reason(member.number, member.progress)
                if why:
                    self._cut(member, Limit(member.lasted_s, why))
            return
        if isinstance(event, Outcome):
            self._end(member, event)
        else:
            self._limit(member, event.limit)
        self._limits.clear()
        self._fill()

    def _limit(self, member: ActiveTrial, limit: Limit) -> None:
        if limit.why == OUT_OF_MONEY and self._study.extend(member.number):
            self._watch(TrialExtended(member.number), self._study)
            return
        if limit.why == OUT_OF_TIME and self._supervisor is not None:
            limit = replace(limit, why=self._supervisor.at_limit(member.number, limit.seconds))
            if not limit.why:
                return
        self._cut(member, limit)

    def _cut(self, member: ActiveTrial, limit: Limit) -> None:
        self._shorten_grace(member)
        self._crew.cut(member, limit.seconds, limit.why)

    def _shorten_grace(self, member: ActiveTrial) -> None:
        """A run gets no more time to end itself than was kept back for it."""
        if not self._job.virtual and isinstance(member.run, GracefulRun):
            member.run.grace_s = self._endings.grace_s(member.run, self._paid_s(member))

    def _end(self, member: ActiveTrial, outcome: Outcome) -> None:
        self._crew.remove(member.number)
        outcome = self._settled(member, outcome)
        if outcome.status == CUT:
            unpaid = outcome.why == OUT_OF_MONEY and outcome.bill_usd == 0
            self._unpaid = self._unpaid + 1 if unpaid else 0
            grace_s = member.run.grace_s if isinstance(member.run, GracefulRun) else 0.0
            self._endings.stopped(outcome.ending_s or member.ending_s, grace_s)
        trial = self._study.tell(member.number, outcome, member.progress)
        self._watch(TrialEnded(trial), self._study)
        self._unstarted = 0 if outcome.started else self._unstarted + 1
        if self._unstarted >= GIVE_UP:
            raise RunFailed(
                f"{GIVE_UP} runs in a row could not start, the last because: {outcome.why.rstrip('.')}; "
                "fix the job, then continue with --resume."
            )

    def _settled(self, member: ActiveTrial, outcome: Outcome) -> Outcome:
        if self._supervisor is None:
            return outcome
        ending_s = outcome.ending_s or member.ending_s
        return self._supervisor.settled(member.number, replace(outcome, ending_s=ending_s))

    def _drop(self) -> None:
        """Stop what is under way, all at once, and charge its time; a resumed study begins it again."""
        members = self._crew.members
        while members:
            for member in [member for member in members.values() if not member.ending]:
                self._shorten_grace(member)
                self._crew.cut(member, member.lasted_s, INTERRUPTED)
            happened = self._crew.wait(lambda number: NEVER, self._crew.now_s + HEARTBEAT_S)
            if happened is None or not isinstance(happened[1], Outcome):
                continue
            member, outcome = happened[0], self._settled(happened[0], happened[1])
            self._crew.remove(member.number)
            if self._signs or (self._supervisor is not None and outcome.bill_usd is not None):
                self._study.interrupt(member.number, outcome)
            else:
                self._study.abandon(member.number)


@contextlib.contextmanager
def interrupt_later() -> Iterator[None]:
    """Ctrl-C, SIGTERM or a closed terminal that comes meanwhile is heeded at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[tuple[int, FrameType | None]] = []
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = {number: handler for number, handler in found.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda *said: heard.append(said))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if heard:
        before[signal.Signals(heard[0][0])](*heard[0])
