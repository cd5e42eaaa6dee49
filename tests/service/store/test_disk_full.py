"""A disk that is full: told at once, nothing lost, nobody blamed. The database is really full: it may have no
more pages than it has."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from prudent.core.errors import RunFailed
from prudent.service.intake.admission import policy_for
from prudent.service.settings import Settings
from prudent.service.store import claims, disk, events, runs, workers
from prudent.service.store.runs import NewRun, RunRow
from prudent.service.store.store import DiskFull, Store
from prudent.service.web.app import create_app
from prudent.service.worker.artifacts import REPORT, RESULT
from prudent.service.worker.child import ChildProcess, ProcessOptions
from prudent.service.worker.claimed_run import ClaimedRun, HandedOver
from prudent.service.worker.heartbeat import Heartbeat
from prudent.service.worker.messages import DoneMessage, FailedMessage, PostponedMessage, RunTask
from prudent.service.worker.worker import Worker
from prudent.training.data import fetch

DOCUMENT = {"domain": "misc-functions", "budget": "2 trials", "name": "x" * 20_000}


class Full:
    """A store whose database has no room, until it has."""

    def __init__(self, store: Store) -> None:
        self.store, self._most = store, 0
        sa.event.listen(store._writer, "begin", self._limit)

    def fill(self) -> None:
        """From now on it has the pages that it has."""
        self._most = 1
        for number in range(1000):  # and none of them is free
            try:
                self.store.write(events.append, f"full-{number}", "x", {"x": "y" * 3000})
            except DiskFull:
                return
        raise AssertionError("It is never full.")

    def make_room(self) -> None:
        self._most = 1 << 30

    def _limit(self, connection: sa.Connection) -> None:
        if self._most:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {self._most}")


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with Store(settings.database) as opened:
        yield opened


@pytest.fixture
def full(store: Store) -> Full:
    return Full(store)


@pytest.fixture(autouse=True)
def _unrestricted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever does a run restricts its process, which here is that of other tests, too."""
    monkeypatch.setattr(fetch, "_in_force", None)


def new_run(store: Store, **more: Any) -> RunRow:
    return store.write(runs.insert, NewRun("train", "ada", {"domain": "x"}, "rest", "hash", **more))[0]


def test_submissions_hear_at_once_and_ready_says_no(
    serving: Any, settings: Settings, store: Store, full: Full
) -> None:
    with serving(create_app(settings, store)) as client:
        assert client.post("/v1/runs/train", json=DOCUMENT).status_code == 202
        assert client.get("/ready").status_code == 200
        full.fill()
        began_s = time.monotonic()
        refused = client.post("/v1/runs/train", json=DOCUMENT)
        assert (refused.status_code, refused.headers["retry-after"]) == (507, "5")
        assert time.monotonic() - began_s < 20  # two seconds are promised; before, it took sixty
        assert "make room" in refused.json()["detail"]
        assert client.get("/health").status_code == 200
        until_s = time.monotonic() + 60
        while client.get("/ready").status_code != 503:  # what was known a moment ago may be told once more
            assert time.monotonic() < until_s
            time.sleep(0.05)
        assert len(client.get("/v1/runs").json()["runs"]) == 1  # reading goes on
        full.make_room()
        while client.get("/ready").status_code != 200:
            assert time.monotonic() < until_s
            time.sleep(0.05)
        assert client.post("/v1/runs/train", json=DOCUMENT).status_code == 202
    assert store.read(runs.counts)["queued"] == 2


def test_nothing_new_is_taken_when_the_disk_is_nearly_full(
    serving: Any, settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(store)
    monkeypatch.setattr(disk, "LEAST_MB", 1e12)
    with serving(create_app(settings, store)) as client:
        assert client.post("/v1/runs/train", json=DOCUMENT).status_code == 507
        assert client.get("/ready").status_code == 503
    worker = Worker(settings, store)
    monkeypatch.setattr(worker.pool, "ready", lambda: True)
    assert worker.step() == 0
    found = store.read(runs.get, run.id)
    assert found is not None
    assert (found.status, found.attempts) == ("queued", 0)
    worker.pool.close()


def test_a_claim_that_cannot_be_written_counts_no_attempt(store: Store, full: Full) -> None:
    run = new_run(store)
    full.fill()
    with pytest.raises(DiskFull):
        store.write(claims.claim, "worker-" + "x" * 10_000, 8)  # more than fits into the pages that are there
    full.make_room()
    found = store.read(runs.get, run.id)
    assert found is not None
    assert (found.status, found.attempts, found.fence) == ("queued", 0, 0)


def taken(store: Store) -> RunRow:
    new_run(store)
    run = store.write(claims.claim, "worker", 8)
    assert run is not None
    return run


def session_of(run: RunRow, store: Store, settings: Settings, **more: Any) -> ClaimedRun:
    return ClaimedRun(run, store, settings, None, 1, **more)  # type: ignore[arg-type]


def test_what_was_done_is_kept_when_there_is_room_again(
    store: Store, settings: Settings, full: Full, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prudent.service.worker.claimed_run._FULL_S", 0.02)
    run = taken(store)
    session = session_of(run, store, settings)
    full.fill()
    data = {"x": "y" * 5000}
    thread = threading.Thread(target=lambda: session._write(events.append, run.id, "trial", data))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()  # it waits
    full.make_room()
    thread.join(60)
    assert [event.kind for event in store.read(events.since, run.id)][-1] == "trial"


def test_who_has_to_leave_does_not_wait_for_room(store: Store, settings: Settings, full: Full) -> None:
    run = taken(store)
    session = session_of(run, store, settings)
    session.hand_over()
    full.fill()
    with pytest.raises(HandedOver):
        session._write(events.append, run.id, "trial", {"x": "y" * 5000})


def test_a_run_that_is_postponed_waits_without_blame(store: Store, settings: Settings) -> None:
    run, left, paused = taken(store), [], []
    session = session_of(run, store, settings, leave=left.append, pause=lambda: paused.append(1))
    with pytest.raises(HandedOver):
        session._ended(PostponedMessage("The disk is full."), ())
    session.close()
    assert (left, paused) == ([run.id], [1])  # once: it may be this worker's again by now
    found = store.read(runs.get, run.id)
    assert found is not None
    assert (found.status, found.attempts, found.waiting) == ("queued", 0, "The disk is full.")


class Walled:
    """A process behind the wall, and the pool that it comes from."""

    sandboxed, sandbox = True, None

    def give_back(self, hand: Any, good: bool = True) -> None:
        assert not good


@pytest.mark.parametrize(("least_mb", "status"), [(0.0, "failed"), (1e12, "queued")])
def test_a_walled_run_is_believed_if_the_disk_is_seen_to_be_full(
    least_mb: float, status: str, store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command could say so for ever, and keep the worker from other runs."""
    run = taken(store)
    settings.folder_of(run.id).mkdir()
    monkeypatch.setattr(disk, "LEAST_MB", least_mb)
    session = session_of(run, store, replace(settings, tries=1))
    session.pool = session._process = Walled()  # type: ignore[assignment]
    with nullcontext() if status == "failed" else pytest.raises(HandedOver):
        assert session._ended(PostponedMessage("The disk is full."), ()).recorded
    found = store.read(runs.get, run.id)
    assert found is not None
    assert found.status == status


def test_results_that_find_no_room_without_their_secrets_are_made_again(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = ProcessOptions(1, 600.0, (), policy_for(settings, ()), tmp_path / "warm", warm=False, nice=0)
    child = ChildProcess(Line(), terms)  # type: ignore[arg-type]
    written = [tmp_path / "r" / name for name in (RESULT, REPORT)]

    def no_room(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def perform(task: RunTask) -> DoneMessage:
        for path in written:
            path.write_text("hush-hush")
        monkeypatch.setattr(Path, "write_text", no_room)
        return DoneMessage()

    monkeypatch.setattr(child, "_perform", perform)
    document = {"environment": {"KEY": "hush-hush"}}
    assert isinstance(child._done(RunTask("r", "train", document, tmp_path / "r")), PostponedMessage)
    assert not any(path.exists() for path in written)


def test_a_heartbeat_that_cannot_be_written_still_keeps_work_going(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can take over while nobody can write; without a sign from its worker a run would end."""
    ticks: list[int] = []
    me = workers.WorkerRow("w", "host", 1, 0.0, 0.0, workers.ALIVE, 1, 0)
    pulse = Heartbeat(store, settings, lambda: me, set, lambda: ticks.append(1))

    def no_room(*_: Any) -> None:
        raise DiskFull("full")

    monkeypatch.setattr(store, "write", no_room)
    with pytest.raises(DiskFull):
        pulse.send_heartbeat()
    assert ticks == [1]


def test_a_stray_of_a_full_disk_is_freed_without_blame(store: Store) -> None:
    run = taken(store)
    assert store.write(claims.release_worker, "worker", 1, (), False) == [run.id]
    found = store.read(runs.get, run.id)
    assert found is not None
    assert (found.status, found.attempts) == ("queued", 0)


class Line:
    """What the process says."""

    def send(self, said: Any) -> None:
        raise AssertionError(said)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), PostponedMessage),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), PostponedMessage),
        (OSError(errno.EACCES, "Permission denied"), FailedMessage),
        (RunFailed("wrapped"), FailedMessage),
    ],
)
def test_a_run_that_finds_no_room_is_postponed(
    error: Exception, said: type, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = ProcessOptions(1, 600.0, (), policy_for(settings, ()), tmp_path / "warm", warm=False, nice=0)
    child = ChildProcess(Line(), terms)  # type: ignore[arg-type]

    def perform(task: RunTask) -> Any:
        raise RunFailed("It could not be written; make room.") from error

    monkeypatch.setattr(child, "_perform", perform)
    assert type(child._done(RunTask("r", "train", {}, tmp_path / "r"))) is said


def test_a_run_over_its_memory_is_told_so_and_wears_its_process(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = ProcessOptions(
        1, 600.0, (), policy_for(settings, ()), tmp_path / "warm", warm=False, nice=0, memory_mb=700
    )
    child = ChildProcess(Line(), terms)  # type: ignore[arg-type]

    def perform(task: RunTask) -> Any:
        raise MemoryError

    monkeypatch.setattr(child, "_perform", perform)
    said = child._done(RunTask("r", "train", {}, tmp_path / "r"))
    assert isinstance(said, FailedMessage)
    assert said.worn
    assert "more than the 700 MB of memory" in said.error
