"""Workflows, plans and runs in a few lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from prudent.cli.display.tables import fact_table, headed_table, short_path
from prudent.core.units import format_duration, format_money, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from prudent.workflows.execute.run import WorkflowRun
    from prudent.workflows.execution import Execution
    from prudent.workflows.plan import Plan
    from prudent.workflows.scheduling import ComparedPlan
    from prudent.workflows.workflow import Workflow

_LABEL = 12
_ENOUGH_FOR_A_QUANTILE = 20
"""Fewer worlds say nothing of the slowest 5 %."""


def plan_lines(
    plan: Plan, workflow: Workflow, beside: Sequence[ComparedPlan], place: Path, report: Path | None
) -> Iterator[RenderableType]:
    """A plan: how long, how dear, how far from the best there can be, and beside the others."""
    yield Text.assemble((plan.workflow, "bold"), f"  {len(workflow):,} activations on {plan.fleet}")
    yield ""
    facts = fact_table(_LABEL, "bold")
    bound = plan.details.get("lower_bound_s")
    near = f"  (no plan takes less than {format_duration(bound)})" if bound else ""
    facts.add_row(
        Text("Makespan", style="bold"), Text.assemble((format_duration(plan.makespan_s), "bold green"), near)
    )
    used = len({assignment.vm for assignment in plan.assignments.values()})
    facts.add_row("Cost", f"{format_money(plan.cost_usd)} for {used} of {len(plan.fleet)} machines")
    busy = plan.busy_s / (plan.makespan_s * len(plan.fleet.lanes)) if plan.makespan_s else 0.0
    facts.add_row("Busy", f"{format_duration(plan.busy_s)} in all, {busy:.0%} of the slots' time")
    facts.add_row("By", f"{plan.scheduler}, seed {plan.seed}; {_followed(plan)}")
    yield facts
    yield ""
    yield _beside(plan, beside)
    if len(plan.front) > 1:
        yield ""
        yield _front(plan)
    yield ""
    yield _files((("Plan", place), ("Report", report)))


def _followed(plan: Plan) -> str:
    return {
        "static": "followed exactly",
        "adaptive": "if run times differ from it, the rest is assigned anew in order of rank",
        "frugal": "if run times differ from it, the rest is assigned anew to the same machines",
    }[plan.policy]


def _beside(plan: Plan, beside: Sequence[ComparedPlan]) -> Table:
    table = headed_table("Schedulers", "makespan", "", "cost")
    best_s = max(plan.makespan_s, 1e-12)
    for each in beside:
        ours = each.scheduler == plan.scheduler
        more = f"{each.makespan_s / best_s - 1:+.0%}" if not ours else ""
        cells = [each.scheduler, format_duration(each.makespan_s), more, format_money(each.cost_usd)]
        table.add_row(*(Text(cell, style="bold green" if ours else "") for cell in cells))
    return table


def _front(plan: Plan) -> Table:
    table = headed_table("Time or money", "cost")
    rows = [(format_duration(point.makespan_s), format_money(point.cost_usd)) for point in plan.front]
    for row in dict.fromkeys(rows):
        table.add_row(*row)
    return table


def simulation_lines(run: Execution) -> Iterator[RenderableType]:
    """One simulated run."""
    facts = fact_table(_LABEL, "bold")
    facts.add_row("Makespan", Text(format_duration(run.makespan_s), style="bold green"))
    facts.add_row("Cost", format_money(run.cost_usd))
    facts.add_row("Busy", f"{format_duration(run.busy_s)} in all, {run.utilisation:.0%} of the slots' time")
    facts.add_row("Moved", format_size(run.moved_bytes / 1e6))
    facts.add_row("Retries", str(run.retries))
    yield facts
    if not run.succeeded:
        yield Text(
            f"{len(run.unfinished)} of {len(run.workflow)} activations were not done: allow more retries.",
            style="yellow",
        )


def worlds_lines(runs: Sequence[Execution]) -> Iterator[RenderableType]:
    """The same in many worlds."""
    import numpy as np

    makespans = np.array([run.makespan_s for run in runs])
    done = sum(run.succeeded for run in runs)
    facts = fact_table(_LABEL, "bold")
    facts.add_row("Worlds", f"{len(runs)}, finished in {done} of them")
    facts.add_row(
        "Makespan", Text(f"{format_duration(float(makespans.mean()))} on average", style="bold green")
    )
    if len(runs) >= _ENOUGH_FOR_A_QUANTILE:
        facts.add_row(
            "", f"{format_duration(float(np.quantile(makespans, 0.95)))} or less in 95 % of the worlds"
        )
    else:
        facts.add_row("", f"{format_duration(float(makespans.max()))} in the slowest of them")
    facts.add_row("Cost", f"{format_money(float(np.mean([run.cost_usd for run in runs])))} on average")
    facts.add_row("Retries", f"{float(np.mean([run.retries for run in runs])):.3g} on average")
    yield facts


def run_lines(run: WorkflowRun, report: Path | None) -> Iterator[RenderableType]:
    """A real run, against its plan."""
    execution = run.execution
    done = len(run.workflow) - len(execution.unfinished)
    yield ""
    head = Text(f"{run.workflow.name}  ", style="bold")
    if run.replay is not None:
        head.append(f"rehearsed at a scale of {run.replay:g}, times in the plan's seconds", style="dim")
    yield head
    facts = fact_table(_LABEL, "bold")
    facts.add_row(
        "Done", Text(f"{done} of {len(run.workflow)}", style="bold green" if run.succeeded else "yellow")
    )
    facts.add_row("Makespan", _makespan(run))
    rented = " for machines from order to give-back" if run.vm_usage else " at the machines' prices"
    budget = "" if run.budget_usd is None else f", of a budget of {format_money(run.budget_usd)}"
    facts.add_row("Cost", f"{format_money(run.cost_usd)}{rented}{budget}")
    if run.forecast is not None:
        facts.add_row("Forecast", f"{run.forecast.cost_text}, {run.forecast.makespan_text}")
    facts.add_row(
        "Busy", f"{format_duration(execution.busy_s)}, {execution.utilisation:.0%} of the slots' time"
    )
    if run.skipped:
        facts.add_row("Skipped", f"{run.skipped} were done before")
    if run.lost_vms:
        facts.add_row("Lost", ", ".join(run.lost_vms))
    if run.failures:
        facts.add_row("Failed", ", ".join(failure.activation for failure in run.failures[:6]))
    if run.stopped is not None:
        facts.add_row("Stopped", f"{len(execution.unfinished)} remain; continue with --resume")
    elif run.blocked and not run.succeeded:
        facts.add_row("Not run", f"{len(run.blocked)} that depend on others")
    yield facts
    yield _files((("Run", run.folder), ("Report", report)))
    if run.succeeded and run.replay is None:
        yield Text(f"Plan better with what was measured: --learn-from {short_path(run.folder)}", style="dim")


def _makespan(run: WorkflowRun) -> str:
    """How long it took against the plan; of a rehearsal, what of it was the rehearsal's own overhead.

    Starting an activation takes milliseconds; in the plan's seconds that is multiplied by 1 / scale, which
    says nothing about the plan.
    """
    planned_s, took_s = run.plan.makespan_s, run.execution.makespan_s
    if run.replay is not None:
        due_s, real_s = planned_s * run.replay, took_s * run.replay
        return (
            f"{format_duration(planned_s)} planned; rehearsed in {format_duration(real_s)}, of which "
            f"{format_duration(max(real_s - due_s, 0.0))} were overhead of the rehearsal"
        )
    more = took_s / planned_s - 1 if planned_s else 0.0
    return f"{format_duration(took_s)}, planned {format_duration(planned_s)} ({more:+.0%})"


def description(workflow: Workflow) -> dict[str, Any]:
    """What a workflow consists of, as plain values."""
    levels = Counter(workflow.levels.values())
    programs: dict[str, list[float]] = defaultdict(list)
    for activation in workflow.activations:
        programs[activation.program].append(activation.runtime_s)
    writers = {file.name for a in workflow.activations for file in a.outputs}
    sizes = {file.name: file.size_bytes for a in workflow.activations for file in (*a.inputs, *a.outputs)}
    return {
        "name": workflow.name,
        "activations": len(workflow),
        "edges": len(workflow.edges),
        "levels": [levels[level] for level in range(len(levels))],
        "work_s": sum(activation.runtime_s for activation in workflow.activations),
        "longest_path_s": _longest_s(workflow),
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "given_files": len(set(sizes) - writers),
        "with_commands": sum(bool(activation.command) for activation in workflow.activations),
        "programs": {
            name: {"count": len(times), "mean_s": sum(times) / len(times), "total_s": sum(times)}
            for name, times in programs.items()
        },
        "fingerprint": workflow.fingerprint,
        "notes": list(workflow.notes),
    }


def workflow_lines(workflow: Workflow) -> Iterator[RenderableType]:
    """The same for a person."""
    told = description(workflow)
    yield Text.assemble((workflow.name, "bold"), f"  {len(workflow):,} activations, {told['edges']:,} edges")
    facts = fact_table(_LABEL, "bold")
    levels = told["levels"]
    facts.add_row("Levels", f"{len(levels)}, the widest with {max(levels):,} activations")
    facts.add_row("Work", f"{format_duration(told['work_s'])} at the reference speed")
    facts.add_row("Longest path", format_duration(told["longest_path_s"]))
    facts.add_row(
        "Files", f"{told['files']:,} ({format_size(told['bytes'] / 1e6)}), {told['given_files']:,} given"
    )
    commands = told["with_commands"]
    facts.add_row(
        "Commands", "none: it can be planned and rehearsed, but not run" if not commands else f"{commands:,}"
    )
    yield facts
    yield ""
    table = headed_table("Programs", "count", "mean", "in all")
    for name, each in told["programs"].items():
        mean, total = format_duration(each["mean_s"]), format_duration(each["total_s"])
        table.add_row(Text(name or "–"), f"{each['count']:,}", mean, total)
    yield table
    for note in workflow.notes:
        yield Text(f"! {note}", style="yellow")


def _longest_s(workflow: Workflow) -> float:
    ends: dict[str, float] = {}
    for name in workflow.order:
        begin = max((ends[parent] for parent in workflow.parents[name]), default=0.0)
        ends[name] = begin + workflow[name].runtime_s
    return max(ends.values())


def _files(rows: Sequence[tuple[str, Path | None]]) -> Table:
    table = fact_table(_LABEL, "bold")
    for label, path in rows:
        if path is not None:
            table.add_row(label, Text(short_path(path), style="dim"))
    return table
