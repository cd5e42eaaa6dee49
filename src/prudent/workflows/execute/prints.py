"""What a file looked like: enough to tell later whether it has changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

DIGESTED_BYTES = 64_000_000
"""Larger files are known by size and time alone: reading them again would take longer than it is worth."""

Print = dict[str, Any]
"""`size` and `mtime_ns`, and the `digest` of its content where the file is not too large."""


def print_of(path: Path) -> Print | None:
    """The print of a file, or None if there is none; a folder is known by being there."""
    try:
        seen = path.stat()
    except OSError:
        return None
    if path.is_dir():
        return {"size": 0, "mtime_ns": 0}
    known: Print = {"size": seen.st_size, "mtime_ns": seen.st_mtime_ns}
    if seen.st_size <= DIGESTED_BYTES:
        known["digest"] = _digest(str(path), seen.st_size, seen.st_mtime_ns, seen.st_ino)
    return known


def prints_of(directory: str, names: Iterable[str]) -> dict[str, Print]:
    """The prints of those files that are there."""
    found = {name: print_of(Path(directory, name)) for name in names}
    return {name: known for name, known in found.items() if known is not None}


def same(one: Print, other: Print) -> bool:
    """Whether two prints are of the same content, as far as they can tell.

    >>> same({"size": 3, "mtime_ns": 1, "digest": "a"}, {"size": 3, "mtime_ns": 2, "digest": "a"})
    True
    >>> same({"size": 3, "mtime_ns": 1}, {"size": 3, "mtime_ns": 2})
    False
    """
    if "digest" in one and "digest" in other:
        return bool(one["digest"] == other["digest"])
    return (one["size"], one["mtime_ns"]) == (other["size"], other["mtime_ns"])


def marks_of(directory: str, names: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Inode and time of the last change of those files that are there: any writing changes the latter."""
    marks = {}
    for name in names:
        try:
            seen = os.stat(Path(directory, name))
        except OSError:
            continue
        marks[name] = seen.st_ino, seen.st_ctime_ns
    return marks


@lru_cache(maxsize=65536)
def _digest(path: str, size: int, mtime_ns: int, inode: int) -> str:
    """A file has many readers; its content is read once while it stays as it is."""
    del size, mtime_ns, inode
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]
