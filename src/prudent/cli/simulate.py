"""`prudent simulate WORKFLOW`: what a plan or a scheduler does in a world with delays, failures and luck."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli.console import out, say_json
from prudent.cli.workflow_options import (
    AsJson,
    CatalogPath,
    OptionalFleet,
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
)
from prudent.core.errors import BadInput

if TYPE_CHECKING:
    from prudent.workflows.execution import Execution

FAILED = 1


def simulate(
    workflow: WorkflowPath,
    plan: Annotated[Path | None, typer.Option(help="The plan to follow.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Or a scheduler, with --fleet: fcfs, heft …")] = None,
    fleet: OptionalFleet = None,
    slots: Slots = "vm",
    mips: Speeds = None,
    catalog: CatalogPath = None,
    world: WorldSettings = None,
    worlds: Annotated[int, typer.Option(min=1, help="Play it in so many worlds, each with its luck.")] = 1,
    option: SchedulerOptions = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Play a plan, or a scheduler, in a world: overheads, uneven speeds, failures, lost machines."""
    from prudent.cli.workflow_answer import judged, simulated
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
    options = read_settings(option, "--option", "episodes=50")
    if plan is not None and options:
        raise BadInput("A plan has no options; leave out --option, or give --scheduler instead of --plan.")
    runs = [play(told, machines, around, followed, seed + each, options or None) for each in range(worlds)]
    if as_json:
        say_json(_document(runs[0]) if worlds == 1 else _documents(runs))
    else:
        console = out()
        for line in simulated(runs[0]) if worlds == 1 else judged(runs):
            console.print(line)
    raise typer.Exit(0 if all(run.succeeded for run in runs) else FAILED)


def _document(run: Execution) -> dict[str, Any]:
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
