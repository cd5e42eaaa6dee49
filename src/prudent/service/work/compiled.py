"""What numba has compiled for the service, copied for a process behind the wall.

Numba uses a cache only where it can write to it. Behind the wall nothing but the run's own folder is such a
place, and to compile everything again takes a minute. A cache that runs share would let one change what the
next one runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path

import prudent

CACHE = Path(".cache") / "numba"
"""Where numba looks for what it has compiled, below HOME, if it cannot write beside the source."""


def copy_to(home: Path) -> None:
    """Give a HOME its own copy; without one, functions are compiled when they are first called."""
    user_wide = Path.home() / CACHE
    with contextlib.suppress(OSError):
        if user_wide.is_dir() and not (home / CACHE).exists():
            shutil.copytree(user_wide, home / CACHE)
        for folder in Path(prudent.__file__).parent.rglob("__pycache__"):
            for path in (*folder.glob("*.nbi"), *folder.glob("*.nbc")):
                to = home / CACHE / _name(folder.parent)
                to.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to / path.name)


def _name(folder: Path) -> str:
    """As numba names the cache of a folder with source."""
    digest = hashlib.sha1(str(folder.absolute()).encode(), usedforsecurity=False).hexdigest()
    return f"{folder.name}_{digest}"
