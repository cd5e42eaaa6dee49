"""Workers and their heartbeats, by the database's clock: machines need not agree on the time."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from prudent.service.store.tables import workers as table

ALIVE, DRAINING, GONE = "alive", "draining", "gone"


@dataclass(frozen=True)
class WorkerRow:
    """A worker process, as its last heartbeat described it."""

    id: str
    host: str
    pid: int
    started_s: float
    beat_s: float
    state: str
    slots: int
    busy: int


def now_s(connection: Connection) -> float:
    """The database's clock."""
    if connection.dialect.name == "postgresql":
        question = sa.text("SELECT extract(epoch FROM clock_timestamp())")
    else:
        question = sa.text("SELECT (julianday('now') - 2440587.5) * 86400.0")
    return float(connection.execute(question).scalar_one())


def record_heartbeat(connection: Connection, worker: WorkerRow) -> None:
    """Record that the worker is alive."""
    moment = now_s(connection)
    values = {"state": worker.state, "slots": worker.slots, "busy": worker.busy, "beat_s": moment}
    changed = connection.execute(table.update().where(table.c.id == worker.id).values(**values))
    if not changed.rowcount:
        fresh = {"id": worker.id, "host": worker.host, "pid": worker.pid, "started_s": moment}
        connection.execute(table.insert().values(**fresh, **values))


def leave(connection: Connection, worker_id: str) -> None:
    """Remove a worker that has ended in good order."""
    connection.execute(table.delete().where(table.c.id == worker_id))


def silent_workers(connection: Connection, longer_than_s: float) -> list[str]:
    """Workers that have not been heard of for so long."""
    before = now_s(connection) - longer_than_s
    return [str(row.id) for row in connection.execute(sa.select(table.c.id).where(table.c.beat_s < before))]


def all_(connection: Connection) -> list[WorkerRow]:
    """Every worker that has not left, the oldest first."""
    rows = connection.execute(sa.select(table).order_by(table.c.started_s, table.c.id)).mappings()
    return [WorkerRow(**row) for row in rows]
