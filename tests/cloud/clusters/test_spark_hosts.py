"""Spark on hosts that are entered by SSH, on loopback."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.clusters.spark import SparkCluster
from prudent.cloud.clusters.spark_wish import Kind, Wish
from prudent.cloud.leases.register import Register
from prudent.cloud.providers.hosts import HostsProvider

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(600)
SMALL, LARGE = "m3.medium", "m3.large"
SOON_S = 20.0


def _load(name: str, path: Path) -> Any:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


ssh_server = _load("prudent_ssh_server", Path(__file__).parent.parent / "ssh_server.py")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ssh_server.SshHosts(tmp_path_factory.mktemp("ssh"), {"alpha": None, "beta": None}) as up:
        yield up


def test_hosts_of_two_types_are_one_cluster_and_left_as_they_were(servers: Any, tmp_path: Path) -> None:
    types = {"alpha": {"type": SMALL}, "beta": {"type": LARGE}}
    path = servers.inventory(types, tmp_path / "inventory.yaml")
    provider = HostsProvider.of(path, tmp_path)
    # Two of the small type are wanted, and there is one: the next type makes up for it.
    wish = Wish((Kind(SMALL, most=1), Kind(LARGE)), least=2, most=2)
    made = SparkCluster(provider, wish, run="test", register=Register(tmp_path), logs=tmp_path / "logs")
    with made as cluster:
        assert cluster.held == {SMALL: 1, LARGE: 1}
        with urllib.request.urlopen(f"{cluster.ui}/json/", timeout=60) as answer:
            workers = json.load(answer)["workers"]
        assert sorted(worker["cores"] for worker in workers) == [1, 2]
        assert {one.type for one in provider.list()} == {SMALL, LARGE}
        file = tmp_path / "data.csv"
        file.write_text("x\n1\n")
        assert cluster.reached([file], tmp_path) == [file]
    assert provider.list() == ()
    end_s = time.monotonic() + SOON_S
    while any(len(host.pids()) > 1 for host in servers.hosts.values()):  # one is the server itself
        assert time.monotonic() < end_s
        time.sleep(0.1)
    assert not list(servers["alpha"].home.glob(".prudent/machines/*"))
