"""Local files that a request may name: those inside the data folders, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prudent.core.errors import BadInput, did_you_mean


def scheme_of(path: str) -> str:
    """What a path begins with, `file` if nothing.

    >>> scheme_of("S3://bucket/key"), scheme_of("table.csv")
    ('s3', 'file')
    """
    scheme, sign, _ = path.partition("://")
    return scheme.lower() if sign else "file"


def inside(said: str, folders: Sequence[Path]) -> Path:
    """The file or folder that a request names, links followed; BadInput if it is not in a data folder.

    A relative path is looked for in each folder; what is hidden there (.ssh, .env) is no data. The message is
    the same whether something outside exists or not: what lies there is nobody's business.
    """
    path = Path(said.partition("://")[2] if "://" in said else said)
    if "\0" in said:
        raise BadInput("The path has a zero byte in it; write it without.")
    for folder in folders:
        root = folder.resolve()
        found = _resolved(root / path)
        if found is None or not found.is_relative_to(root) or found == root:
            continue
        if not any(part.startswith(".") for part in found.relative_to(root).parts):
            return found
    near = [each.name for folder in folders if folder.is_dir() for each in folder.iterdir()]
    raise BadInput(
        f'There is no "{said[:200]}" in the data folders of this service.{did_you_mean(path.name, near)} '
        "Put the data there, or give an http(s) or s3 address."
    )


def _resolved(path: Path) -> Path | None:
    """What a path leads to, if there is something."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):  # not there, too long, a loop of links
        return None
