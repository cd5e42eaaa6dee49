"""A cloud on loopback for the tests of EC2; a machine for those of channels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prudent.cloud.providers.channel import Channel

from ..ec2_cloud import CREDENTIALS, Ec2Cloud
from .conformance import Place, order


@pytest.fixture(scope="module")
def running_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2Cloud]:
    with Ec2Cloud(tmp_path_factory.mktemp("ec2")) as cloud:
        yield cloud


@pytest.fixture
def cloud(running_cloud: Ec2Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ec2Cloud:
    """A cloud with nothing in it, and credentials for it."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    running_cloud.folder = tmp_path
    running_cloud.reset()
    return running_cloud


@pytest.fixture(scope="class")
def way(channel_place: Place) -> Iterator[Channel]:
    """Into a machine for all tests of a `ChannelConformance`."""
    provider = channel_place.provider
    wanted = order(channel_place, lease_s=3600.0)
    [machine] = provider.ready(provider.launch(wanted), channel_place.ready_s)
    with provider.channel(machine) as opened:
        yield opened
    provider.terminate(provider.list())
    assert provider.list() == ()
