"""Hosts as machines, over real SSH on loopback: the whole contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prudent.cloud.providers.hosts import HostsProvider

from .. import ssh_server
from .conformance import ChannelConformance, Place, ProviderConformance, SwitchConformance


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    with ssh_server.SshHosts(
        tmp_path_factory.mktemp("ssh"), {"alpha": None, "beta": None, "gamma": None}
    ) as up:
        yield up


class TestHosts(ProviderConformance, ChannelConformance, SwitchConformance):
    @pytest.fixture
    def place(self, servers, tmp_path: Path) -> object:  # type: ignore[no-untyped-def]
        types = {"alpha": {"type": "m5.large"}, "beta": {"type": "m5.large"}, "gamma": {"type": "c5.xlarge"}}
        path = servers.inventory(types, tmp_path / "inventory.yaml")
        return Place(HostsProvider.of(path, tmp_path), tmp_path, "m5.large", other_type="c5.xlarge")
