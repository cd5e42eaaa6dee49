"""A comparison of strategies in a few lines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from prudent.cli.display.tables import fact, headed_table, short_path
from prudent.core.units import format_money
from prudent.reports.formatting import amount, sentence, share

if TYPE_CHECKING:
    from rich.console import RenderableType

    from prudent.tuning.comparison import Comparison

_LABEL = 10


def comparison_lines(comparison: Comparison, report: Path | None) -> Iterator[RenderableType]:
    """The optimum, and a row for each strategy in the order in which they were named."""
    optimum, measure = comparison.optimum, comparison.goal.measure
    yield Text.assemble((comparison.job, "bold"), f"  {comparison.goal}")
    yield ""
    told = f"{measure} {amount(measure, optimum.value)} with {sentence(optimum.configuration)}"
    yield fact("Optimum", told, _LABEL)
    ratio = f", {comparison.budget_usd / optimum.average_usd:.3g} average runs" if optimum.average_usd else ""
    rule = "runs are cut early" if comparison.early_stop else "runs in full"
    yield fact("Budget", f"{format_money(comparison.budget_usd)}{ratio}; {rule}", _LABEL)
    yield ""
    name = comparison.distance_name
    headings = ("answered", "optimum", f"{name} mean", "50 %", "90 %", "runs", "spent")
    table = headed_table("Strategies", *headings)
    best = min(comparison.scores, key=lambda score: (score.p50, score.p90, score.mean))
    for score in comparison.scores:
        distances = (_distance(comparison, value) for value in (score.mean, score.p50, score.p90))
        cells = [
            score.strategy,
            share(score.answered),
            share(score.found),
            *distances,
            f"{score.runs:.1f}",
            format_money(score.spent_usd),
        ]
        style = "bold green" if score == best else ""
        table.add_row(*(Text(cell, style=style) for cell in cells))
    yield table
    for score in comparison.scores:
        if score.broken:
            yield Text(f"{score.strategy}: {share(score.broken)} of its answers break the goal.", "yellow")
    if report is not None:
        yield ""
        yield fact("Report", short_path(report), _LABEL, "dim")


def _distance(comparison: Comparison, distance: float) -> str:
    if not math.isfinite(distance):
        return "none"
    return f"{distance:.3f}" if comparison.optimum.has_cno else amount(comparison.goal.measure, distance)
