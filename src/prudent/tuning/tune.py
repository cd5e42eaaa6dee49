"""Run a study of a job: machines, runs and money from the first trial to the answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.jobs.job import Job, ReapableJob, RentingJob
from prudent.tuning.result import Result
from prudent.tuning.strategies.strategy import FrugalStrategy, PredictiveStrategy
from prudent.tuning.study.active_trials import ActiveTrials, LiveTrials, ReplayedTrials
from prudent.tuning.study.runner import (
    GIVE_UP,
    Event,
    StudyRunner,
    TrialEnded,
    TrialExtended,
    TrialReported,
    TrialStarted,
    Watch,
)
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Trial

__all__ = [
    "GIVE_UP",
    "Event",
    "TrialEnded",
    "TrialExtended",
    "TrialReported",
    "TrialStarted",
    "Watch",
    "run_trials",
    "summary",
    "tune",
]

BESIDE = Price(0.0, "", "leases")
"""Machines of several prices that were idle or lost: what they cost is known from their leases."""


def tune(
    job: Job,
    goal: Goal | str | Mapping[str, Any],
    budget_usd: float | None = None,
    strategy: str | None = None,
    options: Mapping[str, Any] | None = None,
    early_stop: bool = True,
    parallel: int = 1,
    seed: int = 0,
    *,
    journal: str | Path | None = None,
    resume: bool = False,
    warm_start: Iterable[Trial] = (),
    watch: Watch | None = None,
    max_trials: int | None = None,
) -> Result:
    """Find the configuration of a job that meets a goal best, spending at most `budget_usd`.

    strategy=None takes the best one for this goal. With `early_stop` a run is cut once it cannot be the
    answer. `parallel` runs at most so many trials at once. `journal` makes the study resumable; `warm_start`
    hands in trials of earlier studies as free knowledge; `watch` is called with every event. An interrupt
    (Ctrl-C) ends the runs under way, charges the time they had, and answers with what is known. Where more
    was paid than the budget all the same (a run that would not end), `Result.over_usd` says how much.
    """
    if parallel < 1:
        raise BadInput(f"parallel is {parallel}; at least one trial must run at a time.")
    study = Study(
        job.space,
        Goal.parse(goal),
        job.price,
        budget_usd,
        strategy,
        options,
        measures=job.measures,
        fraction=job.fraction,
        early_stop=early_stop,
        seed=seed,
        fingerprint=job.fingerprint(),
        journal=journal,
        resume=resume,
        warm_start=warm_start,
        outlived_s=job.outlived_s if isinstance(job, ReapableJob) else {},
    )
    try:
        interrupted = run_trials(job, study, parallel, watch, max_trials)
        return summary(study, job.name, interrupted)
    finally:
        study.close()


def run_trials(
    job: Job,
    study: Study,
    parallel: int = 1,
    watch: Watch | None = None,
    max_trials: int | None = None,
    finish: Callable[[bool], None] | None = None,
) -> bool:
    """Run the trials that a study asks for until it has enough or no money; True if it was interrupted.

    `finish` is called with that answer when they have ended: while rented machines are still there, unless
    it was interrupted.
    """
    with _machines(job, study):
        crew: ActiveTrials = ReplayedTrials(study.clock_s) if job.virtual else LiveTrials(study.clock_s)
        interrupted = StudyRunner(job, study, crew, parallel, watch or _silent, max_trials).run()
        if finish is not None and not interrupted:
            finish(False)
    if finish is not None and interrupted:
        finish(True)
    return interrupted


@contextlib.contextmanager
def _machines(job: Job, study: Study) -> Iterator[None]:
    """Where a job rents machines, none is left in the end, and what none of the trials paid is charged.

    A session that was killed has paid for machines too: the one that takes up its study finds out.
    """
    if not isinstance(job, RentingJob):
        yield
        return
    _settle(job, study)
    try:
        yield
    finally:
        job.release()
        _settle(job, study)


def _settle(job: RentingJob, study: Study) -> None:
    study.charge("machines beside the trials", job.bill_usd() - study.spent_usd, BESIDE)


def summary(study: Study, job_name: str, interrupted: bool = False) -> Result:
    """The result of a study as it stands."""
    history, recommended = study.history, study.recommended
    prediction: dict[str, float] = {}
    if recommended is not None and isinstance(study.strategy, PredictiveStrategy):
        prediction = study.strategy.predict(history, recommended)
    return Result(
        goal=study.goal,
        best=history.best,
        recommended=recommended,
        trials=study.trials,
        spent_usd=study.spent_usd,
        budget_usd=study.ledger.budget_usd,
        strategy=study.strategy_name,
        seed=study.seed,
        nearest=None if history.best else _nearest(study),
        entries=study.ledger.entries,
        known=study.known,
        interrupted=interrupted,
        job=job_name,
        prediction=prediction,
        stopped="" if interrupted else _why_enough(study),
    )


def _why_enough(study: Study) -> str:
    if study.goal.runs_planned is None or not isinstance(study.strategy, FrugalStrategy):
        return ""
    return study.strategy.why_enough(study.history, study.ledger.left_usd)


def _nearest(study: Study) -> Trial | None:
    """What misses the constraints by least, among runs that could be the answer if there are any.

    A run on a part of the data keeps a bound on the cost easily; it does not keep one at full data.
    """
    history, answers = study.history, study.problem.answers
    able = tuple(trial for trial in history if answers(trial.configuration))
    return History(study.goal, able).nearest or history.nearest


def _silent(event: Event, study: Study) -> None:
    del event, study
