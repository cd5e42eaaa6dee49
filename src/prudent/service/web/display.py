"""How pages show values: numbers, times and states as text, curves and bars as SVG.

Text inside a drawing that shrinks with the window cannot be read on a telephone, so drawings are shapes only
and labels are the page's own. No styles are written here: the page's style sheet gives the colours.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from prudent.core.units import format_duration
from prudent.reports.drawing import best_so_far, round_scale
from prudent.reports.formatting import UNKNOWN, amount, value

STATES = {
    "queued": "Waiting",
    "running": "Running",
    "succeeded": "Done",
    "failed": "Failed",
    "cancelled": "Cancelled",
    "finished": "Finished",
    "cut": "Cut",
}
FRONTS = {
    "rest": "by REST",
    "form": "in the browser",
    "folder": "by the folder",
    "queue": "by the queue",
    "bucket": "by the bucket",
}
KINDS = {"train": "Train", "tune": "Tune", "schedule": "Schedule"}


def length(seconds: float | None) -> str:
    """A duration for people, without fractions that change while one looks.

    >>> length(None), length(0.4), length(12.7), length(3700)
    ('–', '< 1 s', '12 s', '1 h 02 min')
    """
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return "< 1 s"
    return f"{int(seconds)} s" if seconds < 59.5 else format_duration(seconds)


def ago(moment_s: float | None, now_s: float | None = None) -> str:
    """How long ago, roughly.

    >>> ago(100.0, 130.0), ago(0.0, 7300.0), ago(0.0, 1.0), ago(None)
    ('30 s ago', '2 h ago', 'just now', '–')
    """
    if moment_s is None:
        return UNKNOWN
    past_s = max((time.time() if now_s is None else now_s) - moment_s, 0.0)
    for size_s, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if past_s >= size_s:
            return f"{int(past_s // size_s)} {unit} ago"
    return f"{int(past_s)} s ago" if past_s >= 5 else "just now"


def stamp(moment_s: float | None) -> str:
    """A moment for machines, in UTC.

    >>> stamp(0.0)
    '1970-01-01T00:00:00Z'
    """
    if moment_s is None:
        return ""
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def measured(number: float | None, name: str) -> str:
    """A value with the unit that its name tells, in as many digits as its neighbours in a column.

    >>> measured(3.51, "rmse"), measured(0.0204, "cost_usd"), measured(95.0, "time_s"), measured(None, "rmse")
    ('3.510', '$0.0204', '1 min 35 s', '–')
    """
    if number is None or name.endswith("_s"):
        return amount(name, number)
    if name == "makespan":
        return amount("makespan_s", number)
    if name.endswith("_usd"):
        return column_money(number)
    return f"{number:#.4g}".rstrip(".")


def column_money(usd: float | None) -> str:
    """Money for a column: the points are one below the other.

    >>> column_money(0.0133), column_money(0.013), column_money(12.5)
    ('$0.0133', '$0.0130', '$12.5000')
    """
    return UNKNOWN if usd is None else f"${usd:,.4f}"


def rough_money(usd: float | None) -> str:
    """Money to the cent, for a list.

    >>> rough_money(0.386), rough_money(0.001), rough_money(0.0)
    ('$0.39', '< $0.01', '$0.00')
    """
    if usd is None:
        return UNKNOWN
    return "< $0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def settings_text(configuration: Mapping[str, Any]) -> str:
    """
    >>> settings_text({"depth": 4, "rate": 0.05})
    'depth 4, rate 0.05'
    """
    parts = (
        value(said) if name == "why" else f"{name} {value(said)}" for name, said in configuration.items()
    )
    return ", ".join(parts)


def percent(share: float) -> str:
    """
    >>> percent(0.256)
    '26 %'
    """
    return f"{share * 100:.0f} %"


@dataclass(frozen=True)
class Drawing:
    """Shapes in a frame, and the labels of its axes."""

    svg: str
    ticks: tuple[float, ...]
    """The values at the frame's lines, the highest first."""
    first: str
    last: str


@dataclass(frozen=True)
class CurvePoint:
    """A trial in a curve; `good` ones count for the best line."""

    x: float
    y: float
    title: str
    good: bool = True


@dataclass(frozen=True)
class TimelineBar:
    """A piece of a lane, from `start` to `end`, in the colour of its program."""

    start: float
    end: float
    title: str
    colour: int = 0


def curve(points: Sequence[CurvePoint], larger_is_better: bool) -> Drawing | None:
    """The best so far as a line of steps, and every trial as a dot; None without a point to draw."""
    if not points:
        return None
    ticks = round_scale([point.y for point in points])
    first, last = points[0].x, max(points[-1].x, points[0].x + 1)

    def across(x: float) -> float:
        return round(2 + 96 * (x - first) / (last - first), 3)

    def down(y: float) -> float:
        return round(100 * (ticks[-1] - y) / (ticks[-1] - ticks[0]), 3)

    path = best_so_far([(point.x, point.y) for point in points if point.good], larger_is_better)
    line = "".join(f"H{across(x)}V{down(y)}" for x, y in path[1:])
    best = f'<path class="best" d="M{across(path[0][0])} {down(path[0][1])}{line}H98"/>' if path else ""
    dots = "".join(_dot(across(point.x), down(point.y), point) for point in points)
    about = 'role="img" aria-label="The best value so far, by trial"'
    svg = _svg("curve", "0 0 100 100", about, f"{_grid(ticks)}{best}{dots}")
    return Drawing(svg, tuple(reversed(ticks)), f"trial {points[0].x:.0f}", f"{points[-1].x:.0f}")


def columns(bars: Sequence[tuple[str, float, str]]) -> Drawing:
    """One column for each (name, height, title)."""
    ticks = round_scale([0.0, *(height for _, height, _ in bars)])
    wide = 100 / len(bars)
    parts = []
    for place, (_, height, title) in enumerate(bars):
        tall = 100 * height / ticks[-1]
        x, room = (place + 0.12) * wide, wide * 0.76
        shape = f'x="{x:.2f}" y="{100 - tall:.2f}" width="{room:.2f}" height="{tall:.2f}"'
        parts.append(f'<rect class="column" {shape}><title>{escape(title)}</title></rect>')
    about = 'role="img" aria-label="Money per day"'
    svg = _svg("columns", "0 0 100 100", about, _grid(ticks) + "".join(parts))
    return Drawing(svg, tuple(reversed(ticks)), bars[0][0], bars[-1][0])


def lane(bars: Sequence[TimelineBar], whole: float) -> str:
    """One machine's work over time."""
    parts = []
    for bar in bars:
        x, width = 1000 * bar.start / whole, max(1000 * (bar.end - bar.start) / whole, 1.0)
        title = f"<title>{escape(bar.title)}</title>"
        shape = f'x="{x:.2f}" y="0" width="{width:.2f}" height="10"'
        parts.append(f'<rect class="p{bar.colour}" {shape}>{title}</rect>')
    return _svg("lane", "0 0 1000 10", 'aria-hidden="true"', "".join(parts))


def meter(share: float, over: bool = False) -> str:
    """How much of something is used; a bar that never grows beyond its frame."""
    width = min(max(0.0, share), 1.0) * 100
    kind = "meter over" if over else "meter"
    used = f'<rect class="used" width="{width:.2f}%" height="100%"/>'
    return f'<svg class="{kind}" aria-hidden="true">{used}</svg>'


def _svg(kind: str, box: str, about: str, shapes: str) -> str:
    return f'<svg class="{kind}" viewBox="{box}" preserveAspectRatio="none" {about}>{shapes}</svg>'


def _grid(ticks: Sequence[float]) -> str:
    gap = 100 / (len(ticks) - 1)
    return "".join(f'<path class="grid" d="M0 {rank * gap:.2f}H100"/>' for rank in range(len(ticks)))


def _dot(x: float, y: float, point: CurvePoint) -> str:
    """A line without length and round ends: a dot that stays round however the drawing is stretched."""
    kind = "dot" if point.good else "dot poor"
    return f'<path class="{kind}" d="M{x} {y}h.001"><title>{escape(point.title)}</title></path>'
