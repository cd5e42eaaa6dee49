"""Who does which run next, and what becomes of runs whose worker is gone."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

import sqlalchemy as sa
from sqlalchemy import Connection

from prudent.service.store import charges, events, runs, workers
from prudent.service.store.runs import FAILED, QUEUED, RUNNING, RunRow
from prudent.service.store.tables import runs as table
from prudent.service.store.tables import turns

_LOCK = 7065727


def claim(
    connection: Connection, worker: str, per_user: int, daily_usd: Mapping[str, float] | None = None
) -> RunRow | None:
    """The run that this worker does next, now its own; None if there is nothing to do.

    Users take turns: whoever has the fewest runs under way comes first, among those whoever waited longest
    for a turn. Of one user's runs the one with the highest priority comes first, then the oldest. Users with
    `per_user` runs under way, or whose money for today is spent or put aside for other runs, wait.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    for user in _in_turn(connection, per_user):
        left_usd = _left_usd(connection, user, (daily_usd or {}).get(user))
        if left_usd is not None and left_usd < charges.LEAST_USD:
            continue
        question = sa.select(table.c.id).where(table.c.status == QUEUED, table.c.user == user)
        order = question.order_by(table.c.priority.desc(), table.c.created_s).limit(1)
        found = connection.execute(order).scalar()
        run = None if found is None else _give(connection, str(found), worker)
        if run is not None and left_usd is not None:
            asked_usd = charges.asked_usd(run.document)
            more_usd = left_usd if asked_usd is None else max(asked_usd - run.spent_usd, 0.0)
            charges.reserve(connection, run.id, user, min(more_usd, left_usd))
        if run is not None:
            return run
    return None


def _left_usd(connection: Connection, user: str, limit_usd: float | None) -> float | None:
    """What a user may still put aside today; a run that must wait for it is told why. None: no limit."""
    if limit_usd is None:
        return None
    free_usd = limit_usd - charges.spent_usd(connection, user)
    left_usd = free_usd - charges.reserved_usd_of_user(connection, user)
    if free_usd < charges.LEAST_USD:
        _wait(connection, user, f"{user} has spent today's ${limit_usd:.2f}; it goes on tomorrow.")
    elif left_usd < charges.LEAST_USD:
        _wait(
            connection, user, f"What is left of {user}'s ${limit_usd:.2f} a day is put aside for other runs."
        )
    return left_usd


def _in_turn(connection: Connection, per_user: int) -> list[str]:
    queued = connection.execute(
        sa.select(table.c.user).where(table.c.status == QUEUED).group_by(table.c.user)
    ).scalars()
    waiting = [str(user) for user in queued]
    if not waiting:
        return []
    under_way = sa.select(table.c.user, sa.func.count()).where(table.c.status == RUNNING)
    busy = {str(user): int(count) for user, count in connection.execute(under_way.group_by(table.c.user))}
    last = {
        str(user): float(at_s) for user, at_s in connection.execute(sa.select(turns.c.user, turns.c.at_s))
    }
    able = [user for user in waiting if busy.get(user, 0) < per_user]
    return sorted(able, key=lambda user: (busy.get(user, 0), last.get(user, 0.0), user))


def _give(connection: Connection, run_id: str, worker: str) -> RunRow | None:
    now_s = time.time()
    change = table.update().where(table.c.id == run_id, table.c.status == QUEUED)
    changed = connection.execute(
        change.values(
            status=RUNNING,
            worker=worker,
            fence=table.c.fence + 1,
            attempts=table.c.attempts + 1,
            started_s=sa.func.coalesce(table.c.started_s, now_s),
            waiting="",
        )
    )
    if not changed.rowcount:
        return None
    run = runs.get(connection, run_id)
    assert run is not None
    turn = connection.execute(turns.update().where(turns.c.user == run.user).values(at_s=now_s))
    if not turn.rowcount:
        connection.execute(turns.insert().values(user=run.user, at_s=now_s))
    kind = "running" if run.attempts == 1 else "taken over"
    events.append(connection, run_id, kind, {"worker": worker, "attempt": run.attempts})
    return run


def _wait(connection: Connection, user: str, why: str) -> None:
    waiting = table.update().where(table.c.status == QUEUED, table.c.user == user, table.c.waiting != why)
    connection.execute(waiting.values(waiting=why))


def give_back(connection: Connection, run_id: str, fence: int, why: str, blame: bool) -> None:
    """Put a worker's run back into the queue. Without `blame` the attempt does not count."""
    runs.check_claim(connection, run_id, fence)
    _release(connection, run_id, why, blame)


def retry(connection: Connection, run_id: str, fence: int, tries: int, why: str) -> bool:
    """Count another attempt of the worker that has the run; False, and failed, if there were enough."""
    runs.check_claim(connection, run_id, fence)
    run = runs.get(connection, run_id)
    assert run is not None
    if run.attempts >= tries:
        runs.end(connection, run_id, FAILED, poisoned(run.attempts, why))
        return False
    connection.execute(table.update().where(table.c.id == run_id).values(attempts=run.attempts + 1))
    events.append(connection, run_id, "again", {"why": why, "attempt": run.attempts + 1})
    return True


def release_dead(connection: Connection, longer_than_s: float, tries: int) -> list[str]:
    """Forget workers that have fallen silent, and let their runs wait for another; answers those runs.

    A run that has ended its worker too often is not tried again. From here on the old worker's fence is too
    low: should it come back, nothing of what it says about the run is kept.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    freed: list[str] = []
    for worker in workers.silent_workers(connection, longer_than_s):
        freed += release_worker(connection, worker, tries)
        workers.leave(connection, worker)
    return freed


def release_worker(
    connection: Connection, worker: str, tries: int, keep: Collection[str] = (), blame: bool = True
) -> list[str]:
    """Let the runs of a worker wait for another, except those in `keep`."""
    question = sa.select(table.c.id, table.c.attempts).where(
        table.c.status == RUNNING, table.c.worker == worker
    )
    freed = []
    for run_id, attempts in connection.execute(question).all():
        if run_id in keep:
            continue
        freed.append(str(run_id))
        why = f"its worker {worker} has gone"
        if blame and attempts >= tries:
            connection.execute(table.update().where(table.c.id == run_id).values(fence=table.c.fence + 1))
            runs.end(connection, run_id, FAILED, poisoned(attempts, why))
        else:
            _release(connection, str(run_id), f"{why}; another takes over.", blame)
    return freed


def poisoned(attempts: int, why: str) -> str:
    """The error of a run that is not tried again."""
    return f"It was tried {attempts} times without an end ({why.rstrip('.')}); it is not tried again."


def cancelled(connection: Connection, worker: str) -> list[str]:
    """The runs of a worker that somebody wants to end."""
    question = sa.select(table.c.id).where(
        table.c.status == RUNNING, table.c.worker == worker, table.c.cancel.is_(True)
    )
    return [str(row.id) for row in connection.execute(question)]


def claimed_by(connection: Connection, worker: str) -> dict[str, int]:
    """The runs of a worker, with their fences."""
    question = sa.select(table.c.id, table.c.fence).where(table.c.status == RUNNING, table.c.worker == worker)
    return {str(run_id): int(fence) for run_id, fence in connection.execute(question)}


def why_waiting(connection: Connection, run: RunRow, per_user: int) -> str:
    """Why a run is not begun, for people; empty for one that does not wait."""
    if run.status != QUEUED:
        return ""
    if run.waiting:
        return run.waiting
    slots = sum(worker.slots for worker in workers.all_(connection) if worker.state == workers.ALIVE)
    if not slots:
        return "No worker is there; start one with prudent worker."
    mine = sa.select(sa.func.count()).where(table.c.status == RUNNING, table.c.user == run.user)
    busy = int(connection.execute(mine).scalar_one())
    if busy >= per_user:
        return f"{run.user} has {busy} runs under way, as many as one user may have."
    before = sa.select(sa.func.count()).where(table.c.status == QUEUED, table.c.created_s < run.created_s)
    count = int(connection.execute(before).scalar_one())
    return f"{count} came before it." if count else "A worker takes it as soon as one is free."


def _release(connection: Connection, run_id: str, why: str, blame: bool) -> None:
    run = runs.get(connection, run_id)
    assert run is not None
    charges.release(connection, run_id)
    if run.cancel:
        connection.execute(table.update().where(table.c.id == run_id).values(fence=table.c.fence + 1))
        runs.end(connection, run_id, runs.CANCELLED)
        return
    change = table.update().where(table.c.id == run_id)
    fewer = 0 if blame else 1
    connection.execute(
        change.values(
            status=QUEUED,
            worker=None,
            fence=table.c.fence + 1,
            attempts=table.c.attempts - fewer,
            waiting=why,
        )
    )
    events.append(connection, run_id, "waiting", {"why": why})


def any_queued(connection: Connection) -> bool:
    """Whether any run is queued."""
    return (
        connection.execute(sa.select(table.c.id).where(table.c.status == QUEUED).limit(1)).first() is not None
    )
