"""DBOS, the engine of durable workflows: how a worker starts it, and the queues of those who take over."""

from __future__ import annotations

import fcntl
import logging
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer
from sqlalchemy.pool import NullPool

from prudent.service.settings import Settings

APPLICATION = "prudent"
VERSION = "prudent-1"
SCHEMA = "prudent_engine"
_LOCK = 7065728
_QUEUE = "worker-"
_LOOK_S = 1.0
"""How often a worker looks for what it takes over, at most: that is rare, and to look takes work."""


def queue_of(worker: str) -> str:
    """The queue on which a worker finds what it takes over: DBOS starts a resumed workflow from a queue, and
    only the worker that has claimed the run may start it."""
    return f"{_QUEUE}{worker}"


def launch(settings: Settings, worker: str) -> None:
    """Start DBOS in this process, as the executor of this name."""
    for name in ("dbos", "dbos._logger"):
        logging.getLogger(name).setLevel(logging.WARNING)
    config: DBOSConfig = {
        "name": APPLICATION,
        "system_database_url": settings.engine_database,
        "application_version": VERSION,
        "executor_id": worker,
        "log_level": "WARNING",
        "dbos_system_schema": SCHEMA,
        "use_listen_notify": False,
        "notification_listener_polling_interval_sec": 10.0,
        "scheduler_polling_interval_sec": 3600.0,
        # Whoever can write to the database must not thereby run code here, as a pickle would.
        "serializer": DBOSPortableJSONSerializer(),
    }
    with _launch_lock(settings):  # tables are made by whoever comes first
        DBOS(config=config)
        DBOS.listen_queues([queue_of(worker)])
        DBOS.launch()
        DBOS.register_queue(
            queue_of(worker),
            polling_interval_sec=max(settings.poll_s, _LOOK_S),
            on_conflict="always_update",
        )


def delete_queue(worker: str) -> None:
    """Remove what DBOS keeps of a worker beside its workflows, which are others' by now."""
    DBOS.delete_queue(queue_of(worker))


def orphaned_queues(living: Collection[str]) -> set[str]:
    """Workers that have a queue and are not among the living."""
    found = {queue.name.removeprefix(_QUEUE) for queue in DBOS.list_queues() if queue.name.startswith(_QUEUE)}
    return found - set(living)


@contextmanager
def _launch_lock(settings: Settings) -> Iterator[None]:
    """Hold the lock under which only one worker at a time starts DBOS."""
    url = settings.engine_database
    if url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
        with open(f"{path}.lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = sqlite3.connect(path)
            # Readers then do not wait for the writer; the file remembers it.
            file.execute("PRAGMA journal_mode=WAL").close()
            file.close()
            yield
        return
    engine = sa.create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        # Asked for again and again, never waited for: an index that is made concurrently would wait for the
        # transaction that waits.
        while not connection.execute(sa.select(sa.func.pg_try_advisory_lock(_LOCK))).scalar():
            time.sleep(0.2)
        try:
            yield
        finally:
            connection.execute(sa.select(sa.func.pg_advisory_unlock(_LOCK)))
