"""`prudent tune JOB.yaml`: find the cheapest configuration within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from prudent.cli.clusters import EC2, reap_leftovers, tell_age
from prudent.cli.confirm import (
    ConfirmationOutcome,
    charge_killed,
    confirm_budget,
    confirmation_lines,
    earlier_confirmation,
    run_confirmation,
)
from prudent.cli.console import complain, out, say, say_json
from prudent.cli.display.live import LiveView, SilentView
from prudent.cli.display.study import answer_lines, dry_run_lines, file_lines, has_answer
from prudent.cli.display.study_live import StudyProgress, study_view
from prudent.cli.exits import FAILED, INTERRUPTED, OK, OVER_LIMIT, ended_by_signals
from prudent.cli.options import AsJson, OtherSeed, complete_strategies, read_assignments
from prudent.cli.report import StudyFiles, document, write_report
from prudent.cloud.spending import RunSpending
from prudent.core.errors import BadInput
from prudent.core.units import format_money
from prudent.tuning.confirmation_file import ConfirmationFile
from prudent.tuning.dry_run import dry_run as look_ahead
from prudent.tuning.dry_run import endless
from prudent.tuning.job_file import JobFile
from prudent.tuning.jobs.cluster_command import ClusterCommandJob
from prudent.tuning.jobs.job import Job, RentingJob
from prudent.tuning.journal import earlier_trials
from prudent.tuning.result import Result
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Trial
from prudent.tuning.tune import Event, TrialEnded
from prudent.tuning.tune import tune as run_study


def tune(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job, its goal and its budget.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be run, and run nothing.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the study whose journal exists.")
    ] = False,
    goal: Annotated[str | None, typer.Option(help="Replaces the goal in the file.")] = None,
    budget: Annotated[str | None, typer.Option(help="Replaces the budget in the file, such as $2.")] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="Replaces the strategy in the file, such as random.", autocompletion=complete_strategies
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="An option of the strategy, name=value; may be repeated."),
    ] = None,
    seed: OtherSeed = None,
    parallel: Annotated[int | None, typer.Option(min=1, help="The most trials to run at once.")] = None,
    early_stop: Annotated[
        bool | None,
        typer.Option("--early-stop/--no-early-stop", help="Stop runs early that cannot be the answer."),
    ] = None,
    max_trials: Annotated[int | None, typer.Option(min=1, help="Stop after this many trials.")] = None,
    warm_start: Annotated[
        list[Path] | None,
        typer.Option(help="The journal of an earlier study whose trials are learned from; may be repeated."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Where to record the study. \\[default: NAME.prudent/journal.jsonl]")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Where to write the HTML report. \\[default: NAME.prudent/report.html]"),
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Afterwards run the recommendation once, paid for on top of the budget, and report how far "
            "off its prediction was.",
        ),
    ] = False,
    confirming_budget: Annotated[
        str | None,
        typer.Option(
            "--confirm-budget",
            help="The most that --confirm may cost, such as $0.2. \\[default: twice the upper end of the "
            "predicted cost]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the cheapest configuration of a job that keeps its constraints, within a budget."""
    said = JobFile.read(job_file).changed(
        goal,
        budget,
        strategy,
        read_assignments(option, "--option", "lookahead=1"),
        seed=seed,
        parallel=parallel,
        early_stop=early_stop,
        max_trials=max_trials,
    )
    confirm_usd = confirm_budget(confirming_budget, confirm)
    places = StudyFiles.of(said, journal, report)
    job = said.build(places.logs)
    known = [trial for path in warm_start or () for trial in earlier_trials(path, job.space)]
    sketch = said.study(job, known)
    if isinstance(job, ClusterCommandJob) and job.provider.name == EC2:
        tell_age(job.provider.offer(kind).price for kind in job.machines.types)
    if dry_run:
        _show_plan(said, job, sketch, as_json)
        return
    if endless(sketch, said.max_trials):
        raise BadInput(
            "This study would never end: no money is spent and the space is infinite; "
            "set a budget and a price, or --max-trials."
        )
    if isinstance(job, RentingJob):
        reap_leftovers()
    if resume:
        _take_up(job, places)
    tell = _teller(said, job, places, resume)
    result = _run(said, job, places, known, resume, _view(said, job, as_json), tell)
    if confirm:
        _answered(result, as_json, confirming=True)
        done: ConfirmationOutcome | None = run_confirmation(job, result, places, confirm_usd, quiet=as_json)
        tell(result.spent_usd)
    else:
        done = earlier_confirmation(job, result, places.confirmation)
        _answered(result, as_json, confirming=done is not None)
    written = write_report(result, said, job, places.report, done)
    _show(result, places, written, as_json, not job.virtual, done)
    raise typer.Exit(_code(result, done))


def _take_up(job: Job, places: StudyFiles) -> None:
    """End what an earlier call left running; a confirming run that it did not live to end was paid for."""
    left_over = getattr(job, "reap", None)
    if left_over is not None:
        left_over()
    charged_usd = charge_killed(job, places)
    if charged_usd:
        complain(
            "an earlier call was killed while it confirmed the recommendation; what that cost is charged, "
            f"{format_money(charged_usd)} beside the study's budget."
        )


def _teller(said: JobFile, job: Job, places: StudyFiles, resume: bool) -> Callable[[float], None]:
    """Tells the book of this computer what a study has cost, and adds its confirming runs."""
    if job.virtual:  # a replay costs nothing
        return lambda study_usd: None
    account = RunSpending("tune", said.name, places.journal, resume, said.budget_usd, complain)
    confirmations = ConfirmationFile(places.confirmation, job.space)
    others_usd = 0.0 if resume else confirmations.spent_usd  # of a study that was here before
    return lambda study_usd: account.tell(study_usd + confirmations.spent_usd - others_usd)


def _run(
    said: JobFile,
    job: Job,
    places: StudyFiles,
    known: Sequence[Trial],
    resume: bool,
    view: LiveView[Event, Study],
    tell: Callable[[float], None],
) -> Result:
    def watch(event: Event, study: Study) -> None:
        view.watch(event, study)
        if isinstance(event, TrialEnded):
            tell(study.ledger.spent_usd)

    with ended_by_signals(), view:
        result = run_study(
            job,
            said.goal,
            said.budget_usd,
            said.strategy,
            said.options,
            said.early_stop,
            said.parallel,
            said.seed,
            journal=places.journal,
            resume=resume,
            warm_start=known,
            watch=watch,
            max_trials=said.max_trials,
        )
    tell(result.spent_usd)
    return result


def _view(said: JobFile, job: Job, as_json: bool) -> LiveView[Event, Study]:
    if as_json:
        return SilentView()
    console = out()
    setup_s = float(getattr(job, "setup_s", 0.0))
    board = StudyProgress(said.name, said.goal, said.budget_usd, job.virtual, setup_s)
    return study_view(board, console)


def _show_plan(said: JobFile, job: Job, sketch: Study, as_json: bool) -> None:
    dry = look_ahead(job, sketch)
    if as_json:
        say_json({"job": said.name, **dry.to_dict()})
        return
    say(out(), *dry_run_lines(said.name, dry))


def _answered(result: Result, as_json: bool, confirming: bool) -> None:
    """The study's answer, said before more is paid to confirm it."""
    if not as_json:
        say(out(), "", *answer_lines(result, confirming))


def _show(
    result: Result,
    places: StudyFiles,
    written: Path | None,
    as_json: bool,
    live: bool,
    done: ConfirmationOutcome | None,
) -> None:
    if as_json:
        say_json(document(result, places, written, done))
        return
    say(out(), *(confirmation_lines(done, result) if done else ()))
    say(out(), *file_lines(places.journal, written, _logs(places) if live else None))


def _code(result: Result, done: ConfirmationOutcome | None) -> int:
    """0 with an answer; a confirmation that failed, or that breaks the goal, is none.

    A budget that was passed is told, whatever was found for it; so is that of a confirmation.
    """
    if result.interrupted or (done is not None and done.interrupted):
        return INTERRUPTED
    if result.over_usd or (done is not None and done.over_usd):
        return OVER_LIMIT
    if done is None or done.confirmation is None:
        return OK if has_answer(result) and done is None else FAILED
    return OK if done.ended and (done.confirmation.trial.feasible or result.best is not None) else FAILED


def _logs(places: StudyFiles) -> Path | None:
    return places.logs if places.logs.is_dir() else None
