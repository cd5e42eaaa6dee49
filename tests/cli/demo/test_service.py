"""The service part of the demo: requests of every kind are served for real, and nothing stays behind."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from prudent.cli.demo import service
from prudent.cli.demo.service import service_demo

pytestmark = pytest.mark.timeout(600)


@pytest.mark.soak  # every kind is served in test_hand.py and test_serve.py
def test_a_request_of_each_kind_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = service.requests

    def short(data: Path | None, seed: int) -> list[tuple[str, dict[str, Any]]]:
        less = {"train": {"budget": "3 trials"}, "tune": {}, "schedule": {"scheduler": "heft"}}
        return [(kind, {**document, **less[kind]}) for kind, document in asked(data, seed)]

    monkeypatch.setattr(service, "requests", short)
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
    until_s = time.monotonic() + 60
    while left := _at_work(tmp_path / "service"):
        assert time.monotonic() < until_s, left
        time.sleep(0.05)


def _at_work(home: Path) -> list[Path]:
    found = Path("/proc").glob("[0-9]*")
    return [path for path in found if path.name != str(os.getpid()) and str(home) in _command(path)]


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""
