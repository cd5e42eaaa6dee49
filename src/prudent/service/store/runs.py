"""Runs: what was asked for, by whom, and how far it is."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from prudent.core.errors import BadInput, RunFailed
from prudent.service.store import charges, events
from prudent.service.store.tables import RowQuery
from prudent.service.store.tables import documents as large
from prudent.service.store.tables import runs as table

KINDS = ("train", "tune", "schedule")
QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED = "queued", "running", "succeeded", "failed", "cancelled"
STATUSES = (QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED)
ENDED = (SUCCEEDED, FAILED, CANCELLED)
LARGE = 1 << 16
"""Documents of more bytes than this are large: others would notice that one is read."""
_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"


class StaleClaim(RunFailed):
    """The run was given to another worker meanwhile; what this one found is not kept."""


class IdempotencyConflict(BadInput):
    """The Idempotency-Key was used for another request; take a new one."""


def new_id(now_s: float | None = None) -> str:
    """An id that sorts by time and cannot be guessed.

    >>> len(new_id()), new_id(1.0) < new_id(2.0)
    (26, True)
    """
    number = (int((time.time() if now_s is None else now_s) * 1000) << 80) | secrets.randbits(80)
    return "".join(_LETTERS[number >> shift & 31] for shift in range(125, -1, -5))


@dataclass(frozen=True)
class NewRun:
    """A request that was admitted."""

    kind: str
    user: str
    document: Mapping[str, Any]
    front: str
    body_hash: str
    title: str = ""
    key_hash: str | None = None
    priority: int = 0
    id: str = field(default_factory=new_id)
    created_s: float = field(default_factory=time.time)
    text: str = field(default="", repr=False)
    """The document as JSON, where somebody has written it already; `document` may then be left empty."""

    def to_text(self) -> str:
        """The document as it is kept."""
        return self.text or json.dumps(dict(self.document), ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class RunRow:
    """A run as it stands. Times are seconds since 1970; `waiting` says why it is not running."""

    id: str
    kind: str
    status: str
    user: str
    title: str
    document: Mapping[str, Any] = field(repr=False)
    """What was asked for; left empty in listings."""
    front: str
    key_hash: str | None = field(repr=False)
    body_hash: str = field(repr=False)
    priority: int
    created_s: float
    started_s: float | None
    ended_s: float | None
    progress: float
    eta_s: float | None
    waiting: str
    spent_usd: float
    attempts: int
    worker: str | None
    fence: int
    """Grows with every worker that takes the run; writes with an older number are refused."""
    cancel: bool
    """Somebody wants it to end."""
    error: str
    folder: str

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def time_s(self) -> float | None:
        """How long it has run, or ran."""
        if self.started_s is None:
            return None
        return (self.ended_s if self.ended_s is not None else time.time()) - self.started_s


@dataclass(frozen=True)
class RunPage:
    """A part of a listing, newest first; `next` is the cursor of the next part, None at the end."""

    runs: tuple[RunRow, ...]
    next: str | None


_NAMES = [each.name for each in fields(RunRow)]
_ALL = sa.select(*(table.c[name] for name in _NAMES))


# Coming in


def insert(connection: Connection, new: NewRun) -> tuple[RunRow, bool]:
    """Keep a new run, unless its key is known: then the run of that key, and False."""
    text = new.to_text()
    values = {
        "id": new.id,
        "kind": new.kind,
        "status": QUEUED,
        "user": new.user,
        "title": new.title[:200],
        "document": text if len(text) < LARGE else "",
        "front": new.front,
        "key_hash": new.key_hash,
        "body_hash": new.body_hash,
        "priority": new.priority,
        "created_s": new.created_s,
    }
    if connection.execute(_inserting(connection.dialect.name), values).first() is None:
        found = _row(connection, table.c.id == new.id)
        if found is None and new.key_hash is not None:
            found = _row(connection, table.c.key_hash == new.key_hash)
            if found is not None and found.body_hash != new.body_hash:
                raise IdempotencyConflict("The Idempotency-Key was used for another request; take a new one.")
        if found is None:
            raise RunFailed("The run could not be stored; send it again.")
        return found, found.id == new.id
    events.append(connection, new.id, "queued", {"kind": new.kind, "user": new.user}, number=1)
    if len(text) >= LARGE:
        connection.execute(large.insert().values(run=new.id, bytes=len(text), text=text))
    return _made({**values, "document": dict(new.document)}), True


def _made(values: Mapping[str, Any]) -> RunRow:
    """The row of a new run, from the values that were inserted."""
    defaults = {
        "started_s": None, "ended_s": None, "progress": 0.0, "eta_s": None, "waiting": "", "spent_usd": 0.0,
        "attempts": 0, "worker": None, "fence": 0, "cancel": False, "error": "", "folder": "",
    }  # fmt: skip
    return RunRow(**{**defaults, **values})


@cache
def _inserting(dialect: str) -> Any:
    """An insert that does nothing where an id or a key is there already, and says so; built once."""
    if dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as into
    else:
        from sqlalchemy.dialects.sqlite import insert as into  # type: ignore[assignment]
    return into(table).on_conflict_do_nothing().returning(table.c.id)


# Looking


def get(connection: Connection, run_id: str) -> RunRow | None:
    return _row(connection, table.c.id == run_id)


def page(
    connection: Connection,
    limit: int = 50,
    after: str | None = None,
    user: str | None = None,
    status: str | None = None,
    kind: str | None = None,
) -> RunPage:
    """Runs, newest first, from behind the cursor `after`; quick however many there are."""
    found, more = list_rows(connection, limit, after, user=user, status=status, kind=kind)
    return RunPage(
        tuple(RunRow(**{**row, "document": {}, "cancel": bool(row["cancel"])}) for row in found), more
    )


def list_rows(
    connection: Connection, limit: int, after: str | None, /, **filters: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """The same as plain values, without documents, and the cursor of what follows."""
    only = {name: value for name, value in filters.items() if value is not None}
    moment_s, last = cursor_of(after) if after is not None else (None, None)
    question = _listing(tuple(only), after is not None)
    found = question(connection, most=limit + 1, moment_s=moment_s, last=last, **only)
    more = len(found) > limit
    return found[:limit], f"{found[limit - 1]['created_s']!r}_{found[limit - 1]['id']}" if more else None


@cache
def _listing(only: tuple[str, ...], later: bool) -> RowQuery:
    """The question for runs with these columns given, from the first or behind a cursor."""

    def narrow(question: sa.Select[Any]) -> sa.Select[Any]:
        for name in only:
            question = question.where(table.c[name] == sa.bindparam(name))
        if later:
            place = sa.bindparam("moment_s", type_=sa.Double), sa.bindparam("last", type_=sa.String)
            question = question.where(sa.tuple_(table.c.created_s, table.c.id) < sa.tuple_(*place))
        newest = question.order_by(table.c.created_s.desc(), table.c.id.desc())
        return newest.limit(sa.bindparam("most", type_=sa.Integer))

    return RowQuery([table.c[name] for name in _NAMES if name != "document"], narrow)


def cursor_of(text: str) -> tuple[float, str]:
    """The place that a cursor names.

    >>> cursor_of("12.5_abc")
    (12.5, 'abc')
    """
    seconds, _, name = text.partition("_")
    try:
        return float(seconds), name
    except ValueError:
        raise BadInput(f'"{text[:80]}" is not a cursor; use the "next" of the page before.') from None


def waiting(connection: Connection) -> tuple[dict[str, int], dict[str, int]]:
    """How many runs of each user wait, and how many bytes their large documents have."""
    queued = table.c.status == QUEUED
    counted = sa.select(table.c.user, sa.func.count()).where(queued).group_by(table.c.user)
    joined = large.join(table, large.c.run == table.c.id)
    sized = sa.select(table.c.user, sa.func.sum(large.c.bytes)).select_from(joined).where(queued)
    counts = {str(user): int(count) for user, count in connection.execute(counted)}
    return counts, {str(user): int(size) for user, size in connection.execute(sized.group_by(table.c.user))}


def statuses(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """How each of these runs stands, of those there are."""
    question = sa.select(table.c.id, table.c.status).where(table.c.id.in_(ids))
    return {str(run_id): str(status) for run_id, status in connection.execute(question)}


def counts(connection: Connection, user: str | None = None) -> dict[str, int]:
    """How many runs there are in each status."""
    question = sa.select(table.c.status, sa.func.count()).group_by(table.c.status)
    if user is not None:
        question = question.where(table.c.user == user)
    found = {status: int(count) for status, count in connection.execute(question)}
    return {status: found.get(status, 0) for status in STATUSES}


def _row(connection: Connection, which: Any) -> RunRow | None:
    row = connection.execute(_ALL.where(which)).mappings().first()
    if row is None:
        return None
    values = dict(row)
    if not values["document"]:
        question = sa.select(large.c.text).where(large.c.run == values["id"])
        values["document"] = connection.execute(question).scalar_one()
    return _run(values)


def _run(row: Mapping[Any, Any]) -> RunRow:
    values = dict(row)
    return RunRow(**{**values, "document": json.loads(values["document"]), "cancel": bool(values["cancel"])})


# Changing, by the worker that has the run


def check_claim(connection: Connection, run_id: str, fence: int) -> None:
    """Raise StaleClaim unless the run is still this worker's; it stays so until the transaction ends."""
    question = sa.select(table.c.fence, table.c.status).where(table.c.id == run_id).with_for_update()
    row = connection.execute(question).first()
    if row is None or row.fence != fence or row.status != RUNNING:
        raise StaleClaim(f"Run {run_id} is no longer this worker's; its result is not kept.")


def progress(
    connection: Connection, run_id: str, fence: int, done: float, eta_s: float | None = None
) -> None:
    """How far the run is, 0..1; it never goes back."""
    check_claim(connection, run_id, fence)
    done = min(max(done, 0.0), 1.0)
    further = sa.case((table.c.progress < done, done), else_=table.c.progress)
    change = table.update().where(table.c.id == run_id)
    connection.execute(change.values(progress=further, eta_s=eta_s))


def finish(connection: Connection, run_id: str, fence: int, status: str, error: str = "") -> None:
    """Record the outcome of a run, once."""
    check_claim(connection, run_id, fence)
    end(connection, run_id, status, error)


def end(connection: Connection, run_id: str, status: str, error: str = "") -> bool:
    """End a run that has not ended, whoever has it; False if it has."""
    values: dict[str, Any] = {
        "status": status, "ended_s": time.time(), "error": error[:4000], "eta_s": None, "waiting": "",
    }  # fmt: skip
    if status == SUCCEEDED:
        values["progress"] = 1.0
    open_ = table.c.status.in_((QUEUED, RUNNING))
    changed = connection.execute(table.update().where(table.c.id == run_id, open_).values(**values))
    if not changed.rowcount:
        return False
    charges.release(connection, run_id)
    events.append(connection, run_id, status, {"error": error[:4000]} if error else {})
    return True


def cancel(connection: Connection, run_id: str) -> RunRow | None:
    """End a run that waits; tell the worker of one that runs. Answers the run as it then is."""
    found = get(connection, run_id)
    if found is None or found.ended or found.cancel:
        return found
    connection.execute(table.update().where(table.c.id == run_id).values(cancel=True))
    if found.status == QUEUED:
        end(connection, run_id, CANCELLED)
    else:
        events.append(connection, run_id, "cancelling", {})
    return get(connection, run_id)


def remove(connection: Connection, run_id: str) -> None:
    """Forget an ended run; its charges stay, for money that was spent was spent."""
    from prudent.service.store.tables import events as feed
    from prudent.service.store.tables import models, trials

    connection.execute(feed.delete().where(feed.c.run == run_id))
    connection.execute(trials.delete().where(trials.c.run == run_id))
    connection.execute(models.delete().where(models.c.run == run_id))
    connection.execute(large.delete().where(large.c.run == run_id))
    connection.execute(table.delete().where(table.c.id == run_id, table.c.status.in_(ENDED)))


def ended_before(connection: Connection, moment_s: float, limit: int = 100) -> list[str]:
    """Runs that ended before a moment, oldest first."""
    question = sa.select(table.c.id).where(table.c.status.in_(ENDED), table.c.ended_s < moment_s)
    return [str(row.id) for row in connection.execute(question.order_by(table.c.created_s).limit(limit))]
