"""Spark on hosts that are entered by SSH, on loopback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.clusters.autoscaling import ClusterRequest, MachineRange
from prudent.cloud.clusters.spark_cluster import SparkCluster
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.ssh.provider import HostsProvider

from .. import ssh_server

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(600)
SMALL, LARGE = "m3.medium", "m3.large"
LONG_S = 120.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ssh_server.SshHosts(tmp_path_factory.mktemp("ssh"), {"alpha": None, "beta": None}) as up:
        yield up


@pytest.mark.parametrize("wanted", [[SMALL], pytest.param([SMALL, LARGE], marks=pytest.mark.soak)])
def test_hosts_are_one_cluster_and_left_as_they_were(servers: Any, tmp_path: Path, wanted: list[str]) -> None:
    types = {"alpha": {"type": SMALL}, "beta": {"type": LARGE}}
    path = servers.inventory(types, tmp_path / "inventory.yaml")
    provider = HostsProvider.of(path, tmp_path)
    # If two of the small type are wanted, and there is one, the next type makes up for it.
    request = ClusterRequest(
        (MachineRange(SMALL, most=1), MachineRange(LARGE)), least=len(wanted), most=len(wanted)
    )
    made = SparkCluster(
        provider, request, run="test", register=LeaseRegister(tmp_path), logs=tmp_path / "logs"
    )
    with made as cluster:
        assert cluster.held == dict.fromkeys(wanted, 1)
        with urllib.request.urlopen(f"{cluster.ui}/json/", timeout=60) as answer:
            workers = json.load(answer)["workers"]
        assert sorted(worker["cores"] for worker in workers) == [1, 2][: len(wanted)]
        assert [one.type for one in provider.list()] == wanted
        file = tmp_path / "data.csv"
        file.write_text("x\n1\n")
        assert cluster.reached([file], tmp_path) == [file]
    assert provider.list() == ()
    end_s = time.monotonic() + LONG_S
    while any(len(host.pids()) > 1 for host in servers.hosts.values()):  # one is the server itself
        assert time.monotonic() < end_s, "something still runs on a host"
        time.sleep(0.1)
    assert not list(servers["alpha"].home.glob(".prudent/machines/[!.]*"))


_ELSEWHERE = 'mount -t tmpfs none /tmp && exec "$@"'
_TRAIN = """
import json, sys
import prudent
board = prudent.train(
    {
        "domain": "regression",
        "methods": [{"algorithm": "linear-regression"}],
        "dataset": {"path": sys.argv[1], "target": "y"},
        "budget": "1 trial",
        "parallelism": 1,
    },
    engine="spark", out=sys.argv[2], cluster="1*m3.medium", where=sys.argv[3], home=sys.argv[4],
)
best = board.entries[0].model_path
print(json.dumps({"models": len(board.entries), "path": best, "why": str(board.failures)}))
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Any]:
    """A host with a /tmp of its own: it cannot see the data, which are in ours."""
    apart = ["unshare", "-m", "sh", "-c", _ELSEWHERE, "sh"]
    try:
        possible = subprocess.run([*apart, "true"], check=False, capture_output=True).returncode == 0
    except OSError:
        possible = False
    hidden = any(Path(place).is_relative_to("/tmp") for place in (sys.prefix, __file__))
    if not possible or hidden or not tmp_path.is_relative_to("/tmp"):
        pytest.skip("needs a namespace of files")
    folder = Path(tempfile.mkdtemp(prefix="prudent-elsewhere-", dir="/var/tmp"))
    try:
        with ssh_server.SshHosts(folder / "ssh", {"alpha": None}, before=apart) as up:
            yield up
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def links() -> set[Path]:
    return {path for path in Path("/tmp").glob("prudent-*") if path.is_symlink()}


@pytest.mark.soak
def test_data_that_a_host_cannot_see_are_streamed_to_it(elsewhere: Any, tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("x,z,y\n" + "".join(f"{i},{i % 7},{2 * i + i % 7}\n" for i in range(300)))
    path = elsewhere.inventory({"alpha": {"type": SMALL}}, tmp_path / "inventory.yaml")
    before = links()
    words = [str(data), str(tmp_path / "models"), f"hosts:{path}", str(tmp_path / "home")]
    done = subprocess.run(
        [sys.executable, "-c", _TRAIN, *words], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["models"] == 1, said
    assert Path(said["path"], "model.onnx").exists()
    assert HostsProvider.of(path, tmp_path).list() == ()
    assert links() <= before
