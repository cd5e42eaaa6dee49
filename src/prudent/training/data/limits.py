"""How much data are taken in: bytes once they are unpacked, columns, and cells as a table.

A file of a few kilobytes can stand for gigabytes: packed (gzip), or by one large index (libsvm). What it
stands for is checked before there is room made for it. The limits are those of the policy in force.
"""

from __future__ import annotations

import io
from typing import Any

from prudent.core.errors import BadInput
from prudent.training.data.fetch import OPEN, in_force

LONGEST_LINE = 16 << 20
"""Bytes of a line of text; a row of a hundred thousand numbers is a tenth of it."""
_CELL_BYTES = 4


def check_columns(count: int, name: str) -> None:
    """Refuse data of more columns than are read here."""
    most = in_force(OPEN).most_columns
    if count > most:
        raise BadInput(
            f'"{name}" has {count:,} columns, and at most {most:,} are read here; leave out features that '
            "say little, or hash them into fewer."
        )


def check_table(rows: int, columns: int) -> None:
    """Refuse data that are too large as a table of numbers, however small they are as a file."""
    most_mb = in_force(OPEN).largest_table_mb
    if rows * columns * _CELL_BYTES > most_mb * 1e6:
        raise BadInput(
            f"The data have {rows:,} rows of {columns:,} columns or more, and as a table of numbers they may "
            f"have {most_mb:g} MB here; train on a part of them, with fewer features, or on a cluster with "
            "the spark engine."
        )


def check_size(size: int, name: str) -> None:
    """Refuse a file, or what is in it, that is larger than what is read here."""
    most_mb = in_force(OPEN).largest_mb
    if size > most_mb * 1e6:
        raise BadInput(f'"{name}" has more than the {most_mb:g} MB that are read here; use a smaller file.')


def check_line(size: int, name: str) -> None:
    """Refuse a line that has no end."""
    if size > LONGEST_LINE:
        raise BadInput(f'"{name}" has a line of more than {LONGEST_LINE >> 20} MB; write one row a line.')


class Unpacked(io.RawIOBase):
    """What comes out of a packed file, counted as it comes."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name, self._size = stream, name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self._stream.readinto(buffer))
        self._size += count
        check_size(self._size, self._name)
        return count
