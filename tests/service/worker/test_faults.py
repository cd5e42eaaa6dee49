"""The short members of benchmarks/service_chaos.py: workers killed, the database restarted, under requests.

What must not be is what the benchmark looks for, by its own code: a request lost or done twice, a trial paid
twice, a sum that is not that of its charges.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from prudent.service.intake.folders import FolderSource, QueueFolderSource, put_message
from prudent.service.security.tokens import AccessMode
from prudent.service.settings import Settings, environment_of
from prudent.service.store import runs, workers
from prudent.service.store.store import Store, StoreUnavailable
from prudent.service.store.tables import workers as table
from prudent.service.web.app import create_app

pytestmark = pytest.mark.timeout(600)


def _benchmark() -> Any:
    path = Path(__file__).parents[3] / "benchmarks" / "service_chaos.py"
    spec = importlib.util.spec_from_file_location("service_chaos", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


chaos = _benchmark()


def until(happened: Callable[[], Any], wait_s: float = 400.0) -> Any:
    end_s = time.monotonic() + wait_s
    while time.monotonic() < end_s:
        try:
            if found := happened():
                return found
        except StoreUnavailable:
            pass
        time.sleep(0.05)
    raise AssertionError("It did not happen.")


@contextmanager
def worker(settings: Settings, name: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "prudent.cli.main", "worker", "--name", name]
    with (folder / f"{name}.log").open("wb") as log:
        environment = {**os.environ, **environment_of(settings)}
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    with process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            finally:
                process.kill()


def submit(client: httpx.Client, number: int) -> None:
    """Until it is accepted, with a key, as a careful client does."""

    def accepted() -> bool:
        try:
            headers = {"Idempotency-Key": f"chaos-{number}"}
            answer = client.post("/v1/runs/tune", json=chaos.document(number), headers=headers)
        except httpx.HTTPError:
            return False
        assert answer.status_code == 202 or answer.status_code >= 500, answer.text
        return answer.status_code == 202

    until(accepted)


def done(store: Store, count: int) -> bool:
    found = store.read(runs.counts)
    return sum(found.values()) == count and not found["queued"] + found["running"]


def assert_json(log: Path) -> None:
    """One object a line, also of DBOS while its database is away, and of SQLAlchemy's errors."""
    lines = log.read_text().splitlines()
    assert {type(json.loads(line)) for line in lines} == {dict}, lines


def settings_of(folder: Path, url: str | None = None) -> Settings:
    found = Settings(
        folder / "home", database_url=url, heartbeat_s=0.5, takeover_s=300.0, tries=5, per_user=100,
        grace_s=5.0, warm=False, poll_s=0.25, concurrency=1, nice=0,
    )  # fmt: skip
    found.create()
    AccessMode(found.home).choose(True)
    return found


def test_nothing_is_lost_or_done_twice_when_workers_are_killed(
    serving: Any, tmp_path: Path, nobody_left: Callable[[Path], None]
) -> None:
    """A request by each of three fronts; the first worker is killed when it has done one."""
    settings, count = settings_of(tmp_path), 3
    with Store(settings.database) as store, serving(create_app(settings, store)) as client:
        folder = FolderSource(tmp_path / "drop", store, settings, settle_s=0.0)
        queue = QueueFolderSource(tmp_path / "queue", store, settings)
        submit(client, 0)
        (tmp_path / "drop" / "one.tune.json").write_text(json.dumps(chaos.document(1)))
        put_message(tmp_path / "queue", "tune", chaos.document(2))
        assert (folder.step(), queue.step()) == (1, 1)
        with worker(settings, "first", tmp_path) as first:
            until(lambda: store.read(runs.counts)["succeeded"])
            first.kill()
        nobody_left(settings.home)
        silent = table.update().where(table.c.id == "first").values(beat_s=0.0)
        store.write(lambda connection: connection.execute(silent))
        with worker(settings, "second", tmp_path):
            until(lambda: done(store, count))
        assert chaos.wrong(store, settings, count) == []
    nobody_left(settings.home)
    assert_json(tmp_path / "first.log")
    assert_json(tmp_path / "second.log")


def test_nothing_is_lost_or_done_twice_when_the_database_restarts(
    postgres: Any, serving: Any, tmp_path: Path, nobody_left: Callable[[Path], None]
) -> None:
    settings, count = settings_of(tmp_path, postgres.database("restarts", "synchronous_commit=on")), 3
    with (
        Store(settings.database) as store,
        serving(create_app(settings, store)) as client,
        worker(settings, "only", tmp_path),
    ):
        until(lambda: store.read(workers.all_))
        client.timeout = httpx.Timeout(120)
        sending = threading.Thread(target=lambda: [submit(client, number) for number in range(count)])
        sending.start()
        until(lambda: sum(store.read(runs.counts).values()) >= 2)
        postgres.restart()
        sending.join(400)
        until(lambda: done(store, count))
        assert chaos.wrong(store, settings, count) == []
    nobody_left(settings.home)
    assert_json(tmp_path / "only.log")
