"""The skeleton of every report: one HTML file with its own style and scripts, which loads nothing.

A report outlives the machine that made it, so it must open years later without a network. The page forbids
itself by its Content-Security-Policy to load anything or to run a script other than the ones written here:
what users wrote (names, values, error messages) stays text, even if an escape were forgotten.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.core.errors import BadInput
from prudent.reports import formatting

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, figures: Sequence[Figure], **content: Any) -> str:
    """The whole page of a template that extends `page.html.j2`; `figures` are those it places.

    Without a figure Plotly is left out, and the page is a few kilobytes instead of five megabytes.
    """
    library = plotly() if figures else ""
    scripts = [_read("figures.js"), _read("page.js")] if figures else [_read("page.js")]
    policy = _policy([library, *scripts] if figures else scripts)
    return (
        _environment()
        .get_template(template)
        .render(style=_read("page.css"), plotly=library, scripts=scripts, policy=policy, **content)
    )


_PLOTLY = '<script id="plotly"'


def without_plotly(page: str, address: str) -> str:
    """A page that loads Plotly from `address` on its own server: who keeps many reports keeps Plotly once."""
    before, found, rest = page.partition(f"{_PLOTLY}>")
    if not found:
        return page
    allowed = before.replace("script-src ", "script-src 'self' ", 1)
    return f'{allowed}{_PLOTLY} src="{address}">{rest[rest.index("</script>") :]}'


def with_plotly(page: str) -> str:
    """The page as one file again, which loads nothing."""
    before, found, rest = page.partition(f"{_PLOTLY} src=")
    if not found:
        return page
    # The bundle may be newer than the one that the page was made with.
    policy = f"script-src 'sha256-{_digest(plotly())}'"
    allowed = re.sub(r"script-src 'self' 'sha256-[^']+'", policy, before, count=1)
    return f"{allowed}{_PLOTLY}>{plotly()}{rest[rest.index('</script>') :]}"


def write(html: str, path: Path) -> Path:
    """Write a page whole or not at all; answers where it is."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            part.write_text(html, encoding="utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(
            f'Cannot write the report "{path}" ({error.strerror}); choose a folder that you may write to, '
            "with some megabytes free."
        ) from error
    return path


@cache
def plotly() -> str:
    """Plotly's own offline bundle, as the installed package brings it."""
    from plotly.offline import get_plotlyjs

    # A closing tag inside a string of the bundle would end the script.
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def plotly_file() -> Path:
    """The bundle as a file, for a server."""
    from importlib.resources import files

    return Path(str(files("plotly"))) / "package_data" / "plotly.min.js"


def data(values: Mapping[str, Any] | Sequence[Any]) -> str:
    """JSON that can stand inside a script element: no character of it can end the element.

    >>> data({"name": "</script>"})
    '{"name": "\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(values, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(scripts: Sequence[str]) -> str:
    """Nothing may be loaded, and only these very scripts may run."""
    sources = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data: blob:; "
        "font-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "amount": lambda number, measure: formatting.amount(measure, number),
        "label": formatting.label,
        "value": formatting.value,
        "share": formatting.share,
        "times": formatting.times,
        "data": lambda values: Markup(data(values)),
        "ours": Markup,
    }
    return environment


@cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


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
        from prudent.reports.page import data

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


def steps(name: str, points: Sequence[tuple[float, float]], colour: str, dash: str = "solid") -> Trace:
    """A line that keeps its height until the next point."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(name),
        "x": [x for x, _ in points],
        "y": [y for _, y in points],
        "line": {"shape": "hv", "color": colour, "width": 2.5, "dash": dash},
        "hoverinfo": "skip",
    }


def band(x: Sequence[Any], low: Sequence[float], high: Sequence[float], colour: str) -> list[Trace]:
    """A shaded area between two curves, without a place in the legend."""
    quiet: Trace = {
        "type": "scatter",
        "mode": "lines",
        "hoverinfo": "skip",
        "showlegend": False,
        "x": list(x),
    }
    edge = {"width": 0, "color": colour}
    return [
        {**quiet, "y": list(low), "line": edge},
        {**quiet, "y": list(high), "line": edge, "fill": "tonexty", "fillcolor": colour},
    ]


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
    ticks = [tick for tick in _even_ticks(low - room, high + room) if tick >= 0 or low < 0]
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
        ticks = _even_ticks(10 ** ends[0], 10 ** ends[1])
    return {
        "range": ends,
        "tickvals": ticks,
        "ticktext": [formatting.amount(measure, tick) for tick in ticks],
    }


def _even_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers between two ends.

    >>> _even_ticks(0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> _even_ticks(0.011, 0.012)
    [0.011, 0.0112, 0.0114, 0.0116, 0.0118, 0.012]
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((digit * power for digit in (1, 2, 5, 10)), key=lambda step: abs(step - rough))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(rank * step, 12 - math.floor(math.log10(step))) for rank in range(first, last + 1)]
