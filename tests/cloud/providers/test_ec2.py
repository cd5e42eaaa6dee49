"""Machines of EC2 keep the contract, entered by SSH with the host key that their tag names."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ..ec2_cloud import Ec2Cloud
from .conformance import Place, ProviderConformance


class TestEc2(ProviderConformance):
    @pytest.fixture
    def place(self, cloud: Ec2Cloud) -> Iterator[Place]:
        with cloud.entered():
            provider = cloud.provider(sleep=time.sleep)
            # The switch shuts a machine down, and these are not real ones; it has tests of its own.
            yield Place(provider, cloud.folder, "m5.large", "c5.large", switched=False)
