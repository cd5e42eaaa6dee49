"""Hosts as machines, over real SSH on loopback: the whole contract."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prudent.cloud.providers.hosts import HostsProvider

HERE = Path(__file__).parent


def _load(name: str, path: Path):  # type: ignore[no-untyped-def]
    """A module of these tests, wherever they are run from."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


conformance = _load("prudent_provider_conformance", HERE / "conformance.py")
ssh_server = _load("prudent_ssh_server", HERE.parent / "ssh_server.py")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    with ssh_server.SshHosts(
        tmp_path_factory.mktemp("ssh"), {"alpha": None, "beta": None, "gamma": None}
    ) as up:
        yield up


class TestHosts(conformance.ProviderConformance):  # type: ignore[misc, name-defined]
    @pytest.fixture
    def place(self, servers, tmp_path: Path) -> object:  # type: ignore[no-untyped-def]
        types = {"alpha": {"type": "m5.large"}, "beta": {"type": "m5.large"}, "gamma": {"type": "c5.xlarge"}}
        path = servers.inventory(types, tmp_path / "inventory.yaml")
        return conformance.Place(
            HostsProvider.of(path, tmp_path), tmp_path, "m5.large", other_type="c5.xlarge"
        )
