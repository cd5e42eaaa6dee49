"""The rows of a file as a trained model takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, did_you_mean
from prudent.training.data.batch import Batch
from prudent.training.data.csv_files import layout_of
from prudent.training.data.encoding import encode_known
from prudent.training.data.fetch import OPEN, Policy
from prudent.training.data.formats import CSV, LIBSVM, format_of
from prudent.training.data.libsvm_files import libsvm_blocks
from prudent.training.data.matrix import BLOCK_CELLS
from prudent.training.data.reading import table_batches
from prudent.training.data.sources import local_parts
from prudent.training.dataset import Column


def feature_blocks(
    path: str | Path,
    columns: Sequence[Column],
    format: str | None = None,  # noqa: A002 - as the request has it
    *,
    cache: Path,
    policy: Policy = OPEN,
) -> Iterator[NDArray[np.float32]]:
    """The features of the data at `path`, some rows at a time; other columns are passed over."""
    parts = local_parts(path, cache, policy)
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
            _check(here, names)
        yield np.column_stack([encode_known(column, here) for column in columns]).astype(np.float32)


def _by_place(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Columns without a header that are as many as the model takes are those, in order."""
    layout = layout_of(path, names)
    if layout.header or len(layout.names) != len(names):
        return {}
    return dict(zip(layout.names, names, strict=True))


def _check(batch: Batch, names: Sequence[str]) -> None:
    absent = [name for name in names if name not in batch.columns]
    if absent:
        raise BadInput(
            f'"{batch.path.name}" has no column "{absent[0]}", which the model needs.'
            f"{did_you_mean(absent[0], batch.columns)} Add it, empty where it is not known."
        )


def _from_libsvm(parts: Sequence[Path], columns: Sequence[Column]) -> Iterator[NDArray[np.float32]]:
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
