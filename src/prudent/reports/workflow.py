"""The report of a workflow: the plan, what else there is, what it costs; after a run, how it really went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from prudent.reports import formatting, page, workflow_charts
from prudent.reports.figure import Figure, axis, dotted, intervals, line, lines, marks, note, time_axis
from prudent.reports.workflow_graph import graph
from prudent.workflows.execute.run import WorkflowRun
from prudent.workflows.execution import Assignment, Attempt, VmUsage, vm_usage
from prudent.workflows.plan import Plan
from prudent.workflows.schedulers.bounds import lower_bounds
from prudent.workflows.scheduling import ComparedPlan, calm_execution
from prudent.workflows.workflow import Workflow
from prudent.workflows.world import World

MOST_LISTED = 40
_BOUND_UP_TO = 20_000
"""Bounds of larger workflows take longer to find than they are worth in a report."""


def write_workflow_report(
    plan: Plan,
    workflow: Workflow,
    path: Path,
    *,
    beside: Sequence[ComparedPlan] = (),
    run: WorkflowRun | None = None,
) -> Path:
    """Write a self-contained HTML page about a plan and, if there is one, its real run."""
    return page.write(workflow_report(plan, workflow, beside=beside, run=run), path)


def workflow_report(
    plan: Plan, workflow: Workflow, *, beside: Sequence[ComparedPlan] = (), run: WorkflowRun | None = None
) -> str:
    """The page itself, as text."""
    plan.check(workflow)
    world = World(**dict(plan.world))
    calm = calm_execution(plan, workflow)
    bound_s = lower_bounds(workflow, plan.fleet, world).tight_s if len(workflow) <= _BOUND_UP_TO else 0.0
    real = run.execution.timeline if run is not None else ()
    leased = run.vm_usage if run is not None else ()
    rented = leased or vm_usage(calm if run is None else run.execution, world)
    pictures = _pictures(plan, workflow, calm.timeline, real, beside, bound_s, leased)
    pictures["money"] = None if run is None else money(run, rented)
    return page.render(
        "workflow.html.j2",
        [figure for figure in pictures.values() if figure is not None],
        title=f"Workflow {workflow.name}",
        plan=plan,
        workflow=workflow,
        world=world,
        bound_s=bound_s,
        used=len({assignment.vm for assignment in plan.assignments.values()}),
        utilisation=calm.utilisation,
        moved_mb=calm.moved_bytes / 1e6,
        pictures=pictures,
        beside=beside,
        rented=rented,
        leased=bool(leased),
        machines=_machines(rented),
        programs=_programs(plan, workflow, run),
        run=run,
        events=_events(run),
        most=MOST_LISTED,
        command=_command(plan),
        followed=_POLICIES[plan.policy],
    )


_WHY = {
    "lost": "after the loss",
    "surprise": "because times differed from the plan",
    "budget": "because money ran short",
    "deadline": "because time ran short",
}
_POLICIES = {
    "static": "exactly",
    "adaptive": "until a time differs from the plan; then by rank, on whichever machine ends first",
    "frugal": "until a time differs from the plan; then by rank, on the machines that are rented",
}


def _pictures(
    plan: Plan,
    workflow: Workflow,
    planned: Sequence[Attempt],
    real: Sequence[Attempt],
    beside: Sequence[ComparedPlan],
    bound_s: float,
    leased: Sequence[VmUsage],
) -> dict[str, Figure | None]:
    ends = [attempt.finish_s for attempt in (*planned, *real)] + [rent.until_s for rent in leased]
    end_s = max(ends, default=1.0) or 1.0
    charts = workflow_charts
    return {
        "gantt": charts.gantt("gantt", workflow, plan.fleet, planned, end_s),
        "reality": charts.gantt("reality", workflow, plan.fleet, real, end_s, legend=False, rented=leased)
        if real
        else None,
        "utilisation": charts.utilisation(plan.fleet, planned, end_s, real),
        "comparison": charts.comparison(plan, beside, bound_s) if len(beside) > 1 else None,
        "front": charts.front(plan, beside),
        "learning": charts.learning(plan),
        "graph": graph(workflow, deciding_chain(plan, workflow)),
    }


def deciding_chain(plan: Plan, workflow: Workflow) -> list[str]:
    """What decides the makespan: each waits for the one before, as its child or for its slot."""
    lanes: dict[tuple[str, int], list[Assignment]] = defaultdict(list)
    for assignment in sorted(plan.assignments.values(), key=lambda each: (each.start_s, each.finish_s)):
        lanes[assignment.vm, assignment.slot].append(assignment)
    before = {later.activation: earlier for lane in lanes.values() for earlier, later in pairwise(lane)}
    last = max(plan.assignments.values(), key=lambda each: (each.finish_s, each.start_s))
    chain = [last.activation]
    while True:
        waits = [plan.assignments[parent] for parent in workflow.parents[chain[-1]]]
        waits += [before[chain[-1]]] if chain[-1] in before else []
        if not waits:
            return chain[::-1]
        parents = set(workflow.parents[chain[-1]])
        held = max(waits, key=lambda each: (round(each.finish_s, 6), each.activation in parents))
        if held.activation in chain:
            return chain[::-1]
        chain.append(held.activation)


@dataclass(frozen=True)
class MachineUse:
    """All machines of one type together."""

    machine: str
    count: int
    usd_per_h: float
    activations: int
    busy_s: float
    rented_s: float
    cost_usd: float

    @property
    def utilisation(self) -> float:
        """Busy time over rented time; above 1 where a machine has several slots."""
        return self.busy_s / self.rented_s if self.rented_s else 0.0


def _machines(rented: Sequence[VmUsage]) -> list[MachineUse]:
    found: dict[str, list[VmUsage]] = defaultdict(list)
    for rent in rented:
        found[rent.machine].append(rent)
    return [
        MachineUse(
            name,
            len(some),
            some[0].usd_per_h,
            sum(rent.activations for rent in some),
            sum(rent.busy_s for rent in some),
            sum(rent.rented_s for rent in some),
            sum(rent.cost_usd for rent in some),
        )
        for name, some in found.items()
    ]


@dataclass(frozen=True)
class ProgramTimes:
    """One program's activations: planned time and, after a run, measured."""

    name: str
    colour: str
    count: int
    planned_s: float
    measured_s: float | None
    runs: int

    @property
    def ratio(self) -> float | None:
        """Measured over planned."""
        return None if self.measured_s is None or not self.planned_s else self.measured_s / self.planned_s


def _programs(plan: Plan, workflow: Workflow, run: WorkflowRun | None) -> list[ProgramTimes]:
    """Mean times by program, those with the most planned time first; measured where it ran."""
    planned: dict[str, list[float]] = defaultdict(list)
    measured: dict[str, list[float]] = defaultdict(list)
    for name, each in plan.assignments.items():
        planned[workflow[name].program].append(each.finish_s - each.start_s)
    if run is not None:
        for name, each in run.execution.assignments.items():
            measured[workflow[name].program].append(each.finish_s - each.start_s)
    colours = workflow_charts.palette(workflow)
    found = [
        ProgramTimes(
            name,
            colours[name],
            len(times),
            sum(times) / len(times),
            sum(measured[name]) / len(measured[name]) if measured[name] else None,
            len(measured[name]),
        )
        for name, times in planned.items()
    ]
    return sorted(found, key=lambda each: -each.planned_s * each.count)


def _events(run: WorkflowRun | None) -> list[tuple[float, str]]:
    """What went otherwise than planned, in the order in which it happened."""
    if run is None:
        return []
    told: list[tuple[float, str]] = []
    for fact in run.facts:
        if fact["fact"] == "lost":
            told.append((fact["at_s"], f"machine {fact['vm']} was lost"))
        elif fact["fact"] == "replanned":
            why = _WHY.get(fact.get("why", ""), "")
            told.append((fact["at_s"], f"{len(fact['moved'])} activations were planned anew {why}"))
        elif fact["fact"] == "stopped":
            told.append((fact["at_s"], fact["sentence"]))
        elif fact["fact"] == "ended" and fact["outcome"] != "done":
            again = "" if fact.get("final") else "; tried again"
            told.append(
                (
                    fact["finish_s"],
                    f"{fact['activation']} {fact['outcome']} on {fact['vm']}: {fact['error']}{again}",
                )
            )
    return told


def _command(plan: Plan) -> str:
    """The command line that makes the same plan."""
    path = plan.details.get("workflow_path", "WORKFLOW")
    said: list[str] = [
        "prudent schedule",
        str(path),
        f"--fleet '{plan.fleet}'",
        f"--scheduler {plan.scheduler}",
    ]
    if any(vm.slots > 1 for vm in plan.fleet.vms):
        said.append("--slots vcpu")
    said += [f"--world '{name}={value}'" for name, value in plan.world.items()]
    said += [
        f"--option '{name}={formatting.value(value)}'"
        for name, value in plan.options.items()
        if name not in ("tables", "carry_on") and value is not None
    ]
    said += [f"--learn-from '{folder}'" for folder in plan.details.get("learned_from", ())]
    return " \\\n    ".join([*said, f"--seed {plan.seed}"])


_FAR = 3.0
"""A limit that is so many times further away than all else is not drawn."""


def money(run: WorkflowRun, rented: Sequence[VmUsage]) -> Figure | None:
    """What was paid until each moment; a star with its intervals where the end was forecast."""
    if not rented or run.cost_usd <= 0:
        return None
    points = paid(rented)
    hover = [
        lines(formatting.amount("time_s", at_s), formatting.amount("cost_usd", usd)) for at_s, usd in points
    ]
    moments, sums = zip(*points, strict=True)
    traces = [line(moments, sums, "--best", "paid", width=2.5, hover=hover)]
    xs, ys = [points[-1][0]], [0.0, points[-1][1]]
    ahead = run.forecast
    if ahead is not None:
        cost, time = ahead.cost_usd, ahead.makespan_s
        told = lines("forecast of the end", ahead.cost_text, ahead.makespan_text)
        traces.append(
            {
                **marks("best", "forecast, with 90 % intervals", [(time.expected, cost.expected, told)]),
                "error_x": intervals([time.expected], [time.low], [time.high], "--accent"),
                "error_y": intervals([cost.expected], [cost.low], [cost.high], "--accent"),
            }
        )
        xs.append(time.high)
        ys.append(cost.high)
    shapes, notes = [], []
    if run.budget_usd is not None and run.budget_usd < _FAR * max(ys):
        ys.append(run.budget_usd)
        shapes.append(dotted(y=run.budget_usd))
        notes.append(note("budget", y=run.budget_usd))
    if run.deadline_s is not None and run.deadline_s < _FAR * max(xs):
        xs.append(run.deadline_s)
        shapes.append(dotted(x=run.deadline_s))
        notes.append(note("deadline ", x=run.deadline_s, anchor="right"))
    layout = {
        "xaxis": time_axis(max(xs), title="time since the machines were ordered"),
        "yaxis": axis("cost_usd", ys, log=False, title="paid"),
        "shapes": shapes,
        "annotations": notes,
    }
    total, lasted = formatting.amount("cost_usd", run.cost_usd), formatting.amount("time_s", points[-1][0])
    alt = f"{total} paid over {lasted}"
    return Figure("money", alt, traces, layout, height_px=320)


def paid(rented: Sequence[VmUsage]) -> list[tuple[float, float]]:
    """(moment, dollars until then): each machine's cost grows evenly while it is rented.

    >>> paid([VmUsage("a", "m", 1.0, 0.0, 10.0, 0.0, 0, 2.0), VmUsage("b", "m", 1.0, 5.0, 10.0, 0.0, 0, 1.0)])
    [(0.0, 0.0), (5.0, 1.0), (10.0, 3.0)]
    """
    moments = sorted({rent.from_s for rent in rented} | {rent.until_s for rent in rented})
    return [(at_s, sum(_until(rent, at_s) for rent in rented)) for at_s in moments]


def _until(rent: VmUsage, at_s: float) -> float:
    if rent.rented_s <= 0:
        return rent.cost_usd if at_s >= rent.until_s else 0.0
    return rent.cost_usd * min(max((at_s - rent.from_s) / rent.rented_s, 0.0), 1.0)
