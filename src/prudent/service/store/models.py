"""Models that runs have left, ready to be downloaded and used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from prudent.service.store import runs
from prudent.service.store.rows import Rows
from prudent.service.store.tables import models as table

_ROWS = Rows(table.c)


@dataclass(frozen=True)
class Model:
    """One model; `path` is its folder, or where it lies in the bucket."""

    id: str
    run: str
    user: str
    rank: int
    algorithm: str
    score: float | None
    metric: str
    value: float | None
    path: str
    created_s: float


@dataclass(frozen=True)
class Page:
    """A part of a listing, newest first."""

    models: tuple[Model, ...]
    next: str | None


def record(connection: Connection, found: Iterable[Model], run: str, fence: int) -> None:
    """The models of a run, in place of those it had."""
    runs.hold(connection, run, fence)
    connection.execute(table.delete().where(table.c.run == run))
    rows: list[dict[str, Any]] = [asdict(model) for model in found]
    if rows:
        connection.execute(table.insert(), rows)


def get(connection: Connection, model_id: str) -> Model | None:
    row = connection.execute(sa.select(table).where(table.c.id == model_id)).mappings().first()
    return None if row is None else Model(**row)


def of_run(connection: Connection, run: str) -> list[Model]:
    """The models of a run, best first."""
    question = _ROWS.question(connection).where(table.c.run == run).order_by(table.c.rank)
    return [Model(**row) for row in _ROWS.read(connection, question)]


def page(connection: Connection, limit: int = 50, after: str | None = None, user: str | None = None) -> Page:
    """Models, newest first, the best of a run before its others."""
    question = _ROWS.question(connection)
    if user is not None:
        question = question.where(table.c.user == user)
    if after is not None:
        moment, name = runs.cursor_of(after)
        older = table.c.created_s < moment
        same = sa.and_(table.c.created_s == moment, table.c.id > name)
        question = question.where(sa.or_(older, same))
    question = question.order_by(table.c.created_s.desc(), table.c.id).limit(limit + 1)
    found = [Model(**row) for row in _ROWS.read(connection, question)]
    more = len(found) > limit
    return Page(
        tuple(found[:limit]), f"{found[limit - 1].created_s!r}_{found[limit - 1].id}" if more else None
    )
