"""The two kinds of tables of all answers: facts under their labels, and rows under headings."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text


def fact_table(label_width: int, style: str = "") -> Table:
    """A table for facts: a label, and what there is to say."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=label_width, no_wrap=True, style=style)
    table.add_column(overflow="fold")
    return table


def fact(label: str, text: Text | str, label_width: int, style: str = "", label_style: str = "bold") -> Table:
    """One fact."""
    table = fact_table(label_width)
    said = text if isinstance(text, Text) else Text(text, style=style)
    table.add_row(Text(label, style=label_style), said)
    return table


def headed_table(first: str, *numbers: str, first_style: str = "bold", padding: int = 2) -> Table:
    """A table with a heading over each column; the first has words, the others numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, padding, 0, 0), header_style="dim")
    table.add_column(first, header_style=first_style, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def short_path(path: Path) -> str:
    """A path as short as it can be said from here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
