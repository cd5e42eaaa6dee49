"""`prudent prices`: what machines cost; `prudent money`: what was spent on them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli.console import out, say, say_json
from prudent.cli.options import AsJson, HomeFolder, command_group
from prudent.cloud import price_lists
from prudent.cloud.catalog import Catalog, Machine
from prudent.cloud.spending import DailySpending, SpendingLog
from prudent.core.errors import BadInput, unknown
from prudent.core.units import SECONDS, format_money, parse_in

if TYPE_CHECKING:
    from rich.table import Table

_MOST_SPOT_DAYS = 90
_ORDERS: dict[str, Callable[[Machine], Any]] = {
    "family": lambda machine: (machine.family, machine.vcpus, machine.price.usd_per_h, machine.name),
    "price": lambda machine: (machine.price.usd_per_h, machine.name),
    "vcpus": lambda machine: (machine.vcpus, machine.price.usd_per_h, machine.name),
}


prices = command_group(
    "Show what machines cost per hour, with the date and region of each price.", no_args_is_help=False
)


@prices.callback(invoke_without_command=True)
def show(
    context: typer.Context,
    family: Annotated[str | None, typer.Option(help="Only this family, such as m5.")] = None,
    catalog: Annotated[
        Path | None,
        typer.Option(help="Your own price list (CSV); it overrides or extends the bundled one."),
    ] = None,
    min_vcpus: Annotated[int, typer.Option(help="Only machines with at least this many vCPUs.")] = 1,
    sort: Annotated[str, typer.Option(help="Order by family, price or vcpus.")] = "family",
    as_json: AsJson = False,
) -> None:
    """Show what machines cost per hour, with the date and region of each price."""
    if context.invoked_subcommand is not None:
        return
    chosen = select(Catalog.load(catalog), family, min_vcpus, sort)
    if as_json:
        say_json([describe(machine) for machine in chosen])
        return
    from rich.console import Console

    Console().print(table(chosen))


@prices.command()
def update(
    region: Annotated[str, typer.Option(help="The AWS region whose prices are read.")] = "us-east-1",
    spot: Annotated[
        list[str] | None,
        typer.Option(help="Also read spot prices of these types, such as m5.*; may be repeated."),
    ] = None,
    spot_days: Annotated[
        float, typer.Option(help="How many days of spot prices to read, at most 90.")
    ] = 14.0,
    profile: Annotated[str, typer.Option(help="The AWS profile to use.")] = "",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Read today's prices of a region from AWS into a dated file, which every command then uses."""
    if not 0 < spot_days <= _MOST_SPOT_DAYS:
        raise BadInput(f"AWS keeps {_MOST_SPOT_DAYS} days of spot prices: give --spot-days from 1 to that.")
    try:
        from prudent.cloud.providers.ec2.prices import COLUMNS, SPOT_COLUMNS, PriceList
    except ImportError as error:
        raise BadInput("AWS's packages are missing; `pip install prudent[aws]`.") from error

    date = price_lists.today().isoformat()
    asked = PriceList(region, profile)
    rows = asked.on_demand(date)
    types = [name for pattern in spot or [] for name in _matching([str(row[0]) for row in rows], pattern)]
    spots = asked.spot(types, spot_days) if types else []
    written = [price_lists.write_price_list(f"aws-{region}-{date}.csv", COLUMNS, rows, home)]
    if types:
        written.append(
            price_lists.write_price_list(f"aws-{region}-spot-{date}.csv", SPOT_COLUMNS, spots, home)
        )
    if as_json:
        said = {"region": region, "date": date, "types": len(rows), "spot_prices": len(spots)}
        say_json({**said, "files": [str(path) for path in written]})
        return
    typer.echo(f"{len(rows)} types of {region}, {date}: {written[0]}")
    if types:
        typer.echo(f"{len(spots)} spot prices of {spot_days:g} days: {written[1]}")


def _matching(names: Sequence[str], pattern: str) -> list[str]:
    found = fnmatch.filter(names, pattern)
    if not found:
        raise unknown("machine types", pattern, sorted({name.split(".")[0] + ".*" for name in names}))
    return found


def select(catalog: Catalog, family: str | None, min_vcpus: int, sort: str) -> list[Machine]:
    """The machines to show, in order."""
    if sort not in _ORDERS:
        raise unknown("order", sort, _ORDERS)
    chosen = [machine for machine in catalog.machines(family) if machine.vcpus >= min_vcpus]
    if not chosen:
        where = f"in the family {family}" if family else "in the catalog"
        raise BadInput(f"No machine {where} has {min_vcpus} vCPUs or more: lower --min-vcpus.")
    return sorted(chosen, key=_ORDERS[sort])


def describe(machine: Machine) -> dict[str, Any]:
    """A machine as plain values, for JSON."""
    return {
        "name": machine.name,
        "family": machine.family,
        "vcpus": machine.vcpus,
        "memory_gb": machine.memory_gb,
        "gpus": machine.gpus,
        "gpu": machine.gpu,
        "price_usd_per_h": machine.price.usd_per_h,
        "price_usd_per_vcpu_h": machine.usd_per_vcpu_h,
        "minimum_s": machine.price.minimum_s,
        "date": machine.price.date,
        "region": machine.region,
        "source": machine.price.source,
        "speed": machine.speed,
        "mips": machine.mips,
    }


def table(machines: Sequence[Machine]) -> Table:
    """The machines as a table; GPUs get a column only where there are some."""
    from rich import box
    from rich.table import Table

    gpus = any(machine.gpus for machine in machines)
    shown = Table(
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption=_caption(machines),
        caption_justify="left",
    )
    shown.add_column("Type", no_wrap=True)
    for heading in ("vCPU", "GB", "$/h", "$/vCPU-h"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for heading in (*(("GPU",) if gpus else ()), "Date", "Region"):
        shown.add_column(heading, no_wrap=True)
    for machine in machines:
        shown.add_row(*_cells(machine, gpus))
    return shown


def _cells(machine: Machine, gpus: bool) -> list[str]:
    memory = f"{machine.memory_gb:g}" if machine.memory_gb else "-"
    accelerator = f"{machine.gpus} {machine.gpu.removeprefix('NVIDIA ')}".strip() if machine.gpus else ""
    return [
        machine.name,
        str(machine.vcpus),
        memory,
        f"{machine.price.usd_per_h:.4f}",
        f"{machine.usd_per_vcpu_h:.4f}",
        *((accelerator,) if gpus else ()),
        machine.price.date or "unknown",
        machine.region or "-",
    ]


def _caption(machines: Sequence[Machine]) -> str:
    minimums = {machine.price.minimum_s for machine in machines}
    least = f"{min(minimums):g} s" if len(minimums) == 1 else "a minimum that differs by type"
    return (
        f"{len(machines)} types; dollars per hour on demand, billed by the second, {least} at least per start"
    )


def money(
    since: Annotated[
        str, typer.Option(help='The first day, such as 2026-11-01, or how far back: "7 d".')
    ] = "30 d",
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show what was spent on this computer, by day and project, beside what was expected."""
    first = first_day(since, datetime.now(UTC).date())
    found = SpendingLog(home).by_day(first)
    if as_json:
        total_usd = sum(spent.usd for spent in found)
        say_json({"since": first, "total_usd": total_usd, "days": [asdict(spent) for spent in found]})
    elif found:
        say(out(), spending_table(found, first))
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
        raise BadInput(f'"{said}" is not a day: write --since 2026-11-01, or --since "7 d".') from error


def spending_table(found: Sequence[DailySpending], first: str) -> Table:
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
