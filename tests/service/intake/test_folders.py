"""Dropped documents are taken once: half-written ones waited for, also with two watchers and after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.service.intake import folders as folder_module
from prudent.service.intake.folders import MOST_RECEIVES, FolderSource, QueueFolderSource, put_message
from prudent.service.intake.incoming import unpack
from prudent.service.intake.refusal import Refused
from prudent.service.intake.sources import SourceThreads, sources_of
from prudent.service.settings import Settings
from prudent.service.store import runs
from prudent.service.store.store import Store

GOOD = {"domain": "regression", "dataset": {"path": "https://example.org/cars.csv"}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path}/store.db") as found:
        yield found


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _front(tmp_path: Path, store: Store, settings: Settings, clock: Any = None) -> FolderSource:
    return FolderSource(tmp_path / "drop", store, settings, clock=clock or Clock())


def _look(front: FolderSource, passed_s: float = 2.0) -> int:
    """Two looks, some time apart."""
    done = front.step()
    front.clock.now_s += passed_s  # type: ignore[attr-defined]
    return done + front.step()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def _count(store: Store) -> int:
    return len(store.read(runs.page).runs)


def test_a_document_is_taken_once_and_answered(tmp_path: Path, store: Store, settings: Settings) -> None:
    front = _front(tmp_path, store, settings)
    (front.folder / "cars.json").write_text(json.dumps(GOOD))
    assert _look(front) == 1
    assert _look(front) == 0
    (run,) = store.read(runs.page).runs
    assert (run.kind, run.front, run.user) == ("train", "folder", "folder")
    assert _names(front.folder) == ["accepted", "rejected"]
    assert _names(front.folder / "accepted") == ["cars.json", "cars.json.RUN"]
    assert json.loads((front.folder / "accepted" / "cars.json.RUN").read_text())["id"] == run.id


def test_what_is_wrong_is_told_beside_it(tmp_path: Path, store: Store, settings: Settings) -> None:
    front = _front(tmp_path, store, settings)
    wrong = {
        "typo.json": json.dumps({"domain": "regresion", "dataset": {"path": "https://example.org/a"}}),
        "list.json": "[1]",
        "nothing.json": "{}",
        "table.csv": "a,b\n1,2\n",
        "inside.json": json.dumps({"domain": "regression", "dataset": {"path": "http://169.254.169.254/"}}),
        "command.json": json.dumps(
            {"kind": "tune", "request": {"command": "make", "goal": "minimise time_s"}}
        ),
    }
    for name, text in wrong.items():
        (front.folder / name).write_text(text)
    assert _look(front, 60) == len(wrong)
    assert _count(store) == 0
    for name in wrong:
        reason = json.loads((front.folder / "rejected" / f"{name}.REASON").read_text())
        assert (front.folder / "rejected" / name).exists()
        assert reason["detail"]
    said = (front.folder / "rejected" / "typo.json.REASON").read_text()
    assert "Did you mean" in said
    assert json.loads(said)["errors"][0]["path"] == "domain"


def test_half_a_document_is_waited_for(tmp_path: Path, store: Store, settings: Settings) -> None:
    front = _front(tmp_path, store, settings)
    path, text = front.folder / "slow.json", json.dumps(GOOD)
    path.write_text("")
    for end in (10, 30, len(text) - 1):
        assert _look(front, 5) == 0  # it stands still, but it is no document yet
        path.write_text(text[:end])
    path.write_text(text)
    assert front.step() == 0  # it has just changed
    assert _look(front) == 1
    assert _count(store) == 1


def test_what_never_becomes_whole_is_given_up(tmp_path: Path, store: Store, settings: Settings) -> None:
    front = _front(tmp_path, store, settings)
    (front.folder / "broken.json").write_text('{"domain": ')
    assert _look(front, 20) == 0
    assert _look(front, 20) == 1
    assert "not valid JSON" in (front.folder / "rejected" / "broken.json.REASON").read_text()


def test_unfinished_hidden_and_odd_things_are_left_alone(
    tmp_path: Path, store: Store, settings: Settings
) -> None:
    front = _front(tmp_path, store, settings)
    for name in (".hidden.json", "a.json.part", "b.json~", "c.tmp"):
        (front.folder / name).write_text(json.dumps(GOOD))
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps(GOOD))
    (front.folder / "link.json").symlink_to(secret)
    os.mkfifo(front.folder / "pipe.json")
    (front.folder / "sub.json").mkdir()
    assert _look(front, 100) == 0
    assert _count(store) == 0
    assert secret.exists()


def test_too_large_a_document_is_refused(tmp_path: Path, store: Store, settings: Settings) -> None:
    front = _front(tmp_path, store, Settings(settings.home, body_mb=0.001))
    (front.folder / "large.json").write_text(json.dumps({**GOOD, "name": "x" * 5000}))
    assert _look(front, 60) == 1
    assert "larger than" in (front.folder / "rejected" / "large.json.REASON").read_text()


def test_the_same_document_may_be_dropped_again(tmp_path: Path, store: Store, settings: Settings) -> None:
    front = _front(tmp_path, store, settings)
    for number in range(3):
        path = front.folder / "cars.json"
        path.write_text(json.dumps(GOOD))
        os.utime(path, ns=(number, number))
        assert _look(front) == 1
    assert _count(store) == 3
    assert [n for n in _names(front.folder / "accepted") if n.endswith("json")] == [
        "cars-2.json", "cars-3.json", "cars.json",
    ]  # fmt: skip


def test_two_watchers_take_each_document_once(tmp_path: Path, store: Store, settings: Settings) -> None:
    fronts = [
        FolderSource(tmp_path / "drop", store, settings, settle_s=0.0, clock=time.monotonic) for _ in range(4)
    ]
    for number in range(40):
        (tmp_path / "drop" / f"{number}.json").write_text(json.dumps({**GOOD, "name": f"run {number}"}))
    for front in fronts:
        front.step()
    threads = [threading.Thread(target=front.step) for front in fronts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for front in fronts:
        front.step()
    found = store.read(runs.page, 100).runs
    assert sorted(run.title for run in found) == sorted(f"run {number}" for number in range(40))
    assert len(_names(tmp_path / "drop" / "accepted")) == 80


def test_a_watcher_killed_between_keeping_and_moving_takes_nothing_twice(
    tmp_path: Path, store: Store, settings: Settings
) -> None:
    front = _front(tmp_path, store, settings)
    for number in range(3):
        (front.folder / f"{number}.json").write_text(json.dumps({**GOOD, "name": f"run {number}"}))
    program = f"""
import os, signal
from pathlib import Path
from prudent.service.intake.folders import FolderSource
from prudent.service.settings import Settings
from prudent.service.store.store import Store
class Dying(FolderSource):
    def _move(self, name, reply):
        if name == "1.json":
            os.kill(os.getpid(), signal.SIGKILL)
        super()._move(name, reply)
settings = Settings(Path({str(settings.home)!r}))
front = Dying(Path({str(front.folder)!r}), Store({store.url!r}), settings, settle_s=0.0)
front.step(); front.step()
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    assert ended.returncode == -signal.SIGKILL
    assert _count(store) == 2  # the second was kept, but not moved
    assert "1.json" in _names(front.folder)
    assert _look(front) == 2
    assert sorted(run.title for run in store.read(runs.page).runs) == ["run 0", "run 1", "run 2"]
    assert _names(front.folder) == ["accepted", "rejected"]


def test_a_database_that_is_away_loses_no_document(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prudent.service.store.store import StoreUnavailable

    with Store(f"sqlite:///{tmp_path}/s.db") as store:
        front = _front(tmp_path, store, settings)
        (front.folder / "cars.json").write_text(json.dumps(GOOD))
        real = folder_module.receive_file

        def away(*_: Any) -> Any:
            raise StoreUnavailable("The database does not answer; try again.")

        monkeypatch.setattr(folder_module, "receive_file", away)
        with pytest.raises(StoreUnavailable):
            _look(front)
        assert "cars.json" in _names(front.folder)
        monkeypatch.setattr(folder_module, "receive_file", real)
        assert front.step() == 1


# The queue folder


def test_messages_are_taken_in_order_and_deleted_when_kept(
    tmp_path: Path, store: Store, settings: Settings
) -> None:
    front = QueueFolderSource(tmp_path / "queue", store, settings)
    for number in range(5):
        put_message(front.folder, "train", {**GOOD, "name": f"run {number}"})
    assert front.step() == 5
    assert front.step() == 0
    titles = [run.title for run in store.read(runs.page).runs]
    assert titles == [f"run {number}" for number in reversed(range(5))]
    assert _names(front.folder / "new") == []
    assert _names(front.folder / "dead") == []


def test_wrong_messages_are_dead_letters_with_the_reason(
    tmp_path: Path, store: Store, settings: Settings
) -> None:
    front = QueueFolderSource(tmp_path / "queue", store, settings)
    put_message(front.folder, "trian", GOOD)
    (front.folder / "new" / "x.json").write_text("no json")
    assert front.step() == 2
    dead = _names(front.folder / "dead")
    assert len(dead) == 4
    assert all(
        json.loads((front.folder / "dead" / name).read_text())["detail"] for name in dead if "REASON" in name
    )


def test_a_message_that_kills_its_receiver_is_tried_three_times(
    tmp_path: Path, store: Store, settings: Settings
) -> None:
    front = QueueFolderSource(tmp_path / "queue", store, settings)
    put_message(front.folder, "train", GOOD)
    program = f"""
import os, signal
from pathlib import Path
from prudent.service.intake import folders
from prudent.service.settings import Settings
from prudent.service.store.store import Store
folders.receive = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
store, settings = Store({store.url!r}), Settings(Path({str(settings.home)!r}))
folders.QueueFolderSource(Path({str(front.folder)!r}), store, settings).step()
"""
    for _ in range(MOST_RECEIVES):
        assert len(list((front.folder / "new").glob("*.json"))) == 1
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert front.step() == 1
    assert _count(store) == 0
    assert len(_names(front.folder / "dead")) == 2
    assert _names(front.folder / "new") == []


def test_receivers_side_by_side_take_each_message_once(
    tmp_path: Path, store: Store, settings: Settings
) -> None:
    fronts = [QueueFolderSource(tmp_path / "queue", store, settings) for _ in range(4)]
    for number in range(40):
        put_message(fronts[0].folder, "train", {**GOOD, "name": f"run {number}"})
    threads = [threading.Thread(target=front.step) for front in fronts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fronts[0].step()
    assert len(store.read(runs.page, 100).runs) == 40
    assert _names(fronts[0].folder / "new") == []


def test_fronts_run_by_themselves(tmp_path: Path, store: Store) -> None:
    settings = Settings(tmp_path / "home", watch=tmp_path / "drop", queue=(tmp_path / "queue").as_uri())
    running = SourceThreads(sources_of(settings, store)).start()
    put_message(tmp_path / "queue", "train", GOOD)
    (tmp_path / "drop" / "a.json").write_text(json.dumps(GOOD))
    until_s = time.monotonic() + 60
    while _count(store) < 2 and time.monotonic() < until_s:
        time.sleep(0.1)
    running.stop()
    assert sorted(run.front for run in store.read(runs.page).runs) == ["folder", "queue"]


# Parcels


@pytest.mark.parametrize(
    ("name", "body", "kind"),
    [
        ("a.json", '{"domain": "regression"}', "train"),
        ("a.json", '{"fleet": "2*m5.large", "workflow": {}}', "schedule"),
        ("a.yaml", "goal: minimise cost_usd", "tune"),
        ("a.tune.json", "{}", "tune"),
        ("schedule.json", "{}", "schedule"),
        ("a.json", '{"kind": "tune", "request": {"domain": 1}}', "tune"),
    ],
)
def test_the_kind_is_told_by_envelope_name_or_keys(name: str, body: str, kind: str) -> None:
    assert unpack(name, body.encode())[0] == kind


@given(st.binary(max_size=200), st.sampled_from(["a.json", "a.yaml", "a.train.yml"]))
def test_whatever_is_dropped_is_read_or_refused(body: bytes, name: str) -> None:
    try:
        kind, document = unpack(name, body)
    except Refused:
        return
    assert kind
    json.dumps(document)
