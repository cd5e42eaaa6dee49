"""Price lists as CSV files: read strictly (an error names line and column), and where fetched ones lie.

Fetched lists are in the folder of Prudent, one file for each region and day:

prices/aws-eu-west-1-2026-11-17.csv         on demand, in the columns of a price list
prices/aws-eu-west-1-spot-2026-11-17.csv    what spot machines cost, and when
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from prudent.cloud.home_folder import default_home
from prudent.core.errors import BadInput, unknown
from prudent.core.files import write_whole
from prudent.core.money import Price

REQUIRED = ("name", "price_usd_per_h")
OPTIONAL = (
    "vcpus", "memory_gb", "family", "gpus", "gpu", "date", "region", "speed", "mips", "minimum_s",
)  # fmt: skip


@dataclass(frozen=True)
class PriceRow:
    """One line of a price list; None where the cell is empty or the column is missing."""

    name: str
    price_usd_per_h: float
    vcpus: int | None = None
    memory_gb: float | None = None
    family: str | None = None
    gpus: int | None = None
    gpu: str | None = None
    date: str | None = None
    region: str | None = None
    speed: float | None = None
    mips: float | None = None
    minimum_s: float | None = None


def read_price_table(path: Path) -> list[PriceRow]:
    """Every row of the file at `path`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not a text file in UTF-8: save the price list as CSV.") from error
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise BadInput(f"The price list {path} cannot be read ({why}): check the path.") from error
    return parse_price_table(text.splitlines(), path.name)


def parse_price_table(lines: Iterable[str], source: str) -> list[PriceRow]:
    """The rows of a CSV text; `source` is what error messages call it."""
    reader = csv.reader(lines, strict=True)
    rows: list[PriceRow] = []
    seen: dict[str, int] = {}
    try:
        header = _header(reader, source)
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            line = _PriceLine(source, reader.line_num, header, cells)
            row = _row(line)
            if row.name in seen:
                raise line.error("name", f"stands on line {seen[row.name]} already; keep one of the two")
            seen[row.name] = reader.line_num
            rows.append(row)
    except csv.Error as error:
        raise BadInput(f"{source}, line {reader.line_num}: not CSV ({error}); check the quotes.") from error
    return rows


def _header(reader: Iterator[list[str]], source: str) -> list[str]:
    header = [cell.strip() for cell in next(reader, [])]
    if not header:
        raise BadInput(f"{source} is empty: the first line must name the columns {', '.join(REQUIRED)}.")
    for column in REQUIRED:
        if column not in header:
            raise BadInput(f"{source}, line 1: the column {column} is missing; add it.")
    for column in header:
        if column not in REQUIRED + OPTIONAL:
            raise BadInput(f"{source}, line 1: {unknown('column', column, REQUIRED + OPTIONAL)}")
        if header.count(column) > 1:
            raise BadInput(f"{source}, line 1: the column {column} is given twice; keep one of the two.")
    return header


class _PriceLine:
    """The cells of one line by column name, and the errors that point at them."""

    def __init__(self, source: str, number: int, header: list[str], cells: list[str]) -> None:
        self._where = f"{source}, line {number}"
        if len(cells) != len(header):
            raise BadInput(
                f"{self._where}: {len(cells)} cells under {len(header)} columns; give each column one cell."
            )
        self._cells = {column: cell.strip() for column, cell in zip(header, cells, strict=True)}

    def error(self, column: str, why: str) -> BadInput:
        return BadInput(f'{self._where}, column {column}: "{self._cells.get(column, "")}" {why}.')

    def text(self, column: str) -> str | None:
        return self._cells.get(column) or None

    def number(self, column: str, at_least: float = 0.0, above: bool = False) -> float | None:
        """The cell as a finite number, at least (or strictly above) a bound; None if it is empty."""
        cell = self.text(column)
        if cell is None:
            return None
        try:
            value = float(cell)
        except ValueError:
            raise self.error(column, "is not a number; write it like 0.096") from None
        if not math.isfinite(value):
            raise self.error(column, "is not a finite number; write it like 0.096")
        if value < at_least or (above and value == at_least):
            raise self.error(
                column, f"is too small; give a number {'above' if above else 'from'} {at_least:g}"
            )
        return value

    def whole(self, column: str, at_least: int) -> int | None:
        value = self.number(column, at_least)
        if value is not None and value != int(value):
            raise self.error(column, "is not a whole number; write it like 4")
        return None if value is None else int(value)

    def iso_date(self, column: str) -> str | None:
        cell = self.text(column)
        if cell is not None:
            try:
                date.fromisoformat(cell)
            except ValueError:
                raise self.error(column, "is not a date; write it like 2025-01-31") from None
        return cell


def _row(line: _PriceLine) -> PriceRow:
    name = line.text("name")
    if name is None or "*" in name or "," in name or len(name.split()) != 1:
        raise line.error("name", "is not a machine name; give one word without * and comma")
    price = line.number("price_usd_per_h")
    if price is None:
        raise line.error("price_usd_per_h", "is missing; give dollars per hour, 0 or more")
    return PriceRow(
        name=name,
        price_usd_per_h=price,
        vcpus=line.whole("vcpus", 1),
        memory_gb=line.number("memory_gb"),
        family=line.text("family"),
        gpus=line.whole("gpus", 0),
        gpu=line.text("gpu"),
        date=line.iso_date("date"),
        region=line.text("region"),
        speed=line.number("speed", above=True),
        mips=line.number("mips", above=True),
        minimum_s=line.number("minimum_s"),
    )


OLD_DAYS = 60
"""A price that is older than this is told at launch."""
_NAME = re.compile(r"aws-(?P<region>[a-z0-9-]+?)-(?P<date>\d{4}-\d{2}-\d{2})\.csv")


def price_list_folder(home: Path | None = None) -> Path:
    return (home or default_home()) / "prices"


def latest_price_list(region: str | None = None) -> Path | None:
    """The newest list of on-demand prices: of one region, or of any; None where none was fetched."""
    try:
        names = sorted(path.name for path in price_list_folder().iterdir())
    except OSError:
        return None
    found = [(match["date"], name) for name in names if (match := _NAME.fullmatch(name)) is not None
             and not match["region"].endswith("-spot") and region in (None, match["region"])]  # fmt: skip
    return price_list_folder() / max(found)[1] if found else None


def write_price_list(
    name: str, columns: Sequence[str], rows: Iterable[Sequence[object]], home: Path | None
) -> Path:
    """Write a list whole or not at all; one of the same name is replaced."""
    path, text = price_list_folder(home) / name, io.StringIO()
    table = csv.writer(text)
    table.writerow(columns)
    table.writerows(rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, text.getvalue())
    except OSError as error:
        raise BadInput(
            f"Cannot write the price list {path} ({error.strerror}); name another folder with PRUDENT_HOME."
        ) from error
    return path


def today() -> date:
    return datetime.now(UTC).date()


def price_age_note(prices: Iterable[Price], at: date | None = None) -> str | None:
    """What to tell before machines are rented at prices that may have changed; None if all are young.

    >>> price_age_note([Price(0.096, "2025-01-01", "catalog aws us-east-1")], date(2025, 4, 1))
    'Prices of 2025-01-01 (catalog aws us-east-1) are 90 days old; "prudent prices update" reads newer ones.'
    >>> price_age_note([Price(0.096, "2025-03-01", "catalog aws us-east-1")], date(2025, 4, 1))
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
