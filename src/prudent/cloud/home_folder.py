"""The folder where Prudent keeps what must outlive a run: leases, prices, and machines on this computer."""

from __future__ import annotations

import os
from pathlib import Path

from prudent.core.errors import BadInput


def default_home() -> Path:
    """`$PRUDENT_HOME`, else `prudent` in `$XDG_DATA_HOME`, else `~/.local/share/prudent`."""
    if said := os.environ.get("PRUDENT_HOME"):
        return Path(said).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME", "")
    try:
        base = Path(data) if os.path.isabs(data) else Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise BadInput("This user has no home folder: say with PRUDENT_HOME where leases go.") from error
    return base / "prudent"
