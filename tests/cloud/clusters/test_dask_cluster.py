"""Plans followed on machines that are rented for them: on this computer, and by SSH on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from prudent.cloud.clusters.dask_cluster import DaskCluster, DaskWorkerSpec
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.registry import provider_of
from prudent.core.errors import BadInput
from prudent.workflows import Activation, File, Fleet, Plan, Vm, Workflow, World, schedule
from prudent.workflows.execute import rented_workers
from prudent.workflows.execute.runner import execute

from ...running import strangers
from ...running.listening import Watch, words_of
from .. import ssh_server

TYPE = "m3.medium"


def _step(name: str, script: str, inputs: str = "", outputs: str = "") -> Activation:
    taken, made = (tuple(File(word) for word in words.split()) for words in (inputs, outputs))
    return Activation(name, name, 0.1, taken, made, ("sh", "-c", script))


def _letters(slow: str = "") -> Workflow:
    return Workflow(
        "letters",
        (
            _step("a", "cp in ab; cp in ac", "in", "ab ac"),
            _step("b", f"{slow} tr a-z A-Z < ab > bd", "ab", "bd"),
            _step("c", f"{slow} rev < ac > cd", "ac", "cd"),
            _step("d", "cat bd cd > out", "bd cd", "out"),
        ),
    )


def _plan(workflow: Workflow, machine: str = TYPE) -> Plan:
    fleet = Fleet((Vm("v1", machine), Vm("v2", machine)))
    return schedule(workflow, fleet, World(bandwidth_mb_s=1e6), scheduler="heft")


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    folder = tmp_path / "ground"
    folder.mkdir()
    (folder / "in").write_text("hello\n")
    return folder


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ssh_server.SshHosts(tmp_path_factory.mktemp("ssh"), {"alpha": None, "beta": None}) as up:
        yield up


@pytest.fixture
def inventory(servers: Any, tmp_path: Path) -> Path:
    types = {"alpha": {"type": TYPE}, "beta": {"type": TYPE}}
    path: Path = servers.inventory(types, tmp_path / "inventory.yaml")
    return path


@pytest.mark.soak  # the next two, which follow plans on hosts and through a loss, leave nothing either
def test_a_plan_runs_on_machines_of_its_types_and_nothing_is_left(ground: Path, tmp_path: Path) -> None:
    workflow, home = _letters(), tmp_path / "home"
    run = execute(_plan(workflow), workflow, tmp_path / "run", directory=ground, on="local", home=home)
    assert run.succeeded
    assert (ground / "out").read_text() == "HELLO\nolleh\n"
    assert provider_of("local", home).list() == ()
    assert all(lease.state == "released" for lease in LeaseRegister(home).leases())


@pytest.mark.timeout(240)
def test_hosts_work_by_ssh_and_files_are_carried_to_them(
    ground: Path,
    tmp_path: Path,
    inventory: Path,
    servers: Any,
    monkeypatch: pytest.MonkeyPatch,
    only_loopback: Watch,
) -> None:
    """On loopback the hosts see the folder; as if they did not, their work goes on in their own.

    Meanwhile strangers speak to every port, and the key of the workers is looked for where others could read.
    """
    monkeypatch.setattr(rented_workers, "_shared", lambda cluster, directory: False)
    go, victims = tmp_path / "go", tmp_path / "victims"
    victims.mkdir()
    workflow, home = (
        _letters(f"env > '{tmp_path}/env'; until [ -e '{go}' ]; do sleep 0.02; done;"),
        tmp_path / "home",
    )
    seen: list[str] = []

    def watch(fact: dict[str, Any]) -> None:
        if fact["fact"] == "ended":
            seen.append(str(fact["vm"]))
        elif fact["fact"] == "started" and fact["activation"] in "bc" and not go.exists():
            try:
                speak()
            finally:
                go.touch()

    def speak() -> None:
        ours = [port for port in only_loopback.look() if "ssh_server" not in port.program]
        assert len(ours) == 3, ours  # a scheduler and two workers
        assert "taken" not in strangers.order_dask([port.number for port in ours], victims)
        assert all(strangers.without_certificate(port.number) == b"" for port in ours)
        shown = words_of(psutil.Process().children(recursive=True))
        assert not any("PRIVATE" in word for word in shown)
        kept = [path for host in servers.hosts.values() for path in host.home.rglob("*") if path.is_file()]
        assert not any(b"PRIVATE" in path.read_bytes() for path in kept)

    run = execute(
        _plan(workflow),
        workflow,
        tmp_path / "run",
        directory=ground,
        on=f"hosts:{inventory}",
        home=home,
        watch=watch,
    )
    assert run.succeeded
    assert list(victims.iterdir()) == []
    assert "PRIVATE" not in (tmp_path / "env").read_text()  # a command does not inherit the key
    assert (ground / "out").read_text() == "HELLO\nolleh\n"
    assert set(seen) <= {"v1", "v2"}
    assert provider_of({"hosts": str(inventory)}, home).list() == ()
    # Only the server itself is left of what ran on a host.
    assert all(len(host.pids()) <= 1 for host in servers.hosts.values())


@pytest.mark.timeout(240)
def test_a_lost_machine_costs_no_more_than_its_work(ground: Path, tmp_path: Path) -> None:
    home, gone = tmp_path / "home", tmp_path / "gone"
    # Both wait until the machine is gone, however long that takes: so one of them is lost with it.
    workflow = _letters(f"until [ -e '{gone}' ]; do sleep 0.05; done;")
    provider: Any = provider_of("local", home)
    lost: list[str] = []

    def take(victim: Any) -> None:
        provider.preempt(victim)
        gone.touch()

    def watch(fact: dict[str, Any]) -> None:
        if fact["fact"] == "started" and fact["activation"] in "bc" and not lost:
            lost.append(fact["vm"])
            victim = _machine_of(fact["pid"], provider)
            threading.Thread(target=take, args=(victim,)).start()

    run = execute(
        _plan(workflow), workflow, tmp_path / "run", directory=ground, on="local", home=home, watch=watch
    )
    assert lost
    assert run.succeeded
    assert (ground / "out").read_text() == "HELLO\nolleh\n"
    assert provider.list() == ()
    assert all(lease.state == "released" for lease in LeaseRegister(home).leases())


def _machine_of(pid: int, provider: Any) -> Any:
    """The machine on which a process runs, by what it carries in its environment."""
    carried = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    name = next(word for word in carried if word.startswith("PRUDENT_MACHINE=")).rpartition("=")[2]
    return next(one for one in provider.list() if one.id == name.rpartition(":")[2])


def test_an_unknown_type_is_told_before_anything_is_launched(ground: Path, tmp_path: Path) -> None:
    workflow, home = _letters(), tmp_path / "home"
    with pytest.raises(BadInput, match=r"m3\.medum"):
        execute(
            _plan(workflow, "m3.medum"), workflow, tmp_path / "run", directory=ground, on="local", home=home
        )
    assert LeaseRegister(home).leases() == ()


def test_a_place_and_an_address_are_one_too_many(ground: Path, tmp_path: Path) -> None:
    workflow = _letters()
    with pytest.raises(BadInput, match="give one of them"):
        execute(
            _plan(workflow), workflow, tmp_path / "run", directory=ground, on="local", address="tcp://x:1"
        )


def test_an_error_while_workers_start_leaves_no_machine(tmp_path: Path) -> None:
    home = tmp_path / "home"
    provider = provider_of("local", home)

    def fail() -> None:
        with DaskCluster(
            provider, [DaskWorkerSpec("v1", TYPE)], run="x", register=LeaseRegister(home)
        ) as cluster:
            assert len(provider.list()) == 1
            cluster.start(9, {})  # nobody listens there
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert provider.list() == ()
