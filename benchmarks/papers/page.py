"""The page of a repeated experiment: headlines with both values, tables and figures in the paper's form."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPRODUCED, BETTER, NOT = "reproduced", "better", "not reproduced"
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Headline:
    """A claim of a paper, its value there and here, and what that means."""

    claim: str
    paper: str
    ours: str
    verdict: str
    why: str = ""


@dataclass(frozen=True)
class Table:
    """A table in the paper's form."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """A figure in the paper's form: lines by name."""

    name: str
    title: str
    x: str
    y: str
    series: Mapping[str, Points]
    log: bool = False


@dataclass(frozen=True)
class PaperPage:
    """What a command writes."""

    name: str
    title: str
    about: str
    headlines: Sequence[Headline]
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = field(default_factory=tuple)


def number(value: float, digits: int = 3) -> str:
    """A number, or none where there is nothing to average."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "none"


def write(page: PaperPage, folder: Path) -> Path:
    """`NAME.md`, `NAME.html` with interactive figures, and an SVG for each figure."""
    folder.mkdir(parents=True, exist_ok=True)
    for chart in page.charts:
        (folder / f"{page.name}-{chart.name}.svg").write_text(svg(chart), encoding="utf-8")
    (folder / f"{page.name}.md").write_text(markdown(page), encoding="utf-8")
    target = folder / f"{page.name}.html"
    target.write_text(web_page(page), encoding="utf-8")
    return target


def all_tables(page: PaperPage) -> list[Table]:
    rows = [[each.claim, each.paper, each.ours, each.verdict, each.why] for each in page.headlines]
    return [Table("Headlines", ("claim", "paper", "here", "verdict", "why"), rows), *page.tables]


def markdown(page: PaperPage) -> str:
    parts = [f"# {page.title}", page.about]
    for table in all_tables(page):
        head = [
            f"## {table.title}",
            "",
            f"| {' | '.join(table.columns)} |",
            f"|{'---|' * len(table.columns)}",
        ]
        parts.append("\n".join([*head, *(f"| {' | '.join(row)} |" for row in table.rows)]))
    parts += [f"![{chart.title}]({page.name}-{chart.name}.svg)" for chart in page.charts]
    return "\n\n".join(parts) + "\n"


def web_page(page: PaperPage) -> str:
    import plotly.graph_objects as graph

    parts = [f"<h1>{html.escape(page.title)}</h1><p>{html.escape(page.about)}</p>"]
    for table in all_tables(page):
        head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows
        )
        parts.append(f"<h2>{html.escape(table.title)}</h2><table><tr>{head}</tr>{body}</table>")
    for place, chart in enumerate(page.charts):
        figure = graph.Figure(
            [
                graph.Scatter(x=[x for x, _ in line], y=[y for _, y in line], name=name)
                for name, line in chart.series.items()
            ]
        )
        figure.update_layout(title=chart.title, xaxis_title=chart.x, yaxis_title=chart.y)
        figure.update_yaxes(type="log" if chart.log else "linear")
        parts.append(figure.to_html(full_html=False, include_plotlyjs=place == 0))
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2rem .6rem;text-align:left}"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(page.title)}</title>'
        f"<style>{style}</style><body>{''.join(parts)}</body></html>\n"
    )


WIDE, HIGH, LEFT, RIGHT, TOP, FOOT = 720, 420, 70, 200, 40, 50
COLOURS = ("#0072b2", "#c45500", "#00875f", "#b0568c", "#8a6d00", "#3a8fc4", "#7355a8", "#8c564b", "#5f6b76")


def svg(chart: Chart) -> str:
    """The figure as a small drawing for documents."""
    scale = math.log10 if chart.log else float
    told = {
        name: [(x, scale(y)) for x, y in line if math.isfinite(y) and (y > 0 or not chart.log)]
        for name, line in chart.series.items()
    }
    xs = [x for line in told.values() for x, _ in line] or [0.0, 1.0]
    ys = [y for line in told.values() for _, y in line] or [0.0, 1.0]
    x0, x1 = min(xs), max(*xs, min(xs) + 1e-9)
    y0, y1 = (min(ys) if chart.log else min(0.0, *ys)), max(*ys, min(ys) + 1e-9)

    def at(x: float, y: float) -> str:
        across = LEFT + (x - x0) / (x1 - x0) * (WIDE - LEFT - RIGHT)
        return f"{across:.1f},{HIGH - FOOT - (y - y0) / (y1 - y0) * (HIGH - TOP - FOOT):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{LEFT}" y="22" font-size="14">{html.escape(chart.title)}</text>'
        f'<text x="{LEFT}" y="{HIGH - 10}">{html.escape(chart.x)}</text>'
        f'<text x="12" y="{TOP}" transform="rotate(-90 12,{TOP})" text-anchor="end">'
        f"{html.escape(chart.y)}</text>"
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y, x = y0 + share * (y1 - y0), x0 + share * (x1 - x0)
        left, right = at(x0, y).split(","), at(x1, y).split(",")
        parts.append(
            f'<line x1="{left[0]}" x2="{right[0]}" y1="{left[1]}" y2="{left[1]}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{float(left[1]) + 4:.1f}" text-anchor="end">'
            f"{10**y if chart.log else y:.3g}</text>"
            f'<text x="{at(x, y0).split(",")[0]}" y="{HIGH - FOOT + 16}" text-anchor="middle">{x:.3g}</text>'
        )
    for place, (name, line) in enumerate(told.items()):
        colour, down = COLOURS[place % len(COLOURS)], TOP + 18 * place
        dots = " ".join(at(x, y) for x, y in line)
        parts.append(
            f'<polyline points="{dots}" fill="none" stroke="{colour}" stroke-width="2"/>'
            f'<rect x="{WIDE - RIGHT + 12}" y="{down}" width="12" height="4" fill="{colour}"/>'
            f'<text x="{WIDE - RIGHT + 30}" y="{down + 6}">{html.escape(name)}</text>'
        )
    return "".join([*parts, "</svg>\n"])
