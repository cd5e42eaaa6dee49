"""What programs need, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from prudent.cli.display.tables import headed_table
from prudent.core.units import format_duration, format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from prudent.workflows.sizing.needs import ProgramNeeds

_WIDEST = 32


def size_lines(needs: Sequence[ProgramNeeds]) -> Iterator[RenderableType]:
    """A row for every program: what to give it, and what it is expected to take."""
    table = headed_table("Programs", "runs", "cores", "memory", "then", "time", "output")
    for each in needs:
        memory = each.memory
        table.add_row(
            _short(each.program),
            f"{each.runs:,}",
            str(each.cores or "–"),
            Text(_size(memory.given) if memory else "–", style="bold green" if memory else ""),
            _size(memory.retry) if memory else "–",
            format_duration(each.runtime.high) if each.runtime else "–",
            _size(each.output.expected) if each.output else "–",
        )
    yield table
    if any(each.memory for each in needs):
        yield Text(
            "\nmemory: for the first attempt; then: for the next one. 19 in 20 end within the time.",
            style="dim",
        )
    else:
        yield Text(
            "\nNo run measured memory: trace one by Nextflow, or by Snakemake with benchmarks.",
            style="yellow",
        )


def _short(program: str) -> Text:
    """The end of a long name tells most: Nextflow puts all workflows before it."""
    return Text(program if len(program) <= _WIDEST else f"…{program[1 - _WIDEST :]}")


def _size(size_bytes: float) -> str:
    if size_bytes < 1e6:
        return f"{size_bytes / 1e3:.3g} kB"
    return format_size(size_bytes / 1e6)
