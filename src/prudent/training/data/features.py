"""Features for prediction: rows of a file or of a program as the matrix that a trained model takes.

Rows in memory (dicts, lists, arrays, frames) need numpy only, so that a model can be used where it was not
trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, did_you_mean
from prudent.training.data.csv_files import MISSING, layout_of
from prudent.training.data.dataset import BLOCK_CELLS, CATEGORICAL, DATE, Batch, Column, Matrix
from prudent.training.data.dates import day_of
from prudent.training.data.encoding import LARGEST, encode_known
from prudent.training.data.formats import CSV, LIBSVM, format_of
from prudent.training.data.libsvm_files import libsvm_blocks
from prudent.training.data.reading import table_batches
from prudent.training.data.record_files import category_text
from prudent.training.data.sources import local_parts


def feature_blocks(
    path: str | Path,
    columns: Sequence[Column],
    format: str | None = None,  # noqa: A002 - as the request has it
    *,
    cache: Path,
) -> Iterator[Matrix]:
    """The features of the data at `path`, some rows at a time; other columns are passed over."""
    parts = local_parts(path, cache)
    kind = format_of(parts, format)
    if kind == LIBSVM:
        yield from _from_libsvm(parts, columns)
        return
    names = [column.name for column in columns]
    renamed = _by_place(parts[0], names) if kind == CSV else {}
    for batch in table_batches(parts, kind, names):
        values = {renamed.get(name, name): column for name, column in batch.columns.items()}
        here = Batch(batch.path, batch.first, batch.rows, values, batch.untyped)
        if batch.first == 1:
            _check_columns(here, names)
        yield np.column_stack([encode_known(column, here) for column in columns])


def _by_place(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Columns without a header that are as many as the model takes are those, in order."""
    layout = layout_of(path, names)
    if layout.header or len(layout.names) != len(names):
        return {}
    return dict(zip(layout.names, names, strict=True))


def _check_columns(batch: Batch, names: Sequence[str]) -> None:
    absent = [name for name in names if name not in batch.columns]
    if absent:
        raise BadInput(
            f'"{batch.path.name}" has no column "{absent[0]}", which the model needs.'
            f"{did_you_mean(absent[0], batch.columns)} Add it, empty where it is not known."
        )


def _from_libsvm(parts: Sequence[Path], columns: Sequence[Column]) -> Iterator[Matrix]:
    places = [int(c.name[1:]) - 1 if c.name[:1] == "f" and c.name[1:].isdigit() else -1 for c in columns]
    if min(places, default=-1) < 0:
        raise BadInput(
            "A libsvm file has no column names, but the model was trained on named columns; give CSV, "
            "Parquet, Avro or JSON lines."
        )
    width = max(places) + 1
    for path in parts:
        for block in libsvm_blocks(path):
            for some in block.parts(max(BLOCK_CELLS // width, 1)):
                yield some.dense(width)[:, places]


def encode_rows(rows: Any, columns: Sequence[Column]) -> Matrix:
    """A matrix of the model's columns: categories as their numbers, NaN for what is missing or not known.

    >>> colour = Column("colour", CATEGORICAL, ("green", "red"))
    >>> encode_rows([{"colour": "red", "age": 3}, {"colour": "blue"}], [Column("age"), colour]).tolist()
    [[3.0, 1.0], [nan, nan]]
    """
    if hasattr(rows, "columns") and hasattr(rows, "iloc"):
        return _from_frame(rows, columns)
    if isinstance(rows, np.ndarray):
        return _from_array(rows, columns)
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Sequence):
        raise BadInput(
            "Rows are a list of dicts, a list of lists, an array or a data frame; give one of them."
        )
    if not rows:
        return np.empty((0, len(columns)))
    if isinstance(rows[0], Mapping):
        return _from_dicts(rows, columns)
    return _from_lists(rows, columns)


def _from_dicts(rows: Sequence[Any], columns: Sequence[Column]) -> Matrix:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise BadInput(f"Row {number} is not a dict as the first row is; write all rows alike.")
    for column in columns:
        if not any(column.name in row for row in rows):
            raise _absent(column.name, list(rows[0]))
    return _stack([_encoded([row.get(c.name) for row in rows], c) for c in columns], len(rows))


def _from_lists(rows: Sequence[Any], columns: Sequence[Column]) -> Matrix:
    for number, row in enumerate(rows, 1):
        if isinstance(row, (str, bytes, Mapping)) or not hasattr(row, "__len__"):
            raise BadInput(
                f"Row {number} is {type(row).__name__}, not a list of values; give a list of rows."
            )
        if len(row) != len(columns):
            raise _width(f"Row {number}", len(row), columns)
    return _stack([_encoded([row[p] for row in rows], c) for p, c in enumerate(columns)], len(rows))


def _from_array(rows: NDArray[Any], columns: Sequence[Column]) -> Matrix:
    if rows.ndim != 2 or rows.shape[1] != len(columns):
        raise _width("The array", rows.shape[1] if rows.ndim == 2 else rows.shape, columns)
    return _stack([_encoded(rows[:, place], column) for place, column in enumerate(columns)], len(rows))


def _from_frame(rows: Any, columns: Sequence[Column]) -> Matrix:
    names = [str(name) for name in rows.columns]
    for column in columns:
        if column.name not in names:
            raise _absent(column.name, names)
    found = []
    for column in columns:
        values = rows.iloc[:, names.index(column.name)]
        plain = values.dtype.kind in "iuf" and isinstance(values.dtype, np.dtype)
        found.append(_encoded(values.to_numpy() if plain else _objects(values), column))
    return _stack(found, len(rows))


def _objects(values: Any) -> list[Any]:
    missing = values.isna().tolist()
    return [None if gone else value for gone, value in zip(missing, values.tolist(), strict=True)]


def _encoded(values: Any, column: Column) -> Matrix:
    if column.kind == CATEGORICAL:
        codes = {word: number for number, word in enumerate(column.categories)}
        return np.array([_code(value, codes) for value in values], np.float64)
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        numbers = values.astype(np.float64)
    else:
        numbers = np.array([_number(v, r, column) for r, v in enumerate(values, 1)], np.float64)
    too_large = np.abs(numbers) > LARGEST
    if too_large.any():
        row = int(np.flatnonzero(too_large)[0])
        raise _no_number(values[row], row + 1, column)
    return numbers


def _code(value: Any, codes: Mapping[str, int]) -> float:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return np.nan
    value = value.item() if isinstance(value, np.generic) else value
    word = category_text(value)
    return codes.get(word, codes.get(str(value), np.nan))


def _number(value: Any, row: int, column: Column) -> float:
    if value is None or (isinstance(value, str) and value.strip() in MISSING):
        return np.nan
    try:
        return day_of(value) if column.kind == DATE else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_number(value, row, column) from error


def _stack(found: list[Matrix], rows: int) -> Matrix:
    matrix = np.empty((rows, len(found)))
    for place, values in enumerate(found):
        matrix[:, place] = values
    return matrix


def _absent(name: str, names: Sequence[Any]) -> BadInput:
    near = did_you_mean(name, [str(each) for each in names])
    return BadInput(f'No row has "{name}", which the model needs.{near} Add it, None where it is not known.')


def _width(what: str, found: object, columns: Sequence[Column]) -> BadInput:
    shown = ", ".join(column.name for column in columns[:12]) + (", …" if len(columns) > 12 else "")
    return BadInput(f"{what} has {found} values, but the model takes {len(columns)}: {shown}.")


def _no_number(value: Any, row: int, column: Column) -> BadInput:
    if column.kind == DATE:
        return BadInput(
            f'Row {row}, "{column.name}": {value!r} is not a date, which the model needs there; write it as '
            "in 2026-01-31 or 2026-01-31T18:30:00, or give None if it is missing."
        )
    return BadInput(
        f'Row {row}, "{column.name}": {value!r} is not a finite number, as the model was trained on; correct '
        "it, or give None if the value is missing."
    )
