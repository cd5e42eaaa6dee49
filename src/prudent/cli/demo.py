"""`prudent demo`: tune a real job next to random search with the same money, train, run a workflow, serve."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prudent.cli.console import complain, out, say_json
from prudent.core.errors import BadInput, PrudentError
from prudent.core.units import USD, format_money, parse_in

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from prudent.cli.demo_train import TrainingDemo
    from prudent.cli.live import View
    from prudent.tuning.goal import Goal
    from prudent.tuning.jobs.function import FunctionJob
    from prudent.tuning.result import Result

GOAL = "minimise cost_usd subject to accuracy >= 0.97 and time_s <= 4 s"
BUDGET = "$0.03"
INTERRUPTED, NOT_FOUND = 130, 1
OURS, THEIRS = "lynceus", "random"


def demo(
    budget: Annotated[str, typer.Option(help="What each of the two strategies may spend.")] = BUDGET,
    goal: Annotated[str, typer.Option(help="Another goal; measures are cost_usd, time_s, accuracy.")] = GOAL,
    seed: Annotated[int, typer.Option(min=0, help="Another seed.")] = 0,
    folder: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("prudent-demo"),
    training: Annotated[bool, typer.Option(help="Also find the best model for a small table.")] = True,
    workflow: Annotated[bool, typer.Option(help="Also plan, run and learn a small workflow.")] = True,
    service: Annotated[bool, typer.Option(help="Also show the service, for a minute.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON, nothing else.")] = False,
) -> None:
    """Tune a real job, train models, run a workflow and serve, in a few minutes; no account, no network."""
    if find_spec("sklearn") is None:
        raise BadInput(
            "The demo trains with scikit-learn, which is not installed; "
            'install it with: pip install "prudent[demo]".'
        )
    money = parse_in(budget, USD)
    from prudent.tuning.goal import Goal

    wanted = Goal.parse(goal)
    wanted.check_measures(["accuracy"])
    console = None if as_json else out()
    results, written = _tuning_part(console, wanted, money, folder, seed)
    stopped = any(result.interrupted for result in results)
    trained = _training_part(console, folder, seed) if training and not stopped else None
    stopped = stopped or (trained is not None and trained.interrupted)
    if console is None:
        said = {result.strategy: result.to_dict() for result in results}
        models = trained.to_dict() if trained else None
        say_json({**said, "report": str(written) if written else None, "training": models})
    elif not stopped:
        if workflow:
            _workflow_part(console, folder, seed)
        if service:
            _service_part(console, folder, seed)
    if stopped:
        raise typer.Exit(INTERRUPTED)
    found = not training or (trained is not None and trained.board.best is not None)
    raise typer.Exit(0 if found and results[0].best is not None else NOT_FOUND)


def _tuning_part(
    console: Console | None, goal: Goal, budget_usd: float, folder: Path, seed: int
) -> tuple[list[Result], Path | None]:
    """Both strategies, one after the other, and the report of them; silent without a console."""
    from prudent.cli.demo_workers import Workers, digits_job

    if console is not None:
        _introduce(console, goal, budget_usd)
    results: list[Result] = []
    with Workers() as workers:
        job = digits_job(workers)
        for strategy in (OURS, THEIRS):
            results.append(_study(job, goal, budget_usd, strategy, seed, console))
            if results[-1].interrupted:
                break
    written = _report(results, job, folder / "report.html")
    if console is not None:
        for line in _ending(results, written):
            console.print(line)
    return results, written


def _training_part(console: Console | None, folder: Path, seed: int) -> TrainingDemo | None:
    """Models for a small table; where that does not work, what was tuned before must not be lost."""
    if any(find_spec(package) is None for package in ("onnxruntime", "sklearn")):
        complain('The training part needs more packages; install them with: pip install "prudent[demo]".')
        return None
    from prudent.cli.demo_train import training_demo

    if console is not None:
        console.print()
    try:
        return training_demo(console, folder / "training", seed)
    except PrudentError as error:
        complain(str(error))
        return None


def _workflow_part(console: Console, folder: Path, seed: int) -> None:
    """A workflow on this machine's Dask workers, where Dask is installed."""
    if find_spec("distributed") is None:
        console.print('The workflow part needs Dask: pip install "prudent[workflows]".', markup=False)
        return
    from prudent.cli.demo_workflow import workflow_demo

    console.print()
    workflow_demo(console, folder / "workflow", seed)


def _service_part(console: Console, folder: Path, seed: int) -> None:
    """The service with a request of each kind, where its packages are installed."""
    if any(find_spec(package) is None for package in ("dbos", "fastapi", "uvicorn")):
        console.print('The service part needs more packages: pip install "prudent[serve]".', markup=False)
        return
    from prudent.cli.demo_service import service_demo
    from prudent.cli.demo_train import DATA_FILE

    console.print()
    data = folder / "training" / DATA_FILE
    try:
        service_demo(console, folder, data if data.exists() else None, seed)
    except PrudentError as error:
        complain(str(error))


def _introduce(console: Console, goal: Goal, budget_usd: float) -> None:
    from prudent.cli.demo_workers import MACHINE, WORKERS, price, space

    one = price({"cluster": f"1*{MACHINE}"})
    console.print("[bold]Prudent demo[/]: committees of neural networks that learn to read digits, for real.")
    console.print(f"Goal    {goal}", markup=False)
    console.print(
        f"Space   {space().size:,} configurations: how many machines (1 to {WORKERS}), how much data, "
        "which networks, how they learn",
        markup=False,
    )
    console.print(
        f"Money   {format_money(budget_usd)} for each strategy; a worker process counts as one {MACHINE} at "
        f"${one.usd_per_h:g} an hour\n"
        f"        ({one.date}), by the second and without the minute that a cloud bills at least",
        markup=False,
        style="dim",
    )
    console.print()


def _study(
    job: FunctionJob, goal: Goal, budget_usd: float, strategy: str, seed: int, console: Console | None
) -> Result:
    from prudent.tuning.tune import tune

    view = _view(job, goal, budget_usd, console)
    with view:
        result = tune(job, goal, budget_usd, strategy, seed=seed, watch=view.watch)
    if console is not None:
        console.print()
    return result


def _view(job: FunctionJob, goal: Goal, budget_usd: float, console: Console | None) -> View:
    from prudent.cli.board import Board
    from prudent.cli.live import Lines, Screen, Silent

    if console is None:
        return Silent()
    board = Board(job.name, goal, budget_usd, virtual=False)
    return Screen(board, console) if console.is_terminal else Lines(board, console)


def _report(results: list[Result], job: FunctionJob, path: Path) -> Path | None:
    """Write the report; one that cannot be written must not cost the answer."""
    from prudent.reports.tuning import write_tuning_report
    from prudent.tuning.problem import Problem

    first = results[0]
    problem = Problem(job.space, first.goal, job.price, job.measures, job.fraction)
    note = (
        "Every run was really trained on this machine, and its seconds measured; a worker process counts as "
        "one rented machine at its list price, by the second and without the minute that a cloud bills at "
        "least. Random search had the same money and the same time-outs."
    )
    try:
        return write_tuning_report(first, problem, path, beside=results[1:], note=note)
    except PrudentError as error:
        complain(str(error))
        return None


def _ending(results: list[Result], written: Path | None) -> list[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    from prudent.cli.answer import answer
    from prudent.core.units import format_duration

    lines: list[RenderableType] = []
    if results[0].interrupted:
        lines.append(Text("Interrupted; this is what was known by then.", style="yellow"))
    if results[0].best is not None or len(results) == 1:
        lines += answer(results[0])[1 if results[0].interrupted else 0 :]
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("Same money", "a run costs", "takes", "accuracy", "trials", "spent"):
        table.add_column(heading, justify="left" if heading == "Same money" else "right", no_wrap=True)
    for result in results:
        best = result.best
        found = (
            ("nothing feasible", "", "")
            if best is None
            else (
                format_money(best.cost_usd),
                format_duration(best.time_s),
                f"{best.measures['accuracy']:.4f}",
            )
        )
        table.add_row(result.strategy, *found, str(len(result.trials)), format_money(result.spent_usd))
    lines += ["", table]
    if written is not None:
        lines += ["", Text.assemble(("Report  ", "bold"), str(written))]
    return lines
