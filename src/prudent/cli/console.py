"""The one place through which commands speak: answers to stdout, complaints to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prudent.core.units import format_duration, format_money, format_size

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

WIDEST = 140
"""Lines longer than this are hard to read, however wide the window."""


def out() -> Console:
    """The console for answers; plain text where it is not a terminal."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False)  # ":x:" in a name is no picture
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDEST  # a file has no edge at 80
    console.width = min(console.width, WIDEST)
    return console


def say(console: Console, *lines: RenderableType) -> None:
    """Print; where nobody looks at a screen, without the spaces that fill it or breaks within a sentence.

    A path or a command that was broken in two cannot be copied.
    """
    for line in lines:
        if console.is_terminal:
            console.print(line)
            continue
        with console.capture() as captured:
            console.print(line, soft_wrap=isinstance(line, str))
        console.file.write("".join(f"{text.rstrip()}\n" for text in captured.get().splitlines()))


def say_json(document: Any) -> None:
    """One JSON document on stdout, and nothing else."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n")


def complain(message: str) -> None:
    """One sentence on stderr."""
    sys.stderr.write(f"prudent: {message}\n")


def value_text(value: object) -> str:
    """A parameter's value, short.

    >>> value_text(0.0001), value_text(16), value_text("2*m5.large"), value_text(0.123456)
    ('0.0001', '16', '2*m5.large', '0.1235')
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(value_text(part) for part in value) + "]"
    return str(value)


def configuration_text(configuration: Mapping[str, Any]) -> str:
    """
    >>> configuration_text({"workers": 4, "rate": 0.01})
    'workers=4 rate=0.01'
    """
    return " ".join(f"{name}={value_text(value)}" for name, value in configuration.items())


def measure_text(name: str, value: float) -> str:
    """A measured value with the unit its name tells.

    >>> measure_text("time_s", 90), measure_text("cost_usd", 0.02), measure_text("accuracy", 0.87654)
    ('1 min 30 s', '$0.02', '0.8765')
    """
    if name.endswith("_s"):
        return format_duration(value)
    if name.endswith("_usd"):
        return format_money(value)
    return format_size(value) if name.endswith("_mb") else f"{value:.4g}"
