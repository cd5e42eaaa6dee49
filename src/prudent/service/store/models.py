"""Models that runs have left, ready to be downloaded and used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from prudent.service.store import runs
from prudent.service.store.tables import RowQuery
from prudent.service.store.tables import models as table


@dataclass(frozen=True)
class StoredModel:
    """One model; `path` is its folder, or its place in the bucket."""

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
class ModelPage:
    """A part of a listing, newest first."""

    models: tuple[StoredModel, ...]
    next: str | None


def record(connection: Connection, found: Iterable[StoredModel], run: str, fence: int) -> None:
    """The models of a run, in place of those it had."""
    runs.check_claim(connection, run, fence)
    connection.execute(table.delete().where(table.c.run == run))
    rows: list[dict[str, Any]] = [asdict(model) for model in found]
    if rows:
        connection.execute(table.insert(), rows)


def get(connection: Connection, model_id: str) -> StoredModel | None:
    row = connection.execute(sa.select(table).where(table.c.id == model_id)).mappings().first()
    return None if row is None else StoredModel(**row)


def of_run(connection: Connection, run: str) -> list[StoredModel]:
    """The models of a run, best first."""
    return [StoredModel(**row) for row in _OF_RUN(connection, of=run)]


def page(
    connection: Connection, limit: int = 50, after: str | None = None, user: str | None = None
) -> ModelPage:
    """Models, newest first, the best of a run before its others."""
    moment_s, last = runs.cursor_of(after) if after is not None else (None, None)
    question = _listing(user is not None, after is not None)
    found = [
        StoredModel(**row)
        for row in question(connection, most=limit + 1, user=user, moment_s=moment_s, last=last)
    ]
    more = len(found) > limit
    return ModelPage(
        tuple(found[:limit]), f"{found[limit - 1].created_s!r}_{found[limit - 1].id}" if more else None
    )


_OF_RUN = RowQuery(table.c, lambda all_: all_.where(table.c.run == sa.bindparam("of")).order_by(table.c.rank))


@cache
def _listing(of_user: bool, later: bool) -> RowQuery:
    """The question for models, of one user or of all, from the first or behind a cursor."""

    def narrow(question: sa.Select[Any]) -> sa.Select[Any]:
        if of_user:
            question = question.where(table.c.user == sa.bindparam("user"))
        if later:
            moment_s = sa.bindparam("moment_s", type_=sa.Double)
            same = sa.and_(table.c.created_s == moment_s, table.c.id > sa.bindparam("last", type_=sa.String))
            question = question.where(sa.or_(table.c.created_s < moment_s, same))
        newest = question.order_by(table.c.created_s.desc(), table.c.id)
        return newest.limit(sa.bindparam("most", type_=sa.Integer))

    return RowQuery(table.c, narrow)
