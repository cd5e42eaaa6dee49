"""What a tuning report says of the full data: the recommendation, its confirmation, how it was foreseen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prudent.reports import formatting
from prudent.reports.figure import (
    Figure,
    Trace,
    axis,
    band,
    dotted,
    intervals,
    line,
    lines,
    marks,
    note,
    wide,
)
from prudent.tuning.confirm import Confirmation
from prudent.tuning.goal import COST, TIME, Constraint, Goal
from prudent.tuning.problem import Problem
from prudent.tuning.result import Recommendation, Result, untested_recommendation
from prudent.tuning.trial import CUT, Configuration, Trial

if TYPE_CHECKING:  # a compiler comes with it, and most jobs have no fraction
    from prudent.reports.fractions import (
        FractionAnalysis,
        FractionCurve,
        FractionSaving,
        Frontier,
        LeadingConfiguration,
    )


@dataclass(frozen=True)
class RecommendedMeasure:
    """One measure of the recommendation: wanted, predicted, and (if it was run since) measured."""

    measure: str
    wanted: str
    predicted: float
    low: float
    high: float
    measured: float | None = None
    off: str = ""
    within: bool | None = None
    holds: bool | None = None


@dataclass(frozen=True, eq=False)
class FullDataSection:
    """What the template shows; empty for a job without a fraction."""

    recommended: Recommendation | None = None
    lines: tuple[RecommendedMeasure, ...] = ()
    confirmation: Confirmation | None = None
    rows: tuple[tuple[str, list[tuple[LeadingConfiguration, Figure]]], ...] = ()
    frontier: Figure | None = None
    saving: FractionSaving | None = None
    differing: tuple[str, ...] = ()

    @property
    def figures(self) -> list[Figure]:
        small = [figure for _, group in self.rows for _, figure in group]
        return [*small, *([self.frontier] if self.frontier else [])]

    def caption(self, leader: LeadingConfiguration) -> str:
        """A configuration by what tells it from its neighbours in the row."""
        shown = {name: leader.configuration[name] for name in self.differing}
        return formatting.sentence(shown)


def full_data(
    result: Result, problem: Problem, options: Mapping[str, Any], confirmation: Confirmation | None = None
) -> FullDataSection:
    """Everything about the full data that a result tells."""
    recommended = untested_recommendation(result)
    paid = confirmation if confirmation is not None and confirmation.charge is not None else None
    lines = _lines(recommended, result, paid) if recommended else ()
    if problem.fraction is None:
        return FullDataSection(recommended, lines, paid)
    from prudent.reports.fractions import fractions

    told = fractions(result, problem, options, paid)
    if told is None:
        return FullDataSection(recommended, lines, paid)
    rows = tuple(growth_figures(told, result.goal))
    figure = frontier(told.frontier, result.goal, told.recommended) if told.frontier else None
    names = [name for name in problem.space.names if name != problem.fraction]
    differing = [n for n in names if len({str(leader.configuration[n]) for leader in told.leaders}) > 1]
    return FullDataSection(recommended, lines, paid, rows, figure, told.saving, tuple(differing or names))


def _lines(
    recommended: Recommendation, result: Result, confirmation: Confirmation | None
) -> tuple[RecommendedMeasure, ...]:
    measured = confirmation.trial.values if confirmation and confirmation.trial.finished else {}
    within = confirmation.within if confirmation else {}
    found = []
    for expected in recommended.expected:
        name, bounds = expected.measure, _bounds(expected.measure, result)
        value = measured.get(name)
        found.append(
            RecommendedMeasure(
                name,
                " and ".join(f"{c.sign} {formatting.amount(name, c.bound)}" for c in bounds),
                expected.value,
                expected.low,
                expected.high,
                value,
                "" if value is None else formatting.off(name, value - expected.value, expected.value),
                within.get(name),
                all(c.holds(expected.value if value is None else value) for c in bounds) if bounds else None,
            )
        )
    return tuple(found)


def _bounds(measure: str, result: Result) -> list[Constraint]:
    return [c for c in result.goal.constraints if c.measure == measure]


FAR = 5.0
"""How many times beyond what was measured or predicted an interval may stretch an axis of cost or time."""


def growth_figures(
    told: FractionAnalysis, goal: Goal
) -> list[tuple[str, list[tuple[LeadingConfiguration, Figure]]]]:
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


def _span(growths: Sequence[FractionCurve], bounds: Sequence[Constraint]) -> list[float]:
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
    growth: FractionCurve,
    bounds: Sequence[Constraint],
    span: Sequence[float],
    answer: float | None,
    name: str,
) -> Figure:
    """One measure of one configuration: measured dots, the predicted curve with its band up to 1."""
    x, spread, measure = growth.fractions.tolist(), growth.spread, growth.measure
    hover = [
        lines(
            f"on {formatting.share(share)} of the data",
            f"{formatting.label(measure)} {formatting.amount(measure, float(spread.middle[i]))} predicted",
            formatting.between(measure, float(spread.low[i]), float(spread.high[i])),
        )
        for i, share in enumerate(x)
    ]
    curve = line(x, spread.middle.tolist(), "--accent", "predicted", dash="dash", hover=hover)
    traces = [*band(x, spread.low.tolist(), spread.high.tolist()), curve]
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
    alt = (
        f"{formatting.label(measure)} against the share of the data: {len(growth.runs)} runs and a prediction"
    )
    return Figure(name, alt, traces, layout, height_px=230)


def _star(growth: FractionCurve, share: float, hover: str) -> list[Trace]:
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
    value = formatting.amount(measure, trial.values[measure])
    return lines(
        f"{which}, on {formatting.share(share)} of the data", f"{formatting.label(measure)} {at_least}{value}"
    )


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
            told.quality, heights, log=False, title=f"{formatting.label(told.quality)} on the full data"
        ),
        "shapes": [_limit_line(limit) for limit in limits if _visible(limit, widths, heights)],
        "annotations": [
            _limit_note(limit, wide(widths)) for limit in limits if _visible(limit, widths, heights)
        ],
    }
    alt = f"{formatting.label(told.quality)} against cost on the full data for {len(cost)} configurations"
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
    values = told.values
    middle, low, high = (part[list(told.best)].tolist() for part in (values.middle, values.low, values.high))
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
        "error_y": {**intervals(middle, low, high), "visible": bool(places)},
    }


def _point(told: Frontier, place: int) -> tuple[float, float, str]:
    trial = told.measured[place]
    cost, value = float(told.cost.middle[place]), float(told.values.middle[place])
    how = "predicted" if trial is None else "measured"
    ranges = [] if trial is not None else [
        f"{formatting.label(name)} {formatting.between(name, float(s.low[place]), float(s.high[place]))}"
        for name, s in ((told.quality, told.values), (COST, told.cost))
    ]  # fmt: skip
    settings = [f"{name} = {formatting.value(said)}" for name, said in told.configurations[place].items()]
    shown = formatting.amount(told.quality, value)
    first = f"{how}: {formatting.label(told.quality)} {shown}, {formatting.amount(COST, cost)}"
    return cost, value, lines(first, *ranges, *settings)


def _limit_line(limit: Constraint) -> dict[str, Any]:
    return dotted(x=limit.bound) if limit.measure == COST else dotted(y=limit.bound)


def _limit_note(limit: Constraint, log_cost: bool) -> dict[str, Any]:
    text = f"limit {formatting.amount(limit.measure, limit.bound)}"
    if limit.measure == COST:
        return note(text, x=math.log10(limit.bound) if log_cost else limit.bound)
    return note(text, y=limit.bound)
