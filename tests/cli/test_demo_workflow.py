"""The workflow part of the demo: real commands, twice, and a report."""

from __future__ import annotations

import io
import time
from pathlib import Path

from rich.console import Console

from prudent.cli.demo_workflow import SIZE, WRONG, workflow_demo


def test_it_runs_twice_learns_reports_and_can_be_repeated(tmp_path: Path) -> None:
    said = io.StringIO()
    begun_s = time.monotonic()
    demo = workflow_demo(Console(file=said, width=100), tmp_path / "deep", seed=1)
    assert time.monotonic() - begun_s < 240, "about 10 s on an idle machine"
    assert demo.first.succeeded
    assert demo.second.succeeded
    assert len(demo.second.workflow) == SIZE
    guessed, learned = demo.first.workflow, demo.second.workflow
    for activation in guessed.activations:
        factor = WRONG.get(activation.program)
        known = learned[activation.id].runtimes_s["m3.medium"]
        if factor == 3.0:
            assert known > 1.2 * activation.runtime_s, "it was guessed too short"
    assert 'id="reality"' in demo.report.read_text()
    assert "second run" in said.getvalue()
    assert demo.to_dict()["second"]["succeeded"]
    again = workflow_demo(None, tmp_path / "deep")  # silently, and in the same folder
    assert again.second.succeeded
