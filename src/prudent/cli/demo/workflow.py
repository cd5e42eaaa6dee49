"""The workflow part of `prudent demo`: plan, run for real, learn from the run, plan and run again."""

from __future__ import annotations

import resource
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from prudent.cli.console import say
from prudent.core.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console

    from prudent.workflows.execute.run import WorkflowRun
    from prudent.workflows.plan import Plan
    from prudent.workflows.workflow import Workflow

SIZE = 18
FLEET = "2*m3.medium"
SCALE = 0.025
"""The shape's run times are those of real images; the demo's are so much shorter."""
_PROBE_LOOPS = 2_000_000
"""Counted once before the demo to learn how fast this machine's awk is: they differ by a factor of ten."""
WRONG = {"mProject": 1 / 3, "mBackground": 3.0, "mAdd": 3.0, "mBgModel": 3.0}
"""How wrong the first guess is about some programs: measured time / guess."""


@dataclass(frozen=True)
class WorkflowDemo:
    """What the demo did: a plan and its run before learning and after, and the report of the second."""

    first: WorkflowRun
    second: WorkflowRun
    report: Path

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "first": self.first.to_dict(),
            "second": self.second.to_dict(),
            "report": str(self.report),
        }


def workflow_demo(console: Console | None, folder: Path, seed: int = 0, scale: float = SCALE) -> WorkflowDemo:
    """A Montage-shaped workflow of small real commands on this machine's Dask workers, in about 15 s.

    The first guesses of some run times are wrong by a factor of three. What the first run measured makes the
    second plan, and the second run is faster. `console` is None for a silent demo; `scale` makes its programs
    longer or shorter.
    """
    from prudent.reports.workflow import write_workflow_report
    from prudent.workflows.execute.learning import learn_from_runs
    from prudent.workflows.fleet import Fleet
    from prudent.workflows.scheduling import compare
    from prudent.workflows.world import World

    ground = folder / "workflow"
    shutil.rmtree(ground, ignore_errors=True)
    ground.mkdir(parents=True)
    fleet, world = Fleet.parse(FLEET), World(bandwidth_mb_s=1000)
    guessed = small_montage(ground, seed, scale)
    say(
        console,
        Text.assemble(("A workflow  ", "bold"), f"{len(guessed)} small programs, {fleet} on this machine"),
    )
    first = _sitting(console, guessed, fleet, world, ground, "first", seed)
    better = learn_from_runs(guessed, fleet, world, [first.folder])
    second = _sitting(console, better, fleet, world, ground, "second", seed)
    report = folder / "workflow.html"
    write_workflow_report(second.plan, better, report, beside=compare(second.plan, better), run=second)
    _conclude(console, first, second, report)
    return WorkflowDemo(first, second, report)


def small_montage(ground: Path, seed: int, scale: float = SCALE) -> Workflow:
    """The shape with commands that really read their inputs, count for a while, and write their output."""
    from prudent.workflows.activation import File
    from prudent.workflows.formats.generate import generate

    shape = generate("montage", SIZE, seed)
    loops_per_s = _loops_per_s()
    made = {file.name for activation in shape.activations for file in activation.outputs}
    activations = []
    for activation in shape.activations:
        real_s = activation.runtime_s * scale
        inputs, outputs = ([file.name for file in files] for files in (activation.inputs, activation.outputs))
        count = int(loops_per_s * real_s)
        program = f"{{ s += length($0) }} END {{ for (i = 0; i < {count}; i++) x += i; print s, x }}"
        script = 'out=$1; program=$2; shift 2; cat "$@" | awk "$program" > "$out"'
        for name in inputs:
            if name not in made:
                (ground / name).write_text(f"{name} of demo {seed}\n" * 50)
        activations.append(
            replace(
                activation,
                runtime_s=real_s / WRONG.get(activation.program, 1.0),
                inputs=tuple(File(name, 1000) for name in inputs),
                outputs=tuple(File(name, 20) for name in outputs),
                command=("sh", "-c", script, activation.program, outputs[0], program, *inputs),
            )
        )
    return replace(shape, activations=tuple(activations))


def _loops_per_s() -> float:
    """How far awk counts here in a second of its own, whatever else is running; the best of three."""
    program = f"BEGIN {{ for (i = 0; i < {_PROBE_LOOPS}; i++) x += i; print x }}"
    took_s = []
    for _ in range(3):
        begun_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(["awk", program], check=True, stdout=subprocess.DEVNULL)
        took_s.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun_s)
    return _PROBE_LOOPS / max(min(took_s), 1e-3)


def _sitting(
    console: Console | None, workflow: Workflow, fleet: Any, world: Any, ground: Path, name: str, seed: int
) -> WorkflowRun:
    from prudent.workflows.execute.runner import execute
    from prudent.workflows.scheduling import schedule

    options = {"evaluations": 20_000, "front": 0, "adapt": False}
    plan = schedule(workflow, fleet, world, "prudent", options, seed)
    say(console, _planned(plan, name))
    return execute(plan, workflow, ground / f"{name}.run", directory=ground)


def _planned(plan: Plan, name: str) -> Text:
    guess = "guessed run times" if name == "first" else "run times learned from the first run"
    return Text(f"  {name} plan, with {guess}: {format_duration(plan.makespan_s)}; running it …", style="dim")


def _conclude(console: Console | None, first: WorkflowRun, second: WorkflowRun, report: Path) -> None:
    from prudent.cli.display.tables import headed_table

    table = headed_table("", "planned", "measured", "off by")
    for name, run in (("first run", first), ("second run", second)):
        off = run.makespan_s / run.plan.makespan_s - 1
        planned, measured = format_duration(run.plan.makespan_s), format_duration(run.makespan_s)
        table.add_row(f"  {name}", planned, measured, f"{off:+.0%}")
    say(console, table)
    say(console, Text(f"  Report  {report}", style="dim"))
