"""Real workflows of small shell commands, in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prudent.workflows import Activation, File, Fleet, Plan, Vm, Workflow, World, schedule


def _step(
    name: str, script: str, inputs: str = "", outputs: str = "", runtime_s: float = 0.1, program: str = ""
) -> Activation:
    """An activation that runs a line of shell."""
    return Activation(
        name,
        program or name.rstrip("0123456789"),
        runtime_s,
        tuple(File(word) for word in inputs.split()),
        tuple(File(word) for word in outputs.split()),
        ("sh", "-c", script),
    )


@pytest.fixture
def letters() -> Workflow:
    """in -> a -> (b, c) -> d -> out, with real files."""
    return Workflow(
        "letters",
        (
            _step("a", "cp in ab; cp in ac", "in", "ab ac"),
            _step("b", "tr a-z A-Z < ab > bd", "ab", "bd"),
            _step("c", "rev < ac > cd", "ac", "cd"),
            _step("d", "cat bd cd > out", "bd cd", "out"),
        ),
    )


@pytest.fixture
def two() -> Fleet:
    return Fleet((Vm("v1", "m", usd_per_h=3.6), Vm("v2", "m", usd_per_h=3.6)))


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    """The folder in which commands run, with the one file that is given."""
    folder = tmp_path / "ground"
    folder.mkdir()
    (folder / "in").write_text("hello\n")
    return folder


@pytest.fixture
def plan_for(two: Fleet) -> Callable[..., Plan]:
    def make(workflow: Workflow, fleet: Fleet = two, scheduler: str = "heft") -> Plan:
        return schedule(workflow, fleet, World(bandwidth_mb_s=1e6), scheduler=scheduler)

    return make


@pytest.fixture
def step() -> Callable[..., Activation]:
    return _step
