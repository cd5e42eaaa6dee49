"""Rented machines: `prudent clusters` lists and ends them; other commands first end what is left over."""

from __future__ import annotations

import fnmatch
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prudent.cli.console import complain, out, say, say_json
from prudent.cli.options import AsJson, HomeFolder, command_group
from prudent.cloud.price_lists import price_age_note
from prudent.core.errors import PrudentError
from prudent.core.money import Price
from prudent.core.units import format_duration, format_money

if TYPE_CHECKING:
    from rich.table import Table

    from prudent.cloud.leases.reaper import ReaperReport
    from prudent.cloud.leases.register import LeaseRegister
    from prudent.cloud.leases.status import ClusterStatus
    from prudent.cloud.providers.provider import Provider

clusters = command_group("Show the machines that are rented now, or end those that nobody needs any more.")
Where = Annotated[
    list[str] | None,
    typer.Option(help="Also look at this place: hosts:INVENTORY.yaml or ec2:CONFIG.yaml; may be repeated."),
]


@clusters.command("list")
def list_(where: Where = None, home: HomeFolder = None, as_json: AsJson = False) -> None:
    """Show every cluster: its machines, age, cost so far, lease and run."""
    from prudent.cloud.leases.reaper import known_providers
    from prudent.cloud.leases.status import cluster_statuses

    register = _register(home)
    now_s = time.time()
    providers, complaints = known_providers(register, now_s, _also(where, register.home))
    found, more = cluster_statuses(register, providers, now_s)
    if as_json:
        say_json([one.to_dict(now_s) for one in found])
    elif found:
        say(out(), table(found, now_s))
    else:
        say(out(), "No machines are rented.")
    _finish((*complaints, *more))


@clusters.command()
def reap(
    where: Where = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which machines would be ended, and end none.")
    ] = False,
    home: HomeFolder = None,
    as_json: AsJson = False,
) -> None:
    """End machines whose lease is over, whose run has ended, or that have no record."""
    from prudent.cloud.leases.reaper import reap_all

    register = _register(home)
    done = reap_all(register, time.time(), _also(where, register.home), dry_run=dry_run)
    if as_json:
        say_json(reaped_document(done))
    else:
        say(out(), *reaped_lines(done, dry_run))
    _finish(done.complaints)


def reaped_document(done: ReaperReport) -> dict[str, Any]:
    """What a round did, as plain values."""
    return {
        "ended": [
            {
                "id": one.instance.id,
                "cluster": one.instance.cluster,
                "run": one.instance.run,
                "place": one.instance.provider,
                "type": one.instance.type,
                "why": one.why,
                "cost_usd": one.cost_usd,
            }
            for one in done.ended
        ],
        "released": [lease.cluster for lease in done.released],
        "complaints": list(done.complaints),
    }


def reaped_lines(done: ReaperReport, dry_run: bool) -> list[str]:
    """What a round did, a line per machine."""
    verb = "would be ended" if dry_run else "ended"
    said = [
        f"{one.instance.id} ({one.instance.type} at {one.instance.provider}, run {one.instance.run}) {verb}: "
        f"{one.why}; it has cost {format_money(one.cost_usd)}"
        for one in done.ended
    ]
    ended = {one.instance.cluster for one in done.ended}
    without = [lease.cluster for lease in done.released if lease.cluster not in ended]
    if without:
        said.append(f"No machine is left of {', '.join(without)}.")
    return said or ["Nothing to end."]


def table(found: Sequence[ClusterStatus], now_s: float) -> Table:
    """The clusters, the oldest first; a caption with what they cost together."""
    from rich import box
    from rich.table import Table

    spent_usd, usd_per_h = sum(one.cost_usd for one in found), sum(one.usd_per_h for one in found)
    shown = Table(
        box=box.SIMPLE,
        pad_edge=False,
        padding=(0, 0, 0, 1),
        caption=f"{format_money(spent_usd)} so far, {format_money(usd_per_h)} per hour",
        caption_justify="left",
    )
    for heading in ("Cluster", "Machines", "Place"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("Age", "Cost"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for heading in ("Lease", "Run"):
        shown.add_column(heading)
    for one in found:
        age, cost = format_duration(max(now_s - one.since_s, 0.0)), format_money(one.cost_usd)
        shown.add_row(one.cluster, _machines(one), one.place, age, cost, _lease(one, now_s), _run(one))
    return shown


def _machines(one: ClusterStatus) -> str:
    return one.text if len(one.machines) == one.count else f"{one.text} ({len(one.machines)} there)"


def _lease(one: ClusterStatus, now_s: float) -> str:
    left_s = one.lease_end_s - now_s
    ends = f"{format_duration(left_s)} left" if left_s > 0 else f"over for {format_duration(-left_s)}"
    return ends if one.state == "up" else f"{one.state}, {ends}"


def _run(one: ClusterStatus) -> str:
    return f"{one.run} (gone)" if one.held is False else one.run


def _register(home: Path | None) -> LeaseRegister:
    from prudent.cloud.leases.register import LeaseRegister

    return LeaseRegister(home)


def _also(where: Sequence[str] | None, home: Path) -> list[Provider]:
    from prudent.cloud.providers.registry import provider_of

    found = []
    for text in where or ():
        name, _, setting = text.partition(":")
        found.append(provider_of({name.strip(): setting.strip() or None}, home, Path.cwd()))
    return found


def _finish(complaints: Sequence[str]) -> None:
    """What could not be looked at or ended makes the command fail, after all the rest was done."""
    for sentence in complaints:
        complain(sentence)
    if complaints:
        raise typer.Exit(1)


PERIOD_S = 300.0
"""How often a service looks for machines that nobody needs any more."""


def reap_leftovers(home: Path | None = None) -> None:
    """One round of the reaper at every place with leases in a home, told in a line each way.

    It is done in passing, so it never fails the command that it precedes: trouble is a warning.
    """
    from prudent.cloud.leases.reaper import reap_all
    from prudent.cloud.leases.register import LeaseRegister

    try:
        done = reap_all(LeaseRegister(home), time.time())
    except (PrudentError, OSError) as error:
        complain(f"leftover machines could not be looked for: {error}")
        return
    if done.ended:
        count = len(done.ended)
        names = ", ".join(sorted({one.instance.run for one in done.ended}))
        spent_usd = sum(one.cost_usd for one in done.ended)
        left = f"{count} machine{'s' if count > 1 else ''} of an earlier run ({names})"
        complain(f"ended {left}, which cost {format_money(spent_usd)}.")
    if done.complaints:
        more = f" (and {len(done.complaints) - 1} more)" if len(done.complaints) > 1 else ""
        complain(f"{done.complaints[0].rstrip('.')}{more}; see: prudent clusters reap.")


@contextmanager
def reaping(
    home: Path | None = None, period_s: float = PERIOD_S, also: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Reap now and every `period_s` while the body runs, beside it: what runs long starts nothing anew.

    `also` is done in each round: a service has leases elsewhere, too.
    """
    over = threading.Event()

    def work() -> None:
        while True:
            reap_leftovers(home)
            also()
            if over.wait(period_s):
                return

    thread = threading.Thread(target=work, name="prudent-reaper", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


EC2 = "ec2"


def tell_age(prices: Iterable[Price]) -> None:
    """One sentence on stderr if some of these prices may have changed."""
    note = price_age_note(prices)
    if note is not None:
        complain(note)


def prices_at(where: str | None, types: Iterable[str]) -> list[Price]:
    """The on-demand prices of machine types (or patterns) on EC2; none for other places."""
    if where is None or not where.startswith(f"{EC2}:"):
        return []
    from prudent.cloud.catalog import Catalog
    from prudent.cloud.providers.ec2.settings import Ec2Settings

    settings = Ec2Settings.read(Path(where.removeprefix(f"{EC2}:")))
    wanted = list(types)
    return [
        machine.price
        for machine in Catalog.load(settings.prices, settings.region)
        if any(fnmatch.fnmatchcase(machine.name, pattern) for pattern in wanted)
    ]
