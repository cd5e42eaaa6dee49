"""Runs in the store: kept once per key, listed quickly, changed only by who has them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from prudent.core.errors import BadInput
from prudent.service.store import charges, events, models, runs, trials, users, workers
from prudent.service.store.charges import Charge
from prudent.service.store.models import StoredModel
from prudent.service.store.runs import IdempotencyConflict, NewRun, StaleClaim
from prudent.service.store.store import Store
from prudent.service.store.tables import runs as table
from prudent.service.store.trials import TrialRow
from prudent.service.store.users import User
from prudent.service.store.workers import WorkerRow


def new(user: str = "ada", **others: object) -> NewRun:
    return NewRun("tune", user, {"goal": "minimise cost_usd"}, "rest", "body", **others)  # type: ignore[arg-type]


def running(store: Store, fence: int = 1) -> str:
    run, _ = store.write(runs.insert, new())
    store.write(
        lambda c: c.execute(table.update().where(table.c.id == run.id).values(status="running", fence=fence))
    )
    return run.id


def test_a_run_comes_back_as_it_was(store: Store) -> None:
    run, created = store.write(runs.insert, new(title="ünï"))
    assert created
    assert store.read(runs.get, run.id) == run
    assert [event.kind for event in store.read(events.since, run.id)] == ["queued"]


def test_fifty_at_once_with_one_key_give_one_run(store: Store) -> None:
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: store.write(runs.insert, new(key_hash="k")), range(50)))
    assert len({run.id for run, _ in answers}) == 1
    assert sum(created for _, created in answers) == 1
    with pytest.raises(IdempotencyConflict):
        store.write(runs.insert, NewRun("tune", "ada", {}, "rest", "another body", key_hash="k"))


def test_two_processes_with_one_key_give_one_run(url: str) -> None:
    with Store(url) as one, Store(url) as two, ThreadPoolExecutor(40) as pool:
        stores = (one, two)
        answers = list(pool.map(lambda n: stores[n % 2].write(runs.insert, new(key_hash="k")), range(40)))
    assert len({run.id for run, _ in answers}) == 1


def test_a_change_that_fails_does_not_fail_its_neighbours(store: Store) -> None:
    def wrong(connection: object) -> None:
        raise BadInput("no; never.")

    futures = [store.submit(runs.insert, new()) if n % 2 else store.submit(wrong) for n in range(20)]
    assert sum(future.exception() is None for future in futures) == 10
    assert len(store.read(runs.page).runs) == 10


def test_pages_hold_every_run_once_newest_first(store: Store) -> None:
    for number in range(25):
        store.write(runs.insert, new(created_s=float(number // 3)))
    seen, cursor = [], None
    while True:
        page = store.read(runs.page, limit=7, after=cursor)
        seen += page.runs
        cursor = page.next
        if cursor is None:
            break
    assert len({run.id for run in seen}) == len(seen) == 25
    assert all((a.created_s, a.id) > (b.created_s, b.id) for a, b in pairwise(seen))
    with pytest.raises(BadInput, match="cursor"):
        store.read(runs.page, after="nonsense")


def test_listing_by_user_status_and_kind(store: Store) -> None:
    store.write(runs.insert, new("ada"))
    mine, _ = store.write(runs.insert, new("bob"))
    assert [run.id for run in store.read(runs.page, user="bob").runs] == [mine.id]
    assert store.read(runs.page, status="running").runs == ()
    assert store.read(runs.counts)["queued"] == 2
    assert store.read(runs.counts, user="bob")["queued"] == 1


def test_a_zombie_is_refused(store: Store) -> None:
    run = running(store, fence=2)
    for late in (
        lambda c: trials.record(c, TrialRow(run, 1, "ridge", {}, "finished"), 1),
        lambda c: runs.progress(c, run, 1, 0.5),
        lambda c: runs.finish(c, run, 1, "succeeded"),
        lambda c: models.record(c, [], run, 1),
    ):
        with pytest.raises(StaleClaim):
            store.write(late)
    assert store.read(trials.of_run, run) == []
    found = store.read(runs.get, run)
    assert found is not None
    assert (found.status, found.progress) == ("running", 0.0)


def test_a_trial_is_recorded_once(store: Store) -> None:
    run = running(store)
    assert store.write(trials.record, TrialRow(run, 1, "ridge", {"alpha": 1}, "running"), 1)
    assert store.write(trials.record, TrialRow(run, 1, "ridge", {"alpha": 1}, "finished", 0.9), 1)
    assert not store.write(trials.record, TrialRow(run, 1, "ridge", {"alpha": 1}, "failed"), 1)
    assert [(t.status, t.score) for t in store.read(trials.of_run, run)] == [("finished", 0.9)]
    store.write(trials.record, TrialRow(run, 2, "ridge", {}, "running"), 1)
    assert store.write(trials.drop_unfinished, run, 1) == 1
    assert [trial.number for trial in store.read(trials.of_run, run)] == [1]


def test_nothing_is_paid_twice(store: Store) -> None:
    run = running(store)
    charge = Charge(run, "trial 1", "ada", "tune", 0.25, 1.5, "2026-01-01")
    assert store.write(charges.record, charge)
    assert not store.write(charges.record, charge)
    found = store.read(runs.get, run)
    assert found is not None
    assert found.spent_usd == 0.25
    assert store.read(charges.spent_usd, "ada") == 0.25
    assert store.read(charges.spent_usd, "bob") == 0.0
    assert [(s.user, s.kind, s.usd, s.runs) for s in store.read(charges.totals, "2000-01-01")] == [
        ("ada", "tune", 0.25, 1)
    ]


def test_cancel_ends_what_waits_and_tells_what_runs(store: Store) -> None:
    waiting, _ = store.write(runs.insert, new())
    ended = store.write(runs.cancel, waiting.id)
    assert ended is not None
    assert ended.status == "cancelled"
    under_way = store.write(runs.cancel, running(store))
    assert under_way is not None
    assert (under_way.status, under_way.cancel) == ("running", True)
    assert store.write(runs.cancel, "nobody") is None


def test_progress_never_goes_back(store: Store) -> None:
    run = running(store)
    store.write(runs.progress, run, 1, 0.6)
    store.write(runs.progress, run, 1, 0.4, 12.0)
    found = store.read(runs.get, run)
    assert found is not None
    assert (found.progress, found.eta_s) == (0.6, 12.0)


def test_events_are_numbered_and_followed(store: Store) -> None:
    run, _ = store.write(runs.insert, new())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store.write(events.append, run.id, "log", {"n": n}), range(30)))
    assert [event.number for event in store.read(events.since, run.id)] == list(range(1, 32))
    assert [event.number for event in store.read(events.since, run.id, 28, 2)] == [29, 30]


def test_models_users_and_workers_are_kept(store: Store) -> None:
    run = running(store)
    made = [
        StoredModel(f"{run}-{rank}", run, "ada", rank, "ridge", 0.5, "r2", 0.5, "/m", 1.0) for rank in (1, 2)
    ]
    store.write(models.record, made, run, 1)
    store.write(models.record, made, run, 1)
    assert store.read(models.of_run, run) == made
    assert store.read(models.page, 1).next is not None
    store.write(users.put, User("ada", "member", 5.0, "hash"))
    store.write(users.put, User("ada", "admin", None, "hash"))
    assert store.read(users.get, "ada") == User("ada", "admin", None, "hash")
    store.write(workers.record_heartbeat, WorkerRow("w", "host", 1, 0.0, 0.0, "alive", 2, 0))
    assert [worker.id for worker in store.read(workers.all_)] == ["w"]
    assert store.read(workers.silent_workers, 10.0) == []
    assert store.read(workers.silent_workers, -1.0) == ["w"]


def test_a_removed_run_leaves_its_charges(store: Store) -> None:
    run = running(store)
    store.write(charges.record, Charge(run, "trial 1", "ada", "tune", 0.25))
    store.write(runs.finish, run, 1, "failed", "it broke")
    store.write(runs.remove, run)
    assert store.read(runs.get, run) is None
    assert store.read(charges.spent_usd) == 0.25
