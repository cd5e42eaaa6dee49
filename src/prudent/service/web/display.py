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

from prudent.core.units import format_duration, format_money

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


def money(usd: float | None) -> str:
    """
    >>> money(None), money(0.5)
    ('—', '$0.50')
    """
    return "—" if usd is None else format_money(usd)


def length(seconds: float | None) -> str:
    """A duration for people, without fractions that change while one looks.

    >>> length(None), length(0.4), length(12.7), length(3700)
    ('—', '< 1 s', '12 s', '1 h 02 min')
    """
    if seconds is None:
        return "—"
    if seconds < 1:
        return "< 1 s"
    return f"{int(seconds)} s" if seconds < 59.5 else format_duration(seconds)


def exact(seconds: float | None) -> str:
    return "—" if seconds is None else format_duration(seconds)


def ago(moment_s: float | None, now_s: float | None = None) -> str:
    """How long ago, roughly.

    >>> ago(100.0, 130.0), ago(0.0, 7300.0), ago(0.0, 1.0), ago(None)
    ('30 s ago', '2 h ago', 'just now', '—')
    """
    if moment_s is None:
        return "—"
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


def number(value: Any) -> str:
    """A measured value, short.

    >>> number(0.123456), number(12), number(None), number(True), number("m5.large"), number(1e-7)
    ('0.1235', '12', '—', 'yes', 'm5.large', '1e-07')
    """
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def measured(value: float | None, name: str) -> str:
    """A value with the unit that its name tells, in as many digits as its neighbours in a column.

    >>> measured(3.51, "rmse"), measured(0.0204, "cost_usd"), measured(95.0, "time_s"), measured(None, "rmse")
    ('3.510', '$0.0204', '1 min 35 s', '—')
    """
    if value is None:
        return "—"
    if name.endswith("_s") or name == "makespan":
        return format_duration(value)
    if name.endswith("_usd"):
        return column_money(value)
    return f"{value:#.4g}".rstrip(".")


def column_money(usd: float | None) -> str:
    """Money for a column: the points are one below the other.

    >>> column_money(0.0133), column_money(0.013), column_money(12.5)
    ('$0.0133', '$0.0130', '$12.5000')
    """
    return "—" if usd is None else f"${usd:,.4f}"


def rough_money(usd: float | None) -> str:
    """Money to the cent, for a list.

    >>> rough_money(0.386), rough_money(0.001), rough_money(0.0)
    ('$0.39', '< $0.01', '$0.00')
    """
    if usd is None:
        return "—"
    return "< $0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def settings_text(configuration: Mapping[str, Any]) -> str:
    """
    >>> settings_text({"depth": 4, "rate": 0.05})
    'depth 4, rate 0.05'
    """
    parts = (
        number(value) if name == "why" else f"{name} {number(value)}" for name, value in configuration.items()
    )
    return ", ".join(parts)


def percent(share: float) -> str:
    """
    >>> percent(0.256)
    '26 %'
    """
    return f"{share * 100:.0f} %"


_HIGH = 100.0


@dataclass(frozen=True)
class CurvePoint:
    """A trial in a curve; `good` ones count for the best line."""

    x: float
    y: float
    title: str
    good: bool = True


@dataclass(frozen=True)
class BestSoFarCurve:
    """The best value so far, with every trial as a dot."""

    svg: str
    low: float
    high: float
    first: float
    last: float


@dataclass(frozen=True)
class TimelineBar:
    """A piece of a lane, from `start` to `end`."""

    start: float
    end: float
    title: str
    group: int = 0


def curve(points: Sequence[CurvePoint], larger_is_better: bool) -> BestSoFarCurve | None:
    """The best so far as a line of steps; None without a point to draw."""
    if not points:
        return None
    low, high = _room([point.y for point in points])
    last = max(points[-1].x, points[0].x + 1)
    first = points[0].x

    def at(x: float, y: float) -> tuple[float, float]:
        share = (x - first) / (last - first)
        return round(2 + 96 * share, 3), round(_HIGH - (y - low) / (high - low) * _HIGH, 3)

    line, best = "", None
    for point in points:
        if not point.good:
            continue
        if best is None:
            line, best = f"M{at(point.x, point.y)[0]} {at(point.x, point.y)[1]}", point.y
        elif (point.y > best) if larger_is_better else (point.y < best):
            best = point.y
            line += f"H{at(point.x, best)[0]}V{at(point.x, best)[1]}"
    if line:
        line += "H98"
    dots = "".join(_dot(*at(point.x, point.y), point) for point in points)
    grid = "".join(f'<path class="grid" d="M0 {y}H100"/>' for y in (0, 50, 100))
    best_line = f'<path class="best" d="{line}"/>' if line else ""
    about = 'role="img" aria-label="The best value so far, by trial"'
    svg = _svg("curve", f"0 0 100 {_HIGH:g}", about, f"{grid}{best_line}{dots}")
    return BestSoFarCurve(svg, low, high, first, last)


def lane(bars: Sequence[TimelineBar], whole: float) -> str:
    """One machine's work over time."""
    parts = []
    for bar in bars:
        x, width = 1000 * bar.start / whole, max(1000 * (bar.end - bar.start) / whole, 1.0)
        title = f"<title>{escape(bar.title)}</title>"
        parts.append(
            f'<rect class="g{bar.group % 6}" x="{x:.2f}" y="0" width="{width:.2f}" height="10">{title}</rect>'
        )
    return _svg("lane", "0 0 1000 10", 'aria-hidden="true"', "".join(parts))


def meter(share: float, over: bool = False) -> str:
    """How much of something is used; a bar that never grows beyond its frame."""
    width = min(max(share, 0.0), 1.0) * 100
    kind = "meter over" if over else "meter"
    used = f'<rect class="used" width="{width:.2f}%" height="100%"/>'
    return f'<svg class="{kind}" aria-hidden="true">{used}</svg>'


def columns(values: Sequence[tuple[str, float]], limit: float | None = None) -> str:
    """One column for each value, the tallest as high as the frame; a line for the limit."""
    most = max([value for _, value in values] + ([limit] if limit else []), default=0.0) or 1.0
    wide = 100 / max(len(values), 1)
    parts = []
    for place, (title, value) in enumerate(values):
        tall = _HIGH * value / most
        x, room = (place + 0.12) * wide, wide * 0.76
        shape = f'x="{x:.2f}" y="{_HIGH - tall:.2f}" width="{room:.2f}" height="{tall:.2f}"'
        parts.append(f'<rect class="column" {shape}><title>{escape(title)}</title></rect>')
    if limit:
        y = _HIGH - _HIGH * limit / most
        parts.append(f'<path class="limit" d="M0 {y:.2f}H100"/>')
    return _svg("columns", "0 0 100 100", 'role="img" aria-label="Money per day"', "".join(parts))


def _svg(kind: str, box: str, about: str, shapes: str) -> str:
    return f'<svg class="{kind}" viewBox="{box}" preserveAspectRatio="none" {about}>{shapes}</svg>'


def _dot(x: float, y: float, point: CurvePoint) -> str:
    """A line without length and round ends: a dot that stays round however the drawing is stretched."""
    kind = "dot" if point.good else "dot poor"
    return f'<path class="{kind}" d="M{x} {y}h.001"><title>{escape(point.title)}</title></path>'


def _room(values: Sequence[float]) -> tuple[float, float]:
    """A range with some air; a few runaways must not flatten the rest."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    if high <= low:
        air = abs(low) * 0.1 or 1.0
        return low - air, high + air
    air = (high - low) * 0.08
    return (0.0 if low >= 0 and low - air < 0 else low - air), high + air
