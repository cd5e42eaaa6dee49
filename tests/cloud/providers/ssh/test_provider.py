"""Hosts as machines, over real SSH on loopback: the whole contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prudent.cloud.providers.ssh.provider import HostsProvider

from ... import ssh_server
from ..conformance import ChannelConformance, Place, ProviderConformance, SwitchConformance


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ssh_server.SshHosts]:
    with ssh_server.SshHosts(
        tmp_path_factory.mktemp("ssh"), {"alpha": None, "beta": None, "gamma": None}
    ) as up:
        yield up


def place_in(home: Path, servers: ssh_server.SshHosts) -> Place:
    types = {"alpha": {"type": "m5.large"}, "beta": {"type": "m5.large"}, "gamma": {"type": "c5.xlarge"}}
    path = servers.inventory(types, home / "inventory.yaml")
    return Place(HostsProvider.of(path, home), home, "m5.large", other_type="c5.xlarge")


class TestHosts(ProviderConformance, SwitchConformance):
    @pytest.fixture
    def place(self, servers: ssh_server.SshHosts, tmp_path: Path) -> Place:
        return place_in(tmp_path, servers)


@pytest.fixture(scope="class")
def channel_place(servers: ssh_server.SshHosts, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return place_in(tmp_path_factory.mktemp("home"), servers)


class TestChannel(ChannelConformance):
    pass
