"""Machines of EC2 keep the contract, entered by SSH with the host key that their tag names.

They have no `SwitchConformance`: their switch shuts a machine down, and these are not real ones; it has tests of
its own. The way in is that of hosts, whose tests go through all of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ..ec2_cloud import Ec2Cloud
from .conformance import ChannelConformance, Place, ProviderConformance


class OnEc2:
    @pytest.fixture
    def place(self, cloud: Ec2Cloud) -> Iterator[Place]:
        with cloud.entered():
            provider = cloud.provider(sleep=time.sleep)
            yield Place(provider, cloud.folder, "m5.large", "c5.large")


class TestEc2(OnEc2, ProviderConformance):
    pass


@pytest.mark.soak
class TestChannel(OnEc2, ChannelConformance):
    pass
