"""What a study of a joint search tells, as models and failures of a training request."""

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
from prudent.tuning.limits import OUT_OF_MONEY
from prudent.tuning.result import Result
from prudent.tuning.strategies.strategy import Strategy
from prudent.tuning.study import Study
from prudent.tuning.trial import CUT, Configuration, Proposal, Trial

ALL_BUT = 0.95
"""When no more than the rest of a budget is left, it is spent."""


class Story:
    """Follows a study: `entries` and `failures` grow as its trials end, and whoever watches hears of each.

    `left_of` tells how much time is left after so many seconds; when none is, or no money for machines, no
    further trial is proposed.
    """

    def __init__(
        self,
        space: JointSpace,
        folder: Path,
        metric: Callable[[], str],
        watch: EventCallback,
        left_of: Callable[[float], float] = lambda elapsed_s: math.inf,
    ) -> None:
        self._space, self._folder, self._metric = space, folder, metric
        self._watch, self._left_of = watch, left_of
        self._elapsed_s = 0.0
        self._known: set[int] = set()
        self._algorithms: dict[int, str] = {}
        self.entries: list[LeaderboardEntry] = []
        self.failures: list[TrialFailure] = []

    def left_s(self) -> float:
        """How long a trial that begins now may take."""
        return max(self._left_of(self._elapsed_s), 0.0)

    def watch(self, event: tuning.Event, study: Study) -> None:
        """Hear what a study tells; see `prudent.tuning.tune`."""
        self._elapsed_s = study.clock_s
        if isinstance(event, tuning.TrialStarted):
            self.complete(study.trials)
            name = self._space.choice(event.ask.configuration).plan.algorithm.name
            self._algorithms[event.ask.number] = name
            self._watch(TrainingTrialStarted(event.ask.number, name, event.ask.why))
        elif isinstance(event, tuning.TrialReported):
            self._watch(TrainingTrialReported(event.number, self._algorithms[event.number], event.progress))
        elif isinstance(event, tuning.TrialEnded):
            self._watch(SpendingUpdated(study.spent_usd))
            self._tell(event.trial, earlier=False)
            # What could not pay for machines to come up pays for no other trial either.
            broke = event.trial.why == OUT_OF_MONEY and event.trial.time_s == 0
            if broke or self.left_s() <= 0:
                study.strategy = _Enough(study.strategy)

    def complete(self, trials: Iterable[Trial]) -> None:
        """Take in what was not heard of yet: trials of earlier sessions."""
        for trial in trials:
            if trial.number not in self._known:
                self._tell(trial, earlier=True)

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
        if broke or result.spent_usd > ALL_BUT * budget_usd:
            return f"the budget of {format_money(budget_usd)} is spent"
        tried = len(result.trials) == self._space.size
        return "everything was tried" if tried else "nothing else was worth its money"

    def recommended(self, result: Result) -> dict[str, Any]:
        """The settings and machines that the search recommends, and what it foretells of them."""
        if result.recommended is None:
            return {}
        choice = self._space.choice(result.recommended)
        return {
            "algorithm": choice.plan.algorithm.name,
            "hyperparameters": dict(choice.hyperparameters),
            "transforms": dict(choice.transforms),
            "fraction": choice.fraction,
            "machines": choice.machines,
            "prediction": dict(result.prediction),
        }

    def _tell(self, trial: Trial, earlier: bool) -> None:
        self._known.add(trial.number)
        result = self._result(trial)
        if isinstance(result, LeaderboardEntry):
            self.entries.append(result)
        else:
            self.failures.append(result)
        self._watch(TrainingTrialEnded(result, earlier))

    def _result(self, trial: Trial) -> LeaderboardEntry | TrialFailure:
        choice, measures = self._space.choice(trial.configuration), trial.measures
        name, settings = choice.plan.algorithm.name, dict(choice.hyperparameters)
        if not trial.finished:
            cut = trial.status == CUT
            return TrialFailure(
                trial.number, name, settings, trial.why, trial.spent_usd, cut, choice.machines
            )
        transforms = dict(choice.transforms)
        if choice.fraction < 1:
            transforms[SAMPLE] = {"fraction": choice.fraction}
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
            choice.machines,
        )


class _Enough:
    """A strategy that proposes nothing more."""

    def __init__(self, before: Strategy) -> None:
        self._before = before

    def propose(self, history: History, money_left: float) -> Proposal | None:
        del history, money_left
        return None

    def recommend(self, history: History) -> Configuration | None:
        return self._before.recommend(history)
