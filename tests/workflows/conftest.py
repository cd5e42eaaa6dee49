"""Small workflows, fleets and the public traces, where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prudent.workflows import Activation, File, Fleet, Vm, Workflow, World


@pytest.fixture
def diamond() -> Workflow:
    """a -> (b, c) -> d with files of 30 MB along the way."""
    return Workflow(
        "diamond",
        (
            Activation("a", "split", 4.0, (File("in", 15e6),), (File("ab", 30e6), File("ac", 30e6))),
            Activation("b", "work", 8.0, (File("ab", 30e6),), (File("bd", 30e6),)),
            Activation("c", "work", 6.0, (File("ac", 30e6),), (File("cd", 30e6),)),
            Activation("d", "join", 2.0, (File("bd", 30e6), File("cd", 30e6)), (File("out", 1e6),)),
        ),
    )


@pytest.fixture
def pair() -> Fleet:
    """A slow VM and one twice as fast."""
    return Fleet((Vm("slow", "s", 1000, usd_per_h=3.6), Vm("fast", "f", 2000, usd_per_h=7.2)))


@pytest.fixture
def still() -> World:
    """Storage so fast that transfers do not count."""
    return World(bandwidth_mb_s=1e12)


@pytest.fixture
def heft_paper() -> tuple[Workflow, Fleet, World]:
    """The example of the HEFT paper: three processors, each with its costs, and costs on the edges."""
    costs = [
        (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
        (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
    ]  # fmt: skip
    edges = {
        (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23,
        (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
    }  # fmt: skip
    machines = ("p1", "p2", "p3")
    activations = tuple(
        Activation(
            f"n{at}",
            inputs=tuple(File(f"{p}-{c}", size * 1e6) for (p, c), size in edges.items() if c == at),
            outputs=tuple(File(f"{p}-{c}", size * 1e6) for (p, c), size in edges.items() if p == at),
            runtimes_s=dict(zip(machines, cost, strict=True)),
        )
        for at, cost in enumerate(costs, 1)
    )
    fleet = Fleet(tuple(Vm(machine, machine) for machine in machines))
    return Workflow("heft-paper", activations), fleet, World(storage="network", bandwidth_mb_s=1)


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of public DAX traces; tests that need it are skipped elsewhere."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("PRUDENT_DATA", default)) / "workflows"
    if not folder.is_dir():
        pytest.skip("needs measured data")
    return folder
