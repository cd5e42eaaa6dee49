"""Money put aside for runs under way, so that runs at once keep their user's daily limit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from prudent.core.errors import BadInput
from prudent.core.units import USD, parse_in
from prudent.service.store.tables import reservations as table

LEAST_USD = 0.001
"""A rest below this starts nothing."""


def reserve(connection: Connection, run: str, user: str, usd: float) -> None:
    """Put money aside for a run that begins; what it had before is forgotten."""
    release(connection, run)
    connection.execute(table.insert().values(run=run, user=user, usd=usd))


def settle(connection: Connection, run: str, usd: float) -> None:
    """A run was charged: that much less is put aside for it."""
    left = sa.case((table.c.usd > usd, table.c.usd - usd), else_=0.0)
    connection.execute(table.update().where(table.c.run == run).values(usd=left))


def release(connection: Connection, run: str) -> None:
    """A run has ended, or waits again: nothing is put aside for it."""
    connection.execute(table.delete().where(table.c.run == run))


def of_run(connection: Connection, run: str) -> float | None:
    """What a run may still be charged; None for a run without a limit."""
    found = connection.execute(sa.select(table.c.usd).where(table.c.run == run)).scalar()
    return None if found is None else float(found)


def of_user(connection: Connection, user: str) -> float:
    """What is put aside for all runs of a user."""
    question = sa.select(sa.func.sum(table.c.usd)).where(table.c.user == user)
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
