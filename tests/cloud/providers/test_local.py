"""Machines on this computer keep the contract, and their size."""

from __future__ import annotations

from pathlib import Path

import pytest

from prudent.cloud.providers.local import LocalProvider

from .conformance import Place, ProviderConformance


class TestLocal(ProviderConformance):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        home = tmp_path / "home"
        return Place(LocalProvider(home), home, "m3.medium", "m3.large")
