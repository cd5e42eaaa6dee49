"""Machines of EC2 keep the contract, entered by SSH with the host key that their tag names.

They have no `SwitchConformance`: their switch shuts a machine down, and these are not real ones; it has
tests of its own. The way in is that of hosts, whose tests go through all of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ...ec2_cloud import CREDENTIALS, Ec2Cloud
from ..conformance import ChannelConformance, Place, ProviderConformance


def place_at(cloud: Ec2Cloud) -> Place:
    return Place(cloud.provider(sleep=time.sleep), cloud.folder, "m5.large", "c5.large")


class TestEc2(ProviderConformance):
    @pytest.fixture
    def place(self, cloud: Ec2Cloud) -> Iterator[Place]:
        with cloud.entered():
            yield place_at(cloud)


@pytest.fixture(scope="class")
def channel_place(running_cloud: Ec2Cloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    running_cloud.folder = tmp_path_factory.mktemp("home")
    running_cloud.reset()
    with pytest.MonkeyPatch.context() as environment, running_cloud.entered():
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        yield place_at(running_cloud)


@pytest.mark.soak
class TestChannel(ChannelConformance):
    pass
