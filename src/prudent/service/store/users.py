"""Users: their tokens' hashes, roles and limits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy import Connection

from prudent.core.errors import unknown
from prudent.service.store.tables import users as table

VIEWER, MEMBER, COMMANDER, ADMIN = ROLES = ("viewer", "member", "commander", "admin")
"""Who may look; submit and cancel their own; run commands as well; everything, others' runs included."""


@dataclass(frozen=True)
class User:
    """Somebody who uses the service.

    >>> User("ada", MEMBER).may(MEMBER), User("ada", MEMBER).may(COMMANDER)
    (True, False)
    """

    name: str
    role: str = MEMBER
    daily_usd: float | None = None
    """The most that may be spent for this user on a day; None is without limit."""
    token_hash: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise unknown("role", self.role, ROLES)

    def may(self, role: str) -> bool:
        """Whether this user may do what that role may."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def owns(self, owner: str) -> bool:
        """Whether runs of `owner` may be changed."""
        return self.role == ADMIN or (self.name == owner and self.may(MEMBER))


LOCAL = User("local", ADMIN)
"""Whoever sits at the machine, where the service is open."""
NOBODY = User("nobody", VIEWER)
"""Somebody of whom nothing is known; what they may see needs no account."""
OPERATOR = "operator"
"""Who runs the service, by the token in its home."""


def put(connection: Connection, user: User) -> None:
    """Add a user, or change one."""
    values = {"token_hash": user.token_hash, "role": user.role, "daily_usd": user.daily_usd}
    if not connection.execute(table.update().where(table.c.name == user.name).values(**values)).rowcount:
        connection.execute(table.insert().values(name=user.name, created_s=time.time(), **values))


def remove(connection: Connection, name: str) -> bool:
    return bool(connection.execute(table.delete().where(table.c.name == name)).rowcount)


def get(connection: Connection, name: str) -> User | None:
    row = connection.execute(sa.select(table).where(table.c.name == name)).first()
    return None if row is None else _user(row)


def all_(connection: Connection) -> list[User]:
    """Everyone, by name."""
    return [_user(row) for row in connection.execute(sa.select(table).order_by(table.c.name))]


def _user(row: sa.Row[tuple[object, ...]]) -> User:
    return User(row.name, row.role, row.daily_usd, row.token_hash)
