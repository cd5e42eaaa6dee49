"""The trials of a joint search's study, as models and failures of a training request."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from prudent.core.units import format_money
from prudent.training.joint.space import JointSpace
from prudent.training.leaderboard import (
    SAMPLE,
    EventCallback,
    LeaderboardEntry,
    SpendingUpdated,
    TrainingTrialEnded,
    TrainingTrialReported,
    TrainingTrialStarted,
    TrialFailure,
)
from prudent.training.search.search import INTERRUPTED
from prudent.tuning import tune as tuning
from prudent.tuning.history import History
from prudent.tuning.result import Result
from prudent.tuning.strategies.strategy import Strategy
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, Configuration, Proposal, Trial

SPENT_SHARE = 0.95
"""From this share on a budget counts as spent."""


class StudyBoard:
    """Follows a study: `entries` and `failures` grow as its trials end, and `watch` is called with each.

    `time_left` answers how much time is left after so many seconds. When none is left, or no money for
    machines, no further trial is proposed.
    """

    def __init__(
        self,
        space: JointSpace,
        folder: Path,
        metric: Callable[[], str],
        watch: EventCallback,
        time_left: Callable[[float], float] = lambda elapsed_s: math.inf,
    ) -> None:
        self._space, self._folder, self._metric = space, folder, metric
        self._watch, self._time_left = watch, time_left
        self._elapsed_s = 0.0
        self._known: set[int] = set()
        self._algorithms: dict[int, str] = {}
        self.entries: list[LeaderboardEntry] = []
        self.failures: list[TrialFailure] = []

    def left_s(self) -> float:
        """How long a trial that begins now may take."""
        return max(self._time_left(self._elapsed_s), 0.0)

    def watch(self, event: tuning.Event, study: Study) -> None:
        """Take in an event of the study; see `prudent.tuning.tune`."""
        self._elapsed_s = study.clock_s
        if isinstance(event, tuning.TrialStarted):
            self.complete(study.trials)
            name = self._space.settings_of(event.ask.configuration).plan.algorithm.name
            self._algorithms[event.ask.number] = name
            self._watch(TrainingTrialStarted(event.ask.number, name, event.ask.why))
        elif isinstance(event, tuning.TrialReported):
            self._watch(TrainingTrialReported(event.number, self._algorithms[event.number], event.progress))
        elif isinstance(event, tuning.TrialEnded):
            self._watch(SpendingUpdated(study.spent_usd))
            self._add(event.trial, earlier=False)
            # Money that could not pay for machines to start pays for no other trial either.
            broke = event.trial.why == OUT_OF_MONEY and event.trial.time_s == 0
            if broke or self.left_s() <= 0:
                study.strategy = _NoMoreTrials(study.strategy)

    def complete(self, trials: Iterable[Trial]) -> None:
        """Take in the trials of earlier sessions."""
        for trial in trials:
            if trial.number not in self._known:
                self._add(trial, earlier=True)

    def ended(self, result: Result, most: int | None) -> str:
        """Why no further trial was started, for people."""
        if result.interrupted:
            return INTERRUPTED
        if self.left_s() <= 0:
            return "the time was up"
        if most is not None and len(result.trials) >= most:
            return f"{most} trials were made"
        budget_usd = result.budget_usd or 0.0
        broke = any(trial.why == OUT_OF_MONEY for trial in result.trials[-1:])
        if broke or result.spent_usd > SPENT_SHARE * budget_usd:
            return f"the budget of {format_money(budget_usd)} is spent"
        tried = len(result.trials) == self._space.size
        return "everything was tried" if tried else "nothing else was worth its money"

    def recommended(self, result: Result) -> dict[str, Any]:
        """The settings and machines that the search recommends, and what it predicts for them."""
        if result.recommended is None:
            return {}
        chosen = self._space.settings_of(result.recommended)
        return {
            "algorithm": chosen.plan.algorithm.name,
            "hyperparameters": dict(chosen.hyperparameters),
            "transforms": dict(chosen.transforms),
            "fraction": chosen.fraction,
            "machines": chosen.machines,
            "prediction": dict(result.prediction),
        }

    def _add(self, trial: Trial, earlier: bool) -> None:
        self._known.add(trial.number)
        result = self._result(trial)
        if isinstance(result, LeaderboardEntry):
            self.entries.append(result)
        else:
            self.failures.append(result)
        self._watch(TrainingTrialEnded(result, earlier))

    def _result(self, trial: Trial) -> LeaderboardEntry | TrialFailure:
        chosen, measures = self._space.settings_of(trial.configuration), trial.measures
        name, settings = chosen.plan.algorithm.name, dict(chosen.hyperparameters)
        if not trial.finished:
            cut = trial.status == CUT
            return TrialFailure(
                trial.number, name, settings, trial.why, trial.spent_usd, cut, chosen.machines
            )
        transforms = dict(chosen.transforms)
        if chosen.fraction < 1:
            transforms[SAMPLE] = {"fraction": chosen.fraction}
        return LeaderboardEntry(
            0,
            name,
            settings,
            measures["score"],
            self._metric(),
            measures["value"],
            str(self._folder / str(trial.number)),
            measures["train_s"],
            measures["predict_ms"],
            trial.spent_usd,
            trial.number,
            transforms,
            chosen.machines,
        )


class _NoMoreTrials:
    """A strategy that proposes nothing more."""

    def __init__(self, before: Strategy) -> None:
        self._before = before

    def propose(self, history: History, money_left: float) -> Proposal | None:
        del history, money_left
        return None

    def recommend(self, history: History) -> Configuration | None:
        return self._before.recommend(history)
