"""The tables, and queries for many rows. Documents are JSON in text columns: nobody searches in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

VERSION = 1
metadata = MetaData()

about = Table("about", metadata, Column("name", String(64), primary_key=True), Column("value", Text))

runs = Table(
    "runs",
    metadata,
    Column("id", String(40), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    Column("user", String(128), nullable=False),
    Column("title", String(200), nullable=False, default=""),
    Column("document", Text, nullable=False),
    Column("front", String(32), nullable=False),
    Column("key_hash", String(64), unique=True),
    Column("body_hash", String(64), nullable=False),
    Column("priority", Integer, nullable=False, default=0),
    Column("created_s", Double, nullable=False),
    Column("started_s", Double),
    Column("ended_s", Double),
    Column("progress", Double, nullable=False, default=0.0),
    Column("eta_s", Double),
    Column("waiting", Text, nullable=False, default=""),
    Column("spent_usd", Double, nullable=False, default=0.0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("worker", String(128)),
    Column("fence", BigInteger, nullable=False, default=0),
    Column("cancel", Boolean, nullable=False, default=False),
    Column("error", Text, nullable=False, default=""),
    Column("folder", Text, nullable=False, default=""),
)
Index("runs_recent", runs.c.created_s, runs.c.id)
Index("runs_of_user", runs.c.user, runs.c.created_s, runs.c.id)
Index("runs_of_status", runs.c.status, runs.c.created_s, runs.c.id)
Index("runs_of_kind", runs.c.kind, runs.c.created_s, runs.c.id)
Index("runs_to_take", runs.c.status, runs.c.user, runs.c.priority.desc(), runs.c.created_s)

documents = Table(
    "documents",
    metadata,
    Column("run", String(40), primary_key=True),
    Column("bytes", BigInteger, nullable=False),
    Column("text", Text, nullable=False),
)
"""Documents that are large. In the row of its run, SQLite would go through all of one to list the run, and
write all of it again to change it."""

turns = Table(
    "turns", metadata, Column("user", String(128), primary_key=True), Column("at_s", Double, nullable=False)
)

events = Table(
    "events",
    metadata,
    Column("run", String(40), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_s", Double, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("data", Text, nullable=False),
)

trials = Table(
    "trials",
    metadata,
    Column("run", String(40), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("label", String(200), nullable=False),
    Column("configuration", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("score", Double),
    Column("cost_usd", Double),
    Column("time_s", Double),
    Column("spent_usd", Double, nullable=False, default=0.0),
    Column("details", Text, nullable=False, default="{}"),
    Column("fence", BigInteger, nullable=False),
    Column("at_s", Double, nullable=False),
)

charges = Table(
    "charges",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("run", String(40), nullable=False),
    Column("label", String(200), nullable=False),
    Column("user", String(128), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("day", String(10), nullable=False),
    Column("usd", Double, nullable=False),
    Column("usd_per_h", Double),
    Column("price_date", String(32), nullable=False, default=""),
    Column("at_s", Double, nullable=False),
    UniqueConstraint("run", "label"),
)
Index("charges_of_day", charges.c.day, charges.c.user, charges.c.kind)
Index("charges_of_user", charges.c.user, charges.c.day)

reservations = Table(
    "reservations",
    metadata,
    Column("run", String(40), primary_key=True),
    Column("user", String(128), nullable=False, index=True),
    Column("usd", Double, nullable=False),
)

models = Table(
    "models",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("run", String(40), nullable=False, index=True),
    Column("user", String(128), nullable=False),
    Column("rank", Integer, nullable=False),
    Column("algorithm", String(128), nullable=False),
    Column("score", Double),
    Column("metric", String(64), nullable=False),
    Column("value", Double),
    Column("path", Text, nullable=False),
    Column("created_s", Double, nullable=False),
)
Index("models_recent", models.c.created_s, models.c.id)
Index("models_of_user", models.c.user, models.c.created_s, models.c.id)

workers = Table(
    "workers",
    metadata,
    Column("id", String(128), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_s", Double, nullable=False),
    Column("beat_s", Double, nullable=False),
    Column("state", String(16), nullable=False),
    Column("slots", Integer, nullable=False),
    Column("busy", Integer, nullable=False, default=0),
)

users = Table(
    "users",
    metadata,
    Column("name", String(128), primary_key=True),
    Column("token_hash", String(64), unique=True),
    Column("role", String(16), nullable=False),
    Column("daily_usd", Double),
    Column("created_s", Double, nullable=False),
)

_EXACT = "%!.17g"


class RowQuery:
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
