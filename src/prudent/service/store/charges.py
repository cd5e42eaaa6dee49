"""Charges: money spent, each once, with its price; and money reserved for runs under way.

Reservations let runs that go on at the same time keep their user's daily limit together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from prudent.core.errors import BadInput
from prudent.core.units import USD, parse_in
from prudent.service.store.tables import charges as table
from prudent.service.store.tables import reservations, runs


@dataclass(frozen=True)
class Charge:
    """What something cost. `label` says what, and is unique in its run: nothing is paid twice."""

    run: str
    label: str
    user: str
    kind: str
    usd: float
    usd_per_h: float | None = None
    price_date: str = ""
    day: str = ""
    at_s: float = 0.0


@dataclass(frozen=True)
class ChargeTotal:
    """Money of one day, user and kind."""

    day: str
    user: str
    kind: str
    usd: float
    runs: int


def today(now_s: float | None = None) -> str:
    """The day in UTC, as charges have it.

    >>> today(0.0)
    '1970-01-01'
    """
    return datetime.fromtimestamp(time.time() if now_s is None else now_s, UTC).date().isoformat()


def record(connection: Connection, charge: Charge) -> bool:
    """Charge it, and add it to the run's sum; False if that label was charged already."""
    here = sa.and_(table.c.run == charge.run, table.c.label == charge.label)
    if connection.execute(sa.select(table.c.usd).where(here)).first() is not None:
        return False
    now_s = charge.at_s or time.time()
    connection.execute(
        table.insert().values(
            run=charge.run,
            label=charge.label[:200],
            user=charge.user,
            kind=charge.kind,
            day=charge.day or today(now_s),
            usd=charge.usd,
            usd_per_h=charge.usd_per_h,
            price_date=charge.price_date,
            at_s=now_s,
        )
    )
    more = runs.update().where(runs.c.id == charge.run).values(spent_usd=runs.c.spent_usd + charge.usd)
    connection.execute(more)
    settle(connection, charge.run, charge.usd)
    return True


def of_run(connection: Connection, run: str, limit: int = 10_000) -> list[Charge]:
    """The charges of a run, in the order in which they were made."""
    question = sa.select(table).where(table.c.run == run).order_by(table.c.number).limit(limit)
    rows = connection.execute(question).mappings()
    return [Charge(**{name: row[name] for name in Charge.__dataclass_fields__}) for row in rows]


def spent_usd(connection: Connection, user: str | None = None) -> float:
    """What was spent today, by a user or by all."""
    question = sa.select(sa.func.sum(table.c.usd)).where(table.c.day == today())
    if user is not None:
        question = question.where(table.c.user == user)
    return float(connection.execute(question).scalar() or 0.0)


def totals(connection: Connection, since_day: str) -> list[ChargeTotal]:
    """Money per day, user and kind since a day, latest first."""
    parts = (table.c.day, table.c.user, table.c.kind)
    question = sa.select(*parts, sa.func.sum(table.c.usd), sa.func.count(table.c.run.distinct()))
    question = question.where(table.c.day >= since_day).group_by(*parts)
    rows = connection.execute(question.order_by(table.c.day.desc(), table.c.user, table.c.kind))
    return [ChargeTotal(day, name, kind, float(usd), int(count)) for day, name, kind, usd, count in rows]


LEAST_USD = 0.001
"""A rest below this starts nothing."""


def reserve(connection: Connection, run: str, user: str, usd: float) -> None:
    """Put money aside for a run that begins; what it had before is forgotten."""
    release(connection, run)
    connection.execute(reservations.insert().values(run=run, user=user, usd=usd))


def settle(connection: Connection, run: str, usd: float) -> None:
    """A run was charged: that much less is put aside for it."""
    left = sa.case((reservations.c.usd > usd, reservations.c.usd - usd), else_=0.0)
    connection.execute(reservations.update().where(reservations.c.run == run).values(usd=left))


def release(connection: Connection, run: str) -> None:
    """A run has ended, or waits again: nothing is put aside for it."""
    connection.execute(reservations.delete().where(reservations.c.run == run))


def reserved_usd(connection: Connection, run: str) -> float | None:
    """What a run may still be charged; None for a run without a limit."""
    found = connection.execute(sa.select(reservations.c.usd).where(reservations.c.run == run)).scalar()
    return None if found is None else float(found)


def reserved_usd_of_user(connection: Connection, user: str) -> float:
    """What is put aside for all runs of a user."""
    question = sa.select(sa.func.sum(reservations.c.usd)).where(reservations.c.user == user)
    return float(connection.execute(question).scalar() or 0.0)


def asked_usd(document: Mapping[str, Any]) -> float | None:
    """The most that a request would spend; None if it does not say.

    >>> asked_usd({"budget": "$2"}), asked_usd({"budget": {"usd": 0.5}}), asked_usd({"budget": "20 trials"})
    (2.0, 0.5, None)
    """
    said = document.get("budget")
    if isinstance(said, Mapping):
        said = said.get("usd")
    if isinstance(said, bool) or not isinstance(said, int | float | str):
        return None
    try:
        return parse_in(said, USD)
    except BadInput:
        return None
