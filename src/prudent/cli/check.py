"""`prudent check`: what would go wrong on machines before money is spent, and how secure a service is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli.console import out, say, say_json
from prudent.cli.exits import WRONG_REQUEST
from prudent.cli.options import AsJson
from prudent.core.errors import BadInput, PrudentError

if TYPE_CHECKING:
    from prudent.cloud.providers.provider import Provider


@dataclass(frozen=True)
class CheckResult:
    """One job file or place, and what is wrong with it: one sentence each, with its remedy."""

    subject: str
    problems: tuple[str, ...]


def check(
    job: Annotated[
        Path | None,
        typer.Argument(metavar="JOB.yaml", help="A job file; its machines are checked, too."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="A place: local, hosts:INVENTORY.yaml or ec2:AWS.yaml; may be repeated."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="A type that the places must have, or how many: 3*m5.large; may be repeated."
        ),
    ] = None,
    service: Annotated[
        Path | None, typer.Option(metavar="HOME", help="The home of a running service: how secure it is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find what is wrong with a job file, the places of machines or a service; nothing is launched."""
    if job is None and not where and service is None:
        raise BadInput(
            "There is nothing to check; name a job file, or a place like --where ec2:aws.yaml, "
            "or a service like --service HOME."
        )
    if types and not where:
        raise BadInput("A job file names its types itself; use --type with --where.")
    found = [] if job is None else [check_job(job)]
    found += [check_place(text, types or ()) for text in where or ()]
    found += [] if service is None else check_service(service)
    if as_json:
        say_json(check_document(found))
    else:
        from rich.text import Text

        say(out(), *map(Text, check_lines(found)))
    if any(one.problems for one in found):
        raise typer.Exit(WRONG_REQUEST)


def check_job(path: Path) -> CheckResult:
    """A job file as a whole: what is written, then whether its machines can be had."""
    from prudent.tuning.job_file import JobFile

    try:
        job: Any = JobFile.read(path).build()
        # Only jobs on rented machines have more to ask than what building them asks.
        asked = getattr(job, "check", None)
        problems = asked() if asked is not None else []
    except PrudentError as error:
        problems = [str(error)]
    return CheckResult(str(path), tuple(problems))


def check_place(text: str, types: Sequence[str]) -> CheckResult:
    """A place such as `ec2:aws.yaml`."""
    try:
        problems = _provider(text).check(types)
    except PrudentError as error:
        problems = [str(error)]
    return CheckResult(text, tuple(problems))


def check_service(home: Path) -> list[CheckResult]:
    """A running service, by each part of the checklist."""
    try:
        from prudent.service.security.checklist import run_checklist
    except ImportError as error:
        raise BadInput(f'The service needs {error.name}; pip install "prudent[serve]".') from error
    return [CheckResult(f"{home}, {part}", problems) for part, problems in run_checklist(home)]


def check_document(found: Sequence[CheckResult]) -> dict[str, Any]:
    """The answer as plain values."""
    return {
        "ok": not any(one.problems for one in found),
        "checked": [{"subject": one.subject, "problems": list(one.problems)} for one in found],
    }


def check_lines(found: Sequence[CheckResult]) -> list[str]:
    """A line for each problem, and one for each subject that has none.

    >>> check_lines([CheckResult("job.yaml", ()), CheckResult("local", ("Nobody is there; come later.",))])
    ['job.yaml: nothing is wrong.', 'local: Nobody is there; come later.']
    """
    said: list[str] = []
    for one in found:
        said += [f"{one.subject}: {problem}" for problem in one.problems or ("nothing is wrong.",)]
    return said


def _provider(text: str) -> Provider:
    from prudent.cloud.home_folder import default_home
    from prudent.cloud.providers.registry import provider_of

    name, _, setting = text.partition(":")
    return provider_of({name.strip(): setting.strip() or None}, default_home(), Path.cwd())
