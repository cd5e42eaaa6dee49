"""Events: what happened to a run, numbered from 1; the feed of its page and of its followers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from prudent.service.store.tables import RowQuery
from prudent.service.store.tables import events as table

_INSERT = table.insert()
_OF_RUN, _MOST = table.c.run == sa.bindparam("of"), sa.bindparam("most", type_=sa.Integer)
_SINCE = RowQuery(
    table.c,
    lambda all_: (
        all_.where(_OF_RUN, table.c.number > sa.bindparam("after")).order_by(table.c.number).limit(_MOST)
    ),
)
_LAST = sa.select(sa.func.max(table.c.number)).where(table.c.run == sa.bindparam("of"))


@dataclass(frozen=True)
class EventRow:
    """One thing that happened."""

    run: str
    number: int
    at_s: float
    kind: str
    data: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {"number": self.number, "at_s": self.at_s, "kind": self.kind, "data": dict(self.data)}


def append(
    connection: Connection,
    run: str,
    kind: str,
    data: Mapping[str, Any] | None = None,
    number: int | None = None,
) -> int:
    """Add an event; answers its number, which is one more than that of the last."""
    if number is None:
        number = int(connection.execute(_LAST, {"of": run}).scalar() or 0) + 1
    text = json.dumps(dict(data or {}), ensure_ascii=False, default=str, separators=(",", ":"))
    values = {"run": run, "number": number, "at_s": time.time(), "kind": kind, "data": text}
    connection.execute(_INSERT, values)
    return number


def since(connection: Connection, run: str, number: int = 0, limit: int = 500) -> list[EventRow]:
    """The events of a run after a number, in order."""
    return [_event(row) for row in _SINCE(connection, of=run, after=number, most=limit)]


def lasts(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    """The number of the latest event of each of these runs."""
    question = sa.select(table.c.run, sa.func.max(table.c.number)).where(table.c.run.in_(ids))
    return {str(run): int(number) for run, number in connection.execute(question.group_by(table.c.run))}


def _event(row: dict[str, Any]) -> EventRow:
    return EventRow(**{**row, "data": json.loads(row["data"])})
