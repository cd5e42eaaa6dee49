"""A request as a job of a study: its trials, how long each may take, and what each costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prudent.cloud.meter import Meter
from prudent.core.errors import BadInput, PrudentError
from prudent.core.money import ROUNDING_USD, Price
from prudent.core.units import format_duration, format_money
from prudent.training.engines.engine import RefittingSession, TrainingSession, TrialSpec
from prudent.training.models.description import read_facts
from prudent.training.request.checks import MEASURES
from prudent.training.request.request import TrainingRequest
from prudent.training.search.allocation import TIME_UP, TOO_LONG, MethodAllocation, gave_model
from prudent.training.search.final import refit_s
from prudent.training.search.method_search import QUEUED, SCORE
from prudent.training.search.space import MethodSpace, SettingsSpace, TrialSettings
from prudent.training.search.stopping import (
    OTHERS_BETTER,
    SAFE_SHARE,
    FinishedCurves,
    SearchLimits,
    TrialTimes,
)
from prudent.tuning.jobs.job import Run, fingerprint_of
from prudent.tuning.study.limits import FIRST_S, OUT_OF_MONEY
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, FAILED, Configuration, Outcome, Progress, Trial

MARGIN_S = 2 * FIRST_S
"""What noticing that money is over, and cutting a trial, are taken to need."""
LAST_LOOK_S, LAST_LOOK_SHARE = 0.5, 0.05
"""How long it takes to choose among the models and to judge the few best once more; and the share of the time
that an ensemble and a closer look at the leader may take besides."""
MOST_CLOSING_S = 60.0
"""Of a longer time than this no more is needed for them."""
GRACE_S = 5.0
"""So long after a trial's limit an engine ends the trial itself, if the study has not cut it."""


@dataclass
class _TrialUnderWay:
    """A trial that was started: what it trains, its limit, and what it has reported."""

    settings: TrialSettings
    limit_s: float
    progress: Sequence[Progress] = ()

    @property
    def group(self) -> tuple[int, float]:
        """Method and share of the data: trials in which both agree are compared at the same stage."""
        return self.settings.plan.index, self.settings.fraction


class TrialJob:
    """What all training shares: a trial trains one model (see `Job` and `SupervisingJob`).

    Models go to `folder`, each under its trial's number. `stopped` tells why no further trial was begun.
    """

    virtual = False
    name = "train"
    measures = MEASURES
    poll_every_s = math.inf

    def __init__(
        self, request: TrainingRequest, space: SettingsSpace, folder: Path, times: TrialTimes
    ) -> None:
        self._request, self._settings_space, self._folder = request, space, folder
        self.times = times
        self._under_way: dict[int, _TrialUnderWay] = {}
        self._finished_curves = FinishedCurves()
        self._trials = 0
        self._has_model = self._money_too_short = False
        self._bar: tuple[float, ...] = ()
        self._best = -math.inf
        self.stopped = ""

    def spec(self, configuration: Configuration, number: int) -> TrialSpec:
        """The model that a trial trains, with the time that it has; the trial is under way from now on."""
        settings = self._settings_space.settings_of(configuration)
        left_s = self.times.left_s()
        limit_s, soft_s = self._time_for(configuration, number, left_s)
        self._under_way[number] = _TrialUnderWay(settings, limit_s)
        return TrialSpec(
            number,
            settings.plan.algorithm.name,
            settings.plan.algorithm.complete(settings.hyperparameters),
            settings.transforms,
            settings.fraction,
            self._request.seed,
            self._folder / str(number),
            None if math.isinf(left_s) else left_s + GRACE_S,
            None if math.isinf(soft_s) else soft_s,
            bar=self._bar if self._cuts(settings) else (),
        )

    def take(self, trial: Trial) -> None:
        """A trial has ended, in this session or an earlier one."""
        self._trials += 1
        self._has_model = self._has_model or gave_model(trial)
        # Money that ends a trial as soon as it begins would end the next one too.
        too_short = trial.why == OUT_OF_MONEY and trial.time_s <= MARGIN_S
        self._money_too_short = self._money_too_short or too_short
        ended = self._under_way.pop(trial.number, None)
        if ended is not None and gave_model(trial):
            self._finished_curves.add(ended.group, ended.progress, trial.measures[SCORE])

    # What the study asks

    def stop_reason(self) -> str:
        reason = self._reason_to_stop(self.times.limits)
        self.stopped = self.stopped or reason
        return reason

    def limit_s(self, number: int, lasted_s: float) -> float:
        del lasted_s
        return self._under_way[number].limit_s

    def at_limit(self, number: int, lasted_s: float) -> str:
        """A trial that had its time may use all that is left."""
        left_s = self.times.left_s()
        if left_s <= 0:
            return TIME_UP
        self._under_way[number].limit_s = lasted_s + left_s
        return ""

    def cut_reason(self, number: int, progress: Sequence[Progress]) -> str:
        trial = self._under_way[number]
        trial.progress = progress
        if not self._cuts(trial.settings):
            return ""
        return OTHERS_BETTER if self._finished_curves.is_clearly_worse(trial.group, progress) else ""

    def settled(self, number: int, outcome: Outcome) -> Outcome:
        del number
        return outcome

    def _cuts(self, settings: TrialSettings) -> bool:
        """Whether a trial may end before its time: on more data never, in a grid where that was asked for."""
        search, asked = settings.plan.search, self._request.early_stopping
        return search != QUEUED and (search != "grid" if asked is None else asked)

    # Limits

    def _time_for(self, configuration: Configuration, number: int, left_s: float) -> tuple[float, float]:
        """After how long a trial is asked about, and after how long an iterative algorithm ends by itself."""
        del configuration, number
        return left_s, SAFE_SHARE * left_s

    def _money_is_spent(self, limits: SearchLimits) -> bool:
        del limits
        return self._money_too_short

    def _reason_to_stop(self, limits: SearchLimits) -> str:
        if self._trials + len(self._under_way) >= limits.most_trials:
            return f"{limits.trials} trials were made"
        if self._money_is_spent(limits):
            return f"the budget of {format_money(limits.budget_usd or 0.0)} is spent"
        if self.times.left_s() <= limits.reserved_s():
            if limits.time_s is not None and limits.time_s <= limits.deadline_left_s:
                return f"the {format_duration(limits.time_s)} are over"
            return "the deadline has come"
        return ""


class TrainingJob(TrialJob):
    """Trains the models of all methods in the session of an engine."""

    fraction = None

    def __init__(
        self,
        request: TrainingRequest,
        space: MethodSpace,
        session: TrainingSession,
        folder: Path,
        times: TrialTimes,
        allocation: MethodAllocation,
    ) -> None:
        super().__init__(request, space, folder, times)
        self.space = space
        self._session, self._allocation = session, allocation
        self.study: Study | None = None
        """The study of this job, once there is one: it keeps the money."""

    def take(self, trial: Trial) -> None:
        """A better model is what others are measured by, and what is refitted in the end."""
        super().take(trial)
        if not gave_model(trial) or trial.measures[SCORE] <= self._best:
            return
        self._best = trial.measures[SCORE]
        try:
            facts = read_facts(self._folder / str(trial.number))
        except BadInput:
            return
        self._bar = facts.split_scores
        if isinstance(self._session, RefittingSession):
            fraction = self._settings_space.settings_of(trial.configuration).fraction
            closing_s = LAST_LOOK_SHARE * min(self.times.limits.time_limit_s, MOST_CLOSING_S)
            self.times.keep(LAST_LOOK_S + closing_s + refit_s(facts, fraction))

    def price(self, configuration: Configuration) -> Price:
        del configuration
        return self.times.limits.price

    def fingerprint(self) -> str:
        return fingerprint_of("train", self._request.fingerprint(), self.space.fingerprint())

    def start(self, configuration: Configuration, number: int) -> Run:
        return self._session.start(self.spec(configuration, number))

    # What the study asks

    def stop_reason(self) -> str:
        reason = self._reason_to_stop(self._limits)
        if reason and self._allocation.keeps_reserve:
            self.stopped = reason
            self._allocation.spend_reserve()
            return self._reason_to_stop(self._limits)
        self.stopped = self.stopped or reason
        return reason

    def at_limit(self, number: int, lasted_s: float) -> str:
        """A trial that had its time is cut where another one waits for its place."""
        full = len(self._under_way) == self.times.limits.parallelism
        if self.times.left_s() > 0 and full and self._allocation.others_wait():
            return TOO_LONG
        return super().at_limit(number, lasted_s)

    # Limits

    def _time_for(self, configuration: Configuration, number: int, left_s: float) -> tuple[float, float]:
        limit_s, soft_s = left_s, SAFE_SHARE * left_s
        if not self._allocation.is_again(configuration):
            needed_s = self._allocation.progress_of(configuration).needed_s
            limit_s = self.times.limit_s(left_s, needed_s, not self._has_model)
            soft_s = self.times.trial_s(left_s)
        return limit_s, min(soft_s, SAFE_SHARE * self._affordable_s(self._reserved_usd(number)))

    @property
    def _limits(self) -> SearchLimits:
        limits = self.times.limits
        return limits if self._allocation.keeps_reserve else replace(limits, reserved_share=0.0)

    def _money_is_spent(self, limits: SearchLimits) -> bool:
        spent = self._left_usd() <= max(ROUNDING_USD, limits.reserved_usd())
        return spent or super()._money_is_spent(limits) or self._affordable_s() <= MARGIN_S

    def _left_usd(self) -> float:
        """The money for further trials."""
        return math.inf if self.study is None else self.study.ledger.left_usd

    def _reserved_usd(self, number: int) -> float:
        return 0.0 if self.study is None else self.study.reserved_usd(number)

    def _affordable_s(self, reserved_usd: float = 0.0) -> float:
        """How long a trial could go on with the money left, if all others had as much."""
        limits = self.times.limits
        return limits.price.seconds_for((self._left_usd() + reserved_usd) / limits.parallelism)

    def ended(self, enough: bool) -> str:
        """Why no further trial was begun, for people; `enough`: nothing was left to try."""
        if self.stopped:
            return self.stopped
        if not enough:
            return f"the budget of {format_money(self.times.limits.budget_usd or 0.0)} is spent"
        if not self._allocation.unfinished:
            return "everything was tried"
        left = format_duration(max(self.times.left_s(), 0.0))
        return f"everything was tried, and the {left} left are too short for what was cut"


@dataclass(frozen=True)
class MachinesInUse:
    """Machines rented for a request: their meter, how to give them back, and whether that was done for lack
    of money.
    """

    meter: Meter
    give_back: Callable[[], None]
    is_gone: Callable[[], bool]


class RentedTrainingJob(TrainingJob):
    """The same on machines that were rented for the request (see `RentingJob`).

    What they cost is divided among the trials under way; while none is, no trial is charged. The budget
    covers all of it, from the order to the give-back; a `BudgetGuard` ends them in time. Machines that do not
    end are `trouble`, for later: the models come first.
    """

    poll_every_s = 0.1

    def __init__(
        self,
        request: TrainingRequest,
        space: MethodSpace,
        session: TrainingSession,
        folder: Path,
        times: TrialTimes,
        allocation: MethodAllocation,
        machines: MachinesInUse,
    ) -> None:
        super().__init__(request, space, session, folder, times, allocation)
        self._meter, self._machines = machines.meter, machines
        self._divided_usd = machines.meter.spent_usd()
        self._shares_usd: dict[int, float] = {}
        self.trouble: PrudentError | None = None

    def start(self, configuration: Configuration, number: int) -> Run:
        self._divide()
        self._shares_usd[number] = 0.0
        return super().start(configuration, number)

    # What the study asks

    def limit_s(self, number: int, lasted_s: float) -> float:
        return min(super().limit_s(number, lasted_s), lasted_s + self._lasts_s() - MARGIN_S)

    def at_limit(self, number: int, lasted_s: float) -> str:
        return OUT_OF_MONEY if self._lasts_s() <= MARGIN_S else super().at_limit(number, lasted_s)

    def settled(self, number: int, outcome: Outcome) -> Outcome:
        self._divide()
        if outcome.status == FAILED and self._machines.is_gone():
            outcome = replace(outcome, status=CUT, why=OUT_OF_MONEY)
        return replace(outcome, bill_usd=self._shares_usd.pop(number))

    def check(self) -> list[str]:
        return []  # the machines are there

    def bill_usd(self) -> float:
        return self._meter.spent_usd()

    def release(self) -> None:
        try:
            self._machines.give_back()
        except PrudentError as error:
            self.trouble = error

    # Money

    def _left_usd(self) -> float:
        """What the time left is worth: a billing minimum that was paid is there to be used."""
        rate, lasts_s = self._meter.usd_per_s, self._lasts_s()
        return self._meter.left_usd if rate == 0 and lasts_s > 0 else lasts_s * rate

    def _affordable_s(self, reserved_usd: float = 0.0) -> float:
        return self._lasts_s()

    def _lasts_s(self) -> float:
        return 0.0 if self._machines.is_gone() else self._meter.lasts_s()

    def _divide(self) -> None:
        spent_usd = self._meter.spent_usd()
        more_usd, self._divided_usd = spent_usd - self._divided_usd, spent_usd
        for number in self._shares_usd:
            self._shares_usd[number] += more_usd / len(self._shares_usd)
