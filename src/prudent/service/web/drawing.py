"""Figures of the pages as SVG: shapes only, stretched to the room there is; words stay in the page.

Text inside a drawing that shrinks with the window cannot be read on a telephone: labels are the page's own.
No styles are written here: the page's style sheet gives the colours, for light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_HIGH = 100.0


@dataclass(frozen=True)
class Point:
    """A trial in a curve; `good` ones count for the best line."""

    x: float
    y: float
    title: str
    good: bool = True


@dataclass(frozen=True)
class Curve:
    """The best value so far, with every trial as a dot."""

    svg: str
    low: float
    high: float
    first: float
    last: float


@dataclass(frozen=True)
class Bar:
    """A piece of a lane, from `start` to `end`."""

    start: float
    end: float
    title: str
    group: int = 0


def curve(points: Sequence[Point], larger_is_better: bool) -> Curve | None:
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
    return Curve(svg, low, high, first, last)


def lane(bars: Sequence[Bar], whole: float) -> str:
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


def _dot(x: float, y: float, point: Point) -> str:
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
