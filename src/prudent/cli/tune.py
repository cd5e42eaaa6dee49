"""`prudent tune JOB.yaml`: find the cheapest configuration within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from prudent.cli.answer import answer, files, found
from prudent.cli.board import Board
from prudent.cli.confirm import Confirmed, charge_killed, confirm_budget, confirmed, kept, told
from prudent.cli.console import complain, out, say, say_json
from prudent.cli.interrupt import ended_by_signals
from prudent.cli.live import Lines, Screen, Silent, View
from prudent.cli.places import Places
from prudent.cli.plan import plan
from prudent.cli.price_age import EC2, tell_age
from prudent.cli.reaping import reap_leftovers
from prudent.cloud.spending import Account
from prudent.core.errors import BadInput, PrudentError
from prudent.core.units import format_money
from prudent.core.yaml_text import read_yaml
from prudent.tuning.confirmations import Confirmations
from prudent.tuning.dry_run import dry_run as look_ahead
from prudent.tuning.dry_run import endless
from prudent.tuning.job_file import JobFile
from prudent.tuning.jobs.cluster_command import ClusterCommandJob
from prudent.tuning.jobs.job import Job, Renting
from prudent.tuning.problem import Problem
from prudent.tuning.result import Result
from prudent.tuning.study import Study
from prudent.tuning.trial import Trial
from prudent.tuning.tune import Ended, Event
from prudent.tuning.tune import tune as run_study
from prudent.tuning.warm_start import earlier_trials

INTERRUPTED, OVER_BUDGET, NOT_FOUND = 130, 3, 1


def tune(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job, its goal and its budget.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would happen; run nothing.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the study whose journal exists.")
    ] = False,
    goal: Annotated[str | None, typer.Option(help="Another goal than the file's.")] = None,
    budget: Annotated[str | None, typer.Option(help="Another budget, such as $2.")] = None,
    strategy: Annotated[str | None, typer.Option(help="Another strategy, such as random.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="An option of the strategy, name=value; repeatable."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed.")] = None,
    parallel: Annotated[int | None, typer.Option(min=1, help="Run up to so many trials at once.")] = None,
    early_stop: Annotated[
        bool | None,
        typer.Option(
            "--early-stop/--no-early-stop", help="Cut runs that cannot be the answer, or let them end."
        ),
    ] = None,
    max_trials: Annotated[int | None, typer.Option(min=1, help="Stop after so many trials.")] = None,
    warm_start: Annotated[
        list[Path] | None,
        typer.Option(help="The journal of an earlier study, as free knowledge; repeatable."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Where to record the study; NAME.prudent/journal.jsonl otherwise.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Where to write the HTML report; NAME.prudent/report.html otherwise.")
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Then run the recommendation once, with money beside the budget, and say how far its "
            "prediction was off.",
        ),
    ] = False,
    confirming_budget: Annotated[
        str | None,
        typer.Option(
            "--confirm-budget",
            help="The most that --confirm may cost, such as $0.2; otherwise twice the upper end of the "
            "predicted cost.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")] = False,
) -> None:
    """Find the cheapest configuration of a job that keeps its constraints, within a budget."""
    said = JobFile.read(job_file).changed(
        goal,
        budget,
        strategy,
        read_options(option or ()),
        seed=seed,
        parallel=parallel,
        early_stop=early_stop,
        max_trials=max_trials,
    )
    confirm_usd = confirm_budget(confirming_budget, confirm)
    places = Places.of(said, journal, report)
    job = said.build(places.logs)
    known = [trial for path in warm_start or () for trial in earlier_trials(path, job.space)]
    sketch = study_of(said, job, known)
    if isinstance(job, ClusterCommandJob) and job.provider.name == EC2:
        tell_age(job.provider.offer(kind).price for kind in job.machines.types)
    if dry_run:
        _show_plan(said, job, sketch, as_json)
        return
    if endless(sketch, said.max_trials):
        raise BadInput(
            "Nothing would end this study: no money is spent and the space has no end; "
            "set a budget and a price, or --max-trials."
        )
    if isinstance(job, Renting):
        reap_leftovers()
    if resume:
        _take_up(job, places)
    tell = _teller(said, job, places, resume)
    result = _run(said, job, places, known, resume, _view(said, job, as_json), tell)
    if confirm:
        _answered(result, as_json, confirming=True)
        done: Confirmed | None = confirmed(job, result, places, confirm_usd, quiet=as_json)
        tell(result.spent_usd)
    else:
        done = kept(job, result, places.confirmation)
        _answered(result, as_json, confirming=done is not None)
    written = write_report(result, said, job, places.report, done)
    _show(result, places, written, as_json, not job.virtual, done)
    raise typer.Exit(_code(result, done))


def study_of(said: JobFile, job: Job, known: Sequence[Trial] = ()) -> Study:
    """The study that a job file describes, without a journal: to look at, not to run."""
    return Study(
        job.space,
        said.goal,
        job.price,
        said.budget_usd,
        said.strategy,
        said.options,
        measures=job.measures,
        fraction=job.fraction,
        early_stop=said.early_stop,
        seed=said.seed,
        warm_start=known,
    )


def read_options(said: Sequence[str]) -> dict[str, Any]:
    """Options as typed, `lookahead=1`; values are read as YAML reads them.

    >>> read_options(["lookahead=1", "start=latin"])
    {'lookahead': 1, 'start': 'latin'}
    """
    options: dict[str, Any] = {}
    for text in said:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise BadInput(f'"{text}" is no option; write it like --option lookahead=1.')
        options[name.strip()] = read_yaml(value)
    return options


def write_report(
    result: Result, said: JobFile, job: Job, path: Path, done: Confirmed | None = None
) -> Path | None:
    """Write the HTML report; a report that cannot be written must not cost the answer."""
    from prudent.reports.tuning import write_tuning_report

    problem = Problem(job.space, said.goal, job.price, tuple(job.measures), job.fraction, said.early_stop)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        confirmation = done.confirmation if done else None
        return write_tuning_report(result, problem, path, options=said.options, confirmation=confirmation)
    except (OSError, PrudentError) as error:
        complain(
            f"the report could not be written ({error}); the journal has everything, try prudent report."
        )
        return None


def _take_up(job: Job, places: Places) -> None:
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


def _teller(said: JobFile, job: Job, places: Places, resume: bool) -> Callable[[float], None]:
    """Tells the book of this computer what a study has cost, and adds its confirming runs."""
    if job.virtual:  # a replay costs nothing
        return lambda study_usd: None
    account = Account("tune", said.name, places.journal, resume, said.budget_usd, complain)
    confirmations = Confirmations(places.confirmation, job.space)
    others_usd = 0.0 if resume else confirmations.spent_usd  # of a study that was here before
    return lambda study_usd: account.tell(study_usd + confirmations.spent_usd - others_usd)


def _run(
    said: JobFile,
    job: Job,
    places: Places,
    known: Sequence[Trial],
    resume: bool,
    view: View,
    tell: Callable[[float], None],
) -> Result:
    def watch(event: Event, study: Study) -> None:
        view.watch(event, study)
        if isinstance(event, Ended):
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


def _view(said: JobFile, job: Job, as_json: bool) -> View:
    if as_json:
        return Silent()
    console = out()
    setup_s = float(getattr(job, "setup_s", 0.0))
    board = Board(said.name, said.goal, said.budget_usd, job.virtual, setup_s)
    return Screen(board, console) if console.is_terminal else Lines(board, console)


def _show_plan(said: JobFile, job: Job, sketch: Study, as_json: bool) -> None:
    dry = look_ahead(job, sketch)
    if as_json:
        say_json({"job": said.name, **dry.to_dict()})
        return
    say(out(), *plan(said.name, dry))


def _answered(result: Result, as_json: bool, confirming: bool) -> None:
    """The study's answer, said before more is paid to confirm it."""
    if not as_json:
        say(out(), "", *answer(result, confirming))


def _show(
    result: Result, places: Places, written: Path | None, as_json: bool, live: bool, done: Confirmed | None
) -> None:
    if as_json:
        say_json(document(result, places, written, done))
        return
    say(out(), *(told(done, result) if done else ()))
    say(out(), *files(places.journal, written, _logs(places) if live else None))


def document(result: Result, places: Places, written: Path | None, done: Confirmed | None) -> dict[str, Any]:
    """What `--json` prints: the result, its confirmation, and where the files are."""
    return {
        **result.to_dict(),
        "confirmation": done.to_dict() if done else None,
        "journal": str(places.journal),
        "report": str(written) if written else None,
    }


def _code(result: Result, done: Confirmed | None) -> int:
    """0 with an answer; a confirmation that failed, or that breaks the goal, is none.

    A budget that was passed is told, whatever was found for it; so is that of a confirmation.
    """
    if result.interrupted or (done is not None and done.interrupted):
        return INTERRUPTED
    if result.over_usd or (done is not None and done.over_usd):
        return OVER_BUDGET
    if done is None or done.confirmation is None:
        return 0 if found(result) and done is None else NOT_FOUND
    return 0 if done.ended and (done.confirmation.trial.feasible or result.best is not None) else NOT_FOUND


def _logs(places: Places) -> Path | None:
    return places.logs if places.logs.is_dir() else None
