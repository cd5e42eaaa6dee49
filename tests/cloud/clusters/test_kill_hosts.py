"""The kill matrix on hosts, over real SSH on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prudent.cloud.providers.ssh.provider import HostsProvider

from ..providers.conformance import Place
from ..ssh_server import SshHosts
from .kill_matrix import KillMatrix, SelfEnding


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    with SshHosts(tmp_path_factory.mktemp("ssh"), {"alpha": None, "beta": None}) as up:
        yield up


class TestHosts(SelfEnding, KillMatrix):
    telling = ("launch.partial", "renew.recorded")

    @pytest.fixture
    def place(self, servers: SshHosts, tmp_path: Path) -> Place:
        types = {"alpha": {"type": "m5.large"}, "beta": {"type": "m5.large"}}
        inventory = servers.inventory(types, tmp_path / "inventory.yaml")
        return Place(HostsProvider.of(inventory, tmp_path), tmp_path, "m5.large", other_type="m5.large")

    @pytest.mark.soak  # `test_dask.py` rents hosts and gives them back
    def test_a_run_that_lives_leaves_nothing(self, place: Place) -> None:
        super().test_a_run_that_lives_leaves_nothing(place)
