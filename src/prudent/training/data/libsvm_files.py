"""libsvm: a label and `index:value` pairs a line, indices from 1 and ascending; what is not there is 0."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.data.formats import check_columns, check_line, open_data

_BLOCK = 4 << 20
_COMMENT = re.compile(rb"#[^\n]*")
_BLANKS = re.compile(rb"[ \t\r]+")


@dataclass(frozen=True)
class SparseRows:
    """Some rows of a file: labels, and each value with its row among these and its column (from 0)."""

    labels: NDArray[np.float64]
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    value: NDArray[np.float32]

    @property
    def width(self) -> int:
        return int(self.column.max()) + 1 if len(self.column) else 0

    def parts(self, most_rows: int) -> Iterator[SparseRows]:
        """The same rows, no more than so many at a time."""
        for start in range(0, len(self.labels), most_rows):
            here = slice(*np.searchsorted(self.row, (start, start + most_rows)))
            labels = self.labels[start : start + most_rows]
            yield SparseRows(labels, self.row[here] - start, self.column[here], self.value[here])

    def dense(self, width: int) -> NDArray[np.float32]:
        """The rows as a matrix; values of columns beyond its width are left out."""
        matrix = np.zeros((len(self.labels), width), np.float32)
        inside = self.column < width
        matrix[self.row[inside], self.column[inside]] = self.value[inside]
        return matrix


def libsvm_blocks(path: Path) -> Iterator[SparseRows]:
    """The rows of a file, block by block."""
    line, rest = 1, b""
    with open_data(path) as file:
        while block := file.read(_BLOCK):
            whole, newline, rest = (rest + block).rpartition(b"\n")
            check_line(len(rest), path.name)
            if newline:
                yield _block(path, whole, line)
                line += whole.count(b"\n") + 1
    if rest.strip():
        yield _block(path, rest, line)


def _block(path: Path, text: bytes, line: int) -> SparseRows:
    """Parse many lines at once; one at a time only to say what is wrong."""
    kept = _COMMENT.sub(b"", text) if b"#" in text else text
    lines = [each.strip() for each in _BLANKS.sub(b" ", kept).split(b"\n")]
    found = _parse_lines([each for each in lines if each])
    if found is None:
        raise _parse_error(path, lines, line)
    check_columns(found.width, path.name)
    return found


def _parse_lines(lines: list[bytes]) -> SparseRows | None:
    pairs = np.fromiter((each.count(b":") for each in lines), np.int64, len(lines))
    joined = b"\n".join(lines)
    numbers = _numbers(joined.replace(b":", b" ")) if _well_formed(joined) else None
    starts = np.concatenate([[0], np.cumsum(2 * pairs + 1)])
    if numbers is None or len(numbers) != starts[-1]:
        return None
    labels = numbers[starts[:-1]]
    rest = np.delete(numbers, starts[:-1])
    index = rest[0::2]
    with np.errstate(over="ignore"):
        value = rest[1::2].astype(np.float32)
    row = np.repeat(np.arange(len(lines)), pairs)
    ascending = (np.diff(index) > 0) | (np.diff(row) > 0)
    if (index < 1).any() or (index % 1).any() or (index > 2**31).any() or not ascending.all():
        return None
    if not np.isfinite(labels).all() or np.isinf(value).any():
        return None
    return SparseRows(labels, row, index.astype(np.int64) - 1, value)


def _well_formed(text: bytes) -> bool:
    """Whether the separators alternate as they should: each blank is followed by a colon and the reverse."""
    letters = np.frombuffer(text, np.uint8)
    marks = letters[(letters == 32) | (letters == 58) | (letters == 10)]
    blank, colon = marks == 32, marks == 58
    after = np.append(marks[1:], 10)
    before = np.insert(marks[:-1], 0, 10)
    return bool((after[blank] == 58).all() and (after[colon] != 58).all() and (before[colon] == 32).all())


def _numbers(text: bytes) -> NDArray[np.float64] | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return np.fromstring(text.decode("ascii"), np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            return None


def _parse_error(path: Path, lines: list[bytes], first: int) -> BadInput:
    for number, raw in enumerate(lines, first):
        wrong = _line_error(raw.decode("utf-8", "replace").split())
        if wrong:
            return BadInput(f'Line {number} of "{path.name}": {wrong}')
    return BadInput(
        f'"{path.name}" is not written as libsvm; each line is "label index:value index:value …".'
    )


def _line_error(words: list[str]) -> str | None:  # noqa: PLR0911 - one for each way to be wrong
    if not words:
        return None
    if not _finite(words[0]):
        return f'the label "{words[0]}" is not a number; libsvm labels are numbers, use CSV for others.'
    last = 0
    for word in words[1:]:
        index, colon, value = word.partition(":")
        if not colon or not index.isascii() or not index.isdigit() or int(index) > 2**31:
            return f'"{word}" is not written as index:value; correct it.'
        if int(index) < 1:
            return f'"{word}" has the index {index}, but indices begin at 1; add one to all.'
        if int(index) <= last:
            return f"the index {index} comes after {last}, but indices ascend; sort the line."
        if not _finite(value, nan=True):
            return f'the value of "{word}" is not a finite number; correct it.'
        last = int(index)
    return None


def _finite(text: str, nan: bool = False) -> bool:
    try:
        with np.errstate(over="ignore"):
            number: Any = np.float32(float(text))
    except (ValueError, OverflowError):
        return False
    return bool(np.isfinite(number) or (nan and np.isnan(number))) and "_" not in text
