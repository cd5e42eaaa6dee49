"""CSV: separator and header seen from the first lines, rows read in blocks."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.training.data.dataset import Batch, unreadable
from prudent.training.data.formats import UnpackedStream, check_columns, check_size, is_packed, open_data

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None")
"""What stands for no value."""

_HEAD = 1 << 18
_BLOCK = 8 << 20
_SEPARATORS = ",;\t|"
_USUAL_TARGETS = ("label", "target", "class")  # nobody calls a value so


@dataclass(frozen=True)
class CsvLayout:
    """How a CSV file is laid out."""

    names: tuple[str, ...]
    separator: str
    header: bool


def layout_of(path: Path, known: Collection[str] = (), like: CsvLayout | None = None) -> CsvLayout:
    """Separator, names and whether the first line tells them.

    It does when it holds one of the `known` names (the target, say), or when it has only different texts and
    no number. `like` is the layout of an earlier part of the same data: names are then those.
    """
    rows, separator = _first_rows(path)
    if not rows:
        raise BadInput(f'"{path.name}" has no rows; give a file with data.')
    first = [cell.strip() for cell in rows[0]]
    check_columns(len(first), path.name)
    names = [name or f"column{number}" for number, name in enumerate(first, 1)]
    if like is not None:
        again = like.header and set(names) == set(like.names)  # perhaps in another order
        return CsvLayout(tuple(names) if again else like.names, separator, again)
    texts = [cell for cell in first if cell and not is_number(cell) and cell not in MISSING]
    header = any(name in known or name.lower() in _USUAL_TARGETS for name in first) or (
        len(texts) >= len([c for c in first if c]) and len(set(texts)) == len(texts) and bool(texts)
    )
    if not header:
        return CsvLayout(tuple(f"column{n}" for n in range(1, len(first) + 1)), separator, False)
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise BadInput(f'"{path.name}" has two columns called "{twice}"; give each a name of its own.')
    return CsvLayout(tuple(names), separator, True)


def csv_batches(path: Path, layout: CsvLayout, wanted: Sequence[str] | None = None) -> Iterator[Batch]:
    """The rows of a file, every value as text or missing."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    ragged: list[Any] = []

    def refuse(row: Any) -> str:
        ragged.append(row)
        return "error"

    first = 1
    try:
        reader = arrow_csv.open_csv(
            _source(path),
            read_options=arrow_csv.ReadOptions(
                column_names=list(layout.names), skip_rows_after_names=int(layout.header), block_size=_BLOCK
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=layout.separator, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(layout.names, pa.string()),
                include_columns=list(wanted) if wanted is not None else None,
                null_values=list(MISSING),
                strings_can_be_null=True,
            ),
        )
        names = reader.schema.names
        for table in reader:
            yield Batch(path, first, table.num_rows, dict(zip(names, table.columns, strict=True)), True)
            first += table.num_rows
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        if ragged:
            raise _ragged_row_error(path, layout, ragged[0]) from error
        if "Empty CSV file" in str(error):
            return  # a part without rows
        raise _read_error(path, error) from error


def _source(path: Path) -> Any:
    """What Arrow reads: the file, or what comes out of a packed one, counted."""
    import pyarrow as pa

    check_size(path.stat().st_size, path.name)
    if not is_packed(path):
        return str(path)
    return pa.PythonFile(
        UnpackedStream(pa.input_stream(str(path), compression="detect"), path.name), mode="r"
    )


def is_number(text: str) -> bool:
    """
    >>> is_number("1e-3"), is_number("x1"), is_number("1_000")
    (True, False, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _first_rows(path: Path) -> tuple[list[list[str]], str]:
    with open_data(path) as file:
        head = file.read(_HEAD)
    if len(head) == _HEAD and b"\n" not in head:
        raise _too_long(path)
    try:
        text = (
            head.decode("utf-8-sig")
            if len(head) < _HEAD
            else head[: head.rfind(b"\n") + 1].decode("utf-8-sig")
        )
    except UnicodeDecodeError as error:
        raise _read_error(path, "invalid UTF-8") from error
    if "\0" in text:
        raise unreadable(path, "CSV", "it holds binary data")
    found: list[tuple[int, list[list[str]], str]] = []
    for separator in "\t" + _SEPARATORS if path.name.endswith(".tsv") else _SEPARATORS:
        rows = [row for row in _parsed(text, separator) if row]
        widths = {len(row) for row in rows[:50]}
        alike = len(widths) == 1
        found.append(((max(widths, default=0) if alike else 1) * (2 if alike else 1), rows, separator))
    best = max(found, key=lambda each: each[0])
    if best[0] <= 2:  # one column, or rows of different lengths: the usual separator
        best = max(found, key=lambda each: len(each[1][0]) if each[1] else 0)
    if not best[1] and head.strip():  # blank lines before a long one, or a value too long for a reader
        raise BadInput(
            f'No row of "{path.name}" ends within its first {_HEAD >> 10} kB; write one row per line, or use '
            "fewer columns with shorter names."
        )
    return best[1], best[2]


def _too_long(path: Path) -> BadInput:
    return BadInput(
        f'The first line of "{path.name}" is longer than {_HEAD >> 10} kB; write one row per line, or use '
        "fewer columns with shorter names."
    )


def _parsed(text: str, separator: str) -> list[list[str]]:
    reader = csv.reader(io.StringIO(text), delimiter=separator)
    rows: list[list[str]] = []
    try:
        for row in reader:
            rows.append(row)
            if len(rows) >= 50:
                break
    except csv.Error:
        pass  # a quoted value longer than the head; what was read will do
    return rows


def _ragged_row_error(path: Path, layout: CsvLayout, row: Any) -> BadInput:
    number = row.number if row.number is not None else _line_of(path, layout)
    place = f"row {number - int(layout.header)} (line {number})" if number else "a row"
    return BadInput(
        f'{place} of "{path.name}" has {row.actual_columns} values where {row.expected_columns} are '
        "expected; add or remove values there."
    )


def _line_of(path: Path, layout: CsvLayout) -> int | None:
    """The number of the first row with another number of values than there are columns."""
    with open_data(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        for number, row in enumerate(csv.reader(text, delimiter=layout.separator), 1):
            if row and len(row) != len(layout.names):
                return number
    return None


def _read_error(path: Path, error: object) -> BadInput:
    if "UTF8" in str(error) or "UTF-8" in str(error):
        return BadInput(f'"{path.name}" is not UTF-8 text; convert it (iconv -f latin1 -t utf-8).')
    return unreadable(path, "CSV", error)
