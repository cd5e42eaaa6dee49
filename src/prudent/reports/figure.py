"""Figures of reports: Plotly's traces and layouts as data, which the page draws in its own colours."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from prudent.reports import formatting
from prudent.reports.drawing import clock_ticks, even_ticks
from prudent.reports.page import data

Trace = dict[str, Any]


@dataclass(frozen=True)
class MarkStyle:
    """How a kind of mark looks: its colour on the page and its symbol."""

    colour: str
    symbol: str
    size: int = 9


STYLES = {
    "feasible": MarkStyle("--finished", "circle"),
    "infeasible": MarkStyle("--finished", "circle-open"),
    "cut": MarkStyle("--cut", "triangle-up-open", 10),
    "failed": MarkStyle("--failed", "x-thin", 9),
    "best": MarkStyle("--best", "star", 15),
}


@dataclass(frozen=True)
class Figure:
    """A Plotly figure and what it shows in words, for those who cannot see it."""

    name: str
    alt: str
    traces: Sequence[Trace]
    layout: Mapping[str, Any] = field(default_factory=dict)
    height_px: int = 340

    def __html__(self) -> str:
        """The fragment that a template places; it is drawn when it comes into view."""
        described = {"data": list(self.traces), "layout": {**dict(self.layout), "height": self.height_px}}
        name, alt = html.escape(self.name), html.escape(self.alt)
        return (
            f'<div class="figure" id="{name}" role="img" aria-label="{alt}" '
            f'style="height:{self.height_px}px">'
            f'<script type="application/json">{data(described)}</script></div>'
        )


def plain(text: object) -> str:
    """Text for a label or a hover box: Plotly reads tags there, so what users wrote is escaped.

    >>> plain("<b>8 & more</b>")
    '&lt;b&gt;8 &amp; more&lt;/b&gt;'
    """
    return html.escape(str(text), quote=False)


def dotted(*, x: float | None = None, y: float | None = None, layer: str = "below") -> dict[str, Any]:
    """A dotted line across the whole figure: upright at `x`, or level at `y`."""
    line = {"type": "line", "line": {"color": "--muted", "dash": "dot", "width": 1.5}, "layer": layer}
    if x is not None:
        return {**line, "x0": x, "x1": x, "yref": "paper", "y0": 0, "y1": 1}
    return {**line, "y0": y, "y1": y, "xref": "paper", "x0": 0, "x1": 1}


def note(
    text: str, *, x: float | None = None, y: float | None = None, anchor: str = "left", top: bool = False
) -> dict[str, Any]:
    """A remark at a dotted line: at foot or top of the upright one at `x`, or on the level one at `y`."""
    place = {"x": x, "yref": "paper", "y": int(top)} if x is not None else {"xref": "paper", "x": 0, "y": y}
    return {
        "text": plain(text),
        **place,
        "xanchor": anchor,
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": "--muted", "size": 12},
    }


def lines(*said: object) -> str:
    """Several lines of plain text for a hover box."""
    return "<br>".join(plain(line) for line in said if line not in ("", None))


def marks(kind: str, name: str, points: Iterable[tuple[Any, float, str]]) -> Trace:
    """Dots of one kind at (x, y), each with its hover text."""
    style, found = STYLES[kind], list(points)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": plain(name),
        "x": [x for x, _, _ in found],
        "y": [y for _, y, _ in found],
        "text": [text for _, _, text in found],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "symbol": style.symbol,
            "size": style.size,
            "color": style.colour,
            "line": {"color": style.colour, "width": 2 if style.symbol.endswith(("open", "thin")) else 0},
        },
    }


def line(
    x: Sequence[Any],
    y: Sequence[Any],
    colour: str,
    name: str = "",
    *,
    dash: str = "solid",
    width: float = 2.0,
    hover: Sequence[str] | None = None,
) -> Trace:
    """Points joined by a line; with hover texts it answers the pointer, with a name it is in the legend."""
    told: Trace = {"hoverinfo": "skip"}
    if hover is not None:
        told = {"text": hover, "hovertemplate": "%{text}<extra></extra>"}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(x),
        "y": list(y),
        "line": {"color": colour, "width": width, "dash": dash},
        **({"name": plain(name)} if name else {"showlegend": False}),
        **told,
    }


def steps(name: str, points: Sequence[tuple[float, float]], colour: str, dash: str = "solid") -> Trace:
    """A line that keeps its height until the next point."""
    trace = line([x for x, _ in points], [y for _, y in points], colour, name, dash=dash, width=2.5)
    return {**trace, "line": {**trace["line"], "shape": "hv"}}


def band(x: Sequence[Any], low: Sequence[float], high: Sequence[float]) -> list[Trace]:
    """A shaded area between two curves, without a place in the legend."""
    top = {"fill": "tonexty", "fillcolor": "--band"}
    return [line(x, low, "--band", width=0), {**line(x, high, "--band", width=0), **top}]


def intervals(
    middle: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str = "--bar"
) -> dict[str, Any]:
    """Bars from low to high through each point."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [max(top - mid, 0.0) for mid, top in zip(middle, high, strict=True)],
        "arrayminus": [max(mid - bottom, 0.0) for mid, bottom in zip(middle, low, strict=True)],
        "color": colour,
        "thickness": 1.5,
        "width": 3,
    }


def axis(measure: str, values: Iterable[float], log: bool, title: str | None = None) -> dict[str, Any]:
    """An axis for a measure that holds all these values, with ticks in its unit.

    >>> axis("cost_usd", [0.01, 0.09], log=True)["ticktext"]
    ['$0.01', '$0.03', '$0.10']
    """
    numbers = [number for number in values if math.isfinite(number) and (number > 0 or not log)]
    low, high = (min(numbers), max(numbers)) if numbers else (1.0, 2.0)
    shown = plain(formatting.label(measure) if title is None else title)
    if log:
        return {"title": {"text": shown}, "type": "log", **_log_scale(measure, low, high)}
    room = 0.06 * ((high - low) or abs(high) or 1.0)
    ticks = [tick for tick in even_ticks(low - room, high + room) if tick >= 0 or low < 0]
    return {
        "title": {"text": shown},
        "range": [low - room, high + room],
        "tickvals": ticks,
        "ticktext": [formatting.amount(measure, tick) for tick in ticks],
    }


def wide(values: Sequence[float], factor: float = 5.0) -> bool:
    """Whether values spread so much that only a log scale shows them all."""
    return bool(values) and min(values) > 0 and max(values) / min(values) > factor


def _log_scale(measure: str, low: float, high: float) -> dict[str, Any]:
    room = max(0.06 * math.log10(high / low), 0.04)
    ends = [math.log10(low) - room, math.log10(high) + room]
    decades = range(math.floor(ends[0]), math.ceil(ends[1]) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 6)):
        ticks = [digit * 10.0**power for power in decades for digit in digits]
        ticks = [tick for tick in ticks if ends[0] <= math.log10(tick) <= ends[1]]
        if len(ticks) >= 3:
            break
    if len(ticks) < 3:
        ticks = even_ticks(10 ** ends[0], 10 ** ends[1])
    return {
        "range": ends,
        "tickvals": ticks,
        "ticktext": [formatting.amount(measure, tick) for tick in ticks],
    }


def time_axis(end_s: float, low_s: float = 0.0, title: str = "time") -> dict[str, Any]:
    """From `low_s` to a little beyond the end, with ticks where a clock has them."""
    ticks = clock_ticks(low_s, end_s)
    return {
        "title": {"text": plain(title)},
        "range": [low_s, (end_s * 1.01) or 1.0],
        "tickvals": ticks,
        "ticktext": [_tick(tick) for tick in ticks],
    }


def _tick(at_s: float) -> str:
    """
    >>> _tick(0.0), _tick(120.0), _tick(90.0), _tick(7200.0), _tick(10.0)
    ('0', '2 min', '1 min 30 s', '2 h', '10 s')
    """
    if at_s == 0:
        return "0"
    for ending in (" 00 s", " 00 min", " 00 h"):
        if formatting.amount("time_s", at_s).endswith(ending):
            return formatting.amount("time_s", at_s).removesuffix(ending)
    return formatting.amount("time_s", at_s).replace(".0 s", " s")


def parameter_axis(shown: Sequence[Any], said: Sequence[Any], numeric: bool, log: bool) -> dict[str, Any]:
    """An axis for a parameter with the values `said`; a tick at each if they are few and stand apart.

    `shown` are the values as the traces have them: words, or numbers.
    """
    if not numeric:
        words = list(dict.fromkeys(shown))
        return {"type": "category", "tickvals": words, "range": [-0.5, len(words) - 0.5]}
    scale = axis("", [float(value) for value in said], log, title="")
    different = {float(value): value for value in said}
    kept = sorted(different)
    if len(kept) <= 6 and _apart([math.log(value) if log else value for value in kept]):
        scale |= {"tickvals": kept, "ticktext": [formatting.value(different[value]) for value in kept]}
    return scale


def _apart(places: Sequence[float]) -> bool:
    """Whether labels at these places would not run into each other."""
    room = 0.12 * (places[-1] - places[0])
    return all(after - before >= room for before, after in pairwise(places))
