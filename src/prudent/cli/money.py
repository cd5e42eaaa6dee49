"""`prudent money`: what everything on this computer has cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from prudent.cli.console import out, say, say_json
from prudent.cli.options import AsJson, HomeFolder
from prudent.cloud.spending import Spending, Spent
from prudent.core.errors import BadInput
from prudent.core.units import SECONDS, format_money, parse_in

if TYPE_CHECKING:
    from rich.table import Table


def money(
    since: Annotated[
        str, typer.Option(help='The first day, such as 2026-11-01, or how far back: "7 d".')
    ] = "30 d",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what was spent on this computer, by day and project, beside what was expected."""
    first = first_day(since, datetime.now(UTC).date())
    found = Spending(home).by_day(first)
    if as_json:
        total_usd = sum(spent.usd for spent in found)
        say_json({"since": first, "total_usd": total_usd, "days": [asdict(spent) for spent in found]})
    elif found:
        say(out(), table(found, first))
    else:
        say(out(), f"Nothing was spent since {first}.")


def first_day(said: str, today: date) -> str:
    """The day that is meant, as an ISO date.

    >>> first_day("2026-11-01", date(2026, 11, 17)), first_day("7 d", date(2026, 11, 17))
    ('2026-11-01', '2026-11-11')
    """
    try:
        return date.fromisoformat(said).isoformat()
    except ValueError:
        pass
    try:
        days = parse_in(said, SECONDS) / 86_400.0
        return (today - timedelta(days=max(round(days), 1) - 1)).isoformat()
    except (BadInput, OverflowError) as error:
        raise BadInput(f'"{said}" is no day: write --since 2026-11-01, or --since "7 d".') from error


def table(found: Sequence[Spent], first: str) -> Table:
    """A line for each day and project; a day is named once."""
    from rich import box
    from rich.table import Table

    total = format_money(sum(spent.usd for spent in found))
    shown = Table(box=box.SIMPLE, pad_edge=False, caption=f"{total} since {first}", caption_justify="left")
    for heading in ("Day", "Project", "By"):
        shown.add_column(heading, no_wrap=heading != "Project")
    for heading in ("Spent", "Expected", "Runs"):
        shown.add_column(heading, justify="right", no_wrap=True)
    day = ""
    for spent in found:
        expected = "-" if spent.forecast_usd is None else format_money(spent.forecast_usd)
        named = "" if spent.day == day else spent.day
        shown.add_row(named, spent.project, spent.kind, format_money(spent.usd), expected, str(spent.runs))
        day = spent.day
    return shown
