"""WorkflowSim4RL, figure 4: Montage with 25 activations run for real, by a learned plan and by fcfs.

Montage itself and its images are not here. Each activation is a stand-in that reads all files it is given,
hashes them over and over, writes the files that the trace has, with the hash in them, and lasts as long as
the trace says on such a machine. Sizes and times are a tenth. They run as processes on Dask workers, one for
each machine of the plan. Two cores cannot compute for 23 machines at once, so for what is left of its time
after the reading, hashing and writing a stand-in waits.
"""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.papers.page import NOT, REPRODUCED, Chart, Headline, Table, number

from prudent.workflows import Activation, File, Fleet, Workflow, World, schedule
from prudent.workflows.execute.runner import execute
from prudent.workflows.simulation.problem import build_problem
from prudent.workflows.workflow import file_writers
from workflows_makespan import FLEETS, trace_folder

TRACE, SCALE, EPISODES = "Montage_25", 0.1, 100
WORLD = World(storage="shared", bandwidth_mb_s=15)
REPEATS, QUICK_REPEATS = 3, 1
QUICK_FLEETS = (16, 128)
HASHES = 3
CLOCK = "date +%s%N"


@dataclass(frozen=True)
class FleetRuns:
    """Makespans on a fleet by scheduler, in seconds of the trace."""

    vcpus: int
    planned_s: Mapping[str, float]
    measured_s: Mapping[str, tuple[float, ...]]


def fleet_of(vcpus: int) -> Fleet:
    return Fleet.parse(f"8*m3.medium,{FLEETS[vcpus]}*m3.2xlarge", slots="vm")


def with_own_files(trace: Workflow) -> Workflow:
    """The trace with a file of its own for each of several writers of one name: they share a folder here."""
    writers = file_writers(trace)

    def named(file: File, by: str) -> File:
        return replace(file, name=f"{by}-{file.name}") if file.name in trace.gathered else file

    activations = tuple(
        replace(
            activation,
            inputs=tuple(
                named(file, by)
                for file in activation.inputs
                for by in (writers[file.name] if file.name in trace.gathered else [""])
            ),
            outputs=tuple(named(file, activation.id) for file in activation.outputs),
        )
        for activation in trace.activations
    )
    return Workflow(trace.name, activations, trace.edges)


def stand_ins(workflow: Workflow, fleet: Fleet) -> Workflow:
    """The workflow with a command for each activation."""
    problem = build_problem(workflow, fleet, WORLD)
    speeds = {vm.name.rpartition("-")[0]: vm.speed for vm in fleet.vms}
    activations = []
    for activation in workflow.activations:
        staged_s = float(problem.tasks[workflow.index[activation.id]]["stage_s"])
        lengths = {kind: SCALE * (staged_s + activation.runtime_s / v) for kind, v in speeds.items()}
        activations.append(replace(activation, command=("sh", "-c", script(activation, lengths))))
    return Workflow(workflow.name, tuple(activations), workflow.edges)


def script(activation: Activation, lengths: Mapping[str, float]) -> str:
    """Read, hash, write, and wait for what is left of the length on this kind of machine."""
    read = " ".join(shlex.quote(file.name) for file in activation.inputs)
    cases = " ".join(f"{kind}-*) length={int(1e9 * s)};;" for kind, s in lengths.items())
    written = {file.name: file.size_bytes for file in activation.outputs}
    lines = [
        f"began=$({CLOCK})",
        f'case "$PRUDENT_VM" in {cases} esac',
        f"for round in $(seq {HASHES}); do sum=$(cat {read} | sha256sum); done" if read else "sum=none",
        *(
            f"(printf '%s {activation.id} %s\\n' \"$sum\" {shlex.quote(name)}; "
            f"head -c {int(SCALE * size)} /dev/zero) > {shlex.quote(name)}"
            for name, size in written.items()
        ),
        f"left=$((length - $({CLOCK}) + began))",
        '[ "$left" -le 0 ] || sleep "$(printf %d.%09d $((left / 1000000000)) $((left % 1000000000)))"',
    ]
    return "\n".join(lines)


def given_files(workflow: Workflow, folder: Path) -> None:
    """What the workflow reads and does not make."""
    made = {file.name for activation in workflow.activations for file in activation.outputs}
    given: dict[str, File] = {file.name: file for a in workflow.activations for file in a.inputs}
    for name in given.keys() - made:
        size = max(int(SCALE * given[name].size_bytes), 1)
        digest = hashlib.sha256(name.encode()).digest()
        (folder / name).write_bytes((digest * (size // len(digest) + 1))[:size])


def real_run(vcpus: int, repeats: int) -> FleetRuns:
    fleet, trace = fleet_of(vcpus), Workflow.read(trace_folder() / f"{TRACE}.xml")
    workflow = stand_ins(with_own_files(trace), fleet)
    plans = {
        "fcfs": schedule(workflow, fleet, WORLD, "fcfs"),
        "q-learning": schedule(workflow, fleet, WORLD, "q-learning", {"episodes": EPISODES}, seed=0),
    }
    measured: dict[str, list[float]] = {name: [] for name in plans}
    for _ in range(repeats):
        for name, plan in plans.items():  # one after the other: both meet what else the computer does
            with tempfile.TemporaryDirectory() as place:
                folder, work = Path(place) / "run", Path(place) / "work"
                work.mkdir()
                given_files(workflow, work)
                run = execute(plan, workflow, folder, directory=work)
                measured[name].append(run.makespan_s / SCALE)
    planned = {name: plan.makespan_s for name, plan in plans.items()}
    return FleetRuns(vcpus, planned, {name: tuple(values) for name, values in measured.items()})


def all_runs(quick: bool) -> list[FleetRuns]:
    """One fleet after the other: side by side they would wait for the same cores."""
    repeats = QUICK_REPEATS if quick else REPEATS
    return [real_run(vcpus, repeats) for vcpus in (QUICK_FLEETS if quick else FLEETS)]


def headline(runs: list[FleetRuns]) -> Headline:
    won = sum(max(run.measured_s["q-learning"]) < min(run.measured_s["fcfs"]) for run in runs)
    ratios = [median(run.measured_s["q-learning"]) / median(run.measured_s["fcfs"]) for run in runs]
    return Headline(
        "Montage_25, real run, in less time than first come, first served (figure 4)", "every fleet",
        f"{won} of {len(runs)} fleets, each repeat; {1 - max(ratios):.0%} to {1 - min(ratios):.0%} less",
        REPRODUCED if won == len(runs) else NOT, f"stand-ins of {SCALE:g} of the trace's length",
    )  # fmt: skip


def table(runs: list[FleetRuns]) -> Table:
    rows = [
        [
            f"{run.vcpus} vCPUs", name, number(run.planned_s[name], 1),
            " / ".join(number(value, 1) for value in values),
        ]
        for run in runs
        for name, values in run.measured_s.items()
    ]  # fmt: skip
    columns = ("fleet", "scheduler", "simulated s", "measured s, each repeat")
    return Table("Figure 4: makespan of real runs, in seconds of the trace", columns, rows)


def chart(runs: list[FleetRuns]) -> Chart:
    series = {
        name: [(float(run.vcpus), median(run.measured_s[name])) for run in runs]
        for name in ("fcfs", "q-learning")
    }
    return Chart("figure4", "Figure 4: Montage_25, real runs, median", "vCPUs", "makespan, s", series)
