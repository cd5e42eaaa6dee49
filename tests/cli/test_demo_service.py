"""The service part of the demo: requests of every kind are served for real, and nothing stays behind."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from prudent.cli.demo_service import service_demo

pytestmark = pytest.mark.timeout(600)


def test_a_request_of_each_kind_is_served(tmp_path: Path) -> None:
    text = io.StringIO()
    seen = service_demo(Console(file=text, width=100), tmp_path)
    assert [(one.kind, one.status) for one in seen] == [
        ("train", "succeeded"),
        ("tune", "succeeded"),
        ("schedule", "succeeded"),
    ], (tmp_path / "service" / "serve.log").read_text()[-3000:]
    said = text.getvalue()
    assert "A service  http://127.0.0.1:" in said
    assert said.count("succeeded") == 3
    assert "Ctrl-C" not in said, "nobody sits there, so it does not wait"
    left = [
        path
        for path in Path("/proc").glob("[0-9]*")
        if path.name != str(os.getpid()) and str(tmp_path / "service") in _command(path)
    ]
    assert left == []


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""
