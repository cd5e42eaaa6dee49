"""The figures about a part of the data and all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from prudent.reports import words
from prudent.reports.fractions import Fractions, Frontier, Growth, Leader
from prudent.reports.plots import Figure, Trace, axis, band, dotted, lines, marks, plain, wide
from prudent.tuning.goal import COST, TIME, Constraint, Goal
from prudent.tuning.trial import CUT, Configuration, Trial

FAR = 5.0
"""How many times beyond what was measured or predicted an interval may stretch an axis of cost or time."""


def growth_figures(told: Fractions, goal: Goal) -> list[tuple[str, list[tuple[Leader, Figure]]]]:
    """For each measure the figures of the leading configurations, on the same scales."""
    rows = []
    for place, first in enumerate(told.leaders[0].growths if told.leaders else ()):
        if first.measure == TIME and any(g.measure == COST for g in told.leaders[0].growths):
            continue  # time is cost without its price: the same curve again
        group = [leader.growths[place] for leader in told.leaders]
        bounds = [c for c in goal.constraints if c.measure == first.measure]
        span = _span(group, bounds)
        shown = [
            (leader, _growth(growth, bounds, span, leader.answer, f"growth-{place}-{number}"))
            for number, (leader, growth) in enumerate(zip(told.leaders, group, strict=True))
        ]
        rows.append((first.measure, shown))
    return rows


def _span(growths: Sequence[Growth], bounds: Sequence[Constraint]) -> list[float]:
    """What the axis must hold: runs and curves, intervals as far as they tell something, a bound nearby."""
    told = [float(n) for g in growths for n in g.spread.middle]
    told += [trial.values[g.measure] for g in growths for _, trial in g.runs]
    ends = [float(n) for g in growths for n in (*g.spread.low, *g.spread.high)]
    if growths[0].measure in (COST, TIME):
        ends = [min(max(n, min(told) / FAR), max(told) * FAR) for n in ends]
    low, high = min(told + ends), max(told + ends)
    near = [c.bound for c in bounds if low - (high - low) / 2 <= c.bound <= high + (high - low) / 2]
    return [*told, *ends, *near]


def _growth(
    growth: Growth, bounds: Sequence[Constraint], span: Sequence[float], answer: float | None, name: str
) -> Figure:
    """One measure of one configuration: measured dots, the predicted curve with its band up to 1."""
    x, spread, measure = growth.fractions.tolist(), growth.spread, growth.measure
    hover = [
        lines(
            f"on {words.share(share)} of the data",
            f"{words.label(measure)} {words.amount(measure, float(spread.middle[i]))} predicted",
            words.between(measure, float(spread.low[i]), float(spread.high[i])),
        )
        for i, share in enumerate(x)
    ]
    curve: Trace = {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": spread.middle.tolist(),
        "text": hover,
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": "--accent", "width": 2, "dash": "dash"},
        "name": "predicted",
    }
    traces = [*band(x, spread.low.tolist(), spread.high.tolist(), "--band"), curve]
    for kind, is_cut in (("feasible", False), ("cut", True)):
        points = [
            (share, trial.values[measure], _run_text(trial, share, measure))
            for share, trial in growth.runs
            if (trial.status == CUT) is is_cut
        ]
        if points:
            traces.append(marks(kind, "cut" if is_cut else "measured", points))
    if answer is not None:
        traces += _star(growth, answer, hover[-1])
    log = measure in (COST, TIME) and wide(span)
    layout: dict[str, Any] = {
        "showlegend": False,
        "xaxis": _share_axis(growth.fractions.tolist()),
        "yaxis": axis(measure, span, log, title=""),
        "shapes": [dotted(y=c.bound) for c in bounds if min(span) <= c.bound <= max(span)],
        "margin": {"l": 64, "r": 10, "t": 8, "b": 44},
    }
    alt = f"{words.label(measure)} against the share of the data: {len(growth.runs)} runs and a prediction"
    return Figure(name, alt, traces, layout, height_px=230)


def _star(growth: Growth, share: float, hover: str) -> list[Trace]:
    """Marks the answer: where it was measured, else (hollow) where it is predicted on the full data."""
    measure = growth.measure
    ran = [t for at, t in growth.runs if math.isclose(at, share) and t.finished]
    if ran:
        point = (share, ran[-1].values[measure], _run_text(ran[-1], share, measure))
        return [marks("best", "the answer", [point])]
    if not math.isclose(share, 1.0):
        return []
    return [_hollow(marks("best", "the recommendation", [(1.0, float(growth.spread.middle[-1]), hover)]))]


def _share_axis(fractions: Sequence[float]) -> dict[str, Any]:
    scale = axis("", fractions, wide(fractions), title="share of the data")
    return {**scale, "ticktext": [f"{100 * tick:.3g} %" for tick in scale["tickvals"]]}


def _run_text(trial: Trial, share: float, measure: str) -> str:
    at_least = "at least " if trial.status == CUT else ""
    which = (
        f"trial {trial.number}"
        if trial.number > 0
        else "the confirming run"
        if trial.number == 0
        else "known"
    )
    value = words.amount(measure, trial.values[measure])
    return lines(f"{which}, on {words.share(share)} of the data", f"{words.label(measure)} {at_least}{value}")


def _hollow(trace: Trace) -> Trace:
    marker = trace["marker"]
    return {
        **trace,
        "marker": {**marker, "symbol": f"{marker['symbol']}-open", "line": {**marker["line"], "width": 2}},
    }


# The frontier


def frontier(told: Frontier, goal: Goal, answer: Configuration | None) -> Figure:
    """Quality against cost on the full data: what was measured and predicted, what nothing beats, limits."""
    traces = _points(told)
    traces.append(_front(told))
    chosen = next((i for i, c in enumerate(told.configurations) if c == answer), None)
    if chosen is not None:
        star = marks("best", "the recommendation", [_point(told, chosen)])
        traces.append(star if told.measured[chosen] is not None else _hollow(star))
    cost, values = told.cost.middle.tolist(), told.values.middle.tolist()
    on_front = [*told.best, *([chosen] if chosen is not None else [])]
    heights = [*values, *(float(end[i]) for i in on_front for end in (told.values.low, told.values.high))]
    limits = [c for c in goal.constraints if c.measure in (COST, told.quality)]
    widths = [
        *cost,
        *(c.bound for c in limits if c.measure == COST and min(cost) / FAR <= c.bound <= max(cost) * FAR),
    ]
    heights += [c.bound for c in limits if c.measure == told.quality]
    layout: dict[str, Any] = {
        "showlegend": True,
        "xaxis": axis(COST, widths, wide(widths), title="cost on the full data"),
        "yaxis": axis(
            told.quality, heights, log=False, title=f"{words.label(told.quality)} on the full data"
        ),
        "shapes": [_limit_line(limit) for limit in limits if _visible(limit, widths, heights)],
        "annotations": [
            _limit_note(limit, wide(widths)) for limit in limits if _visible(limit, widths, heights)
        ],
    }
    alt = f"{words.label(told.quality)} against cost on the full data for {len(cost)} configurations"
    return Figure("frontier", alt, traces, layout, height_px=420)


def _visible(limit: Constraint, widths: Sequence[float], heights: Sequence[float]) -> bool:
    values = widths if limit.measure == COST else heights
    return min(values) <= limit.bound <= max(values)


def _points(told: Frontier) -> list[Trace]:
    front = set(told.best)
    predicted = [i for i, t in enumerate(told.measured) if t is None and i not in front]
    measured = [i for i, t in enumerate(told.measured) if t is not None]
    traces = []
    if predicted:
        trace = marks("infeasible", "predicted", [_point(told, i) for i in predicted])
        quiet = {
            "symbol": "circle-open",
            "size": 6,
            "color": "--muted",
            "line": {"color": "--muted", "width": 1},
        }
        traces.append({**trace, "marker": quiet, "opacity": 0.55})
    if measured:
        traces.append(marks("feasible", "measured", [_point(told, i) for i in measured]))
    return traces


def _front(told: Frontier) -> Trace:
    """The configurations that nothing beats, by median; bars hold 95 % of what is predicted."""
    places = [i for i in told.best if told.measured[i] is None]
    trace = marks("infeasible", "predicted, none better for the money", [_point(told, i) for i in told.best])
    middle, low, high = (part.tolist() for part in (told.values.middle, told.values.low, told.values.high))
    opened = [told.measured[i] is None for i in told.best]
    return {
        **trace,
        "mode": "lines+markers",
        "line": {"color": "--accent", "width": 1.5, "shape": "hv"},
        "marker": {
            "symbol": ["circle-open" if is_open else "circle" for is_open in opened],
            "size": 9,
            "color": "--finished",
            "line": {"color": "--finished", "width": 2},
        },
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [high[i] - middle[i] for i in told.best],
            "arrayminus": [middle[i] - low[i] for i in told.best],
            "color": "--bar",
            "thickness": 1.5,
            "width": 3,
            "visible": bool(places),
        },
    }


def _point(told: Frontier, place: int) -> tuple[float, float, str]:
    trial = told.measured[place]
    cost, value = float(told.cost.middle[place]), float(told.values.middle[place])
    how = "predicted" if trial is None else "measured"
    ranges = [] if trial is not None else [
        f"{words.label(name)} {words.between(name, float(s.low[place]), float(s.high[place]))}"
        for name, s in ((told.quality, told.values), (COST, told.cost))
    ]  # fmt: skip
    settings = [f"{name} = {words.value(said)}" for name, said in told.configurations[place].items()]
    first = (
        f"{how}: {words.label(told.quality)} {words.amount(told.quality, value)}, {words.amount(COST, cost)}"
    )
    return cost, value, lines(first, *ranges, *settings)


def _limit_line(limit: Constraint) -> dict[str, Any]:
    return dotted(x=limit.bound) if limit.measure == COST else dotted(y=limit.bound)


def _limit_note(limit: Constraint, log_cost: bool) -> dict[str, Any]:
    text = plain(f"limit {words.amount(limit.measure, limit.bound)}")
    note = {"text": text, "showarrow": False, "font": {"color": "--muted", "size": 12}}
    if limit.measure == COST:
        x = math.log10(limit.bound) if log_cost else limit.bound
        return {**note, "x": x, "yref": "paper", "y": 0, "xanchor": "left", "yanchor": "bottom"}
    return {**note, "xref": "paper", "x": 0, "y": limit.bound, "xanchor": "left", "yanchor": "bottom"}
