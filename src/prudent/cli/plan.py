"""`prudent tune --dry-run`: what a study would do, in a few lines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from prudent.cli.console import configuration_text
from prudent.core.units import format_duration, format_money
from prudent.tuning.dry_run import DryRun

if TYPE_CHECKING:
    from rich.console import RenderableType


def plan(name: str, dry: DryRun) -> Iterator[RenderableType]:
    """The lines of a dry run."""
    yield Text.assemble((name, "bold"), "  ", (dry.goal, "dim"))
    yield ""
    yield _parameters(dry)
    yield ""
    yield _prices(dry)
    if dry.first:
        yield ""
        yield _first(dry)
    for warning in dry.warnings:
        yield ""
        yield Text.assemble(("! ", "bold yellow"), (warning, "yellow"))
    yield ""
    yield Text("Nothing was run. Leave out --dry-run to begin.", style="dim")


def _parameters(dry: DryRun) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    size = "too many to count" if dry.size is None else f"{dry.size:,}"
    table.add_row(Text("Configurations", style="bold"), Text(size))
    for line in dry.parameters:
        parameter, _, values = line.partition(": ")
        table.add_row(Text(f"  {parameter}", style="dim"), Text(values))
    return table


def _prices(dry: DryRun) -> Table:
    """Prices, and what the budget buys at each."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Prices (of a sample)" if dry.sampled else "Prices", header_style="bold", no_wrap=True)
    table.add_column("$/h", justify="right", no_wrap=True)
    if dry.budget_usd is not None:
        table.add_column(f"{format_money(dry.budget_usd)} buys", justify="right", no_wrap=True)
    bounded = math.isfinite(dry.bound_s) and dry.budget_usd is not None
    if bounded:
        table.add_column(f"runs of {format_duration(dry.bound_s)}", justify="right", no_wrap=True)
    table.add_column("configuration", overflow="ellipsis", no_wrap=True, style="dim")
    for point in dry.prices:
        cells = [f"  {point.which}", f"{point.usd_per_h:.4g}"]
        if dry.budget_usd is not None:
            cells.append(_hours(point.hours))
        if bounded:
            cells.append(f"{point.runs:,.1f}" if math.isfinite(point.runs) else "any number")
        table.add_row(*cells, Text(configuration_text(point.configuration)))
    return table


def _first(dry: DryRun) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="ellipsis", no_wrap=True)
    table.add_row(
        Text("First trials", style="bold"), Text("$/h", style="dim"), Text(dry.strategy, style="dim")
    )
    for place, (configuration, usd_per_h) in enumerate(dry.first, start=1):
        table.add_row(Text(f"  {place}", style="dim"), f"{usd_per_h:.4g}", configuration_text(configuration))
    return table


def _hours(hours: float) -> str:
    return format_duration(hours * 3600.0) if math.isfinite(hours) else "for ever"
