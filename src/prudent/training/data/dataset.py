"""Data sets: rows as they are read (`Batch`), the matrix on the disk, and the whole in memory (`Dataset`).

The matrix is a plain .npy file. Every process that maps it uses the same pages, so that trials side by side
need the data once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.data.formats import check_table

Matrix = NDArray[np.floating[Any]]
"""float32, or float64 where the data have more digits."""

NUMERIC, CATEGORICAL, DATE = "numeric", "categorical", "date"


@dataclass(frozen=True)
class Column:
    """A feature: its name, its kind, and for a categorical one the categories in the order of their codes."""

    name: str
    kind: str = NUMERIC
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of features, with the target if there is one.

    X (rows, columns) is as ONNX will see it: a categorical value is the number of its category, a date is in
    days since 1970, a missing value is NaN. It is float32, or float64 where whole numbers would lose digits.
    y is None for clustering, float64 for regression, and the number of the class (int64) for classification;
    `classes` are then the labels as the user has them, in the order of these numbers.
    `fingerprint` names the data: the same rows give the same one.
    """

    X: Matrix
    y: NDArray[Any] | None
    columns: tuple[Column, ...]
    classes: tuple[Any, ...] = ()
    target: str | None = None
    fingerprint: str = ""

    @property
    def wide(self) -> bool:
        """Whether there are more digits than single precision keeps."""
        return self.X.dtype == np.float64

    def __len__(self) -> int:
        return len(self.X)


@dataclass(frozen=True)
class Batch:
    """Columns (pyarrow arrays) by name, all of `rows` values; `first` is the number of the first row.

    Rows are counted from 1 in their own file, without a header: that is how people find them.
    """

    path: Path
    first: int
    rows: int
    columns: Mapping[str, Any]
    untyped: bool = False
    """Everything is text, of which some may mean numbers (CSV)."""

    def parts(self, most_rows: int) -> Iterator[Batch]:
        """The same rows, no more than so many at a time."""
        if self.rows <= most_rows:
            yield self
            return
        for start in range(0, self.rows, most_rows):
            count = min(most_rows, self.rows - start)
            columns = {name: column.slice(start, count) for name, column in self.columns.items()}
            yield Batch(self.path, self.first + start, count, columns, self.untyped)

    def where(self, place: int, column: str | None = None) -> str:
        """The place of a value, for a message.

        >>> Batch(Path("a/x.csv"), 1, 5, {}).where(3, "age")
        'row 4 of "x.csv", column "age"'
        """
        row = f'row {self.first + place} of "{self.path.name}"'
        return f'{row}, column "{column}"' if column is not None else row


def unreadable(path: Path, kind: str, error: object) -> BadInput:
    """The error for a file that is not what it should be."""
    said = " ".join(str(error).split())[:200]
    return BadInput(f'"{path.name}" cannot be read as {kind} ({said}); check the file, or its "format".')


EXACT_TO = 2.0**24
"""Whole numbers up to which float32 has them all."""
BLOCK_CELLS = 1 << 22
"""Cells that are worked on at a time."""


class MatrixWriter:
    """Appends rows to a .npy file, of float32 or float64; the number of rows is written at the end."""

    def __init__(self, path: Path, width: int, wide: bool = False) -> None:
        self.path, self.width, self.rows = path, width, 0
        self._kind = np.dtype("<f8" if wide else "<f4")
        self._file: BinaryIO = path.open("wb")
        self._header()

    def append(self, block: Matrix) -> None:
        check_table(self.rows + len(block), self.width)
        self.rows += len(block)
        np.ascontiguousarray(block, self._kind).tofile(self._file)

    def append_sparse(
        self, rows: int, row: NDArray[np.int64], column: NDArray[np.int64], value: NDArray[np.float32]
    ) -> None:
        """Rows that are 0 but for some values; what is 0 takes no room on the disk."""
        check_table(self.rows + rows, self.width)
        self.rows += rows
        start = self._file.seek(0, 2)
        self._file.truncate(start + rows * self.width * self._kind.itemsize)
        if len(value):
            shape = (rows, self.width)
            block = np.memmap(self.path, self._kind, "r+", start, shape)
            block[row, column] = value
            block.flush()
        self._file.seek(0, 2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._header()
        self._file.close()
        if kind is not None:
            self.path.unlink(missing_ok=True)

    def _header(self) -> None:
        """numpy leaves room in the header for the number of rows to grow."""
        self._file.seek(0)
        shape = (self.rows, self.width)
        facts: dict[str, Any] = {"descr": self._kind.str, "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(self._file, facts)


def map_matrix(path: Path) -> Matrix:
    """The matrix of a file, as read-only shared memory."""
    matrix: Matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    return matrix


def rewrite_matrix(path: Path, final: dict[int, NDArray[np.float64]], kept: list[int]) -> None:
    """Give categories their final numbers, by column, and keep only some columns; a block at a time."""
    matrix = map_matrix(path)
    if not final and len(kept) == matrix.shape[1]:
        return
    part = path.with_name(f"{path.name}.part")
    step = max(BLOCK_CELLS // max(matrix.shape[1], 1), 1)
    with MatrixWriter(part, len(kept), matrix.dtype == np.float64) as writer:
        for start in range(0, len(matrix), step):
            block = np.array(matrix[start : start + step])
            for column, numbers in final.items():
                codes = np.nan_to_num(block[:, column], nan=len(numbers) - 1).astype(np.int64)
                block[:, column] = numbers[codes]
            writer.append(block[:, kept])
    part.replace(path)


def loses_digits(values: NDArray[np.float64], exactly: bool = False) -> bool:
    """Whether single precision would change numbers above 2^24, or any at all.

    >>> [loses_digits(np.array([value])) for value in (2.0**24, 2.0**24 + 1, 0.1, np.nan)]
    [False, True, False, False]
    """
    large = values[~np.isnan(values)] if exactly else values[np.abs(values) > EXACT_TO]
    return bool((large.astype(np.float32) != large).any())


def matrix_blocks(matrix: Matrix) -> list[Matrix]:
    """A matrix in pieces that fit in memory, as views."""
    step = max(BLOCK_CELLS // max(matrix.shape[1], 1), 1)
    return [matrix[start : start + step] for start in range(0, len(matrix), step)]
