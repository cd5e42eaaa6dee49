"""The workflow part of the demo: real commands, twice, and a report."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from prudent.cli.demo import workflow as workflow_part
from prudent.cli.demo.workflow import SCALE, SIZE, WRONG, small_montage, workflow_demo


@pytest.mark.soak  # the tutorial of the first workflow takes the same steps
def test_it_runs_twice_learns_and_reports(tmp_path: Path) -> None:
    said = io.StringIO()
    before = tmp_path / "deep" / "workflow" / "first.run" / "events.jsonl"
    before.parent.mkdir(parents=True)
    before.write_text("what a demo before this one has left\n")
    demo = workflow_demo(Console(file=said, width=100), tmp_path / "deep", seed=1, scale=0.2 * SCALE)
    assert demo.first.succeeded
    assert demo.second.succeeded
    guessed, learned = demo.first.workflow, demo.second.workflow
    assert len(learned) == SIZE
    for activation in guessed.activations:
        known = learned[activation.id].runtimes_s["m3.medium"]
        assert known != activation.runtime_s
        if WRONG.get(activation.program) == 3.0:
            assert known > 1.2 * activation.runtime_s, "it was guessed too short"
    assert 'id="reality"' in demo.report.read_text()
    assert "second run" in said.getvalue()
    assert demo.to_dict()["second"]["succeeded"]


def test_some_guesses_are_wrong_by_a_factor_of_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands count for as long as the shape says, whatever is guessed of them."""
    loops_per_s = 1e7
    monkeypatch.setattr(workflow_part, "_loops_per_s", lambda: loops_per_s)
    workflow = small_montage(tmp_path, 1)
    assert {"mProject", "mBackground"} <= {activation.program for activation in workflow.activations}
    for activation in workflow.activations:
        [loops] = re.findall(r"i < (\d+)", " ".join(activation.command))
        wrong = WRONG.get(activation.program, 1.0)
        assert int(loops) / loops_per_s == pytest.approx(activation.runtime_s * wrong, abs=1e-6)
    made = {file.name for activation in workflow.activations for file in activation.outputs}
    read = {file.name for activation in workflow.activations for file in activation.inputs}
    assert {path.name for path in tmp_path.iterdir()} == read - made, "what no program makes is there"
