"""Real workflows of small shell commands, in a folder of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from prudent.workflows import Activation, File, Fleet, Plan, Vm, Workflow, World, schedule


def _step(
    name: str, script: str, inputs: str = "", outputs: str = "", runtime_s: float = 0.1, program: str = ""
) -> Activation:
    """An activation that runs a line of shell."""
    return Activation(
        name,
        program or name.rstrip("0123456789"),
        runtime_s,
        tuple(File(word) for word in inputs.split()),
        tuple(File(word) for word in outputs.split()),
        ("sh", "-c", script),
    )


@pytest.fixture
def letters() -> Workflow:
    """in -> a -> (b, c) -> d -> out, with real files."""
    return Workflow(
        "letters",
        (
            _step("a", "cp in ab; cp in ac", "in", "ab ac"),
            _step("b", "tr a-z A-Z < ab > bd", "ab", "bd"),
            _step("c", "rev < ac > cd", "ac", "cd"),
            _step("d", "cat bd cd > out", "bd cd", "out"),
        ),
    )


@pytest.fixture
def two() -> Fleet:
    return Fleet((Vm("v1", "m", usd_per_h=3.6), Vm("v2", "m", usd_per_h=3.6)))


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    """The folder in which commands run, with the one file that is given."""
    folder = tmp_path / "ground"
    folder.mkdir()
    (folder / "in").write_text("hello\n")
    return folder


@pytest.fixture
def plan_for(two: Fleet) -> Callable[..., Plan]:
    def make(workflow: Workflow, fleet: Fleet = two, scheduler: str = "heft") -> Plan:
        return schedule(workflow, fleet, World(bandwidth_mb_s=1e6), scheduler=scheduler)

    return make


@dataclass(frozen=True)
class Site:
    """A Dask cluster that runs already: its address, the process of each of its workers, and what is to be in
    the configuration of Dask to be let in."""

    address: str
    pids: dict[str, int]
    certificates: dict[str, str]


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Workers v1 (of two slots) and v2, for every test that is not about the beginning or end of workers.

    Its certificates are where a user of Dask has them: in the configuration of Dask.
    """
    import dask

    from prudent.workflows.execute.workers import _local_workers

    with _local_workers({"v1": 2, "v2": 1}) as workers:
        found = workers._client.run(os.getpid)
        pids = {vm: found[address] for vm, address in workers._addresses.items()}
        security, place = workers._client.security, "distributed.comm.tls"
        certificates = {
            f"{place}.ca-file": security.tls_ca_file,
            f"{place}.client.cert": security.tls_client_cert,
            f"{place}.client.key": security.tls_client_key,
            f"{place}.worker.cert": security.tls_worker_cert,
            f"{place}.worker.key": security.tls_worker_key,
        }
        with dask.config.set(certificates):
            yield Site(workers._client.scheduler.address, pids, certificates)


def _dead(pid: int) -> bool:
    """Whether a process ends within a minute; one that nobody has waited for yet has ended."""
    until_s = time.monotonic() + 60.0
    while time.monotonic() < until_s:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:  # also while its file is read
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="session")
def dead() -> Callable[[int], bool]:
    return _dead


@pytest.fixture
def step() -> Callable[..., Activation]:
    return _step
