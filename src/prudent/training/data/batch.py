"""Some rows of a table as they are read, with where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prudent.core.errors import BadInput


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
