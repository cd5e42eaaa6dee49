"""JSON lines, Avro and Parquet: rows with named fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput
from prudent.training.data.dataset import BLOCK_CELLS, Batch, unreadable
from prudent.training.data.formats import check_columns, check_line, check_size, check_table, open_data

_ROWS = 1 << 14


def parquet_batches(path: Path, wanted: Sequence[str] | None = None) -> Iterator[Batch]:
    """The rows of a Parquet file; only the columns that are wanted are read."""
    import pyarrow as pa
    from pyarrow import parquet

    first = 1
    try:
        with parquet.ParquetFile(path) as file:
            _check_parquet(file.metadata, path)
            for table in file.iter_batches(_ROWS, columns=list(wanted) if wanted is not None else None):
                columns = dict(zip(table.schema.names, table.columns, strict=True))
                yield Batch(path, first, table.num_rows, columns)
                first += table.num_rows
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, "Parquet", error) from error


def parquet_names(path: Path) -> list[str]:
    """The columns of a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        names = list(parquet.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, "Parquet", error) from error
    check_columns(len(names), path.name)
    return names


def _check_parquet(metadata: Any, path: Path) -> None:
    """A few bytes can say that a value comes a thousand million times."""
    check_columns(metadata.num_columns, path.name)
    check_table(metadata.num_rows, 1)
    groups = range(metadata.num_row_groups)
    check_size(sum(metadata.row_group(number).total_byte_size for number in groups), path.name)


def json_batches(path: Path) -> Iterator[Batch]:
    """The rows of a file with one JSON object a line; a field that a row lacks is missing there."""
    return _batches(path, _json_rows(path))


def avro_batches(path: Path) -> Iterator[Batch]:
    """The rows of an Avro file."""
    return _batches(path, _avro_rows(path))


def _json_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    number = 0
    with open_data(path) as file:
        for line, text in enumerate(_lines(file, path.name), 1):
            if not text.strip():
                continue
            number += 1
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise BadInput(
                    f'Line {line} of "{path.name}" is not valid JSON ({error}); write one object a line.'
                ) from error
            if not isinstance(row, dict):
                raise BadInput(
                    f'Line {line} of "{path.name}" is not a JSON object; write one object a line, as in '
                    '{"age": 31, "label": "yes"}.'
                )
            yield row


def _lines(file: Any, name: str) -> Iterator[bytes]:
    rest = b""
    while block := file.read(1 << 20):
        *whole, rest = (rest + block).split(b"\n")
        check_line(len(rest), name)
        yield from whole
    if rest:
        yield rest


def _avro_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    import fastavro

    try:
        with path.open("rb") as file:
            for row in fastavro.reader(file):
                if not isinstance(row, dict):
                    raise BadInput(f'"{path.name}" has rows without named fields; write records.')
                yield row
    except BadInput:
        raise
    except (ValueError, OSError, EOFError, KeyError, IndexError, TypeError, StopIteration) as error:
        raise unreadable(path, "Avro", error) from error


def _batches(path: Path, rows: Iterable[Mapping[str, Any]]) -> Iterator[Batch]:
    first = 1
    for some, names in _gathered(path, rows):
        batch = Batch(path, first, len(some), {})
        columns = {name: _array([row.get(name) for row in some], name, batch) for name in names}
        yield Batch(path, first, len(some), columns)
        first += len(some)


def _gathered(
    path: Path, rows: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[list[Mapping[str, Any]], dict[str, None]]]:
    """Rows with the names of all their fields, as many as make a table of a bearable size."""
    some: list[Mapping[str, Any]] = []
    names: dict[str, None] = {}
    for row in rows:
        some.append(row)
        names.update(dict.fromkeys(row))
        check_columns(len(names), path.name)
        if len(some) >= _ROWS or len(some) * len(names) >= BLOCK_CELLS:
            yield some, names
            some, names = [], {}
    if some:
        yield some, names


def _array(values: list[Any], name: str, batch: Batch) -> Any:
    """One column; values of several types become text, so that they can be categories."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        for place, value in enumerate(values):
            if isinstance(value, (dict, list)):
                raise BadInput(
                    f"{batch.where(place, name)}: a value is one number or text, not several; flatten it."
                ) from None
        if all(value is None or isinstance(value, (int, float)) for value in values):
            return pa.array([None if value is None else float(value) for value in values], pa.float64())
        return pa.array([None if value is None else category_text(value) for value in values], pa.string())


def category_text(value: object) -> str:
    """A value as the name of a category: the same text wherever the value comes from.

    >>> category_text(" red "), category_text(True), category_text(2.0), category_text(2.5)
    ('red', 'true', '2', '2.5')
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
