"""The trials of a request's study, as models and failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

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
from prudent.training.search.allocation import RESUMABLE_CAUSES, gave_model
from prudent.training.search.space import SettingsSpace, TrialSettings
from prudent.tuning import tune as tuning
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, Trial


class TrialBoard:
    """Follows a study: `entries` and `failures` grow as its trials end, and `watch` is called with each.

    A trial of a grid that was cut and begun again has one result, and the cost of both. `spent_usd` tells
    what the request has cost so far, where that is more than its trials.
    """

    def __init__(
        self,
        space: SettingsSpace,
        folder: Path,
        metric: Callable[[], str],
        watch: EventCallback,
        spent_usd: Callable[[], float] | None = None,
    ) -> None:
        self._space, self._folder, self._metric = space, folder, metric
        self._watch, self._spent_usd = watch, spent_usd
        self._known: set[int] = set()
        self._algorithms: dict[int, str] = {}
        self._unfinished: dict[str, TrialFailure] = {}
        self.entries: list[LeaderboardEntry] = []
        self.failures: list[TrialFailure] = []

    def watch(self, event: tuning.Event, study: Study) -> None:
        """Take in an event of the study; see `prudent.tuning.tune`."""
        if isinstance(event, tuning.TrialStarted):
            name = self._space.settings_of(event.ask.configuration).plan.algorithm.name
            self._algorithms[event.ask.number] = name
            self._watch(TrainingTrialStarted(event.ask.number, name, event.ask.why))
        elif isinstance(event, tuning.TrialReported):
            self._watch(TrainingTrialReported(event.number, self._algorithms[event.number], event.progress))
        elif isinstance(event, tuning.TrialEnded):
            self._algorithms.pop(event.trial.number, None)
            self.report_spending(study)
            self._add(event.trial, earlier=False)

    def complete(self, trials: Iterable[Trial]) -> None:
        """Take in the trials of earlier sessions."""
        for trial in trials:
            if trial.number not in self._known:
                self._add(trial, earlier=True)

    def report_spending(self, study: Study) -> None:
        self._watch(SpendingUpdated(study.spent_usd if self._spent_usd is None else self._spent_usd()))

    def _add(self, trial: Trial, earlier: bool) -> None:
        self._known.add(trial.number)
        chosen = self._space.settings_of(trial.configuration)
        cost_usd = trial.spent_usd + self._take_back(trial)
        result: LeaderboardEntry | TrialFailure
        if gave_model(trial):
            result = self._entry(trial, chosen, cost_usd)
            self.entries.append(result)
        else:
            result = self._failure(trial, chosen, cost_usd)
            self.failures.append(result)
        self._watch(TrainingTrialEnded(result, earlier))

    def _take_back(self, trial: Trial) -> float:
        """Take back the failure of a trial that was begun again; answers what that attempt has cost."""
        before = (
            self._unfinished.pop(self._space.key(trial.configuration), None) if self._unfinished else None
        )
        if before is None:
            return 0.0
        self.failures.remove(before)
        return before.cost_usd

    def _failure(self, trial: Trial, chosen: TrialSettings, cost_usd: float) -> TrialFailure:
        why, cut = trial.why or "it gave no score", trial.status == CUT
        name, settings = chosen.plan.algorithm.name, dict(chosen.hyperparameters)
        failure = TrialFailure(trial.number, name, settings, why, cost_usd, cut, chosen.machines)
        if chosen.plan.search == "grid" and cut and why in RESUMABLE_CAUSES:
            self._unfinished[self._space.key(trial.configuration)] = failure
        return failure

    def _entry(self, trial: Trial, chosen: TrialSettings, cost_usd: float) -> LeaderboardEntry:
        measures, transforms = trial.measures, dict(chosen.transforms)
        if chosen.sampled:
            transforms[SAMPLE] = {"fraction": chosen.fraction}
        return LeaderboardEntry(
            0,
            chosen.plan.algorithm.name,
            dict(chosen.hyperparameters),
            measures["score"],
            self._metric(),
            measures.get("value", measures["score"]),
            str(self._folder / str(trial.number)),
            measures.get("train_s", trial.time_s),
            measures.get("predict_ms", 0.0),
            cost_usd,
            trial.number,
            transforms,
            chosen.machines,
            validation_score=measures["score"],
        )
