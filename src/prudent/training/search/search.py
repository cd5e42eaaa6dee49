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
from prudent.tuning.study.limits import OUT_OF_MONEY, ShutdownMargin
from prudent.tuning.trial import CUT, FAILED, Outcome, Progress

GIVE_UP = 25
"""A method is given up when so many trials, all its first ones, have failed (a grid is not)."""
LEFT_FOR_MORE_DATA = 0.2
"""The share of a budget that a search on parts of the data reserves for training the best on all of them."""

GRACE_S = 5.0
"""So long after a trial's limit an engine ends the trial itself, if the search has not cut it."""

INTERRUPTED = "it was interrupted"


class TrainingSearch:
    """Runs the trials of some method plans; `results` grow as trials end.

    Trials of earlier sessions are taken in first, and paid for already. The clock is that of the whole
    request: what earlier sessions took counts. The last `more_data_methods` plans repeat the others, to train
    on more data what did best on a part of them. Their trials begin when only the reserved share of the
    limits is left.
    """

    def __init__(
        self,
        plans: Sequence[MethodPlan],
        proposers: Sequence[Proposer],
        session: TrainingSession,
        request: TrainingRequest,
        work: Path,
        limits: SearchLimits,
        accounting: CostAccounting,
        heartbeats: TrialHeartbeats,
        watch: EventCallback | None = None,
        more_data_methods: int = 0,
    ) -> None:
        self._plans, self._proposers, self._session = plans, proposers, session
        self._request, self._work, self._limits = request, work, limits
        self._accounting, self._heartbeats = accounting, heartbeats
        self._times, self._shutdown_margin = TrialTimes(limits), ShutdownMargin()
        self._watch = watch or (lambda event: None)
        self.results = TrialResults(limits.metric)
        self.ended = ""
        self._methods_progress = [MethodProgress() for _ in plans]
        self._more_data_methods = range(len(plans) - more_data_methods, len(plans))
        self._open_methods = set(range(len(plans) - more_data_methods))
        self._waiting_methods: set[int] = set()
        self._money_too_short = False
        self._finished_curves = FinishedCurves()
        self._monitor = TrialMonitor(
            self._limit_s,
            accounting.poll_every_s,
            self._shutdown_margin.noticed,
            self._record_heartbeats,
            lambda: heartbeats.due_s,
        )
        self._in_progress = self._monitor.trials
        for index, proposer in enumerate(proposers):
            for observation in proposer.earlier_trials():
                self._restore_trial(index, observation)
        interrupted_s = heartbeats.interrupted_s(self.results.numbers)
        self._times.add_earlier(interrupted_s / limits.parallelism)
        self.interrupted_usd = accounting.charge_interrupted(interrupted_s)
        if len(self.results) or interrupted_s:
            self._watch(SpendingUpdated(accounting.spent_usd))

    # The loop

    def run(self) -> bool:
        """Work until nothing is left to do; True if it was interrupted."""
        try:
            self._start_trials()
            while self._in_progress:
                trial, event = self._monitor.next_event()
                self._handle(trial, event)
                self._start_trials()
        except KeyboardInterrupt:
            self.ended = INTERRUPTED
            self._stop_all()
            return True
        except BaseException:
            self._stop_all()
            raise
        finally:
            self._monitor.close()
        return False

    def _start_trials(self) -> None:
        while len(self._in_progress) < self._limits.parallelism:
            over = self._stop_reason()
            ready = [index for index in sorted(self._open_methods) if index not in self._waiting_methods]
            if not over and not ready and self._restart_unfinished():
                continue
            if over or not ready:
                self.ended = self.ended or over or ("" if self._in_progress else self._all_tried())
                if not self._more_data_methods or not (over or not self._in_progress):
                    return
                self._continue_on_more_data()
                continue
            index = choose_method(
                self._methods_progress, ready, self._round_robin, self._request.seed, self._times.left_s()
            )
            if not self._start(index):
                if any(trial.index == index for trial in self._in_progress.values()):
                    self._waiting_methods.add(index)
                else:
                    self._open_methods.discard(index)

    def _continue_on_more_data(self) -> None:
        """Train on more data what did best on a part of them, or is predicted to, and nothing else.

        Where nothing is left to train on more data, the search goes on as before until the end.
        """
        first, self._more_data_methods = self._more_data_methods, range(0)
        self._limits = replace(self._limits, reserved_share=0.0)
        predicted = [
            (place, proposer.recommended()) for place, proposer in enumerate(self._proposers[: first.start])
        ]
        chosen = [(place, self._plans[place].on_share(1.0, found)) for place, found in predicted if found]
        left_s = SAFE_SHARE * self._times.left_s()
        entries, plans = self.results.entries, self._plans[: first.start]
        chosen = chosen or promotions(entries, plans, left_s, self._limits.parallelism)
        if not chosen:
            self.ended = ""
            return
        self._open_methods, self._waiting_methods = set(first), set()
        for place, configuration in chosen:
            more_data = self._proposers[first.start + place]
            assert isinstance(more_data, EnqueuedProposer)
            more_data.enqueue(configuration)

    @property
    def _round_robin(self) -> bool:
        return self._plans[0].search in ("random", "grid")

    def _stop_reason(self) -> str:
        """Why no further trial may start; empty while it may."""
        limits, accounting = self._limits, self._accounting
        if len(self.results) + len(self._in_progress) >= limits.most_trials:
            return f"{limits.trials} trials were made"
        spent = accounting.left_usd <= max(ROUNDING_USD, limits.reserved_usd())
        if spent or self._money_too_short or accounting.affordable_s <= self._shutdown_margin.least_s:
            return f"the budget of {format_money(limits.budget_usd or 0.0)} is spent"
        if self._times.left_s() <= limits.reserved_s():
            if limits.time_s is not None and limits.time_s <= limits.deadline_left_s:
                return f"the {format_duration(limits.time_s)} are over"
            return "the deadline has come"
        return ""

    def _all_tried(self) -> str:
        if not self.results.unfinished:
            return "everything was tried"
        left = format_duration(max(self._times.left_s(), 0.0))
        return f"everything was tried, and the {left} left are too short for what was cut"

    def _start(self, index: int) -> bool:
        """Begin a trial of a method; False if it has none to begin now."""
        plan, method_progress = self._plans[index], self._methods_progress[index]
        if not self._limits.limited and method_progress.started >= plan.default_trials:
            return False
        proposal = self._proposers[index].ask()
        if proposal is None:
            return False
        left_s = self._times.left_s()
        limit_s = self._times.limit_s(left_s, method_progress.needed_s, not self.results.entries)
        self._begin(index, proposal, limit_s, self._times.trial_s(left_s))
        return True

    def _restart_unfinished(self) -> bool:
        """Begin an unfinished trial again, with all the time that is left; False if there is none."""
        left_s = self._times.left_s()
        for number, unfinished_trial in self.results.unfinished.items():
            if unfinished_trial.lasted_s < left_s and number not in self._in_progress:
                self._begin(unfinished_trial.index, unfinished_trial.proposal, left_s, SAFE_SHARE * left_s)
                return True
        return False

    def _begin(self, index: int, proposal: TrialProposal, limit_s: float, soft_s: float) -> None:
        """Begin a trial; it should end by itself after `soft_s`, and is cut after `limit_s`."""
        plan, method_progress, left_s = (
            self._plans[index],
            self._methods_progress[index],
            self._times.left_s(),
        )
        number = self._number(index, proposal.number)
        hyperparameters, transforms, fraction = plan.split(proposal.configuration)
        soft_s = min(soft_s, SAFE_SHARE * self._accounting.affordable_s)
        spec = TrialSpec(
            number,
            plan.algorithm.name,
            plan.algorithm.complete(hyperparameters),
            transforms,
            fraction,
            self._request.seed,
            self._folder(index, proposal.number),
            None if math.isinf(left_s) else left_s + GRACE_S,
            None if math.isinf(soft_s) else soft_s,
        )
        self._accounting.begin(
            number, method_progress.spent_s / method_progress.ended if method_progress.ended else math.inf
        )
        method_progress.started += 1
        began_s = time.monotonic()
        run = self._session.start(spec)
        self._monitor.add(TrialInProgress(number, index, proposal, run, began_s, limit_s))
        self._watch(TrainingTrialStarted(number, plan.algorithm.name, proposal.why))

    def _number(self, index: int, own: int) -> int:
        """The trial's number within the request, from its method and its number within that method."""
        return (own - 1) * self._limits.methods + self._plans[index].index + 1

    def _folder(self, index: int, own: int) -> Path:
        return self._work / str(self._number(index, own))

    # Running trials

    def _limit_s(self, trial: TrialInProgress, age_s: float) -> float:
        """The age at which a trial has used its time, or its money except for what ending it costs."""
        affordable_s = self._accounting.lasts_s(trial.number, age_s) - self._shutdown_margin.least_s
        return min(trial.limit_s, affordable_s)

    def _handle(self, trial: TrialInProgress, event: Progress | Outcome | None) -> None:
        if isinstance(event, Progress):
            trial.progress.append(event)
            self._watch(TrainingTrialReported(trial.number, self._plans[trial.index].algorithm.name, event))
            if self._may_cut(trial) and self._finished_curves.is_clearly_worse(
                self._comparison_group(trial), trial.progress
            ):
                self._cut(trial, OTHERS_BETTER)
        elif isinstance(event, Outcome):
            self._end(trial, event)
        elif trial.heard_s >= trial.limit_s:
            self._at_time_limit(trial)
        elif not self._accounting.extend(trial.number):
            # Money that ends a trial as soon as it begins would end the next one too.
            self._money_too_short = self._money_too_short or trial.heard_s <= self._shutdown_margin.least_s
            self._cut(trial, OUT_OF_MONEY)

    def _at_time_limit(self, trial: TrialInProgress) -> None:
        """Cut a trial that had its time, or let it use all that is left if no other trial waits."""
        left_s = self._times.left_s()
        if left_s > 0 and not self._others_wait():
            trial.limit_s = trial.heard_s + left_s
        else:
            self._cut(trial, TIME_UP if left_s <= 0 else TOO_LONG)

    def _others_wait(self) -> bool:
        """Whether another trial could begin if this one ended."""
        full = len(self._in_progress) == self._limits.parallelism
        return full and any(self._proposers[index].has_more() for index in self._open_methods)

    def _may_cut(self, trial: TrialInProgress) -> bool:
        """Whether the request allows early stopping; trials on more data never are stopped."""
        search, asked = self._plans[trial.index].search, self._request.early_stopping
        return search != ENQUEUED and (search != "grid" if asked is None else asked)

    def _comparison_group(self, trial: TrialInProgress) -> tuple[int, float]:
        """Method and share of the data: trials in which both agree are compared at the same stage."""
        return trial.index, self._plans[trial.index].split(trial.proposal.configuration)[2]

    def _cut(self, trial: TrialInProgress, why: str) -> None:
        """End a trial early; the time its end takes is paid for, and expected of the next one."""
        if trial.clocked is None:
            self._end(trial, self._cut_run(trial, why))
        else:
            self._monitor.end_in_thread(trial, lambda: self._cut_run(trial, why))

    def _cut_run(self, trial: TrialInProgress, why: str) -> Outcome:
        begun_s = time.monotonic()
        trial.heard_s = max(trial.heard_s, begun_s - trial.began_s)
        outcome = trial.run.cut(trial.heard_s, why)
        ending_s = time.monotonic() - begun_s
        self._shutdown_margin.stopped(ending_s, 0.0)
        return replace(outcome, ending_s=ending_s)

    def _end(self, trial: TrialInProgress, outcome: Outcome) -> None:
        del self._in_progress[trial.number]
        index = trial.index
        self._waiting_methods.discard(index)
        if outcome.status == FAILED and self._accounting.out_of_money:
            outcome = replace(outcome, status=CUT, why=OUT_OF_MONEY)  # its machines are gone
        cost_usd = self._accounting.settle(trial.number, outcome)
        if gave_model(outcome):
            self._finished_curves.add(
                self._comparison_group(trial), trial.progress, outcome.measures["score"]
            )
        # On the disk first: a model that is paid for is never lost.
        self._proposers[index].tell(trial.proposal, outcome, trial.progress, cost_usd)
        result = self._record(index, trial.proposal, outcome, cost_usd)
        self._watch(SpendingUpdated(self._accounting.spent_usd))
        self._watch(TrainingTrialEnded(result))

    def _record_heartbeats(self) -> None:
        """Record from time to time how long the running trials have lasted."""
        if (now_s := time.monotonic()) >= self._heartbeats.due_s:
            self._heartbeats.record(
                now_s, {number: trial.age_s for number, trial in self._in_progress.items()}
            )

    def _stop_all(self) -> None:
        """Stop the running trials and charge their time; a resumed request begins them again."""
        for trial in list(self._in_progress.values()):
            outcome = self._monitor.wait_for_end(trial) or self._cut_run(trial, INTERRUPTED)
            self._heartbeats.add_interrupted(outcome.time_s + outcome.ending_s)
            self.interrupted_usd += self._accounting.settle(trial.number, outcome)
            self._proposers[trial.index].abandon(trial.proposal)
        self._in_progress.clear()
        self._watch(SpendingUpdated(self._accounting.spent_usd))

    # Results

    def _restore_trial(self, index: int, observation: Observation) -> None:
        """A trial of an earlier session."""
        self._methods_progress[index].started += 1
        self._accounting.restore(
            self._number(index, observation.number), observation.outcome, observation.cost_usd
        )
        self._times.add_earlier(observation.outcome.time_s / self._limits.parallelism)
        proposal = TrialProposal(observation.number, observation.configuration, "once more, with more time")
        self._watch(
            TrainingTrialEnded(
                self._record(index, proposal, observation.outcome, observation.cost_usd), earlier=True
            )
        )

    def _record(
        self, index: int, proposal: TrialProposal, outcome: Outcome, cost_usd: float
    ) -> LeaderboardEntry | TrialFailure:
        plan, method_progress = self._plans[index], self._methods_progress[index]
        method_progress.record(outcome.time_s, outcome.measures["score"] if gave_model(outcome) else None)
        hopeless = (
            method_progress.ended >= GIVE_UP and math.isinf(method_progress.best) and plan.search != "grid"
        )
        if hopeless:
            self._open_methods.discard(index)
        number, folder = self._number(index, proposal.number), self._folder(index, proposal.number)
        return self.results.add(index, plan, proposal, number, folder, outcome, cost_usd)
