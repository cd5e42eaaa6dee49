"""What a training report shows of the best model beside its score: columns, trust, weak spots, more rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prudent.core.parameters import is_number
from prudent.reports import formatting
from prudent.reports.figure import (
    Figure,
    Trace,
    axis,
    dotted,
    intervals,
    line,
    lines,
    parameter_axis,
    plain,
)
from prudent.reports.training_charts import metric_name
from prudent.training.algorithms.algorithm import LESS_IS_BETTER
from prudent.training.insight.calibration import Reliability, ReliabilityBin
from prudent.training.insight.dependence import PartialDependence
from prudent.training.insight.importance import PermutationImportance
from prudent.training.insight.insight import ModelInsight
from prudent.training.insight.more_rows import RowsCurve

_MOST_COLUMNS = 15
_NAMED = 3
_COLOURS = ("--accent", "--cut", "--failed", "--best")


@dataclass(frozen=True)
class SegmentRow:
    """Rows on which the model errs more than elsewhere, as a line of a table."""

    what: str
    rows: int
    error: str
    elsewhere: str


@dataclass(frozen=True)
class InsightSection:
    """What the template shows; each part is empty where nothing is known of it."""

    importance: Figure | None = None
    importance_says: str = ""
    dependences: tuple[Figure, ...] = ()
    dependence_names: tuple[str, ...] = ()
    reliability: Figure | None = None
    reliability_says: str = ""
    segments: tuple[SegmentRow, ...] = ()
    segments_are_shares: bool = False
    more_rows: Figure | None = None
    more_rows_says: str = ""

    @property
    def figures(self) -> tuple[Figure | None, ...]:
        return (self.importance, *self.dependences, self.reliability, self.more_rows)

    @property
    def anything(self) -> bool:
        return any(self.figures) or bool(self.segments)


def insight_section(found: ModelInsight | None, metric: str, target: str | None) -> InsightSection:
    """The section of a report, of what is known of its best model."""
    if found is None:
        return InsightSection()
    importance, trust, curve = found.importance, found.reliability, found.more_rows
    shares = trust is not None or any(each.classes for each in found.dependences)
    return InsightSection(
        importance=_importance(importance, metric) if importance and importance.columns else None,
        importance_says=_importance_says(importance, found.seen) if importance else "",
        dependences=tuple(
            _dependence(each, f"dependence-{number}", target) for number, each in enumerate(found.dependences)
        ),
        dependence_names=tuple(each.column for each in found.dependences),
        reliability=_reliability(trust) if trust else None,
        reliability_says=_trust_says(trust) if trust else "",
        segments=tuple(
            SegmentRow(
                f"{each.column}: {each.label}",
                each.rows,
                formatting.share(each.error) if shares else f"{each.error:.3g}",
                formatting.share(each.elsewhere) if shares else f"{each.elsewhere:.3g}",
            )
            for each in found.segments
        ),
        segments_are_shares=shares,
        more_rows=_more_rows(curve, metric) if curve else None,
        more_rows_says=_more_rows_says(curve, metric) if curve else "",
    )


def _importance(found: PermutationImportance, metric: str) -> Figure:
    """Columns by what the score loses without them, with 95 % intervals."""
    shown = found.columns[:_MOST_COLUMNS]
    names = [each.column if len(each.column) <= 28 else each.column[:27] + "…" for each in shown]
    values, low, high = ([getattr(each, end) for each in shown] for end in ("value", "low", "high"))
    bars: Trace = {
        "type": "bar",
        "orientation": "h",
        "x": values,
        "y": list(range(len(shown))),
        "text": [
            lines(each.column, f"{each.value:.3g} ({each.low:.3g} to {each.high:.3g})") for each in shown
        ],
        "textposition": "none",
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": ["--accent" if each.matters else "--muted" for each in shown]},
        "error_x": intervals(values, low, high, "--soft"),
        "showlegend": False,
    }
    worse = "rises by" if metric in LESS_IS_BETTER else "falls by"
    layout = {
        "xaxis": axis("", [0.0, *low, *high], log=False, title=f"{metric_name(metric)} {worse}"),
        "yaxis": {
            "tickvals": list(range(len(shown))),
            "ticktext": [plain(name) for name in names],
            "autorange": "reversed",
            "showgrid": False,
        },
        "bargap": 0.35,
        "shapes": [dotted(x=0.0)],
    }
    alt = "columns that matter most: " + ", ".join(names[:5])
    return Figure("permutation", alt, [bars], layout, height_px=90 + 24 * len(shown))


def _importance_says(found: PermutationImportance, seen: bool) -> str:
    rows = f"{found.rows:,} rows {'that it learned from' if seen else 'it had not seen'}"
    matter = [each.column for each in found.columns if each.matters]
    if not matter:
        said = f"On {rows} no single column makes a difference beyond chance."
    else:
        rest = len(found.columns) - len(matter)
        others = f" {rest} of {len(found.columns)} make no difference beyond chance." if rest else ""
        said = f"On {rows} it depends most on {_listed(matter)}.{others}"
    if found.left_out:
        said += f" There was no time for {found.left_out} more."
    return said


def _listed(names: Sequence[str]) -> str:
    shown = [f"“{name}”" for name in names[:_NAMED]]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _dependence(found: PartialDependence, name: str, target: str | None) -> Figure:
    """The mean answer against one column."""
    numeric = all(is_number(value) for value in found.values)
    x = [float(v) for v in found.values] if numeric else [plain(value) for value in found.values]
    curves = zip(found.answers, found.classes or ("",), strict=False)
    traces = [_curve(x, answers, label, number) for number, (answers, label) in enumerate(curves)]
    heights = [value for answers in found.answers for value in answers]
    title = target or "prediction"
    if len(found.classes) == 1:
        title = f"probability of {found.classes[0]}"
    elif found.classes:
        title = "probability"
    layout = {
        "showlegend": len(found.classes) > 1,
        "xaxis": parameter_axis(x, found.values, numeric, log=False),
        "yaxis": axis("", [*heights, *([0.0] if found.classes else [])], log=False, title=title),
        "margin": {"l": 60, "r": 8, "t": 8, "b": 40},
    }
    alt = f"{title} against {found.column}"
    return Figure(name, alt, traces, layout, height_px=240)


def _curve(x: Sequence[float | str], y: Sequence[float], label: str, number: int) -> Trace:
    colour = _COLOURS[number % len(_COLOURS)]
    hover = [
        lines(label, f"at {value if isinstance(value, str) else format(value, '.4g')}", f"{height:.4g}")
        for value, height in zip(x, y, strict=True)
    ]
    trace = line(x, y, colour, label, hover=hover)
    # Categories have no order that a line could follow.
    mode = "markers" if x and isinstance(x[0], str) else "lines+markers"
    return {**trace, "mode": mode, "marker": {"color": colour, "size": 9 if mode == "markers" else 5}}


def _reliability(found: Reliability) -> Figure:
    """How often it came true against what was said; on the dashed line both are the same."""
    bins = found.bins
    said, true = [one.said for one in bins], [one.found for one in bins]
    dots = line(said, true, "--accent", hover=[_bin_text(one) for one in bins])
    dots |= {
        "mode": "lines+markers",
        "marker": {"color": "--accent", "size": 7},
        "error_y": intervals(true, [one.low for one in bins], [one.high for one in bins]),
    }
    title = f"said probability of {found.class_name}" if found.class_name else "said to be right"
    layout = {
        "xaxis": axis("", [min(0.0, *said), 1.0], log=False, title=title),
        "yaxis": axis("", [0.0, 1.0], log=False, title="came true"),
    }
    alt = f"how often it came true against the probability that was said, in {len(bins)} bins"
    exact = line([0.0, 1.0], [0.0, 1.0], "--muted", dash="dash", width=1.5)
    return Figure("reliability", alt, [exact, dots], layout, height_px=320)


def _bin_text(one: ReliabilityBin) -> str:
    return lines(
        f"said {formatting.share(one.said)}",
        f"came true in {formatting.share(one.found)}",
        f"95 % interval {formatting.share(one.low)} to {formatting.share(one.high)}",
        f"{one.rows:,} rows",
    )


def _trust_says(found: Reliability) -> str:
    off = f"they are off by {formatting.share(found.error)} on average"
    if not found.trust:
        return (
            f"Its probabilities can be taken at their word: {off}, no more than chance explains or matters."
        )
    if found.trust == "off":
        return f"Its probabilities are not what comes true: {off}."
    return f"It is {found.trust} of itself: its probabilities do not come true as they stand; {off}."


def _more_rows(found: RowsCurve, metric: str) -> Figure:
    """The metric against the rows that it learned from, and where it may go with twice as many."""
    sign = -1.0 if metric in LESS_IS_BETTER else 1.0
    x, y = [float(point.rows) for point in found.points], [sign * point.score for point in found.points]
    hover = [
        lines(f"{rows:,.0f} rows", f"{metric_name(metric)} {value:.4g}")
        for rows, value in zip(x, y, strict=True)
    ]
    measured = line(x, y, "--accent", "measured", hover=hover)
    measured |= {"mode": "lines+markers", "marker": {"color": "--accent", "size": 7}}
    ahead = sign * (found.points[-1].score + (found.next_gain if found.helps else 0.0))
    text = lines(f"{2 * x[-1]:,.0f} rows", f"{metric_name(metric)} {ahead:.4g} expected")
    expected = line([x[-1], 2 * x[-1]], [y[-1], ahead], "--muted", "expected", dash="dot", hover=["", text])
    room = found.high - found.low
    counts = [*(int(each) for each in x), int(2 * x[-1])]
    scale = axis("", [float(count) for count in counts], log=True, title="rows that it learned from")
    layout = {
        "showlegend": True,
        "xaxis": {**scale, "tickvals": counts, "ticktext": [f"{count:,}" for count in counts]},
        # As high as what chance makes, lest a flat curve look steep.
        "yaxis": axis("", [*y, ahead, y[-1] - room, y[-1] + room], log=False, title=metric_name(metric)),
    }
    traces = [measured, expected] if found.helps else [measured]
    return Figure("more-rows", f"{metric_name(metric)} by rows", traces, layout, height_px=300)


def _more_rows_says(found: RowsCurve, metric: str) -> str:
    name, half = metric_name(metric), f"{found.points[-2].rows:,} to {found.points[-1].rows:,} rows"
    between = f"{abs(found.gain):.3g} (95 % between {found.low:+.3g} and {found.high:+.3g})"
    if not found.helps:
        return f"More rows would hardly help: from {half} the {name} did not get better beyond chance."
    return (
        f"More rows would help: from {half} the {name} got better by {between}; as many again may bring "
        f"about {found.next_gain:.2g} more."
    )
