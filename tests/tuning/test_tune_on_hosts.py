"""The whole of it: three hosts of two types over SSH, a job of several processes, a budget."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cli.main import run
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.ssh.provider import HostsProvider

from ..cloud import ssh_server

CLOUD = Path(__file__).parents[1] / "cloud"
TYPES: dict[str, dict[str, Any]] = {
    "alpha": {"type": "small", "vcpus": 1, "memory_gb": 2, "price": "$0.10/h"},
    "beta": {"type": "small", "vcpus": 1, "memory_gb": 2, "price": "$0.10/h"},
    "gamma": {"type": "large", "vcpus": 2, "memory_gb": 4, "price": "$0.36/h"},
}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Any]:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two processors")
    shares = {"alpha": (cpus[0],), "beta": (cpus[1],), "gamma": (cpus[0], cpus[1])}
    with ssh_server.SshHosts(tmp_path / "ssh", shares) as up:
        yield up


def job_file(folder: Path, inventory: Path, budget: str) -> Path:
    """A job in a folder of its own."""
    folder.mkdir()
    waits, none = "READ_S, REQUEST_S = 0.25, 0.3", "READ_S, REQUEST_S = 0.01, 0.01"
    job = (CLOUD / "training_job.py").read_text()
    assert waits in job
    (folder / "training_job.py").write_text(job.replace(waits, none))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    said = {
        "command": [sys.executable, "training_job.py", "train", str(port), "{batch}"],
        "worker": [sys.executable, "training_job.py", "worker", str(port)],
        "where": {"hosts": str(inventory)},
        "parameters": {
            "cluster": {"machine": {"types": ["small", "large"], "count": [1, 2]}},
            "batch": [4],
        },
        "rule": "cluster.type == 'small' or cluster.count == 1",
        "measures": ["error"],
        "fetch": ["weights.json"],
        "goal": "minimise time_s",
        "strategy": "grid",
        "budget": budget,
        "lease": "60 s",
    }
    (folder / "job.yaml").write_text(json.dumps(said))
    return folder / "job.yaml"


@pytest.mark.usefixtures("only_loopback")
def test_the_fastest_machines_are_found_paid_and_given_back(
    servers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    inventory = servers.inventory(TYPES, tmp_path / "inventory.yaml")
    path = job_file(tmp_path / "job", inventory, "$0.02")
    monkeypatch.setenv("PRUDENT_HOME", str(tmp_path / "home"))
    code = run(["tune", str(path), "--json", "--seed", "1"])
    said = capfd.readouterr()
    assert code == 0, said.err
    result = json.loads(said.out)
    trials = {one["configuration"]["cluster"]: one for one in result["trials"]}
    assert sorted(trials) == ["1*large", "1*small", "2*small"]
    finished = [one for one in trials.values() if one["status"] == "finished"]
    assert result["best"]["number"] == min(finished, key=lambda one: one["time_s"])["number"]
    assert {round(one["measures"]["error"], 9) for one in finished} == {
        round(result["best"]["measures"]["error"], 9)
    }
    assert result["spent_usd"] <= 0.02
    real_usd = sum(lease.cost_usd(0.0) for lease in LeaseRegister(tmp_path / "home").leases())
    assert result["spent_usd"] == pytest.approx(real_usd, abs=1e-6)
    assert HostsProvider.of(inventory, tmp_path).list() == ()
    number = result["best"]["number"]
    weights = json.loads((path.parent / f"job.prudent/results/trial-{number:04d}/weights.json").read_text())
    assert len(weights) == 2
