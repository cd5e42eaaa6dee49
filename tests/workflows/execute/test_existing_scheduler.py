"""Plans followed on a Dask cluster that somebody else runs."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.core.errors import BadInput, RunFailed
from prudent.workflows import Activation, Fleet, Plan, Vm, Workflow, World, schedule
from prudent.workflows.execute.runner import execute

PlanFor = Callable[..., Plan]
_SCHEDULER = """
import asyncio, sys
from distributed import Scheduler
async def serve():
    async with Scheduler(host="127.0.0.1", port=int(sys.argv[1]), dashboard_address="127.0.0.1:0") as s:
        await s.finished()
asyncio.run(serve())
"""
_WORKER = """
import asyncio, sys
{before}
from distributed import Worker
async def serve():
    async with Worker(sys.argv[1], name=sys.argv[2], nthreads=int(sys.argv[3]), dashboard=False) as w:
        await w.finished()
asyncio.run(serve())
"""


class Cluster:
    """A scheduler and workers as separate programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self._start([_SCHEDULER, str(self.port)])
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise AssertionError("the scheduler does not start")

    def add(self, name: str, threads: int = 1, before: str = "") -> None:
        code = _WORKER.format(before=before)
        self.workers[name] = self._start([code, self.address, name, str(threads)])

    def wait(self) -> None:
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers), timeout=60)

    def close(self) -> None:
        for process in (*self.workers.values(), self.scheduler):
            process.kill()
            process.wait()

    def _start(self, said: list[str]) -> subprocess.Popen[bytes]:
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([sys.executable, "-c", *said], cwd=self.folder, **quiet)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path)
    yield running
    running.close()


def test_workers_are_found_by_name_or_by_threads_and_survive_the_run(
    cluster: Cluster, letters: Workflow, ground: Path, tmp_path: Path
) -> None:
    fleet = Fleet((Vm("v1", "m"), Vm("v2", "m", slots=2)))
    plan = schedule(letters, fleet, World(), scheduler="round-robin")
    assert {assignment.vm for assignment in plan.assignments.values()} == {"v1", "v2"}
    for name, threads in (("big", 4), ("v1", 1), ("small", 1)):
        cluster.add(name, threads)
    cluster.wait()
    run = execute(plan, letters, tmp_path / "run", directory=ground, address=cluster.address)
    assert (ground / "out").read_text() == "HELLO\nolleh\n"
    pids = {fact["vm"]: fact["pid"] for fact in run.facts if fact["fact"] == "started"}
    assert pids == {"v1": cluster.workers["v1"].pid, "v2": cluster.workers["big"].pid}
    assert all(worker.poll() is None for worker in cluster.workers.values()), "they are not ours to end"
    again = execute(plan, letters, tmp_path / "run", directory=ground, address=cluster.address, resume=True)
    assert again.skipped == 4


def test_a_worker_of_it_that_is_killed_is_made_up_for(
    cluster: Cluster, step: Callable[..., Activation], two: Fleet, ground: Path, tmp_path: Path
) -> None:
    steps = tuple(step(f"x{at}", f"sleep 0.3; touch y{at}", "", f"y{at}", 0.3) for at in range(6))
    workflow = Workflow("many", steps)
    for name in ("v1", "v2"):
        cluster.add(name)
    cluster.wait()

    def kill(fact: dict[str, Any]) -> None:
        if fact["fact"] == "started" and fact["vm"] == "v1":
            cluster.workers["v1"].kill()

    plan = schedule(workflow, two, World(), scheduler="heft")
    run = execute(plan, workflow, tmp_path / "run", directory=ground, address=cluster.address, watch=kill)
    assert run.succeeded
    assert run.lost_vms == ("v1",)


def test_a_scheduler_that_dies_on_the_way_leaves_what_is_done(
    cluster: Cluster, step: Callable[..., Activation], ground: Path, tmp_path: Path
) -> None:
    workflow = Workflow("two", (step("a", "cp in b", "in", "b"), step("x", "[ -e go ] || sleep 60", "b")))
    plan = schedule(workflow, Fleet((Vm("v1", "m"),)), World(), scheduler="heft")
    cluster.add("v1")
    cluster.wait()

    def kill(fact: dict[str, Any]) -> None:
        if fact["fact"] == "started" and fact["activation"] == "x":
            cluster.scheduler.kill()

    with pytest.raises(RunFailed, match=r"connection to the Dask scheduler was lost.*--resume"):
        execute(plan, workflow, tmp_path / "run", directory=ground, address=cluster.address, watch=kill)
    (ground / "go").touch()
    run = execute(plan, workflow, tmp_path / "run", directory=ground, resume=True)
    assert run.skipped == 1
    assert run.succeeded


class TestBadInput:
    @pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nowhere", "ftp://x:1"])
    def test_nobody_answers(
        self,
        letters: Workflow,
        plan_for: PlanFor,
        ground: Path,
        tmp_path: Path,
        address: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("prudent.workflows.execute.crew._ANSWER_S", 1.0)
        with pytest.raises(BadInput, match=rf'No Dask scheduler answers at "{address}"') as caught:
            execute(plan_for(letters), letters, tmp_path / "run", directory=ground, address=address)
        assert caught.value.exit_code == 2
        assert "\n" not in str(caught.value)

    def test_too_few_workers(
        self, cluster: Cluster, letters: Workflow, plan_for: PlanFor, ground: Path, tmp_path: Path
    ) -> None:
        cluster.add("v1")
        cluster.wait()
        plan = plan_for(letters, scheduler="round-robin")
        with pytest.raises(BadInput, match=r"uses 2 VMs, but .* has 1 worker.*dask worker .* --name v2"):
            execute(plan, letters, tmp_path / "run", directory=ground, address=cluster.address)

    def test_workers_without_prudent(
        self, cluster: Cluster, letters: Workflow, ground: Path, tmp_path: Path
    ) -> None:
        plan = schedule(letters, Fleet((Vm("v1", "m"),)), World(), scheduler="heft")
        cluster.add("v1", before="sys.modules['prudent'] = None")
        cluster.wait()
        with pytest.raises(BadInput, match=r"for VM v1\) has no Prudent; install the same"):
            execute(plan, letters, tmp_path / "run", directory=ground, address=cluster.address)
