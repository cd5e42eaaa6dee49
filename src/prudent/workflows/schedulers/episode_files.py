"""What an episode of learning was, as a file that a person can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prudent.core.errors import BadInput
from prudent.workflows.simulation.compiled import Floats, Records
from prudent.workflows.simulation.problem import SchedulingProblem

if TYPE_CHECKING:
    from prudent.workflows.simulation.simulator import RunTrace

OUTCOMES = ("finished-with-success", "finished-with-failure")


def write_episode(
    folder: Path,
    number: int,
    problem: SchedulingProblem,
    trace: RunTrace,
    q: Floats,
    statistics: Records,
    rewards: tuple[float, ...],
    wall_s: float,
) -> Path:
    """`episode-0001.json`: plan, states of the machines, Q, rewards, simulated and wall time."""
    told = {
        "episode": number,
        "workflow": problem.workflow.name,
        "state": OUTCOMES[int(trace.done < len(problem.tasks))],
        "simulated_s": trace.makespan_s,
        "wall_s": wall_s,
        "reward": rewards[-1],
        "reward_all": float(np.sum(rewards)),
        "plan": _plan(problem, trace),
        "machines": _machines(problem, trace, statistics),
        "q": _table(problem, q),
    }
    path = folder / f"episode-{number:04d}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(told, indent=1), encoding="utf-8")
    except OSError as error:
        raise BadInput(f'Cannot write "{path}" ({error.strerror}); choose another folder.') from None
    return path


def _plan(problem: SchedulingProblem, trace: RunTrace) -> list[dict[str, Any]]:
    """Every attempt by its start: which activation ran where, when, and how it ended."""
    names = [activation.id for activation in problem.workflow.activations]
    log = trace.log[np.argsort(trace.log["start_s"], kind="stable")]
    return [
        {
            "activation": names[int(row["task"])],
            "machine": _vm(problem, int(problem.lanes[int(row["lane"])]["vm"])),
            "start_s": float(row["start_s"]),
            "finish_s": float(row["end_s"]),
            "state": OUTCOMES[int(row["outcome"] != 0)],
        }
        for row in log
    ]


def _machines(problem: SchedulingProblem, trace: RunTrace, statistics: Records) -> dict[str, Any]:
    """Of each machine: when it was running (idle else), its mean index P, deviation and efficiency."""
    lanes = problem.lanes["vm"][trace.log["lane"]]
    found = {}
    for vm in range(len(problem.vms)):
        own, mine = statistics[1 + vm], trace.log[lanes == vm]
        count = float(own["count"])
        found[_vm(problem, vm)] = {
            "running_s": sorted([float(row["start_s"]), float(row["end_s"])] for row in mine),
            "attempts": len(mine),
            "mean_index": float(own["mean"]),
            "index_deviation": float(np.sqrt(own["squares"] / count)) if count else 0.0,
            "efficiency": float(own["efficiency"]),
        }
    return found


def _table(problem: SchedulingProblem, q: Floats) -> dict[str, dict[str, float]]:
    """Q of "activation to machine" by their names."""
    machines = [_vm(problem, vm) for vm in range(len(problem.vms))]
    return {
        activation.id: dict(zip(machines, map(float, row), strict=True))
        for activation, row in zip(problem.workflow.activations, q, strict=True)
    }


def _vm(problem: SchedulingProblem, vm: int) -> str:
    return problem.fleet.vms[vm].name
