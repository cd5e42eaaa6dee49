"""`prudent report JOB.yaml`: the report of a study as its journal has it; nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prudent.cli.answer import answer, files
from prudent.cli.confirm import kept, told
from prudent.cli.console import out, say, say_json
from prudent.cli.places import Places
from prudent.cli.tune import document, study_of, write_report
from prudent.core.errors import BadInput
from prudent.tuning.job_file import JobFile
from prudent.tuning.jobs.job import Job
from prudent.tuning.journal import read_facts
from prudent.tuning.result import Result
from prudent.tuning.tune import summary


def report(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="The job file of the study.")],
    journal: Annotated[
        Path | None, typer.Option(help="The journal, if it is not NAME.prudent/journal.jsonl.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write it; NAME.prudent/report.html otherwise."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")] = False,
) -> None:
    """Write the HTML report of a study again, from its journal; nothing is run."""
    said = JobFile.read(job_file)
    places = Places.of(said, journal, output)
    if not places.journal.exists():
        raise BadInput(
            f'There is no journal "{places.journal}"; run prudent tune first, or name it with --journal.'
        )
    job = said.build()
    said, result = _as_recorded(said, job, places.journal)
    done = kept(job, result, places.confirmation)
    written = write_report(result, said, job, places.report, done)
    if as_json:
        say_json(document(result, places, written, done))
    else:
        say(out(), *answer(result, confirming=done is not None), *(told(done, result) if done else ()))
        say(out(), *files(places.journal, written, None))
    raise typer.Exit(0 if written else 1)


def _as_recorded(said: JobFile, job: Job, journal: Path) -> tuple[JobFile, Result]:
    """The study in a journal; what was said on its command line then counts more than the file."""
    facts = read_facts(journal)
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
    study = study_of(said, job)
    study.replay(facts)
    return said, summary(study, job.name)
