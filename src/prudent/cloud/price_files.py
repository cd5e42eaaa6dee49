"""Price lists that the user has fetched: one file for each place and day, in the folder of Prudent.

prices/aws-eu-west-1-2026-11-17.csv         on demand, in the columns of a price list
prices/aws-eu-west-1-spot-2026-11-17.csv    what spot machines cost, and when
"""

from __future__ import annotations

import csv
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from prudent.cloud.home_folder import default_home
from prudent.core.errors import BadInput
from prudent.core.money import Price

OLD_DAYS = 60
"""A price that is older than this is told at launch."""
_NAME = re.compile(r"aws-(?P<region>[a-z0-9-]+?)-(?P<date>\d{4}-\d{2}-\d{2})\.csv")


def folder(home: Path | None = None) -> Path:
    return (home or default_home()) / "prices"


def latest(region: str | None = None, home: Path | None = None) -> Path | None:
    """The newest list of on-demand prices: of one region, or of any; None where none was fetched."""
    try:
        names = sorted(path.name for path in folder(home).iterdir())
    except OSError:
        return None
    found = [(match["date"], name) for name in names if (match := _NAME.fullmatch(name)) is not None
             and not match["region"].endswith("-spot") and region in (None, match["region"])]  # fmt: skip
    return folder(home) / max(found)[1] if found else None


def write(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]], home: Path | None) -> Path:
    """Write a list whole or not at all; one of the same name is replaced."""
    path = folder(home) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        with open(handle, "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(columns)
            table.writerows(rows)
        os.replace(fresh, path)
    except OSError as error:
        raise BadInput(
            f"Cannot write the price list {path} ({error.strerror}); name another folder with PRUDENT_HOME."
        ) from error
    return path


def today() -> date:
    return datetime.now(UTC).date()


def age_note(prices: Iterable[Price], at: date | None = None) -> str | None:
    """What to tell before machines are rented at prices that may have changed; None if all are young.

    >>> age_note([Price(0.096, "2025-01-01", "catalog aws us-east-1")], date(2025, 4, 1))
    'Prices of 2025-01-01 (catalog aws us-east-1) are 90 days old; "prudent prices update" reads newer ones.'
    >>> age_note([Price(0.096, "2025-03-01", "catalog aws us-east-1")], date(2025, 4, 1))
    """
    dated = {price.date: price.source for price in prices if price.date and price.usd_per_h > 0}
    if not dated:
        return None
    oldest = min(dated)
    days = ((at or today()) - date.fromisoformat(oldest)).days
    if days <= OLD_DAYS:
        return None
    said = f"Prices of {oldest} ({dated[oldest]}) are {days} days old"
    return f'{said}; "prudent prices update" reads newer ones.'
