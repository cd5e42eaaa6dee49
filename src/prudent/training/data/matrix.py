"""The feature matrix on disk: written row by row, read back as shared memory.

It is a plain .npy file. Every process that maps it uses the same pages, so that trials side by side need the
data once.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from prudent.training.data.limits import check_table

BLOCK_CELLS = 1 << 22
"""Cells that are worked on at a time."""


class MatrixWriter:
    """Appends rows to a float32 .npy file whose number of rows is only known at the end."""

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width, self.rows = path, width, 0
        self._file: BinaryIO = path.open("wb")
        self._header()

    def append(self, block: NDArray[np.float32]) -> None:
        check_table(self.rows + len(block), self.width)
        self.rows += len(block)
        np.ascontiguousarray(block, np.float32).tofile(self._file)

    def append_sparse(
        self, rows: int, row: NDArray[np.int64], column: NDArray[np.int64], value: NDArray[np.float32]
    ) -> None:
        """Rows that are 0 but for some values; what is 0 takes no room on the disk."""
        check_table(self.rows + rows, self.width)
        self.rows += rows
        start = self._file.seek(0, 2)
        self._file.truncate(start + rows * self.width * 4)
        if len(value):
            shape = (rows, self.width)
            block = np.memmap(self.path, np.dtype("<f4"), "r+", start, shape)
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
        facts: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (self.rows, self.width)}
        npy.write_array_header_1_0(self._file, facts)


def mapped(path: Path) -> NDArray[np.float32]:
    """The matrix of a file, as read-only shared memory."""
    matrix: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
    return matrix


def rewrite(path: Path, final: dict[int, NDArray[np.float32]], kept: list[int]) -> None:
    """Give categories their final numbers, by column, and keep only some columns; a block at a time."""
    matrix = mapped(path)
    if not final and len(kept) == matrix.shape[1]:
        return
    part = path.with_name(f"{path.name}.part")
    step = max(BLOCK_CELLS // max(matrix.shape[1], 1), 1)
    with MatrixWriter(part, len(kept)) as writer:
        for start in range(0, len(matrix), step):
            block = np.array(matrix[start : start + step])
            for column, numbers in final.items():
                codes = np.nan_to_num(block[:, column], nan=len(numbers) - 1).astype(np.int64)
                block[:, column] = numbers[codes]
            writer.append(block[:, kept])
    part.replace(path)


def blocks(matrix: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """A matrix in pieces that fit in memory, as views."""
    step = max(BLOCK_CELLS // max(matrix.shape[1], 1), 1)
    return [matrix[start : start + step] for start in range(0, len(matrix), step)]
