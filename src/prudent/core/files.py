"""Files that are there whole or not at all, whatever becomes of who writes them."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, text: str, durable: bool = False) -> None:
    """Write a file; until all of it is written, the one that was there before stays.

    With `durable` it is on the disk when this returns, whatever becomes of the computer.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; a new file is found again only with its name."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
