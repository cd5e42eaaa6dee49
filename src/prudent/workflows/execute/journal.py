"""The journal of a run: one fact a line, written as it happens, so that a killed run can be resumed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from prudent.core.errors import BadInput

Fact = dict[str, Any]


VERSION = 1


HEARTBEAT_FILE = "alive.json"
"""Beside the journal: the run's clock at the last heartbeat."""


class ExecutionJournal:
    """Appends facts; only one process at a time may have it open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise BadInput(f'Another run is writing "{path}"; wait for it, or name another folder.') from None
        self._repair()

    def write(self, fact: Fact) -> None:
        """Append a fact; it is on disk when this returns."""
        self._file.write(json.dumps(fact, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def heartbeat(self, at_s: float) -> None:
        """Write the run's clock; a heartbeat that cannot be written does not stop the run."""
        path = self.path.with_name(HEARTBEAT_FILE)
        fresh = path.with_suffix(".new")
        with contextlib.suppress(OSError):
            fresh.write_text(json.dumps({"at_s": at_s}))
            fresh.replace(path)

    def last_heartbeat_s(self) -> float:
        """The run's clock at the last heartbeat; 0 if there was none."""
        try:
            return float(json.loads(self.path.with_name(HEARTBEAT_FILE).read_text())["at_s"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0.0

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> ExecutionJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repair(self) -> None:
        """Remove a last line that was cut by a crash, so that the next fact has a line of its own."""
        said = self.path.read_bytes()
        last = said[said.rfind(b"\n") + 1 :]
        if not last:
            return
        try:
            json.loads(last)
        except ValueError:
            self._file.truncate(len(said) - len(last))
        else:
            self._file.write(b"\n")  # only its end was cut


def read_facts(path: Path) -> list[Fact]:
    """All facts of a journal; a line that was cut by a crash is left out, damage elsewhere is an error."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise BadInput(
            f'Cannot read the journal "{path}" ({error.strerror}); name the run\'s folder.'
        ) from None
    facts: list[Fact] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fact = json.loads(line)
            if not isinstance(fact, dict):
                raise ValueError("not an object")
            facts.append(fact)
        except ValueError:
            if _was_cut(lines, number):
                continue
            raise BadInput(
                f'Line {number} of "{path}" is damaged; restore the file from a copy, or run again.'
            ) from None
    if not facts or facts[0].get("fact") != "run" or facts[0].get("version") != VERSION:
        raise BadInput(f'"{path}" is not the journal of a run of this version; name the folder of one.')
    return facts


def _was_cut(lines: list[bytes], number: int) -> bool:
    """A crash cuts the last line, or the one before a new session began."""
    rest = [line for line in lines[number:] if line.strip()]
    if not rest:
        return True
    try:
        following = json.loads(rest[0])
    except ValueError:
        return False
    return isinstance(following, dict) and following.get("fact") == "session"


FactListener = Callable[[Fact], None]


class FactSink:
    """Where facts go: the journal, if there is one, and a listener, if there is one."""

    def __init__(self, journal: ExecutionJournal | None, watch: FactListener | None) -> None:
        self._journal, self._watch = journal, watch
        self.facts: list[Fact] = []

    def write(self, fact: Fact) -> None:
        """Write a fact to the journal, then pass it to the listener."""
        if self._journal is not None:
            self._journal.write(fact)
        self.facts.append(fact)
        if self._watch is not None:
            self._watch(fact)

    def heartbeat(self, at_s: float) -> None:
        """Write a heartbeat, which a later session reads after a kill; the listener is not called."""
        if self._journal is not None:
            self._journal.heartbeat(at_s)
