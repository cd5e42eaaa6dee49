"""What an earlier run has left is ended before machines are rented; trouble with that is only told."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cli.clusters import reap_leftovers, reaping
from prudent.cloud.clusters.rental import Rental
from prudent.cloud.leases.lease import RELEASED, LeaseHolder
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = tmp_path_factory.mktemp("home")  # not where the jobs are, whose files are brought to machines
    monkeypatch.setenv("PRUDENT_HOME", str(home))
    yield home
    provider = LocalProvider(home)
    provider.terminate(provider.list())


def orphan(home: Path, run: str = "digits") -> Rental:
    """Machines that are up and whose run is gone."""
    rental = Rental(LocalProvider(home), "m3.medium", 2, run=run, register=LeaseRegister(home), lease_s=3600)
    rental.launch().wait_ready()
    rental._over.set()  # nobody renews it
    dead = subprocess.Popen(["true"])
    dead.wait()
    path = rental.register.folder / f"{rental.cluster}.json"
    said = json.loads(path.read_text())
    said["holder"] = LeaseHolder(dead.pid, "boot:1", rental.lease.holder.realm).to_dict()
    path.write_text(json.dumps(said))
    return rental


def machines_job(command_job: Callable[..., Path], **more: Any) -> Path:
    return command_job(
        where="local",
        parameters={"cluster": {"machine": {"types": ["m3.medium"], "count": [1]}}, "x": [1]},
        price=None,
        **more,
    )


def test_tune_on_machines_ends_what_is_left_first(
    prudent: Callable[..., Any], home: Path, command_job: Callable[..., Path]
) -> None:
    left = orphan(home)
    done = prudent("tune", machines_job(command_job))
    assert done.code == 0, done.err
    said = r"prudent: ended 2 machines of an earlier run \(digits\), which cost \$0\.00\d+\.\n"
    assert re.fullmatch(said, done.err), done.err
    assert LocalProvider(home).list() == ()
    released = LeaseRegister(home).read(left.cluster)
    assert released is not None
    assert released.state == RELEASED
    again = prudent("tune", machines_job(command_job, file="again.yaml"))
    assert (again.code, again.err) == (0, "")


def train(folder: Path, home: Path) -> list[object]:
    data = folder / "data.csv"
    data.write_text("x,y\n1,2\n")
    asked = {"domain": "regression", "dataset": {"path": str(data), "target": "y"}, "budget": "1 trial"}
    (folder / "request.json").write_text(json.dumps(asked))
    return [
        "train",
        folder / "request.json",
        "--engine",
        "spark",
        "--cluster",
        "1*none.such",
        "--out",
        folder / "o",
    ]


def execute(folder: Path, home: Path) -> list[object]:
    from prudent.cli.main import run
    from prudent.workflows import Activation, Workflow

    path = folder / "workflow.json"
    Workflow("one", (Activation("a", "a", 0.1, (), (), ("true",)),)).write(path)
    plan = folder / "plan.json"
    words = ["schedule", path, "--fleet", "m3.medium", "--scheduler", "heft", "--plan", plan]
    assert run([str(word) for word in words]) == 0
    return ["execute", plan, "--on", "hosts:nowhere.yaml"]


def serve(folder: Path, home: Path) -> list[object]:
    return ["serve", "--home", home, "--port", 0, "--workers", 0]


def worker(folder: Path, home: Path) -> list[object]:
    return ["worker", "--home", home]


@pytest.fixture
def idle_service(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A service and a worker that have nothing to do but wait for the reaper, and then end."""
    from prudent.service.worker.worker import Worker

    def end(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(Worker, "run", lambda _: _until_gone(home))
    monkeypatch.setattr("prudent.cli.serve._serve", lambda *_: _until_gone(home))
    monkeypatch.setattr("prudent.cli.serve.os._exit", end)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("idle_service")
@pytest.mark.parametrize(("command", "code"), [(train, 2), (execute, 2), (serve, 0), (worker, 0)])
def test_every_start_that_may_rent_ends_what_is_left(
    prudent: Callable[..., Any], home: Path, tmp_path: Path, command: Callable[..., list[object]], code: int
) -> None:
    """Also one that then finds that it was asked for what cannot be had."""
    words = command(tmp_path, home)
    left = orphan(home)
    with contextlib.suppress(SystemExit):
        done = prudent(*words)
        assert done.code == code, done.err
    assert LocalProvider(home).list() == ()
    released = LeaseRegister(home).read(left.cluster)
    assert released is not None
    assert (released.state, released.why) == (RELEASED, "its run is gone")


@pytest.mark.usefixtures("idle_service")
@pytest.mark.parametrize("command", [serve, worker])
def test_a_service_also_looks_in_the_folders_of_its_runs(
    prudent: Callable[..., Any],
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[..., list[object]],
) -> None:
    looked: list[Path] = []
    monkeypatch.setattr(
        "prudent.service.worker.machines.reap_sandboxed",
        lambda wall, runs: looked.append(runs) if runs else None,
    )
    with contextlib.suppress(SystemExit):
        prudent(*command(tmp_path, home))
    _until(lambda: looked == [home / "runs"])


def test_what_needs_no_machines_does_not_look_for_any(
    prudent: Callable[..., Any], home: Path, command_job: Callable[..., Path]
) -> None:
    orphan(home)
    assert prudent("tune", command_job()).code == 0
    assert prudent("tune", machines_job(command_job, file="plan.yaml"), "--dry-run").code == 0
    assert len(LocalProvider(home).list()) == 2


def test_trouble_is_one_line_and_fails_nothing(
    prudent: Callable[..., Any], home: Path, command_job: Callable[..., Path]
) -> None:
    register = LeaseRegister(home)
    (register.folder / "one.json").write_text("{")
    (register.folder / "two.json").write_text("{")
    done = prudent("tune", machines_job(command_job))
    assert done.code == 0
    [line] = done.err.splitlines()
    assert "one.json is damaged" in line
    assert line.endswith("(and 1 more); see: prudent clusters reap.")


def test_a_register_that_cannot_be_read_fails_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("PRUDENT_HOME", str(file))
    reap_leftovers()
    assert capfd.readouterr().err.startswith("prudent: leftover machines could not be looked for: Cannot")


def test_a_service_looks_again_and_again(home: Path) -> None:
    with reaping(period_s=0.2):
        first = orphan(home)
        _until_gone(home)
        second = orphan(home, "other")
        _until_gone(home)
    assert first.cluster != second.cluster
    _until(lambda: not any(thread.name == "prudent-reaper" for thread in threading.enumerate()))


def _until_gone(home: Path) -> None:
    _until(lambda: all(lease.state == RELEASED for lease in LeaseRegister(home).leases()))
    assert LocalProvider(home).list() == ()


def _until(happened: Callable[[], bool], within_s: float = 120.0) -> None:
    end_s = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.05)
