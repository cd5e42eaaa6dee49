"""A run as a durable workflow: what a step came to is recorded, and a worker that takes over skips it.

Steps: trials, once for every batch of trials that ended; export; end; notify. The trials themselves are in
the store before their step is recorded, under their numbers, so that a crash in between records them once all
the same. What must happen each time a worker takes the run up (see `ClaimedRun.prepare`) is no step.
"""

from __future__ import annotations

import fcntl
import logging
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, Protocol

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer
from sqlalchemy.pool import NullPool

from prudent.core.errors import RunFailed
from prudent.service.logs import log_run
from prudent.service.notify.notifier import announce
from prudent.service.settings import Settings
from prudent.service.store.disk import is_full
from prudent.service.store.runs import FAILED, StaleClaim
from prudent.service.worker.claimed_run import ClaimedRun, StepOutcome

_log = logging.getLogger("prudent.worker")


class ClaimedRuns(Protocol):
    """Where the workflow finds the run that its worker has claimed."""

    def claimed_run(self, run_id: str) -> ClaimedRun | None: ...


_claimed_runs: ClaimedRuns | None = None


def serve(claimed_runs: ClaimedRuns) -> None:
    """Let the workflows of this process find their runs here."""
    global _claimed_runs  # noqa: PLW0603 - DBOS calls functions, and one process is one worker
    _claimed_runs = claimed_runs


def _claimed_run(run_id: str) -> ClaimedRun:
    found = _claimed_runs.claimed_run(run_id) if _claimed_runs is not None else None
    if found is None:
        raise StaleClaim(f"Run {run_id} is not this worker's; whoever has it goes on.")
    return found


@DBOS.workflow(name="run")
def perform_run(run_id: str) -> str:
    """Do a run to its end."""
    run = _claimed_run(run_id)
    with log_run(run_id):
        try:
            run.prepare()
            while not (batch := StepOutcome(**_trials(run_id))).outcome:
                pass
            if not batch.recorded:
                batch = _exported(run_id, batch)
            outcome = _end(run_id, asdict(batch))
            _notify(run_id, batch.exhausted)
            _log.info("Run %s %s", run_id, outcome)
            return outcome
        except StaleClaim as error:
            _log.warning("%s", error)
            raise
        except Exception as error:
            if not is_full(error):
                raise
            run.postpone("The disk is full; it goes on when there is room.")
        finally:
            run.close()


def _exported(run_id: str, batch: StepOutcome) -> StepOutcome:
    """Results that cannot be kept are none: the run failed, and its end says why."""
    why = _export(run_id, asdict(batch))
    return replace(batch, outcome=FAILED, error=why) if why else batch


@DBOS.step(name="trials")
def _trials(run_id: str) -> dict[str, Any]:
    return asdict(_claimed_run(run_id).next())


@DBOS.step(name="export")
def _export(run_id: str, batch: dict[str, Any]) -> str:
    """Why results could not be kept, or nothing; what is recorded of a step is plain JSON."""
    try:
        _claimed_run(run_id).export(StepOutcome(**batch))
    except RunFailed as error:
        if isinstance(error, StaleClaim):
            raise
        return str(error)
    return ""


@DBOS.step(name="end")
def _end(run_id: str, batch: dict[str, Any]) -> str:
    return _claimed_run(run_id).finish(StepOutcome(**batch))


@DBOS.step(name="notify")
def _notify(run_id: str, exhausted: str) -> int:
    run = _claimed_run(run_id)
    return announce(run.store, run.settings, run_id, exhausted)


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
    """Nobody else launches meanwhile."""
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
