"""The figures of a workflow report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prudent.reports import formatting
from prudent.reports.drawing import program_colours
from prudent.reports.figure import (
    Figure,
    Trace,
    axis,
    dotted,
    lines,
    marks,
    note,
    plain,
    steps,
    time_axis,
    wide,
)
from prudent.workflows.execution import Attempt, VmUsage
from prudent.workflows.fleet import Fleet
from prudent.workflows.plan import Plan
from prudent.workflows.scheduling import ComparedPlan
from prudent.workflows.workflow import Workflow

MOST_BARS = 1500
"""With more activations, neighbours of one program on a slot are drawn as one bar."""
MOST_NODES = 130
"""With more activations, those of one program on a level are drawn as one node."""
_LANE_PX = 22


def palette(workflow: Workflow) -> dict[str, str]:
    """A colour for each program: those with the most work first."""
    work: dict[str, float] = defaultdict(float)
    for activation in workflow.activations:
        work[activation.program] += activation.runtime_s + max(activation.runtimes_s.values(), default=0.0)
    return {program: f"--p{number}" for program, number in program_colours(work).items()}


def gantt(
    name: str,
    workflow: Workflow,
    fleet: Fleet,
    attempts: Iterable[Attempt],
    end_s: float,
    legend: bool = True,
    rented: Sequence[VmUsage] = (),
) -> Figure:
    """Every slot over time; a bar is an activation in its program's colour, hatched if it did not succeed.

    Behind them, the time for which machines were `rented` is shaded.
    """
    rows = _lane_names(fleet)
    used = [attempt for attempt in attempts if attempt.finish_s > attempt.start_s]
    shown = list(dict.fromkeys(rows[key] for key in rows if any((a.vm, a.slot) == key for a in used)))
    colours = palette(workflow)
    paid = [(rows[key], rent) for rent in rented for key in rows if key[0] == rent.vm]
    shown += [row for row in dict.fromkeys(row for row, _ in paid) if row not in shown]
    traces: list[Trace] = [_paid_trace(paid)] if paid else []
    seen: set[str] = set()
    for program in colours:
        bars = _bars(workflow, used, program, end_s)
        if bars:
            first = colours[program] not in seen
            seen.add(colours[program])
            traces.append(_bar_trace(program, colours[program], bars, rows, legend and first, workflow))
    layout = {
        "barmode": "overlay",
        "bargap": 0.22,
        "xaxis": time_axis(end_s),
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": shown[::-1],
            "title": {"text": ""},
        },
        "uniformtext": {"minsize": 9, "mode": "hide"},
        "margin": {"l": 110, "r": 14, "t": 10, "b": 44},
        "showlegend": legend,
    }
    alt = f"{len(used)} activations on {len(shown)} slots over {formatting.amount('time_s', end_s)}"
    return Figure(name, alt, traces, layout, height_px=110 + _LANE_PX * max(len(shown), 3))


Bar = tuple[tuple[str, int], float, float, str, str]


def _bars(workflow: Workflow, attempts: Sequence[Attempt], program: str, end_s: float) -> list[Bar]:
    """(slot, start, finish, outcome, what it is); neighbours are merged where there are too many."""
    own = [attempt for attempt in attempts if workflow[attempt.activation].program == program]
    bars: list[Bar] = []
    if len(attempts) <= MOST_BARS:
        return [((a.vm, a.slot), a.start_s, a.finish_s, a.outcome, a.activation) for a in own]
    last: dict[tuple[str, int, str], int] = {}
    counts: list[int] = []
    for attempt in own:
        key = attempt.vm, attempt.slot, attempt.outcome
        at = last.get(key)
        if at is not None and attempt.start_s - bars[at][2] < 0.002 * end_s:
            lane, start_s, _, outcome, _ = bars[at]
            counts[at] += 1
            bars[at] = lane, start_s, attempt.finish_s, outcome, f"{counts[at]} activations"
            continue
        last[key] = len(bars)
        counts.append(1)
        bars.append(
            (
                (attempt.vm, attempt.slot),
                attempt.start_s,
                attempt.finish_s,
                attempt.outcome,
                attempt.activation,
            )
        )
    return bars


def _bar_trace(
    program: str,
    colour: str,
    bars: Sequence[Bar],
    rows: Mapping[tuple[str, int], str],
    legend: bool,
    workflow: Workflow,
) -> Trace:
    del workflow
    hover = [
        lines(
            f"{what} ({program})" if program else what,
            rows[lane],
            f"{formatting.amount('time_s', start)} to {formatting.amount('time_s', finish)}",
            f"takes {formatting.amount('time_s', finish - start)}",
            "" if outcome == "done" else outcome,
        )
        for lane, start, finish, outcome, what in bars
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": plain(program or "no program named"),
        "y": [rows[bar[0]] for bar in bars],
        "base": [bar[1] for bar in bars],
        "x": [bar[2] - bar[1] for bar in bars],
        "text": [plain(program)] * len(bars),
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": "--paper", "size": 10},
        "customdata": hover,
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {
            "color": colour,
            "line": {"color": "--paper", "width": 0.6},
            "pattern": {"shape": ["" if bar[3] == "done" else "/" for bar in bars], "solidity": 0.4},
        },
        "showlegend": legend,
    }


def _paid_trace(paid: Sequence[tuple[str, VmUsage]]) -> Trace:
    hover = [
        lines(
            row,
            f"paid from {formatting.between('time_s', rent.from_s, rent.until_s)}",
            formatting.amount("cost_usd", rent.cost_usd),
        )
        for row, rent in paid
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": "paid for",
        "y": [row for row, _ in paid],
        "base": [rent.from_s for _, rent in paid],
        "x": [rent.rented_s for _, rent in paid],
        "customdata": hover,
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": "--left"},
        "showlegend": False,
    }


def utilisation(
    fleet: Fleet, attempts: Sequence[Attempt], end_s: float, real: Sequence[Attempt] = ()
) -> Figure:
    """How many slots work at each moment, by plan and in reality."""
    slots = len(fleet.lanes)
    traces = []
    for name, some, colour, dash in (
        ("planned", attempts, "--accent", "solid" if not real else "dot"),
        ("measured", real, "--best", "solid"),
    ):
        if some:
            traces.append(steps(name, _busy(some), colour, dash))
    if not real:
        traces[0] |= {"fill": "tozeroy", "fillcolor": "--band"}
    layout = {
        "xaxis": time_axis(end_s),
        "yaxis": {"title": {"text": "busy slots"}, "range": [0, slots * 1.06], "rangemode": "tozero"},
        "shapes": [dotted(y=slots, layer="above")],
        "showlegend": bool(real),
    }
    return Figure("utilisation", f"busy slots over time, of {slots}", traces, layout, height_px=230)


def _busy(attempts: Sequence[Attempt]) -> list[tuple[float, float]]:
    changes: dict[float, int] = defaultdict(int)
    for attempt in attempts:
        changes[round(attempt.start_s, 6)] += 1
        changes[round(attempt.finish_s, 6)] -= 1
    points, busy = [(0.0, 0.0)], 0
    for at_s in sorted(changes):
        busy += changes[at_s]
        points.append((at_s, float(busy)))
    return points


def comparison(plan: Plan, beside: Sequence[ComparedPlan], bound_s: float) -> Figure:
    """The makespan of every scheduler, beside the bound that no plan can beat."""
    ranked = sorted(beside, key=lambda each: -each.makespan_s)
    texts = [formatting.amount("time_s", each.makespan_s) for each in ranked]
    trace: Trace = {
        "type": "bar",
        "orientation": "h",
        "y": [each.scheduler for each in ranked],
        "x": [each.makespan_s for each in ranked],
        "text": texts,
        "textposition": "outside",
        "cliponaxis": False,
        "customdata": [
            lines(each.scheduler, f"makespan {text}", f"cost {formatting.amount('cost_usd', each.cost_usd)}")
            for each, text in zip(ranked, texts, strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
        "marker": {"color": ["--best" if each.scheduler == plan.scheduler else "--bar" for each in ranked]},
        "showlegend": False,
    }
    longest = max(each.makespan_s for each in ranked)
    layout: dict[str, Any] = {
        "xaxis": time_axis(longest * 1.12, title="makespan"),
        "yaxis": {"type": "category", "title": {"text": ""}},
        "bargap": 0.3,
        "margin": {"l": 96, "r": 24, "t": 22, "b": 44},
    }
    if bound_s > 0:
        layout["shapes"] = [dotted(x=bound_s, layer="above")]
        layout["annotations"] = [note("no plan is faster", x=bound_s, anchor="center", top=True)]
    takes = formatting.amount("time_s", plan.makespan_s)
    alt = f"makespan of {len(ranked)} schedulers; {plan.scheduler} takes {takes}"
    return Figure("comparison", alt, [trace], layout, height_px=90 + 26 * len(ranked))


def front(plan: Plan, beside: Sequence[ComparedPlan]) -> Figure | None:
    """Time against money: the choices there are, the plan, and the other schedulers."""
    if len(plan.front) < 2:
        return None
    points = [(point.makespan_s, point.cost_usd) for point in plan.front]
    line: Trace = {
        **steps("choices: none is both faster and cheaper", points, "--accent"),
        "mode": "lines+markers",
        "marker": {"color": "--accent", "size": 7},
        "text": [_choice(*point) for point in points],
        "hoverinfo": "text",
    }
    others = [
        (each.makespan_s, each.cost_usd, lines(each.scheduler, _choice(each.makespan_s, each.cost_usd)))
        for each in beside
        if each.scheduler != plan.scheduler
    ]
    star = (plan.makespan_s, plan.cost_usd, lines("this plan", _choice(plan.makespan_s, plan.cost_usd)))
    traces = [line, marks("infeasible", "other schedulers", others), marks("best", "this plan", [star])]
    xs = [x for x, _ in points] + [each[0] for each in others]
    ys = [y for _, y in points] + [each[1] for each in others]
    layout = {
        "xaxis": axis("time_s", xs, log=True, title="makespan")
        if wide(xs)
        else time_axis(max(xs) * 1.02, 0.9 * min(xs), "makespan"),
        "yaxis": axis("cost_usd", ys, log=False, title="cost"),
    }
    return Figure("front", f"cost against makespan of {len(points)} plans", traces, layout, height_px=360)


def _choice(makespan_s: float, cost_usd: float) -> str:
    return f"{formatting.amount('time_s', makespan_s)}, {formatting.amount('cost_usd', cost_usd)}"


def learning(plan: Plan) -> Figure | None:
    """The makespan of every episode, and the best until then."""
    curve = plan.details.get("learning_curve_s")
    if not isinstance(curve, Sequence) or len(curve) < 2:
        return None
    episodes = [float(makespan_s) for makespan_s in curve]
    best = [min(episodes[: at + 1]) for at in range(len(episodes))]
    dots = [
        (at + 1, makespan_s, lines(f"episode {at + 1}", formatting.amount("time_s", makespan_s)))
        for at, makespan_s in enumerate(episodes)
    ]
    traces = [
        {
            **marks("infeasible", "each episode", dots),
            "marker": {"color": "--finished", "size": 5, "opacity": 0.6},
        },
        steps("best so far", [(at + 1, value) for at, value in enumerate(best)], "--best"),
    ]
    layout = {
        "xaxis": {"title": {"text": "episode"}, "range": [0, len(episodes) + 1]},
        "yaxis": axis("time_s", episodes, log=False, title="makespan"),
    }
    return Figure("learning", f"makespan over {len(episodes)} episodes", traces, layout, height_px=300)


def _lane_names(fleet: Fleet) -> dict[tuple[str, int], str]:
    return {
        (vm.name, slot): plain(vm.name if vm.slots == 1 else f"{vm.name} / {slot + 1}")
        for vm in fleet.vms
        for slot in range(vm.slots)
    }
