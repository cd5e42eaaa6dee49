"""Machines that a run behind the wall has rented are ended when its process is gone, with its own rights."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.leases.lease import UP
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.ssh.provider import HostsProvider
from prudent.service.intake.admission import policy_for
from prudent.service.settings import Settings
from prudent.service.store import runs
from prudent.service.store.runs import NewRun, RunRow
from prudent.service.store.store import Store
from prudent.service.worker import machines
from prudent.service.worker.child import ProcessOptions
from prudent.service.worker.claimed_run import ClaimedRun
from prudent.service.worker.messages import RunTask
from prudent.service.worker.sandbox import BUBBLEWRAP, ProcessLimits, Sandbox, has_bubblewrap, sandbox_of
from prudent.service.worker.work_process import WorkPool, WorkProcess

from ...cloud import ssh_server

pytestmark = pytest.mark.timeout(600)
needs_bubblewrap = pytest.mark.skipif(not has_bubblewrap(), reason="needs bubblewrap")
HOST: dict[str, Any] = {"type": "small", "vcpus": 1, "memory_gb": 2, "price": "$0.10/h"}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Settings, Path]]:
    """A service, and an inventory in its data folder of one host that is reached by SSH."""
    with (
        tempfile.TemporaryDirectory(prefix="prudent-wall-", dir="/tmp") as name,
        ssh_server.SshHosts(Path(name) / "ssh", {"alpha": None}) as servers,
    ):
        settings = Settings(Path(name) / "home", data=(Path(name) / "ssh",))
        settings.create()
        yield settings, servers.inventory({"alpha": HOST})


def until(happened: Callable[[], Any]) -> Any:
    end_s = time.monotonic() + 240
    while not (found := happened()):
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.05)
    return found


def begun(settings: Settings, inventory: Path, store: Store) -> RunRow:
    """A run that rents a host for its command."""
    document = {
        "command": "sleep 1000",
        "where": {"hosts": str(inventory)},
        "price": {"machine": "small"},
        "parameters": {"n": [1]},
        "goal": "minimise time_s",
        "max_trials": 1,
        "lease": "1 h",
    }
    return store.write(runs.insert, NewRun("tune", "kim", document, "rest", "hash"))[0]


def killed_at_work(settings: Settings, wall: Sandbox, run: RunRow) -> LeaseRegister:
    """Do the run until its host is rented, and kill everything of it; answers its register."""
    folder = settings.folder_of(run.id)
    terms = ProcessOptions(
        1, 600.0, settings.data_folders, policy_for(settings, settings.data_folders), settings.home / "warm"
    )
    with closing(WorkProcess(terms, wall, folder)) as hand:
        hand.start_run(RunTask(run.id, "tune", dict(run.document), folder))
        until(lambda: [each for each in _leases(folder) if each["state"] == UP])
        os.kill(hand.pid, 9)
    return LeaseRegister(folder / "private")


def _leases(folder: Path) -> list[dict[str, Any]]:
    found = (folder / "private" / "leases").glob("*.json")
    return [json.loads(path.read_text()) for path in found]


@needs_bubblewrap
def test_what_a_killed_process_has_rented_is_ended(place: tuple[Settings, Path]) -> None:
    settings, inventory = place
    wall = sandbox_of(settings)
    assert wall is not None
    assert wall.kind == BUBBLEWRAP
    with Store(settings.database) as store:
        run = begun(settings, inventory, store)
        register = killed_at_work(settings, wall, run)
        provider = HostsProvider.of(str(inventory), settings.home)
        (lease,) = register.leases()
        assert [one.cluster for one in provider.list()] == [lease.cluster]

        # The service's reaper mostly cannot tell whether the holder lives, but whether the lease is over.
        register.renew(lease.cluster, time.time() - 1.0)
        machines.reap_sandboxed(wall, settings.runs)
        assert provider.list() == ()
        ended = register.read(lease.cluster)
        assert ended is not None
        assert ended.state == "released"

        # A worker that takes the run up knows that it is nobody else's.
        again = killed_at_work(settings, wall, run)
        assert len(again.leases()) == 2, "what was paid for before is not forgotten"
        assert len(provider.list()) == 1
        ended_run = store.write(runs.cancel, run.id)
        assert ended_run is not None
        hands = WorkPool(lambda folder: pytest.fail("nothing is begun"), 1, wall)
        ClaimedRun(replace(ended_run, fence=2), store, settings, hands, 1).prepare()
    assert provider.list() == ()
    assert {each.state for each in again.leases()} == {"released"}


def test_forged_leases_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only plain files count, no link leads elsewhere, and what they say is not heeded out here."""
    own = LeaseRegister(tmp_path / "home")
    (own.folder / "one.json").write_text('{"state": "up"}')
    run = tmp_path / "runs" / "r"
    leases = run / "private" / "leases"
    leases.mkdir(parents=True)
    assert not machines.are_left(run)
    (leases / "linked.json").symlink_to(own.folder / "one.json")
    os.mkfifo(leases / "waits.json")
    (leases / "damaged.json").write_text("{")
    (leases / "deep.json").write_text("[" * 100_000)
    (leases / "folder.json").mkdir()
    assert not machines.are_left(run)
    (leases / "one.json").write_text('{"state": "up"}')
    assert machines.are_left(run)

    wall = Sandbox(BUBBLEWRAP, ProcessLimits(1000.0, 60.0, 700, 1.0), tmp_path / "home")
    seen = []
    monkeypatch.setattr(Sandbox, "command", lambda self, words, folder: seen.append(folder) or ["false"])
    machines.reap_sandboxed(wall, tmp_path / "runs")
    assert seen == [run], "whatever is done is done behind the wall"
    assert not machines.end_in_sandbox(wall, run)
    machines.reap_sandboxed(None, tmp_path / "runs")
    machines.reap_sandboxed(wall, tmp_path / "none")
