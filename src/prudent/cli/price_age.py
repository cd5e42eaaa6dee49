"""Said before machines are rented: how old the prices are by which they are billed."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from pathlib import Path

from prudent.cli.console import complain
from prudent.cloud.price_files import age_note
from prudent.core.money import Price

EC2 = "ec2"


def tell_age(prices: Iterable[Price]) -> None:
    """One sentence on stderr if some of these prices may have changed."""
    note = age_note(prices)
    if note is not None:
        complain(note)


def prices_at(where: str | None, types: Iterable[str]) -> list[Price]:
    """The on-demand prices of machine types (or patterns) on EC2; none for other places."""
    if where is None or not where.startswith(f"{EC2}:"):
        return []
    from prudent.cloud.catalog import Catalog
    from prudent.cloud.providers.ec2_settings import Ec2Settings

    settings = Ec2Settings.read(Path(where.removeprefix(f"{EC2}:")))
    wanted = list(types)
    return [
        machine.price
        for machine in Catalog.load(settings.prices, settings.region)
        if any(fnmatch.fnmatchcase(machine.name, pattern) for pattern in wanted)
    ]
