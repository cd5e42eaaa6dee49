"""Columns by which rows belong together or follow each other, and how many rows a file has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown
from prudent.training.data.dates import days_of
from prudent.training.data.encoding import as_numbers
from prudent.training.data.formats import LIBSVM, format_of
from prudent.training.data.libsvm_files import libsvm_blocks
from prudent.training.data.reading import table_batches
from prudent.training.data.sources import local_parts
from prudent.training.data.splitting import UNLINKED, RowLinks


def read_links(
    path: str | Path,
    form: str | None,
    cache: Path,
    groups: str | None = None,
    time: str | None = None,
) -> RowLinks:
    """The group or the time of each row of the data at `path`, in their order."""
    if groups is not None:
        return RowLinks(groups=_column(path, form, cache, groups, False))
    return UNLINKED if time is None else RowLinks(times=_column(path, form, cache, time, True))


def rows_at(path: str | Path, form: str | None, cache: Path) -> int:
    """How many rows the data at `path` have."""
    parts = local_parts(path, cache)
    kind = format_of(parts, form)
    if kind == LIBSVM:
        return sum(len(block.labels) for part in parts for block in libsvm_blocks(part))
    return sum(batch.rows for batch in table_batches(parts, kind))


def _column(path: str | Path, form: str | None, cache: Path, name: str, ordered: bool) -> NDArray[Any]:
    parts = local_parts(path, cache)
    return link_values(parts, format_of(parts, form), name, ordered)


def link_values(parts: Sequence[Path], kind: str, name: str, ordered: bool) -> NDArray[Any]:
    """A column of files as groups, or as times if it is `ordered`; no row may be without."""
    if kind == LIBSVM:
        raise BadInput(f'A libsvm file has no column "{name}"; give CSV, Parquet, Avro or JSON lines.')
    found = []
    for batch in table_batches(parts, kind, [name]):
        values = batch.columns.get(name)
        if values is None:
            raise unknown("column", name, list(batch.columns))
        if values.null_count:
            place = values.is_null().index(True).as_py()
            raise BadInput(f"{batch.where(place, name)} is empty; fill it in, or leave the row out.")
        if not ordered:
            found.append(np.array([str(value) for value in values.to_pylist()]))
            continue
        times = days_of(values)
        times = as_numbers(values, batch, name) if times is None else times
        if times is None:
            raise BadInput(f'"{name}" is neither a date nor a number; write dates like 2026-01-31.')
        found.append(times)
    return np.concatenate(found) if found else np.empty(0)
