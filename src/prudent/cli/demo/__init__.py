"""`prudent demo`: tune a real job next to random search with the same money, train, run a workflow, serve."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prudent.cli.console import complain, out, say_json
from prudent.cli.exits import FAILED, INTERRUPTED, OK
from prudent.cli.options import AsJson, Seed
from prudent.core.errors import BadInput, PrudentError
from prudent.core.units import USD, parse_in

if TYPE_CHECKING:
    from rich.console import Console

    from prudent.cli.demo.training import TrainingDemo

GOAL = "minimise cost_usd subject to accuracy >= 0.97 and time_s <= 4 s"
BUDGET = "$0.03"


def demo(
    budget: Annotated[str, typer.Option(help="What each of the two strategies may spend.")] = BUDGET,
    goal: Annotated[str, typer.Option(help="The goal; measures are cost_usd, time_s, accuracy.")] = GOAL,
    seed: Seed = 0,
    folder: Annotated[Path, typer.Option(help="The folder for the reports.")] = Path("prudent-demo"),
    training: Annotated[bool, typer.Option(help="Also find the best model for a small table.")] = True,
    workflow: Annotated[
        bool, typer.Option(help="Also plan and run a small workflow, and learn from the run.")
    ] = True,
    service: Annotated[bool, typer.Option(help="Also start the service, for a minute.")] = True,
    as_json: AsJson = False,
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
    from prudent.cli.demo.tuning import tuning_demo

    results, written = tuning_demo(console, wanted, money, folder, seed)
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
    raise typer.Exit(OK if found and results[0].best is not None else FAILED)


def _training_part(console: Console | None, folder: Path, seed: int) -> TrainingDemo | None:
    """Models for a small table; where that does not work, what was tuned before must not be lost."""
    if any(find_spec(package) is None for package in ("onnxruntime", "sklearn")):
        complain('The training part needs more packages; install them with: pip install "prudent[demo]".')
        return None
    from prudent.cli.demo.training import training_demo

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
    from prudent.cli.demo.workflow import workflow_demo

    console.print()
    workflow_demo(console, folder / "workflow", seed)


def _service_part(console: Console, folder: Path, seed: int) -> None:
    """The service with a request of each kind, where its packages are installed."""
    if any(find_spec(package) is None for package in ("dbos", "fastapi", "uvicorn")):
        console.print('The service part needs more packages: pip install "prudent[serve]".', markup=False)
        return
    from prudent.cli.demo.service import service_demo
    from prudent.cli.demo.training import DATA_FILE

    console.print()
    data = folder / "training" / DATA_FILE
    try:
        service_demo(console, folder, data if data.exists() else None, seed)
    except PrudentError as error:
        complain(str(error))
