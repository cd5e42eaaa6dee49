"""`prudent schedule WORKFLOW`: the fastest or the cheapest plan for a workflow on mixed machines."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli.console import complain, out, say_json
from prudent.cli.workflow_options import (
    AsJson,
    CatalogPath,
    FleetText,
    SchedulerOptions,
    Seed,
    Slots,
    Speeds,
    WorkflowPath,
    WorldSettings,
    check_speeds,
    read_fleet,
    read_settings,
    read_world,
    write_to,
)
from prudent.core.errors import PrudentError
from prudent.core.units import SECONDS, USD, parse_in

if TYPE_CHECKING:
    from prudent.workflows.comparison import Compared
    from prudent.workflows.plan import Plan
    from prudent.workflows.workflow import Workflow

Q_LEARNING = "q-learning"


def schedule(
    workflow: WorkflowPath,
    fleet: FleetText,
    scheduler: Annotated[
        str, typer.Option(help="How to plan: prudent, heft, q-learning, fcfs …")
    ] = "prudent",
    objective: Annotated[
        str | None, typer.Option(help="makespan or cost; for the scheduler prudent.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help='The latest end, such as "1 h"; for prudent.')] = None,
    budget: Annotated[str | None, typer.Option(help="The most it may cost, such as $2; for prudent.")] = None,
    episodes: Annotated[int | None, typer.Option(help="How many episodes q-learning plays now.")] = None,
    carry_on: Annotated[
        bool, typer.Option("--continue", help="Let q-learning go on with the tables it has saved.")
    ] = False,
    tables: Annotated[
        Path | None, typer.Option(help="Where q-learning keeps its tables; beside the plan otherwise.")
    ] = None,
    learn_from: Annotated[
        list[Path] | None,
        typer.Option(help="The folder of a real run: its times correct the estimates; repeatable."),
    ] = None,
    slots: Slots = "vm",
    mips: Speeds = None,
    catalog: CatalogPath = None,
    world: WorldSettings = None,
    option: SchedulerOptions = None,
    seed: Seed = 0,
    plan: Annotated[
        Path | None, typer.Option(help="Where to write the plan; WORKFLOW.plan.json otherwise.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Where to write an HTML report.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a workflow: which activation runs on which machine, in which order, how long, at what price."""
    from prudent.cli.workflow_answer import planned
    from prudent.workflows.comparison import compare, summary
    from prudent.workflows.workflow import Workflow

    told = Workflow.read(workflow)
    machines = read_fleet(fleet, slots, mips, catalog)
    check_speeds(machines, mips)
    around = read_world(world)
    place = plan or workflow.with_name(f"{workflow.stem}.plan.json")
    options = _options(objective, deadline, budget, episodes, option)
    if scheduler == Q_LEARNING:
        options |= {"tables": str(tables or place.with_suffix(".tables.npz")), "carry_on": carry_on}
    elif carry_on or tables:
        options |= {"carry_on": carry_on, "tables": str(tables or "")}  # refused by name, as it should be
    if learn_from:
        told = _learned(told, machines, around, learn_from, scheduler, options)
    from prudent.workflows.scheduling import schedule as make

    made = make(told, machines, around, scheduler, options, seed)
    made = replace(made, details={**made.details, **_origin(workflow, place, learn_from or ())})
    write_to(place, "plan", made.save)
    beside = compare(made, told)
    written = write_report(made, told, beside, report) if report else None
    if as_json:
        say_json({**summary(made, beside), "plan": str(place), "report": str(written) if written else None})
        return
    console = out()
    for line in planned(made, told, beside, place, written):
        console.print(line)


def _options(
    objective: str | None,
    deadline: str | None,
    budget: str | None,
    episodes: int | None,
    option: Sequence[str] | None,
) -> dict[str, Any]:
    options = read_settings(option, "--option", "episodes=50")
    if objective is not None:
        options["objective"] = objective
    if deadline is not None:
        options["deadline_s"] = parse_in(deadline, SECONDS)
    if budget is not None:
        options["budget_usd"] = parse_in(budget, USD)
    if episodes is not None:
        options["episodes"] = episodes
    return options


def _learned(
    told: Workflow, fleet: Any, world: Any, folders: Sequence[Path], scheduler: str, options: dict[str, Any]
) -> Workflow:
    """Better estimates; and with q-learning, tables that know the real runs and are carried on."""
    from prudent.workflows.execute.estimates import learn_from

    better = learn_from(told, fleet, world, folders)
    if scheduler == Q_LEARNING:
        from prudent.workflows.execute.experience import teach_tables
        from prudent.workflows.schedulers.qlearning import QLearning
        from prudent.workflows.schedulers.registry import scheduler_named

        learner = scheduler_named(scheduler, options)
        assert isinstance(learner, QLearning)
        teach_tables(learner, better, fleet, world, folders)
        options["carry_on"] = True
    return better


def _origin(workflow: Path, plan: Path, learned_from: Sequence[Path]) -> dict[str, Any]:
    """Where the workflow is, seen from the plan, so that `prudent execute PLAN` finds it."""
    origin: dict[str, Any] = {"workflow_path": os.path.relpath(workflow, plan.parent)}
    if learned_from:
        origin["learned_from"] = [os.path.relpath(folder, plan.parent) for folder in learned_from]
    return origin


def write_report(
    plan: Plan, workflow: Workflow, beside: Sequence[Compared], path: Path, run: Any = None
) -> Path | None:
    """Write the HTML report; a report that cannot be written must not cost the answer."""
    from prudent.reports.workflow import write_workflow_report

    try:
        return write_workflow_report(plan, workflow, path, beside=beside, run=run)
    except (OSError, PrudentError) as error:
        complain(f"the report could not be written ({error})")
        return None
