"""Formats of data files: named by the request, or detected from the file's name and first bytes.

A file of a few kilobytes can stand for gigabytes: packed (gzip), or by one large index (libsvm). Its real
size (bytes once unpacked, columns, cells as a table) is checked against the access policy first.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from prudent.core.errors import BadInput, unknown
from prudent.training.data.fetch import policy_in_force

LIBSVM, CSV, PARQUET, AVRO, JSON = "libsvm", "csv", "parquet", "avro", "json"
FORMATS = (LIBSVM, CSV, PARQUET, AVRO, JSON)

_OTHER_NAMES = {
    "svmlight": LIBSVM,
    "svm": LIBSVM,
    "tsv": CSV,
    "jsonl": JSON,
    "ndjson": JSON,
    "json-lines": JSON,
}
_ENDINGS = {
    ".svm": LIBSVM,
    ".libsvm": LIBSVM,
    ".svmlight": LIBSVM,
    ".csv": CSV,
    ".tsv": CSV,
    ".parquet": PARQUET,
    ".pq": PARQUET,
    ".avro": AVRO,
    ".json": JSON,
    ".jsonl": JSON,
    ".ndjson": JSON,
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_LIBSVM_LINE = re.compile(rb"\s*[-+.\deE]+(\s+\d+:[-+.\deEnNaAiIfF]+)+\s*(#.*)?")


def format_of(parts: Sequence[Path], said: str | None = None) -> str:
    """The format of a file or of a folder's parts."""
    if said is not None:
        name = _OTHER_NAMES.get(said.lower(), said.lower())
        if name not in FORMATS:
            raise unknown("format", said, FORMATS)
        return name
    for ending in reversed(parts[0].suffixes):
        if ending.lower() in _ENDINGS:
            return _ENDINGS[ending.lower()]
        if ending.lower() not in _COMPRESSED:
            break
    return _detected(parts[0])


def _detected(path: Path) -> str:
    with open_data(path) as file:
        head = file.read(1 << 16)
    if head.startswith(b"PAR1"):
        return PARQUET
    if head.startswith(b"Obj\x01"):
        return AVRO
    if head.lstrip()[:1] == b"{":
        return JSON
    lines = [line for line in head.splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    return LIBSVM if lines and _LIBSVM_LINE.fullmatch(lines[0]) else CSV


def is_packed(path: Path) -> bool:
    """Whether a file is compressed, by the ending of its name."""
    return path.suffix.lower() in _COMPRESSED


@contextmanager
def open_data(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file; one that is compressed by its name's ending is read through, within the limits."""
    import pyarrow as pa

    try:
        check_size(path.stat().st_size, path.name)
        with pa.input_stream(str(path), compression="detect") as file:
            yield cast(BinaryIO, UnpackedStream(file, path.name) if is_packed(path) else file)
    except MemoryError:
        raise
    except (OSError, pa.ArrowException) as error:
        said = " ".join(str(error).split())
        raise BadInput(f'Cannot read "{path}" ({said}); check the file and its rights.') from error


LONGEST_LINE = 16 << 20
"""Bytes of a line of text; a row of a hundred thousand numbers is a tenth of it."""
_CELL_BYTES = 4


def check_columns(count: int, name: str) -> None:
    """Refuse data of more columns than are read here."""
    most = policy_in_force().most_columns
    if count > most:
        raise BadInput(
            f'"{name}" has {count:,} columns, and at most {most:,} are read here; leave out features that '
            "say little, or hash them into fewer."
        )


def check_table(rows: int, columns: int) -> None:
    """Refuse data that are too large as a table of numbers, however small they are as a file."""
    most_mb = policy_in_force().largest_table_mb
    if rows * columns * _CELL_BYTES > most_mb * 1e6:
        raise BadInput(
            f"The data have {rows:,} rows of {columns:,} columns or more, and as a table of numbers they may "
            f"have {most_mb:g} MB here; train on a part of them, with fewer features, or on a cluster with "
            "the spark engine."
        )


def check_size(size: int, name: str) -> None:
    """Refuse a file, or what is in it, that is larger than what is read here."""
    most_mb = policy_in_force().largest_mb
    if size > most_mb * 1e6:
        raise BadInput(f'"{name}" has more than the {most_mb:g} MB that are read here; use a smaller file.')


def check_line(size: int, name: str) -> None:
    """Refuse a line that has no end."""
    if size > LONGEST_LINE:
        raise BadInput(f'"{name}" has a line of more than {LONGEST_LINE >> 20} MB; write one row a line.')


class UnpackedStream(io.RawIOBase):
    """The unpacked bytes of a file, counted against the limit as they are read."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name, self._size = stream, name, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self._stream.readinto(buffer))
        self._size += count
        check_size(self._size, self._name)
        return count
