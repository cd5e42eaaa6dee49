"""Claims: fair among users, within limits, safe when workers vanish."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from prudent.service.store import charges, claims, runs, workers
from prudent.service.store.charges import Charge
from prudent.service.store.runs import NewRun, StaleClaim
from prudent.service.store.store import Store
from prudent.service.store.workers import WorkerRow
from prudent.service.worker.claimed_run import _may_spend


def submit(store: Store, user: str, count: int = 1, **others: object) -> list[str]:
    new = [NewRun("tune", user, {}, "rest", "body", **others) for _ in range(count)]  # type: ignore[arg-type]
    return [store.write(runs.insert, each)[0].id for each in new]


def alive(store: Store, name: str) -> None:
    store.write(workers.record_heartbeat, WorkerRow(name, "host", 1, 0.0, 0.0, "alive", 2, 0))


def take(store: Store, worker: str = "w", per_user: int = 100, **others: object) -> runs.RunRow | None:
    return store.write(claims.claim, worker, per_user, **others)  # type: ignore[arg-type]


def test_users_take_turns(store: Store) -> None:
    submit(store, "ada", 20)
    submit(store, "bob", 3)
    submit(store, "cy", 3)
    taken = []
    for _ in range(9):
        run = take(store)
        assert run is not None
        taken.append(run.user)
        store.write(runs.finish, run.id, run.fence, "succeeded")
    assert Counter(taken) == {"ada": 3, "bob": 3, "cy": 3}


def test_priority_then_age_within_a_user(store: Store) -> None:
    first, second = submit(store, "ada", 2)
    (urgent,) = submit(store, "ada", priority=5)
    (later,) = submit(store, "ada", priority=-1)
    taken = [run.id for _ in range(4) if (run := take(store)) is not None]
    assert taken == [urgent, first, second, later]
    assert take(store) is None


def test_nobody_gets_more_than_their_share(store: Store) -> None:
    submit(store, "ada", 5)
    assert take(store, per_user=2) is not None
    assert take(store, per_user=2) is not None
    assert take(store, per_user=2) is None


def test_spent_money_makes_wait(store: Store) -> None:
    (run,) = submit(store, "ada")
    store.write(charges.record, Charge("other", "trial 1", "ada", "tune", 3.0))
    assert take(store, daily_usd={"ada": 3.0}) is None
    found = store.read(runs.get, run)
    assert found is not None
    assert "tomorrow" in found.waiting
    assert take(store, daily_usd={"ada": 3.1}) is not None


def asking(store: Store, user: str, *budgets: str) -> list[str]:
    new = [NewRun("tune", user, {"budget": budget}, "rest", "body") for budget in budgets]
    return [store.write(runs.insert, each)[0].id for each in new]


def test_money_is_put_aside_when_a_run_is_claimed(store: Store) -> None:
    limit = {"ada": 1.0}
    first, second, third = asking(store, "ada", "$0.70", "$0.70", "$0.10")
    taken = [take(store, daily_usd=limit) for _ in range(3)]
    assert [run.id for run in taken if run is not None] == [first, second]
    assert store.read(_may_spend, first) == pytest.approx(0.7)
    assert store.read(_may_spend, second) == pytest.approx(0.3)
    waiting = store.read(runs.get, third)
    assert waiting is not None
    assert "put aside for other runs" in waiting.waiting
    # What is charged was put aside before: it counts once.
    store.write(charges.record, Charge(first, "trial 1", "ada", "tune", 0.5))
    assert store.read(_may_spend, first) == pytest.approx(0.7)
    assert take(store, daily_usd=limit) is None
    # An end sets free what was not needed.
    run = taken[0]
    assert run is not None
    store.write(runs.finish, first, run.fence, "succeeded")
    last = take(store, daily_usd=limit)
    assert last is not None
    assert last.id == third
    assert store.read(_may_spend, third) == pytest.approx(0.1)


def test_a_run_that_says_no_budget_gets_what_is_left_and_no_limit_puts_nothing_aside(store: Store) -> None:
    (first,) = asking(store, "ada", "20 trials")
    submit(store, "bob")
    store.write(charges.record, Charge("other", "trial 1", "ada", "tune", 0.25))
    assert take(store, daily_usd={"ada": 1.0}) is not None
    assert take(store, daily_usd={"ada": 1.0}) is not None
    assert store.read(_may_spend, first) == pytest.approx(0.75)
    assert store.read(charges.reserved_usd_of_user, "bob") == 0.0


def test_a_run_that_is_taken_over_has_money_put_aside_once(store: Store) -> None:
    alive(store, "dead")
    (first,) = asking(store, "ada", "$0.80")
    assert take(store, "dead", daily_usd={"ada": 1.0}) is not None
    store.write(charges.record, Charge(first, "trial 1", "ada", "tune", 0.3))
    store.write(claims.release_dead, -1.0, 3)
    assert store.read(charges.reserved_usd_of_user, "ada") == 0.0
    assert take(store, "other", daily_usd={"ada": 1.0}) is not None
    assert store.read(_may_spend, first) == pytest.approx(0.8)
    assert store.read(charges.reserved_usd_of_user, "ada") == pytest.approx(0.5)


def test_workers_at_once_cannot_pass_a_users_limit(url: str) -> None:
    limit = {"ada": 1.0, "bob": 0.5}
    with Store(url) as one, Store(url) as two, ThreadPoolExecutor(8) as pool:
        asking(one, "ada", *["$0.15"] * 12)
        asking(two, "bob", *["$0.20"] * 12)
        stores = (one, two)
        found = list(pool.map(lambda n: take(stores[n % 2], f"w{n % 8}", daily_usd=limit), range(30)))
        for run in (run for run in found if run is not None):  # each spends all that it may
            usd = one.read(_may_spend, run.id)
            assert usd is not None
            one.write(charges.record, Charge(run.id, "all", run.user, "tune", usd))
        spent = {user: one.read(charges.spent_usd, user) for user in limit}
    assert spent == pytest.approx(limit)


def test_each_run_is_taken_once_by_many_workers(url: str) -> None:
    with Store(url) as one, Store(url) as two, ThreadPoolExecutor(8) as pool:
        submit(one, "ada", 20)
        submit(two, "bob", 20)
        stores = (one, two)
        found = list(pool.map(lambda n: take(stores[n % 2], f"w{n % 8}"), range(60)))
    taken = [run.id for run in found if run is not None]
    assert len(taken) == len(set(taken)) == 40


def test_a_dead_workers_runs_go_to_another_and_it_is_refused(store: Store) -> None:
    alive(store, "dead")
    submit(store, "ada")
    run = take(store, "dead")
    assert run is not None
    assert store.write(claims.release_dead, 100.0, 3) == []
    assert store.write(claims.release_dead, -1.0, 3) == [run.id]
    assert store.read(workers.all_) == []
    with pytest.raises(StaleClaim):
        store.write(runs.finish, run.id, run.fence, "succeeded")
    again = take(store, "other")
    assert again is not None
    assert (again.id, again.attempts) == (run.id, 2)
    assert again.fence > run.fence
    assert again.started_s == run.started_s
    with pytest.raises(StaleClaim):
        store.write(runs.progress, run.id, run.fence, 0.9)


def test_poison_stops_after_three(store: Store) -> None:
    (name,) = submit(store, "ada")
    for _ in range(3):
        alive(store, "w")
        assert take(store) is not None
        store.write(claims.release_dead, -1.0, 3)
    found = store.read(runs.get, name)
    assert found is not None
    assert found.status == "failed"
    assert "3 times" in found.error
    assert take(store) is None


def test_handing_over_is_nobodys_fault(store: Store) -> None:
    submit(store, "ada")
    for _ in range(5):
        run = take(store)
        assert run is not None
        assert run.attempts == 1
        store.write(claims.give_back, run.id, run.fence, "its worker is leaving.", False)


def test_attempts_within_a_worker_count_too(store: Store) -> None:
    submit(store, "ada")
    run = take(store)
    assert run is not None
    assert store.write(claims.retry, run.id, run.fence, 3, "it was killed")
    assert store.write(claims.retry, run.id, run.fence, 3, "it was killed")
    assert not store.write(claims.retry, run.id, run.fence, 3, "it was killed")
    found = store.read(runs.get, run.id)
    assert found is not None
    assert (found.status, found.attempts) == ("failed", 3)


def test_cancelled_while_its_worker_was_dead_ends_it(store: Store) -> None:
    alive(store, "w")
    submit(store, "ada")
    run = take(store)
    assert run is not None
    store.write(runs.cancel, run.id)
    assert store.read(claims.cancelled, "w") == [run.id]
    store.write(claims.release_dead, -1.0, 3)
    found = store.read(runs.get, run.id)
    assert found is not None
    assert found.status == "cancelled"


def test_people_are_told_why_a_run_waits(store: Store) -> None:
    first, second = submit(store, "ada", 2)

    def why(name: str, per_user: int = 9) -> str:
        run = store.read(runs.get, name)
        assert run is not None
        return store.read(claims.why_waiting, run, per_user)

    assert "No worker" in why(first)
    alive(store, "w")
    assert "as soon as" in why(first)
    assert why(second) == "1 came before it."
    assert take(store) is not None
    assert why(first) == ""
    assert "as many as" in why(second, per_user=1)
