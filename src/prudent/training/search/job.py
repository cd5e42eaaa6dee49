"""A request as a job of a study: its trials, how long each may take, and what each costs."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prudent.core.errors import BadInput
from prudent.core.ledger import Reservation
from prudent.core.money import ROUNDING_USD, Price
from prudent.core.units import format_duration, format_money
from prudent.training.engines.engine import ModelFacts, RefittingSession, TrainingSession, TrialSpec
from prudent.training.models.description import read_facts
from prudent.training.request.checks import MEASURES
from prudent.training.request.request import TrainingRequest
from prudent.training.search.allocation import TIME_UP, TOO_LONG, MethodAllocation, gave_model
from prudent.training.search.final import refit_s
from prudent.training.search.method_search import QUEUED, SCORE
from prudent.training.search.space import MethodSpace, SettingsSpace, TrialSettings
from prudent.training.search.stopping import (
    MOST_KEPT,
    OTHERS_BETTER,
    SAFE_SHARE,
    FinishedCurves,
    SearchLimits,
    TrialTimes,
)
from prudent.tuning.jobs.job import Run, fingerprint_of
from prudent.tuning.study.limits import FIRST_S, OUT_OF_MONEY
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Configuration, Outcome, Progress, Trial

MARGIN_S = 2 * FIRST_S
"""What noticing that money is over, and cutting a trial, are taken to need."""
LAST_LOOK_S, LAST_LOOK_SHARE = 0.5, 0.05
"""How long it takes to choose among the models and to judge the few best once more; and the share of the time
that an ensemble and a closer look at the leader may take besides."""
MOST_CLOSING_S = 60.0
"""Of a longer time than this no more is needed for them."""
ENDING = "the end of the search"
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


class TrialJob(ABC):
    """What all training shares: a trial trains one model (see `Job` and `SupervisingJob`).

    Models go to `folder`, each under its trial's number. `stopped` tells why no further trial was begun.
    """

    virtual = False
    name = "train"
    measures = MEASURES
    poll_every_s = math.inf
    last_look_s, pays_for_look = LAST_LOOK_S, False

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
        self.study: Study | None = None
        """The study of this job, once there is one: it keeps the money."""
        self._kept: Reservation | None = None
        self._ending_s = 0.0
        self.committed_usd = 0.0
        """What the trials had cost in the end, with what was put aside for the end of the search."""

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

    @abstractmethod
    def price(self, configuration: Configuration) -> Price:
        """What an hour of a trial costs."""

    def take(self, trial: Trial) -> None:
        """A trial has ended, in this session or an earlier one."""
        self._trials += 1
        self._has_model = self._has_model or gave_model(trial)
        # Money that ends a trial as soon as it begins would end the next one too.
        too_short = trial.why == OUT_OF_MONEY and trial.time_s <= MARGIN_S
        self._money_too_short = self._money_too_short or too_short
        ended = self._under_way.pop(trial.number, None)
        if not gave_model(trial):
            return
        if ended is not None:
            self._finished_curves.add(ended.group, ended.progress, trial.measures[SCORE])
        if trial.measures[SCORE] > self._best:
            self._best = trial.measures[SCORE]
            with contextlib.suppress(BadInput):
                self._improved(trial, read_facts(self._folder / str(trial.number)))

    def _improved(self, trial: Trial, facts: ModelFacts) -> None:
        """There is a better model: time and money are kept for it at the end, by what it has taken."""
        look_s = LAST_LOOK_SHARE * min(self.times.limits.time_limit_s, MOST_CLOSING_S) + self.last_look_s
        fraction = self._settings_space.settings_of(trial.configuration).fraction
        refitting_s = refit_s(facts, fraction) if self._request.refit else 0.0
        self._ending_s = look_s + refitting_s
        self.times.keep(self._ending_s)
        price = replace(self.price(trial.configuration), minimum_s=0.0, step_s=0.0)  # the machines are there
        self._keep_money(price.cost_usd(self._ending_s if self.pays_for_look else refitting_s))

    def _keep_money(self, usd: float) -> None:
        """Put money aside for the end, but no more than a share of the budget."""
        if self.study is None or (budget_usd := self.study.ledger.budget_usd) is None:
            return
        ledger = self.study.ledger
        if self._kept is not None:
            ledger.release(self._kept)
        self._kept = ledger.reserve(ENDING, min(usd, MOST_KEPT * budget_usd, ledger.left_usd))

    @property
    def keeps_money(self) -> bool:
        """Whether money is put aside for the end."""
        return self._kept is not None

    def free_kept(self) -> None:
        """The trials have ended: what was put aside for the end may be spent."""
        if self._kept is not None and self.study is not None:
            ledger = self.study.ledger
            self.committed_usd = ledger.spent_usd + ledger.reserved_usd
            ledger.release(self._kept)
        self._kept, self._ending_s = None, 0.0

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

    def _improved(self, trial: Trial, facts: ModelFacts) -> None:
        """A better model is what others are measured by."""
        self._bar = facts.split_scores
        if isinstance(self._session, RefittingSession):
            super()._improved(trial, facts)

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
