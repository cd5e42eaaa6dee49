"""The kill matrix on machines of this computer."""

from __future__ import annotations

from pathlib import Path

import pytest

from prudent.cloud.providers.local.provider import LocalProvider

from ..providers.conformance import Place
from .kill_matrix import KillMatrix, SelfEnding


class TestLocal(SelfEnding, KillMatrix):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(LocalProvider(tmp_path), tmp_path, "m3.medium", "m3.large")
