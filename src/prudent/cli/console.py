"""The one place through which commands speak: answers to stdout, complaints to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prudent.core.errors import PrudentError

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


def say(console: Console | None, *lines: RenderableType) -> None:
    """Print, if there is a console; to a file or pipe without padding and without breaks within a sentence.

    A path or a command that was broken in two cannot be copied.
    """
    if console is None:
        return
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


def write_or_complain(write: Callable[[], Path], otherwise: str = "") -> Path | None:
    """Write a report; one that cannot be written must not cost the answer, of which `otherwise` tells."""
    try:
        return write()
    except (OSError, PrudentError) as error:
        complain(f"the report could not be written ({error}){otherwise}")
        return None


def complain(message: str) -> None:
    """One sentence on stderr."""
    sys.stderr.write(f"prudent: {message}\n")
