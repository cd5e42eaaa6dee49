"""The journal of a run: one fact a line, written as it happens, so that a killed run can be resumed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

from prudent.core.files import write_whole
from prudent.core.journal import Fact, JournalFile

HEARTBEAT_FILE = "alive.json"
"""Beside the journal: the run's clock at the last heartbeat."""


class ExecutionJournal(JournalFile):
    """The journal of a run, and its heartbeat."""

    first, version_key = "run", "version"
    foreign = '"{}" is not the journal of a run; name the folder of one.'
    busy = 'Another run is writing "{}"; wait for it, or name another folder.'
    session = "session"

    def heartbeat(self, at_s: float) -> None:
        """Write the run's clock; a heartbeat that cannot be written does not stop the run."""
        with contextlib.suppress(OSError):
            write_whole(self.path.with_name(HEARTBEAT_FILE), json.dumps({"at_s": at_s}))

    def last_heartbeat_s(self) -> float:
        """The run's clock at the last heartbeat; 0 if there was none."""
        try:
            return float(json.loads(self.path.with_name(HEARTBEAT_FILE).read_text())["at_s"])
        except (OSError, ValueError, TypeError, KeyError):
            return 0.0


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
