"""`prudent prices`: what machines cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cloud.catalog import Catalog, Machine
from prudent.core.errors import BadInput, unknown

if TYPE_CHECKING:
    from rich.table import Table

_ORDERS: dict[str, Callable[[Machine], Any]] = {
    "family": lambda machine: (machine.family, machine.vcpus, machine.price.usd_per_h, machine.name),
    "price": lambda machine: (machine.price.usd_per_h, machine.name),
    "vcpus": lambda machine: (machine.vcpus, machine.price.usd_per_h, machine.name),
}


def prices(
    family: Annotated[str | None, typer.Option(help="Only this family, such as m5.")] = None,
    catalog: Annotated[
        Path | None,
        typer.Option(help="A price list of your own (CSV); it overrides or extends the bundled one."),
    ] = None,
    min_vcpus: Annotated[int, typer.Option(help="Only machines with at least this many vCPUs.")] = 1,
    sort: Annotated[str, typer.Option(help="Order by family, price or vcpus.")] = "family",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show what machines cost per hour, with the date and region of each price."""
    chosen = select(Catalog.load(catalog), family, min_vcpus, sort)
    if as_json:
        typer.echo(json.dumps([describe(machine) for machine in chosen], indent=2))
        return
    from rich.console import Console

    Console().print(table(chosen))


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
