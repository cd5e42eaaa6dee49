"""What can be wrong with hosts, and how it is said; who gets a host that two want."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.providers.provider import CAPACITY, CONFIG, TRANSIENT, Instance, LaunchFailed, LaunchOrder
from prudent.cloud.providers.ssh import process
from prudent.cloud.providers.ssh.channel import Login, SshChannel
from prudent.cloud.providers.ssh.connection import CHANGED, DENIED, STRANGER, LoginFailed
from prudent.cloud.providers.ssh.inventory import Inventory
from prudent.cloud.providers.ssh.provider import HostsProvider
from prudent.core.errors import BadInput, RunFailed

from ... import ssh_server


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ssh_server.SshHosts(tmp_path_factory.mktemp("ssh"), dict.fromkeys(("alpha", "beta"))) as up:
        yield up


TYPES: dict[str, dict[str, Any]] = {"alpha": {"type": "m5.large"}, "beta": {"type": "m5.large"}}


@pytest.fixture
def provider(servers: Any, tmp_path: Path) -> Iterator[HostsProvider]:
    made = HostsProvider.of(servers.inventory(TYPES, tmp_path / "inventory.yaml"), tmp_path)
    yield made
    made.terminate(made.list())


def order(cluster: str, count: int = 1, lease_s: float = 600.0, **more: Any) -> LaunchOrder:
    return LaunchOrder(cluster, "run", more.get("owner", "me"), "m5.large", count, time.time() + lease_s)


def changed(servers: Any, tmp_path: Path, **said: Any) -> HostsProvider:
    """A provider of one host of which something else is said."""
    path = servers.inventory({"alpha": {"type": "m5.large", **said}}, tmp_path / "changed.yaml")
    return HostsProvider.of(path, tmp_path)


# What is found before money is spent


def test_a_closed_port(servers: Any, tmp_path: Path) -> None:
    [said] = changed(servers, tmp_path, port=1).check()
    assert said.startswith("alpha (127.0.0.1:1) cannot be reached")
    assert "check the address and the port" in said
    with pytest.raises(LaunchFailed) as failed:
        changed(servers, tmp_path, port=1).launch(order("c1"))
    assert failed.value.kind == TRANSIENT


def test_a_changed_host_key(servers: Any, tmp_path: Path) -> None:
    [said] = changed(servers, tmp_path, host_key=servers["beta"].host_key).check()
    assert said.startswith("The host key of alpha")
    assert "has changed" in said
    assert servers["alpha"].host_key in said
    with pytest.raises(LaunchFailed) as failed:
        changed(servers, tmp_path, host_key=servers["beta"].host_key).launch(order("c1"))
    assert failed.value.kind == CONFIG


def test_an_unknown_host_key_tells_the_fingerprint(servers: Any, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("")
    [said] = changed(servers, tmp_path, host_key=None, known_hosts="known").check()
    assert "is not known (it is SHA256:" in said
    assert said.endswith(f"then add host_key: {servers['alpha'].host_key}")


def test_a_file_of_known_hosts_is_enough(servers: Any, tmp_path: Path) -> None:
    host = servers["alpha"]
    (tmp_path / "known").write_text(f"[127.0.0.1]:{host.port} {host.host_key}\n")
    assert changed(servers, tmp_path, host_key=None, known_hosts="known").check() == []


def test_a_wrong_key(servers: Any, tmp_path: Path) -> None:
    [said] = changed(servers, tmp_path, key=str(servers["beta"].folder / "host_key")).check()
    assert "refuses the key" in said
    assert "for tester; add its public half to ~/.ssh/authorized_keys" in said


def test_a_key_that_is_none(servers: Any, tmp_path: Path) -> None:
    (tmp_path / "rubbish").write_text("no key")
    [said] = changed(servers, tmp_path, key="rubbish").check()
    assert "cannot be read" in said


def test_a_full_disk(servers: Any, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    try:
        path = servers.inventory(TYPES, tmp_path / "full.yaml")
        path.write_text(path.read_text().replace('{"hosts"', f'{{"folder": "{small}", "hosts"'))
        said = HostsProvider.of(path, tmp_path).check()
        assert len(said) == 2
        assert all("disk is full" in one and one.endswith("free some space there.") for one in said)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_type_that_no_host_has(provider: HostsProvider) -> None:
    assert provider.check(["m5.larg"]) == [
        'Unknown machine type "m5.larg". Did you mean "m5.large"? Choose one of: m5.large.'
    ]
    with pytest.raises(LaunchFailed, match=r"has 2 hosts of type m5\.large, not 3") as failed:
        provider.launch(order("c1", count=3))
    assert failed.value.kind == CONFIG


@pytest.mark.parametrize(
    ("login", "kind"),
    [({"host_key": "beta"}, CHANGED), ({"host_key": None}, STRANGER), ({"key": "host"}, DENIED)],
)
def test_a_login_that_fails_says_of_which_kind(
    servers: Any, tmp_path: Path, login: dict[str, Any], kind: str
) -> None:
    (tmp_path / "known").write_text("")
    host_key = {"beta": servers["beta"].host_key, None: None}.get(
        login.get("host_key", 0), servers["alpha"].host_key
    )
    key = servers["alpha"].folder / "host_key" if "key" in login else servers.key
    with pytest.raises(LoginFailed) as failed:
        SshChannel(Login("127.0.0.1", "tester", servers["alpha"].port, key, host_key, tmp_path / "known"))
    assert failed.value.kind == kind


# The inventory


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, "It lists no hosts"),
        ({"hosts": [3]}, "hosts.1: 3 is not a host"),
        (
            {"hosts": [{"name": "a", "type": "m5.large", "adress": "x"}]},
            'hosts.a.adress: Unknown key "adress"',
        ),
        ({"hosts": [{"name": "a b", "type": "m5.large"}]}, '"a b" is not a name'),
        ({"hosts": [{"type": "m5.large"}]}, "It has no address"),
        ({"hosts": [{"name": "a", "type": "m5.lagre"}]}, 'Did you mean "m5.large"'),
        ({"hosts": [{"name": "a", "vcpus": 4}]}, "add memory_gb and price"),
        ({"hosts": [{"name": "a", "vcpus": 0.5, "memory_gb": 1, "price": 1}]}, "not a number of vCPUs"),
        ({"hosts": [{"name": "a", "type": "m5.large", "price": "cheap"}]}, "hosts.a.price"),
        ({"hosts": [{"name": "a", "type": "m5.large", "port": 0}]}, "is not a port"),
        ({"hosts": [{"name": "a", "type": "m5.large", "key": "no/key"}]}, "There is no key"),
        ({"hosts": [{"name": "a", "type": "m5.large"}] * 2}, "is given twice"),
        ({"hosts": [{"name": n, "address": "x", "type": "m5.large"} for n in "ab"]}, "are the same machine"),
        (
            {"hosts": [{"name": "a", "type": "m5.large"}, {"name": "b", "type": "m5.large", "price": 1}]},
            "differ in size or price",
        ),
    ],
)
def test_a_wrong_inventory_says_where(said: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as failed:
        Inventory.parse(said, tmp_path)
    assert message in str(failed.value)


def test_a_host_of_ones_own_kind(tmp_path: Path) -> None:
    said = {"hosts": [{"name": "big", "vcpus": 64, "memory_gb": 512, "price": "$1.80/h"}], "port": 2222}
    inventory = Inventory.parse(said, tmp_path)
    [big] = inventory.hosts
    assert (big.type, big.machine.vcpus, big.login.port) == ("big", 64, 2222)
    assert big.machine.price.usd_per_h == 1.8
    assert big.machine.price.cost_usd(1) == pytest.approx(1.8 / 3600)  # by the second, without a minimum
    assert inventory.catalog()["big"].memory_gb == 512


# Who gets it


def test_a_host_in_use_is_not_given_to_another(provider: HostsProvider) -> None:
    provider.launch(order("c1", count=2, owner="somebody"))
    with pytest.raises(LaunchFailed, match=r"alpha is used by somebody \(run run\) until") as failed:
        provider.launch(order("c2"))
    assert failed.value.kind == CAPACITY
    assert {one.cluster for one in provider.list()} == {"c1"}


def test_an_order_that_cannot_be_filled_leaves_nothing(provider: HostsProvider) -> None:
    provider.launch(order("c1"))
    with pytest.raises(LaunchFailed):
        provider.launch(order("c2", count=2))
    assert {one.cluster for one in provider.list()} == {"c1"}


def test_of_many_at_once_as_many_get_a_host_as_there_are(provider: HostsProvider) -> None:
    def attempt(number: int) -> str:
        # A provider of its own, as in processes that do not know each other.
        own = HostsProvider(provider.inventory, Path("inventory.yaml"))
        try:
            return own.launch(order(f"c{number}"))[0].cluster
        except LaunchFailed as error:
            return error.kind

    with ThreadPoolExecutor(5) as several:
        answers = list(several.map(attempt, range(5)))
    won = [answer for answer in answers if answer != CAPACITY]
    assert len(won) == 2
    assert sorted(one.cluster for one in provider.list()) == sorted(won)


def kill_switches(servers: Any, machines: Sequence[Instance]) -> None:
    """Of each machine, as soon as it is there: a launch does not wait for its switch to come up."""
    for machine in machines:
        until_s = time.monotonic() + 60
        while not (pids := switches(servers, machine)):
            assert time.monotonic() < until_s, f"no switch of {machine.id}"
            time.sleep(0.02)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def switches(servers: Any, machine: Instance) -> list[int]:
    found = []
    for pid in (pid for host in servers.hosts.values() for pid in host.pids()):
        with suppress(OSError):  # it may have ended meanwhile
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"switch.sh" in words and f"PRUDENT_MACHINE={machine.id}".encode() in words:
                found.append(pid)
    return found


def test_a_lock_past_its_lease_is_taken_over_and_cleaned(provider: HostsProvider, servers: Any) -> None:
    """Also where the switch has died: nobody but the next one who wants the host is left to end it."""
    held = provider.launch(order("c1", count=2))
    with provider.channel(held[0]) as way:
        left = way.start("echo ready; sleep 300")
        assert left.stdout.readline() == b"ready\n"
        kill_switches(servers, held)
        with pytest.raises(LaunchFailed):
            provider.launch(order("c2"))
        # Only now may the lease be over: as long as a switch lives, it would be the one to end it.
        provider.renew(held, time.time())
        assert left.wait(0) is None
        [taken] = provider.launch(order("c2"))
        assert taken.cluster == "c2"
        assert left.wait(60) == -256
    assert not (servers["alpha"].home / ".prudent" / "machines" / held[0].id).exists()


def test_a_machine_that_was_given_back_cannot_be_renewed_or_entered(provider: HostsProvider) -> None:
    held = provider.launch(order("c1"))
    provider.terminate(held)
    with pytest.raises(RunFailed, match="could not be renewed"):
        provider.renew(held, time.time() + 60)
    with pytest.raises(RunFailed, match="no longer ours"):
        provider.channel(held[0])
    assert provider.preempted(held[0]) == "the lease on alpha is over"


def test_a_host_that_is_down_does_not_hide_the_others(
    servers: Any, provider: HostsProvider, tmp_path: Path
) -> None:
    provider.launch(order("c1", count=2))
    servers["beta"].stop()
    try:
        assert [one.id for one in provider.list()] == ["c1-0@alpha"]
        with pytest.raises(LoginFailed):
            provider.terminate(provider.launch(order("c1", count=1)) + tuple(_all(provider, servers)))
    finally:
        servers["beta"].start().wait()
    provider.terminate(provider.list())
    assert provider.list() == ()


def _all(provider: HostsProvider, servers: Any) -> list[Any]:
    from dataclasses import replace

    [one] = provider.list()
    return [replace(one, id="c1-1@beta", index=1)]


def test_a_script_that_breaks_off_is_not_begun(tmp_path: Path) -> None:
    script = process.complete_script("touch a; rm -rf here/and/there; (exit 3)")
    for said, code in (
        (script, 3),
        (script[: script.index(b"/and")], process.CUT_OFF),
        (b"", process.CUT_OFF),
    ):
        (tmp_path / "here" / "and").mkdir(parents=True, exist_ok=True)
        (tmp_path / "a").unlink(missing_ok=True)
        ran = subprocess.run(["sh", "-c", process.READ_SCRIPT], input=said, cwd=tmp_path, check=False)
        assert ran.returncode == code
        assert (tmp_path / "a").exists() == (code == 3)
        assert (tmp_path / "here" / "and").exists()
