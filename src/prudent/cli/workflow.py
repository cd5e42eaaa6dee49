"""`prudent workflow show | convert | generate`: look at workflows, write them, make new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from prudent.cli.console import out, say, say_json
from prudent.cli.options import AsJson, DagPath, Seed, WorkflowPath, command_group, write_to

workflow = command_group("Look at a workflow, write it in another format, or make a synthetic one.")
Output = Annotated[
    Path,
    typer.Argument(
        metavar="OUTPUT",
        help="The file to write: Pegasus 5 if it ends in .yml or .yaml, else WfFormat (JSON).",
    ),
]


@workflow.command()
def show(path: WorkflowPath, dag: DagPath = None, as_json: AsJson = False) -> None:
    """Show what a workflow consists of: programs, levels, files, the longest path through it."""
    from prudent.cli.display.workflow import description, workflow_lines
    from prudent.workflows.workflow import Workflow

    told = Workflow.read(path, dag)
    if as_json:
        say_json(description(told))
        return
    say(out(), *workflow_lines(told))


@workflow.command()
def convert(
    path: WorkflowPath,
    output: Output,
    cluster: Annotated[
        str | None, typer.Option(help="Merge activations: horizontal, vertical or balanced.")
    ] = None,
    per_level: Annotated[int, typer.Option(help="With --cluster: so many groups per level.")] = 8,
    dag: DagPath = None,
    as_json: AsJson = False,
) -> None:
    """Write a workflow of any format as WfFormat 1.5 or Pegasus 5."""
    from prudent.workflows.clustering import cluster as merged
    from prudent.workflows.workflow import Workflow

    told = Workflow.read(path, dag)
    if cluster is not None:
        told = merged(told, cluster, per_level)  # type: ignore[arg-type]
    _write(told, output, as_json)
    for note in () if as_json else told.notes:
        out().print(f"! {note}", style="yellow", markup=False)


@workflow.command()
def generate(
    shape: Annotated[str, typer.Argument(help="montage, cybershake, epigenomics, inspiral or sipht.")],
    size: Annotated[int, typer.Argument(help="How many activations.")],
    output: Output,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Make a synthetic workflow in the shape of a known scientific one."""
    from prudent.workflows.formats.generate import generate as make

    _write(make(shape, size, seed), output, as_json)


@workflow.command()
def size(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Earlier runs, oldest first: Nextflow traces, WfFormat files, folders where Snakemake ran, "
            "folders of prudent execute.",
        ),
    ],
    out_path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Write it for an engine: NAME.config for Nextflow, NAME.yaml or a folder for Snakemake.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell what each program needs: memory, cores, time and room, predicted from earlier runs."""
    from prudent.cli.display.workflow_sizes import size_lines
    from prudent.workflows.sizing.needs import needs_of_runs
    from prudent.workflows.sizing.settings import write_settings

    needs = needs_of_runs(runs)
    if out_path is not None:
        write_to(out_path, "settings", lambda path: write_settings(needs, path))
    if as_json:
        say_json({"programs": [each.to_dict() for each in needs]})
        return
    say(out(), *size_lines(needs))


def _write(told: Any, output: Path, as_json: bool) -> None:
    write_to(output, "workflow", told.write)
    if as_json:
        say_json({"workflow": told.name, "activations": len(told), "output": str(output)})
    else:
        out().print(f"{told.name}: {len(told):,} activations, {len(told.edges):,} edges, written to {output}")
