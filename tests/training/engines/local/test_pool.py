"""The processes that train."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prudent.training.engines.local.pool import WorkerPool


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="needs groups of processes by session")
def test_they_give_way_as_far_as_who_started_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start: while they load libraries, a service must answer."""
    monkeypatch.setattr(os, "nice", lambda by: 7)
    with WorkerPool(1, 1, [], tmp_path / "log") as pool:
        assert Path(f"/proc/{pool._server.pid}/autogroup").read_text().endswith("nice 7\n")
