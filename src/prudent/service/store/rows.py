"""Many rows of a table, asked for by a question that is built once and handed over in one piece."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

_EXACT = "%!.17g"


class Rows:
    """The answers to a question about these columns, which `narrow` narrows and puts in order.

    What differs from call to call is a parameter of it (`sa.bindparam`): to build a question takes longer
    than to answer it.

    Python's SQLite lets other threads run after every row. In a process that is busy, each row then waits for
    its turn, and a list of fifty takes fifty turns. So SQLite writes all rows as one JSON text, in one step.
    """

    def __init__(
        self, columns: Iterable[sa.Column[Any]], narrow: Callable[[sa.Select[Any]], sa.Select[Any]]
    ) -> None:
        found = list(columns)
        self._names = [column.name for column in found]
        self._reals = [place for place, column in enumerate(found) if isinstance(column.type, sa.Float)]
        self._question = narrow(sa.select(*found))
        row = sa.func.json_array(*(_written(column) for column in found))
        each = narrow(sa.select(row.label("row"))).subquery()
        self._together = sa.select(sa.func.group_concat(each.c.row))

    def __call__(self, connection: Connection, **values: Any) -> list[dict[str, Any]]:
        """All rows, by the names of the columns."""
        if connection.dialect.name != "sqlite":
            return [dict(row) for row in connection.execute(self._question, values).mappings()]
        text = connection.execute(self._together, values).scalar()
        return [self._row(found) for found in json.loads(f"[{text or ''}]")]

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
