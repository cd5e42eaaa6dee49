"""`prudent train REQUEST.json`: every algorithm that fits, ranked, exported, reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli.clusters import prices_at, reap_leftovers, tell_age
from prudent.cli.console import complain, out, say, say_json, write_or_complain
from prudent.cli.exits import FAILED, INTERRUPTED, OK, OVER_LIMIT, ended_by_signals
from prudent.cli.mail import mail_answer, mail_settings
from prudent.cli.options import AsJson, OtherSeed, complete_search_methods
from prudent.core.errors import BadInput
from prudent.core.units import format_duration

if TYPE_CHECKING:
    from prudent.training.leaderboard import Leaderboard
    from prudent.training.request.request import TrainingRequest


def train(
    request: Annotated[
        Path | None, typer.Argument(metavar="REQUEST.json", help="What to train, on which data.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where to train: local (this machine) or spark (a cluster).")
    ] = "local",
    master: Annotated[
        str | None, typer.Option(help="The address of a Spark cluster, such as spark://host:7077.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help='Machines to rent with --engine spark, such as "3*m5.large".')
    ] = None,
    where: Annotated[
        str, typer.Option(help="Where to rent machines: local, hosts:INVENTORY.yaml or ec2:CONFIG.yaml.")
    ] = "local",
    to: Annotated[Path, typer.Option("--out", "-o", help="The folder for the models.")] = Path("models"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the request whose models are in the folder.")
    ] = False,
    budget: Annotated[
        str | None, typer.Option(help='Replaces the budget of the request: "$2", "60 s" or "20 trials".')
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help='When it must be done: "10 min" from now, or a time in ISO 8601.')
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="Replaces parameterSearch of the request, such as random.",
            autocompletion=complete_search_methods,
        ),
    ] = None,
    parallel: Annotated[int | None, typer.Option(min=1, help="The most models to train at once.")] = None,
    seed: OtherSeed = None,
    machine: Annotated[
        str | None, typer.Option(help="The machine type whose price is charged, such as m5.large.")
    ] = None,
    retrain: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="Train the configuration of this model again; needs --data."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The data for --retrain.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be tried; train nothing.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a request.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the best model for some data: try algorithms and settings, rank, export and report them."""
    if schema:
        from prudent.training.request.request import schema as published

        say_json(published())
        return
    changes = {
        "budget": budget,
        "deadline": deadline,
        "parameterSearch": search,
        "parallelism": parallel,
        "seed": seed,
        "machine": machine,
    }
    asked = _asked(request, retrain, data, {name: said for name, said in changes.items() if said is not None})
    for note in asked.notes:
        complain(note)
    machines = {"master": master, "cluster": cluster, "where": where}
    if dry_run:
        _show_plan(asked, engine, machines, to, as_json)
        return
    mail = mail_settings(asked.email_address)
    if engine == "spark" and master is None:
        reap_leftovers()
        tell_age(prices_at(where, _types(asked, cluster)))
    board = _run(asked, engine, machines, to, resume, as_json)
    report = write_report(board)
    _show(board, report, as_json)
    code = _code(board)
    if mail is not None and code != INTERRUPTED:
        mail_answer(board, asked, mail)
    raise typer.Exit(code)


def _asked(
    request: Path | None, retrain: Path | None, data: str | None, changes: dict[str, Any]
) -> TrainingRequest:
    from prudent.training.models.model import retraining_request
    from prudent.training.request.request import TrainingRequest

    if retrain is not None:
        if request is not None:
            raise BadInput("There is a request beside --retrain; the model says what to train, drop one.")
        if data is None:
            raise BadInput("--retrain needs data to train on; add --data FILE.")
        return TrainingRequest.parse({**retraining_request(retrain, data), **changes})
    if data is not None:
        raise BadInput("--data goes with --retrain; a request names its data itself.")
    if request is None:
        raise BadInput("There is nothing to train; name a REQUEST.json, or --retrain MODEL --data FILE.")
    return TrainingRequest.parse(request).changed(changes)


def _types(asked: TrainingRequest, cluster: str | None) -> list[str]:
    """The machine types that may be rented."""
    from prudent.cloud.catalog import parse_fleet

    named = asked.computational_resources.instances if asked.computational_resources else ()
    open_types = asked.machines.types if asked.machines else ()
    rented = [name for _, name in parse_fleet(cluster)] if cluster else []
    return [*rented, *(one.ec2_instance for one in named if one.ec2_instance), *open_types]


def _run(
    asked: TrainingRequest, engine: str, machines: dict[str, Any], to: Path, resume: bool, as_json: bool
) -> Leaderboard:
    from prudent.cli.display.training import TrainingProgress, training_view
    from prudent.cloud.spending import RunSpending
    from prudent.training.leaderboard import ClusterReady, SpendingUpdated, TrainingEvent
    from prudent.training.train import train as run_request

    view = training_view(TrainingProgress(asked), None if as_json else out())
    account = RunSpending("train", to.absolute().name, to, resume, asked.budget.usd, complain)

    def watch(event: TrainingEvent) -> None:
        if isinstance(event, SpendingUpdated):
            account.tell(event.total_usd)
        if isinstance(event, ClusterReady):
            took = format_duration(event.took_s)
            complain(f"Spark runs on {event.text} ({event.place}), ready after {took}; see {event.ui}")
        view.watch(event)

    with ended_by_signals(), view:
        board = run_request(asked, engine, to, **machines, resume=resume, watch=watch)
    account.tell(board.spent_usd)
    return board


def write_report(board: Leaderboard) -> Path | None:
    """Write the HTML report; a report that cannot be written must not cost the answer."""
    from prudent.reports.training import write_training_report

    if not board.entries:
        return None
    otherwise = "; the models and their leaderboard are there."
    return write_or_complain(lambda: write_training_report(board, Path(board.out)), otherwise)


def _code(board: Leaderboard) -> int:
    from prudent.training.search.search import INTERRUPTED as STOPPED

    if board.ended == STOPPED:
        return INTERRUPTED
    if board.over_usd:
        return OVER_LIMIT
    return OK if board.entries else FAILED


def _show_plan(
    asked: TrainingRequest, engine: str, machines: dict[str, Any], to: Path, as_json: bool
) -> None:
    from prudent.cli.display.training import joint_lines, plan_lines
    from prudent.training.joint.train import joint_preview
    from prudent.training.request.resources import cluster_for_request
    from prudent.training.search.preview import preview

    if asked.machines is not None:
        joint = joint_preview(asked, engine, machines["where"])
        said, lines = joint.to_dict(), joint_lines(joint)
    else:
        seen = preview(asked, engine, cluster_for_request(asked, engine, **machines, out=to, home=None))
        said, lines = seen.to_dict(), plan_lines(seen)
    if as_json:
        say_json(said)
        return
    say(out(), *lines)


def _show(board: Leaderboard, report: Path | None, as_json: bool) -> None:
    from prudent.cli.display.training import answer_lines

    if as_json:
        say_json({**board.to_dict(), "report": str(report) if report else None})
        return
    say(out(), "", *answer_lines(board, report))
