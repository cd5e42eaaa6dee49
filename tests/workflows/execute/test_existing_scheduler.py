"""Plans followed on a Dask cluster that somebody else runs."""

from __future__ import annotations

import contextlib
import json
import os
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

from ...cloud.ssh_server import Forked

PlanFor = Callable[..., Plan]
# Dask takes long to load; programs that need it are forked from one that has.
_FORKS = """
import asyncio, json, os, signal, sys
import distributed
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    code, folder, words = json.loads(line)
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(folder)
        os.environ["TMPDIR"] = folder
        for number in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        sys.argv = ["-c", *words]
        try:
            exec(code, {"__name__": "__main__"})
        finally:
            os._exit(0)
    print(pid, flush=True)
"""
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
    async with Worker(sys.argv[1], name=sys.argv[2], local_directory=".", dashboard=False) as w:
        await w.finished()
asyncio.run(serve())
"""


class Programs:
    """A scheduler and workers as separate programs, each in a folder of its own."""

    def __init__(self, folder: Path, forks: subprocess.Popen[str]) -> None:
        self.folder, self._forks = folder, forks
        self.started: dict[str, Forked] = {}

    def scheduler(self) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._start("scheduler", [_SCHEDULER, str(port)])
        until_s = time.monotonic() + 60.0
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return f"tcp://127.0.0.1:{port}"
            time.sleep(0.05)
        raise AssertionError("the scheduler does not start")

    def worker(self, address: str, name: str, before: str = "") -> None:
        self._start(name, [_WORKER.format(before=before), address, name])

    def close(self) -> None:
        for process in self.started.values():
            process.kill()
            process.wait()

    def _start(self, name: str, said: list[str]) -> None:
        folder = self.folder / name
        folder.mkdir()
        code, *words = said
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        self._forks.stdin.write(json.dumps([code, str(folder), words]) + "\n")
        self._forks.stdin.flush()
        self.started[name] = Forked(int(self._forks.stdout.readline()))


def wait_for_workers(address: str, count: int) -> None:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=60)


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


@pytest.fixture
def programs(tmp_path: Path, forks: subprocess.Popen[str]) -> Iterator[Programs]:
    running = Programs(tmp_path, forks)
    yield running
    running.close()


def test_workers_are_found_by_name_or_by_threads_and_survive_the_run(
    site: Any, letters: Workflow, ground: Path, tmp_path: Path
) -> None:
    fleet = Fleet((Vm("v2", "m"), Vm("big", "m", slots=2)))
    plan = schedule(letters, fleet, World(), scheduler="round-robin")
    assert {assignment.vm for assignment in plan.assignments.values()} == {"v2", "big"}
    run = execute(plan, letters, tmp_path / "run", directory=ground, address=site.address)
    assert (ground / "out").read_text() == "HELLO\nolleh\n"
    pids = {fact["vm"]: fact["pid"] for fact in run.facts if fact["fact"] == "started"}
    assert pids == {"v2": site.pids["v2"], "big": site.pids["v1"]}
    again = execute(plan, letters, tmp_path / "run", directory=ground, address=site.address, resume=True)
    assert again.skipped == 4
    for pid in site.pids.values():
        os.kill(pid, 0)  # they are not ours to end


@pytest.mark.soak  # workers that are killed are made up for in test_execute.py
def test_a_killed_worker_is_made_up_for_and_a_scheduler_that_dies_leaves_what_is_done(
    programs: Programs, step: Callable[..., Activation], two: Fleet, ground: Path, tmp_path: Path
) -> None:
    address = programs.scheduler()
    for name in ("v1", "v2"):
        programs.worker(address, name)
    wait_for_workers(address, 2)

    def kill_worker(fact: dict[str, Any]) -> None:
        if fact["fact"] == "started" and fact["vm"] == "v1":
            programs.started["v1"].kill()

    steps = tuple(step(f"x{at}", f"sleep 0.1; touch y{at}", "", f"y{at}", 0.3) for at in range(4))
    workflow = Workflow("many", steps)
    plan = schedule(workflow, two, World(), scheduler="heft")
    run = execute(plan, workflow, tmp_path / "many", directory=ground, address=address, watch=kill_worker)
    assert run.succeeded
    assert run.lost_vms == ("v1",)

    def kill_scheduler(fact: dict[str, Any]) -> None:
        if fact["fact"] == "started" and fact["activation"] == "x":
            programs.started["scheduler"].kill()

    workflow = Workflow("two", (step("a", "cp in b", "in", "b"), step("x", "[ -e go ] || sleep 60", "b")))
    plan = schedule(workflow, Fleet((Vm("v2", "m"),)), World(), scheduler="heft")
    with pytest.raises(RunFailed, match=r"connection to the Dask scheduler was lost.*--resume"):
        execute(plan, workflow, tmp_path / "run", directory=ground, address=address, watch=kill_scheduler)
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
        monkeypatch.setattr("prudent.workflows.execute.workers._ANSWER_S", 1.0)
        with pytest.raises(BadInput, match=rf'No Dask scheduler answers at "{address}"') as caught:
            execute(plan_for(letters), letters, tmp_path / "run", directory=ground, address=address)
        assert caught.value.exit_code == 2
        assert "\n" not in str(caught.value)

    def test_too_few_workers(self, site: Any, letters: Workflow, ground: Path, tmp_path: Path) -> None:
        fleet = Fleet(tuple(Vm(f"v{number}", "m") for number in (1, 2, 3)))
        plan = schedule(letters, fleet, World(), scheduler="round-robin")
        with pytest.raises(BadInput, match=r"uses 3 VMs, but .* has 2 worker.*dask worker .* --name v3"):
            execute(plan, letters, tmp_path / "run", directory=ground, address=site.address)

    def test_workers_without_prudent(
        self, site: Any, programs: Programs, letters: Workflow, ground: Path, tmp_path: Path
    ) -> None:
        plan = schedule(letters, Fleet((Vm("bare", "m"),)), World(), scheduler="heft")
        configured = f"import dask; dask.config.set({site.certificates!r})"
        programs.worker(site.address, "bare", before=f"sys.modules['prudent'] = None; {configured}")
        wait_for_workers(site.address, 3)
        with pytest.raises(BadInput, match=r"for VM bare\) has no Prudent; install the same"):
            execute(plan, letters, tmp_path / "run", directory=ground, address=site.address)
