"""The files and the report of a study; `prudent report JOB.yaml` writes it again, from the journal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from prudent.cli.confirm import ConfirmationOutcome, confirmation_lines, earlier_confirmation
from prudent.cli.console import out, say, say_json, write_or_complain
from prudent.cli.display.study import answer_lines, file_lines
from prudent.cli.exits import FAILED, OK
from prudent.cli.options import AsJson
from prudent.core.errors import BadInput
from prudent.tuning.job_file import JobFile
from prudent.tuning.jobs.job import Job
from prudent.tuning.journal import Journal
from prudent.tuning.result import Result
from prudent.tuning.tune import summary


@dataclass(frozen=True)
class StudyFiles:
    """The journal, the report, the logs of every trial, and the run that confirmed the recommendation."""

    journal: Path
    report: Path
    logs: Path
    confirmation: Path

    @classmethod
    def of(cls, job_file: JobFile, journal: Path | None = None, report: Path | None = None) -> StudyFiles:
        """`NAME.prudent/` beside the job file; with a journal of one's own, beside that.

        >>> from prudent.tuning.job_file import JobFile
        >>> said = {"table": "runs.csv", "parameters": ["vm"], "goal": "minimise cost_usd"}
        >>> StudyFiles.of(JobFile.parse(said, Path("/data"), "digits")).journal.as_posix()
        '/data/digits.prudent/journal.jsonl'
        """
        if journal is None:
            folder = job_file.folder / f"{job_file.name}.prudent"
            page = report or folder / "report.html"
            return cls(folder / "journal.jsonl", page, folder / "logs", folder / "confirmation.json")
        beside = journal.with_suffix("")
        page = report or beside.with_suffix(".html")
        return cls(journal, page, beside.with_suffix(".logs"), beside.with_suffix(".confirmation.json"))


def report(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job file of the study.")],
    journal: Annotated[
        Path | None, typer.Option(help="The journal of the study. \\[default: NAME.prudent/journal.jsonl]")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write it. \\[default: NAME.prudent/report.html]"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="The old name of --out.", hidden=True)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the HTML report of a study again, from its journal; nothing is run."""
    said = JobFile.read(job_file)
    places = StudyFiles.of(said, journal, to or output)
    if not places.journal.exists():
        raise BadInput(
            f'There is no journal "{places.journal}"; run prudent tune first, or name it with --journal.'
        )
    job = said.build()
    said, result = _as_recorded(said, job, places.journal)
    done = earlier_confirmation(job, result, places.confirmation)
    written = write_report(result, said, job, places.report, done)
    if as_json:
        say_json(document(result, places, written, done))
    else:
        say(
            out(),
            *answer_lines(result, confirming=done is not None),
            *(confirmation_lines(done, result) if done else ()),
        )
        say(out(), *file_lines(places.journal, written, None))
    raise typer.Exit(OK if written else FAILED)


def _as_recorded(said: JobFile, job: Job, journal: Path) -> tuple[JobFile, Result]:
    """The study in a journal; what was said on its command line then counts more than the file."""
    facts = Journal.read(journal)
    header = facts[0]
    if header.get("job") != job.fingerprint():
        raise BadInput(f'"{journal}" is the journal of another study: the job has changed; set it as it was.')
    said = said.changed(
        header.get("goal"),
        None,
        header.get("strategy"),
        header.get("options"),
        seed=header.get("seed"),
        early_stop=header.get("early_stop"),
    )
    study = said.study(job)
    study.replay(facts)
    return said, summary(study, job.name)


def write_report(
    result: Result, said: JobFile, job: Job, path: Path, done: ConfirmationOutcome | None = None
) -> Path | None:
    """Write the HTML report; a report that cannot be written must not cost the answer."""
    from prudent.reports.tuning import write_tuning_report

    problem = said.problem(job)
    confirmation = done.confirmation if done else None
    return write_or_complain(
        lambda: write_tuning_report(result, problem, path, options=said.options, confirmation=confirmation),
        "; the journal has everything, try prudent report.",
    )


def document(
    result: Result, places: StudyFiles, written: Path | None, done: ConfirmationOutcome | None
) -> dict[str, Any]:
    """What `--json` prints: the result, its confirmation, and where the files are."""
    return {
        **result.to_dict(),
        "confirmation": done.to_dict() if done else None,
        "journal": str(places.journal),
        "report": str(written) if written else None,
    }
