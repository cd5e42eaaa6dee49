"""Machines of runs in the service, after a kill and after a cancel: none is left, and all are paid for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from prudent.cloud.leases.lease import Lease
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.service.intake import admission
from prudent.service.settings import Settings, environment_of
from prudent.service.store import charges, runs, workers
from prudent.service.store.runs import RunRow
from prudent.service.store.store import Store
from prudent.service.store.users import LOCAL

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(900)
DATA = Path(pyspark.__file__).parent / "data" / "mllib" / "sample_linear_regression_data.txt"
REQUEST: dict[str, Any] = {
    "domain": "regression",
    "dataset": {"path": str(DATA), "format": "libsvm"},
    "budget": "500 trials",
    "computationalResources": {"instances": [{"ec2Instance": "m3.medium"}], "maxTotalInstances": 1},
}


@pytest.fixture
def place(tmp_path: Path) -> Settings:
    home = tmp_path / "home"
    made = Settings(
        home,
        concurrency=1,
        heartbeat_s=0.5,
        takeover_s=10.0,
        grace_s=1.0,
        nice=0,
        where="local",
        data=(DATA.parent,),
    )
    made.create()
    return made


@pytest.fixture
def store(place: Settings) -> Iterator[Store]:
    with Store(place.database) as opened:
        yield opened


@pytest.fixture
def crew(place: Settings, tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Two workers, by name."""
    made = {}
    for name in ("first", "second"):
        command = [sys.executable, "-m", "prudent.cli.main", "worker", "--name", name]
        with (tmp_path / f"{name}.log").open("wb") as log:
            environment = {**os.environ, **environment_of(place)}
            made[name] = subprocess.Popen(command, env=environment, stderr=log, stdout=log)
    yield made
    for process in made.values():
        process.kill()
        process.wait()


def until(happened: Callable[[], Any], logs: Path, wait_s: float = 300.0) -> Any:
    end_s = time.monotonic() + wait_s
    while time.monotonic() < end_s:
        if found := happened():
            return found
        time.sleep(0.05)
    raise AssertionError("\n".join(path.read_text()[-3000:] for path in logs.glob("*.log")))


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.NoSuchProcess:
        return []


def test_a_killed_worker_and_a_cancelled_run_leave_no_machine(
    store: Store, place: Settings, crew: dict[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    register, provider = LeaseRegister(place.home), LocalProvider(place.home)

    def run() -> RunRow:
        found = store.read(runs.get, run_id)
        assert found is not None
        return found

    def rented(count: int) -> list[Lease] | None:
        """The leases of all machines, once that many have been rented in all."""
        found = register.leases()
        assert len(provider.list()) <= 1
        return list(found) if len(found) == count and found[-1].state == "up" else None

    until(lambda: len(store.read(workers.all_)) == 2, tmp_path)
    run_id = admission.submit(store, admission.prepare(place, "train", REQUEST, LOCAL, "rest")).run.id
    until(lambda: rented(1), tmp_path)
    (lease,) = register.leases()
    assert lease.run == f"train-{run_id}"

    # Worker and process at once, so that nobody is left to give the machine back.
    first = str(run().worker)
    pid = crew[first].pid
    for each in [pid, *children(pid)]:
        os.kill(each, signal.SIGKILL)
    assert [one.cluster for one in provider.list()] == [lease.cluster]
    until(lambda: rented(2), tmp_path)
    ended = register.read(lease.cluster)
    assert ended is not None
    assert (ended.state, ended.why) == ("released", "its worker is gone")
    assert (run().worker, run().attempts) == ({"first": "second", "second": "first"}[first], 2)

    store.write(runs.cancel, run_id)
    assert until(lambda: run() if run().ended else None, tmp_path).status == "cancelled"
    assert provider.list() == ()
    assert {each.state for each in register.leases()} == {"released"}
    paid_usd = sum(each.cost_usd(time.time()) for each in register.leases())
    (charge,) = store.read(charges.of_run, run_id)
    assert charge.label == "machines"
    assert run().spent_usd == charge.usd == pytest.approx(paid_usd)
