"""`prudent schedule` makes a plan for a workflow; `prudent simulate` plays one in a world with failures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli.console import out, say, say_json, write_or_complain
from prudent.cli.exits import FAILED, OK
from prudent.cli.options import (
    AsJson,
    CatalogPath,
    FleetText,
    OptionalFleet,
    SchedulerOptions,
    Seed,
    Slots,
    Speeds,
    WorkflowPath,
    WorldSettings,
    check_speeds,
    complete_schedulers,
    read_assignments,
    read_fleet,
    read_world,
    write_to,
)
from prudent.core.errors import BadInput
from prudent.core.units import SECONDS, USD, parse_in

if TYPE_CHECKING:
    from prudent.workflows.execution import Execution
    from prudent.workflows.plan import Plan
    from prudent.workflows.scheduling import ComparedPlan
    from prudent.workflows.workflow import Workflow

Q_LEARNING = "q-learning"
ALL = "all"
"""Every scheduler makes a plan, and the best one is kept."""


def schedule(
    workflow: WorkflowPath,
    fleet: FleetText,
    scheduler: Annotated[
        str,
        typer.Option(
            help="How to plan: prudent, heft, q-learning, fcfs …; all compares them and keeps the best.",
            autocompletion=complete_schedulers,
        ),
    ] = "prudent",
    objective: Annotated[
        str | None, typer.Option(help="makespan or cost, for the scheduler prudent.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option(help='The longest makespan, such as "1 h", for the scheduler prudent.')
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="The most it may cost, such as $2, for the scheduler prudent.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="How many episodes q-learning trains for.")] = None,
    carry_on: Annotated[
        bool, typer.Option("--continue", help="Let q-learning continue from its saved tables.")
    ] = False,
    tables: Annotated[
        Path | None, typer.Option(help="Where q-learning keeps its tables. \\[default: beside the plan]")
    ] = None,
    learn_from: Annotated[
        list[Path] | None,
        typer.Option(help="The folder of a real run, whose times correct the estimates; may be repeated."),
    ] = None,
    slots: Slots = "vm",
    mips: Speeds = None,
    catalog: CatalogPath = None,
    world: WorldSettings = None,
    option: SchedulerOptions = None,
    seed: Seed = 0,
    plan: Annotated[
        Path | None, typer.Option(help="Where to write the plan. \\[default: WORKFLOW.plan.json]")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Where to write an HTML report.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a workflow: what runs where and when, how long it takes and what it costs."""
    from prudent.cli.display.workflow import plan_lines
    from prudent.workflows.scheduling import compare, plan_summary, schedule_by_all, side_by_side
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

    if scheduler == ALL:
        plans = schedule_by_all(told, machines, around, options, seed)
        made, beside = plans[0], side_by_side(plans)
    else:
        made = make(told, machines, around, scheduler, options, seed)
        beside = compare(made, told)
    made = replace(made, details={**made.details, **_origin(workflow, place, learn_from or ())})
    write_to(place, "plan", made.save)
    page = write_report(made, told, beside, report) if report else None
    if as_json:
        say_json({**plan_summary(made, beside), "plan": str(place), "report": str(page) if page else None})
        return
    say(out(), *plan_lines(made, told, beside, place, page))


def _options(
    objective: str | None,
    deadline: str | None,
    budget: str | None,
    episodes: int | None,
    option: Sequence[str] | None,
) -> dict[str, Any]:
    options = read_assignments(option, "--option", "episodes=50")
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
    from prudent.workflows.execute.learning import learn_from_runs

    better = learn_from_runs(told, fleet, world, folders)
    if scheduler == Q_LEARNING:
        from prudent.workflows.execute.learning import learn_q_tables
        from prudent.workflows.schedulers.q_learning import QLearning
        from prudent.workflows.schedulers.registry import scheduler_named

        learner = scheduler_named(scheduler, options)
        assert isinstance(learner, QLearning)
        learn_q_tables(learner, better, fleet, world, folders)
        options["carry_on"] = True
    return better


def _origin(workflow: Path, plan: Path, learned_from: Sequence[Path]) -> dict[str, Any]:
    """Where the workflow is, seen from the plan, so that `prudent execute PLAN` finds it."""
    origin: dict[str, Any] = {"workflow_path": os.path.relpath(workflow, plan.parent)}
    if learned_from:
        origin["learned_from"] = [os.path.relpath(folder, plan.parent) for folder in learned_from]
    return origin


def write_report(
    plan: Plan, workflow: Workflow, beside: Sequence[ComparedPlan], path: Path, run: Any = None
) -> Path | None:
    """Write the HTML report; a report that cannot be written must not cost the answer."""
    from prudent.reports.workflow import write_workflow_report

    return write_or_complain(lambda: write_workflow_report(plan, workflow, path, beside=beside, run=run))


def simulate(
    workflow: WorkflowPath,
    plan: Annotated[Path | None, typer.Option(help="The plan to follow.")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="A scheduler instead of a plan, with --fleet: fcfs, heft …",
            autocompletion=complete_schedulers,
        ),
    ] = None,
    fleet: OptionalFleet = None,
    slots: Slots = "vm",
    mips: Speeds = None,
    catalog: CatalogPath = None,
    world: WorldSettings = None,
    worlds: Annotated[
        int, typer.Option(min=1, help="In how many worlds to simulate it, each with its own random numbers.")
    ] = 1,
    option: SchedulerOptions = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Simulate a plan or a scheduler with overheads, uneven speeds, failures and lost machines."""
    from prudent.cli.display.workflow import simulation_lines, worlds_lines
    from prudent.workflows.plan import Plan
    from prudent.workflows.scheduling import simulate as play
    from prudent.workflows.workflow import Workflow

    told = Workflow.read(workflow)
    if (plan is None) == (scheduler is None):
        raise BadInput("Say what to simulate: either --plan PLAN, or --scheduler NAME with --fleet.")
    followed: Any = scheduler
    machines = read_fleet(fleet, slots, mips, catalog) if fleet is not None else None
    if plan is not None:
        followed = Plan.load(plan)
        machines = machines or followed.fleet
    if machines is None:
        raise BadInput("There are no machines to simulate on; add --fleet, like --fleet 8*m3.medium.")
    check_speeds(machines, mips)
    around = read_world(world, followed.world if plan is not None else None)
    options = read_assignments(option, "--option", "episodes=50")
    if plan is not None and options:
        raise BadInput("A plan has no options; leave out --option, or give --scheduler instead of --plan.")
    runs = [play(told, machines, around, followed, seed + each, options or None) for each in range(worlds)]
    if as_json:
        say_json(run_document(runs[0]) if worlds == 1 else _documents(runs))
    else:
        say(out(), *(simulation_lines(runs[0]) if worlds == 1 else worlds_lines(runs)))
    raise typer.Exit(OK if all(run.succeeded for run in runs) else FAILED)


def run_document(run: Execution) -> dict[str, Any]:
    return {
        "makespan_s": run.makespan_s,
        "busy_s": run.busy_s,
        "cost_usd": run.cost_usd,
        "utilisation": run.utilisation,
        "moved_bytes": run.moved_bytes,
        "retries": run.retries,
        "succeeded": run.succeeded,
        "unfinished": list(run.unfinished),
        "timeline": [
            {
                "activation": each.activation,
                "vm": each.vm,
                "slot": each.slot,
                "start_s": each.start_s,
                "finish_s": each.finish_s,
                "outcome": each.outcome,
            }
            for each in run.timeline
        ],
    }


def _documents(runs: list[Execution]) -> dict[str, Any]:
    import numpy as np

    makespans = np.array([run.makespan_s for run in runs])
    return {
        "worlds": len(runs),
        "succeeded": sum(run.succeeded for run in runs),
        "mean_makespan_s": float(makespans.mean()),
        "p95_makespan_s": float(np.quantile(makespans, 0.95)),
        "mean_cost_usd": float(np.mean([run.cost_usd for run in runs])),
        "makespans_s": makespans.tolist(),
    }
