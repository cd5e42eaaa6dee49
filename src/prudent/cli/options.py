"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HomeFolder = Annotated[
    Path | None,
    typer.Option(help="The folder of Prudent; $PRUDENT_HOME or ~/.local/share/prudent else."),
]
AsJson = Annotated[bool, typer.Option("--json", help="The answer as JSON.")]
