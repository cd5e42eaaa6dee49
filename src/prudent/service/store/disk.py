"""A full disk: noticed before writes fail, and recognised in errors."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

LEAST_MB = 32.0
"""With less than this free, nothing new is taken: what is under way needs the rest to be kept."""


def has_room(folder: Path) -> bool:
    """Whether there is room on a folder's disk for something new."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return True  # whoever writes there will hear why
    return found.f_bavail * found.f_frsize >= LEAST_MB * 1e6


def is_full(error: BaseException) -> bool:
    """Whether an error comes of a disk (or a quota) that is full, however it is wrapped.

    >>> is_full(OSError(errno.ENOSPC, "No space left on device")), is_full(OSError(errno.EACCES, "no"))
    (True, False)
    """
    return any(_says_full(each) for each in _chain(error))


def _says_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return getattr(error, "sqlstate", None) == "53100"  # what PostgreSQL says


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        wrapped = getattr(error, "orig", None)
        if isinstance(wrapped, BaseException):
            yield wrapped
        error = error.__cause__ or error.__context__
