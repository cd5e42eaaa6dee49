"""Read a data set: from wherever it lies, however it is written, into one matrix of numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown
from prudent.training.algorithms.algorithm import CLUSTERING, REGRESSION, domains
from prudent.training.data import libsvm_files, record_files
from prudent.training.data.csv_files import CsvLayout, csv_batches, layout_of
from prudent.training.data.dataset import (
    BLOCK_CELLS,
    Batch,
    Column,
    Dataset,
    Matrix,
    MatrixWriter,
    map_matrix,
    matrix_blocks,
    rewrite_matrix,
)
from prudent.training.data.encoding import ColumnEncoder
from prudent.training.data.formats import AVRO, CSV, JSON, LIBSVM, PARQUET, check_columns, format_of
from prudent.training.data.sources import local_parts
from prudent.training.data.target import (
    Target,
    as_whole_numbers,
    class_target,
    numeric_target,
    raw_target,
    target_name,
)

LABEL = "label"
"""What libsvm's first value of a line is called."""


def read_dataset(
    path: str | Path,
    format: str | None = None,  # noqa: A002 - as the request has it
    target: str | None = None,
    features: Sequence[str] | None = None,
    *,
    domain: str = REGRESSION,
    cache: Path,
    also: Sequence[str | Path] = (),
    without: Sequence[str] = (),
) -> Dataset:
    """The data at `path`: a file, a folder of parts, `http(s)://` or `s3://`.

    The format is seen from the data where it is not said. Without `target`, a column called label, target,
    class or y is it; without `features`, all other columns are. `cache` is a folder for copies of what is
    far away and for the matrix, which is mapped into memory and can be shared by processes. Two readers must
    not use the same cache at once. `also` are places whose rows come after those, in the same format; columns
    that are `without` are no features. Wrong data are a `BadInput` that names the row and the column.
    """
    if domain not in domains():
        raise unknown("domain", domain, domains())
    cache = Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    parts = local_parts(path, cache)
    kind = format_of(parts, format)
    for other in also:
        parts = [*parts, *local_parts(other, cache)]
    place = cache / "features.npy"
    read = _read_libsvm if kind == LIBSVM else _read_table
    table = read(parts, kind, target, features, domain, place, without)
    matrix = map_matrix(place)
    if not len(matrix):
        raise BadInput(f'"{path}" has no rows; give data with at least one row.')
    if not table.columns:
        raise BadInput(f'"{path}" has no feature with a value; give data with more columns.')
    y, classes = table.target.y, table.target.classes
    named = table.name if y is not None else None
    return Dataset(matrix, y, table.columns, classes, named, _fingerprint(matrix, y, table.columns, classes))


@dataclass(frozen=True)
class _Table:
    columns: tuple[Column, ...]
    target: Target
    name: str | None


# Tables


def table_batches(
    parts: Sequence[Path], kind: str, known: Sequence[str] = (), wanted: Sequence[str] | None = None
) -> Iterator[Batch]:
    """The rows of CSV, Parquet, Avro or JSON files; `known` names help to see whether CSV has a header."""
    layout: CsvLayout | None = None
    for path in parts:
        if kind == CSV:
            layout = layout_of(path, known, layout)
            yield from csv_batches(path, layout, wanted)
        elif kind == PARQUET:
            here = record_files.parquet_names(path)
            yield from record_files.parquet_batches(
                path, None if wanted is None else [n for n in wanted if n in here]
            )
        else:
            yield from {JSON: record_files.json_batches, AVRO: record_files.avro_batches}[kind](path)


def _read_table(
    parts: Sequence[Path],
    kind: str,
    target: str | None,
    features: Sequence[str] | None,
    domain: str,
    place: Path,
    without: Sequence[str] = (),
) -> _Table:
    known = [*([target] if target else []), *(features or ())]
    names = _names(parts, kind, known)
    name = target_name(names, target, domain)
    wanted_names = [each for each in feature_names(names, features, name) if each not in without]
    encoders = {each: ColumnEncoder(each) for each in wanted_names}
    wide = False
    while True:
        wanted = [*encoders, *([name] if name and domain != CLUSTERING else [])]
        batches = table_batches(parts, kind, known, wanted)
        targets, new, untyped = _write_matrix(batches, encoders, name, domain, place, wide)
        if features is None:
            new = [each for each in new if each != name and each not in without]
            encoders.update((each, ColumnEncoder(each)) for each in new)
        narrow, wide = not wide, wide or any(encoder.wide for encoder in encoders.values())
        again = (narrow and wide) or any(encoder.contradicted for encoder in encoders.values())
        if not (features is None and new) and not again:
            break
        for encoder in encoders.values():
            encoder.start_over()
    return _Table(_final_columns(encoders, place), _target(targets, name, domain, untyped), name)


def _write_matrix(
    batches: Iterator[Batch],
    encoders: dict[str, ColumnEncoder],
    name: str | None,
    domain: str,
    place: Path,
    wide: bool,
) -> tuple[list[NDArray[Any]], list[str], bool]:
    """Write the matrix as far as is known; answers the target, columns that were not expected, and whether
    everything is text."""
    targets: list[NDArray[Any]] = []
    new: dict[str, None] = {}
    untyped = False
    with MatrixWriter(place, len(encoders), wide) as writer:
        for batch in batches:
            untyped = batch.untyped
            new.update((each, None) for each in batch.columns if each not in encoders and each != name)
            check_columns(len(encoders) + len(new), batch.path.name)
            if name is not None and domain != CLUSTERING:
                targets.append(raw_target(name, batch, domain))
            for part in batch.parts(max(BLOCK_CELLS // max(len(encoders), 1), 1)):
                block = np.empty((part.rows, len(encoders)), np.float64 if wide else np.float32)
                for number, encoder in enumerate(encoders.values()):
                    block[:, number] = encoder.encode(part)
                writer.append(block)
    return targets, list(new), untyped


def _final_columns(encoders: dict[str, ColumnEncoder], place: Path) -> tuple[Column, ...]:
    """The final columns: a column without any value says nothing, and is left out."""
    columns, final, kept = [], {}, []
    for number, encoder in enumerate(encoders.values()):
        if not encoder.seen:
            continue
        column, numbers = encoder.column()
        columns.append(column)
        kept.append(number)
        if numbers is not None:
            final[number] = numbers
    rewrite_matrix(place, final, kept)
    return tuple(columns)


def _names(parts: Sequence[Path], kind: str, known: Sequence[str]) -> list[str]:
    if kind == CSV:
        return list(layout_of(parts[0], known).names)
    if kind == PARQUET:
        return record_files.parquet_names(parts[0])
    first = next(table_batches(parts, kind), None)
    if first is None:
        raise BadInput(f'"{parts[0].name}" has no rows; give a file with data.')
    return list(first.columns)


def feature_names(names: Sequence[str], features: Sequence[str] | None, target: str | None) -> list[str]:
    """The columns to learn from: those that are asked for, else all; never the target."""
    if features is None:
        return [name for name in names if name != target]
    for feature in features:
        if feature not in names:
            raise unknown("feature", feature, names)
    return [feature for feature in dict.fromkeys(features) if feature != target]


def _target(parts: Sequence[NDArray[Any]], name: str | None, domain: str, untyped: bool) -> Target:
    if name is None or domain == CLUSTERING:
        return Target(None)
    if not parts or not sum(len(part) for part in parts):
        return Target(np.empty(0))
    if domain == REGRESSION:
        return numeric_target(np.concatenate(parts), name)
    return class_target(parts, name, domain, untyped)


# libsvm


def _read_libsvm(
    parts: Sequence[Path],
    kind: str,
    target: str | None,
    features: Sequence[str] | None,
    domain: str,
    place: Path,
    without: Sequence[str] = (),
) -> _Table:
    if target not in (None, LABEL):
        raise unknown("target", target, [LABEL])
    width = 0
    while True:
        labels, used, width = _write_libsvm_matrix(parts, width, place)
        if width <= used:
            break
    del without  # its columns have numbers, not names
    names = [f"f{number}" for number in range(1, width + 1)]
    wanted = feature_names(names, features, LABEL)
    if wanted != names:
        rewrite_matrix(place, {}, [names.index(name) for name in wanted])
    y = np.concatenate(labels) if labels else np.empty(0)
    return _Table(tuple(Column(name) for name in wanted), _libsvm_target(y, domain), LABEL)


def _write_libsvm_matrix(
    parts: Sequence[Path], width: int, place: Path
) -> tuple[list[NDArray[np.float64]], int, int]:
    """Answers the labels, the width that was written, and the width that is needed."""
    labels, needed = [], width
    with MatrixWriter(place, max(width, 1)) as writer:
        for path in parts:
            for block in libsvm_files.libsvm_blocks(path):
                labels.append(block.labels)
                needed = max(needed, block.width)
                width = width or needed
                if needed <= width:
                    writer.width = width
                    writer.append_sparse(len(block.labels), block.row, block.column, block.value)
    return labels, width, needed


def _libsvm_target(y: NDArray[np.float64], domain: str) -> Target:
    if domain == CLUSTERING or not len(y):
        return Target(None)
    if domain == REGRESSION:
        return numeric_target(y, LABEL)
    return class_target([as_whole_numbers(y)], LABEL, domain, False)


def _fingerprint(
    matrix: Matrix, y: NDArray[Any] | None, columns: Sequence[Column], classes: Sequence[Any]
) -> str:
    """The same rows in the same order have the same one, whatever they were written in."""
    digest = hashlib.blake2b(repr((matrix.shape, columns, tuple(classes))).encode(), digest_size=16)
    for block in matrix_blocks(matrix):
        digest.update(np.ascontiguousarray(block).tobytes())
    if y is not None:
        digest.update(np.ascontiguousarray(y).tobytes())
    return digest.hexdigest()
