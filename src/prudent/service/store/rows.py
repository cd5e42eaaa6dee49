"""Many rows of a table, handed over in one piece."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

_EXACT = "%!.17g"


class Rows:
    """These columns of a table: `question` is to be narrowed and put in order, `read` answers it.

    Python's SQLite lets other threads run after every row. In a process that is busy, each row then waits for
    its turn, and a list of fifty takes fifty turns. So SQLite writes all rows as one JSON text, in one step.
    """

    def __init__(self, columns: Iterable[sa.Column[Any]]) -> None:
        found = list(columns)
        self._names = [column.name for column in found]
        self._reals = [place for place, column in enumerate(found) if isinstance(column.type, sa.Float)]
        written = sa.func.json_array(*(_written(column) for column in found))
        self._questions = {"sqlite": sa.select(written.label("row")), "postgresql": sa.select(*found)}

    def question(self, connection: Connection) -> sa.Select[Any]:
        return self._questions[connection.dialect.name]

    def read(self, connection: Connection, question: sa.Select[Any]) -> list[dict[str, Any]]:
        """All rows, by the names of the columns."""
        if connection.dialect.name != "sqlite":
            return [dict(row) for row in connection.execute(question).mappings()]
        together = sa.select(sa.func.group_concat(question.subquery().c.row))
        text = connection.execute(together).scalar()
        return [self._row(values) for values in json.loads(f"[{text or ''}]")]

    def _row(self, values: list[Any]) -> dict[str, Any]:
        for place in self._reals:
            if values[place] is not None:
                values[place] = float(values[place])
        return dict(zip(self._names, values, strict=True))


def _written(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """A value as JSON has it; real numbers as text, for JSON keeps fifteen digits and times have more."""
    if not isinstance(column.type, sa.Float):
        return column
    return sa.case((column.is_not(None), sa.func.printf(_EXACT, column)))
