"""What a run printed, kept in a file; a full disk loses the log, never the run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from prudent.core.errors import BadInput, PrudentError, RunFailed

_TAIL = 4096
_SHOWN = 200


class TrialLog:
    """One stream of one trial, written as it comes; the end is kept in memory for messages.

    `problem` tells what went wrong while writing: the run goes on and its result counts, but whoever
    wants to read the log must learn that it is not whole.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._tail = b""
        self.problem = ""
        self._file: int | None = None
        if path is not None:
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise cannot_write(path, error) from error

    def write(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL:]
        try:
            while data and self._file is not None:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.problem = f"its log is not whole: {cannot_write(self._path or Path(), error)}"
            self.close()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def last_line(self) -> str:
        """The last line that says anything, short enough for a message."""
        lines = self._tail.decode(errors="replace").replace("\r", "\n").split("\n")
        return next((line.strip()[:_SHOWN] for line in reversed(lines) if line.strip()), "")


def cannot_write(path: Path, error: OSError) -> PrudentError:
    """The error for a file that cannot be written; a full disk is nobody's wrong request."""
    why = error.strerror or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunFailed(f"Cannot write {path} ({why}); free some space, then resume.")
    return BadInput(f"Cannot write {path} ({why}); make the folder writable, or choose another one.")
