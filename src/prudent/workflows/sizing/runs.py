"""What earlier runs took, from the traces of any engine: program, input size, memory, time, output size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from prudent.core.errors import BadInput
from prudent.workflows.activation import Activation
from prudent.workflows.workflow import Workflow


@dataclass(frozen=True)
class RunSample:
    """One run of a program; what is zero was not measured. `asked_*` is what its author asked for."""

    program: str
    input_bytes: float
    memory_bytes: float
    runtime_s: float
    output_bytes: float
    busy_cores: float
    asked_cores: float
    asked_memory_bytes: float

    @classmethod
    def of(cls, activation: Activation) -> RunSample:
        """The run that an activation of a trace describes.

        Sizes are those of its files; where a trace names no files, what the process read and wrote.
        """
        usage = activation.usage
        return cls(
            activation.program or activation.id,
            sum(activation.staged().values()) or usage.read_bytes,
            usage.memory_bytes,
            activation.runtime_s,
            sum(file.size_bytes for file in activation.outputs) or usage.written_bytes,
            usage.cores,
            activation.cores,
            activation.memory_bytes,
        )


def samples_of(workflow: Workflow) -> Iterator[RunSample]:
    """The runs of a trace, parents before children."""
    return (RunSample.of(workflow[name]) for name in workflow.order)


def read_samples(path: Path) -> list[RunSample]:
    """The runs in a trace file, the folder where Snakemake ran, or that of a run of `prudent execute`."""
    from prudent.workflows.execute.run import JOURNAL
    from prudent.workflows.formats import nextflow
    from prudent.workflows.formats.reading import read, read_text

    if (path / JOURNAL).is_file():
        return list(_executed(path))
    if path.is_file():
        text = read_text(path, "run")
        if nextflow.is_trace(text):
            return [RunSample.of(task.activation) for task in nextflow.tasks(text, path.stem)[0]]
    return list(samples_of(read(path)))


def _executed(folder: Path) -> Iterator[RunSample]:
    """The commands that succeeded in a run of `prudent execute`: their time and files, not their memory."""
    from prudent.workflows.execute.run import WorkflowRun

    run = WorkflowRun.read(folder)
    if run.replay is not None:
        raise BadInput(f'The run in "{folder}" was a rehearsal and measured nothing; name a real one.')
    for fact in run.facts:
        if fact["fact"] == "ended" and fact["outcome"] == "done":
            activation = run.workflow[fact["activation"]]
            sizes = [
                sum(float(known["size"]) for known in fact.get(side, {}).values())
                for side in ("inputs", "outputs")
            ]
            measured = replace(RunSample.of(activation), runtime_s=float(fact["took_s"]))
            yield replace(measured, input_bytes=sizes[0], output_bytes=sizes[1])
