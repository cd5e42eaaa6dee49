"""A study, done: trials as they end, the answer and a report at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from prudent.core.errors import BadInput
from prudent.service.intake import tune_request
from prudent.service.worker.artifacts import JOURNAL, LOGS, write_report, write_result
from prudent.service.worker.messages import (
    DoneMessage,
    InterruptedMessage,
    ProcessMessage,
    ProgressMessage,
    RunTask,
    SendMessage,
    TrialEndMessage,
    TrialStartMessage,
)
from prudent.tuning.job_file import JobFile
from prudent.tuning.jobs.job import Job
from prudent.tuning.result import Result
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Trial
from prudent.tuning.tune import Event, TrialEnded, TrialStarted

_HALF_WAY = 8


def perform_study(task: RunTask, send: SendMessage, folders: Sequence[Path]) -> ProcessMessage:
    """Tune; goes on with the journal of an earlier worker, ending what it left running."""
    from prudent.tuning.tune import tune

    said = tune_request.parse(task.document, folders, keep=task.folder)
    job = said.build(task.folder / LOGS)
    budget_usd = _budget(said, task.left_usd)
    _check_end(said, job, budget_usd)
    left_over = getattr(job, "reap", None)
    if left_over is not None:
        left_over()
    relay = StudyRelay(said, budget_usd, send)
    result = tune(
        job,
        said.goal,
        budget_usd,
        said.strategy,
        said.options,
        said.early_stop,
        min(said.parallel, 64),
        said.seed,
        journal=task.folder / JOURNAL,
        resume=True,
        watch=relay.watch,
        max_trials=said.max_trials,
    )
    if result.interrupted:
        return InterruptedMessage()
    relay.catch_up(result.trials)
    write_result(task.folder, result.to_dict())
    write_report(task.folder, lambda path: _report(result, said, job, path))
    if result.best is None and result.recommended is None:
        raise BadInput(_nothing(result))
    return DoneMessage(exhausted=_exhausted(result))


class StudyRelay:
    """Turns what the study tells into messages."""

    def __init__(self, said: JobFile, budget_usd: float | None, send: SendMessage) -> None:
        self._said, self._budget_usd, self._send = said, budget_usd, send
        self._told = 0

    def watch(self, event: Event, study: Study) -> None:
        self.catch_up(study.trials)  # of an earlier session, too
        if isinstance(event, TrialStarted):
            self._send(TrialStartMessage(event.ask.number, "", dict(event.ask.configuration)))
        elif isinstance(event, TrialEnded):
            self._send(self._progress(study))

    def catch_up(self, trials: Sequence[Trial]) -> None:
        """Tell the trials that were not told yet; a study only ever adds to them."""
        for trial in trials[self._told :]:
            self._told += 1
            self._send(self._ended(trial))

    def _ended(self, trial: Trial) -> TrialEndMessage:
        value = trial.values.get(self._said.goal.measure)
        details = {"measures": dict(trial.measures), "feasible": trial.feasible, "why": trial.why}
        return TrialEndMessage(
            trial.number,
            trial.chosen,
            dict(trial.configuration),
            trial.status,
            value if trial.finished else None,
            trial.cost_usd,
            trial.time_s,
            trial.spent_usd,
            trial.cost_usd / trial.time_s * 3600 if trial.time_s else None,
            details=details,
        )

    def _progress(self, study: Study) -> ProgressMessage:
        count, most = len(study.trials), self._said.max_trials
        parts = [
            count / most if most else 0.0,
            study.spent_usd / self._budget_usd if self._budget_usd else 0.0,
        ]
        limited = bool(most or self._budget_usd)
        return ProgressMessage(min(max(parts) if limited else count / (count + _HALF_WAY), 0.99))


def _budget(said: JobFile, left_usd: float | None) -> float | None:
    if left_usd is None:
        return said.budget_usd
    left_usd = max(left_usd, 1e-6)
    return left_usd if said.budget_usd is None else min(said.budget_usd, left_usd)


def _check_end(said: JobFile, job: Job, budget_usd: float | None) -> None:
    from prudent.tuning.dry_run import endless

    sketch = replace(said, budget_usd=budget_usd).study(job)
    if endless(sketch, said.max_trials):
        raise BadInput(
            "This study would never end: no money is spent and the space is infinite; "
            "set a budget and a price, or max_trials."
        )


def _report(result: Result, said: JobFile, job: Job, path: Path) -> None:
    from prudent.reports.tuning import write_tuning_report

    write_tuning_report(result, said.problem(job), path, options=said.options)


def _exhausted(result: Result) -> str:
    """What became of the budget, where nothing is left of it."""
    budget_usd = result.budget_usd
    if budget_usd is None or result.spent_usd < 0.99 * budget_usd:
        return ""
    over = f", and ${result.over_usd:.2f} more was paid" if result.over_usd else ""
    return f"the budget of ${budget_usd:.2f} is spent{over}"


def _nothing(result: Result) -> str:
    if not result.trials:
        return "No trial fitted into the budget; allow more."
    last = result.trials[-1]
    why = f" (the last: {last.why.rstrip('.')})" if last.why else ""
    return f"No configuration keeps every constraint{why}; loosen the goal or allow more."
