"""A run as a durable workflow: what a step came to is recorded, and a worker that takes over skips it.

Steps: trials, once for every batch of trials that ended; export; end; notify. The trials themselves are in
the store before their step is recorded, under their numbers, so that a crash in between records them once all
the same. What must happen each time a worker takes the run up (see `Session.prepare`) is no step.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, replace
from typing import Any, Protocol

from dbos import DBOS

from prudent.core.errors import RunFailed
from prudent.service.engine.session import Batch, Session
from prudent.service.notify.courier import announce
from prudent.service.store.disk import is_full
from prudent.service.store.runs import FAILED, Stale
from prudent.service.web.logs import about

_log = logging.getLogger("prudent.worker")


class Sessions(Protocol):
    """Where the workflow finds the run that its worker has claimed."""

    def session(self, run_id: str) -> Session | None: ...


_sessions: Sessions | None = None


def serve(sessions: Sessions) -> None:
    """Workflows of this process are of these sessions."""
    global _sessions  # noqa: PLW0603 - DBOS calls functions, and one process is one worker
    _sessions = sessions


def _session(run_id: str) -> Session:
    found = _sessions.session(run_id) if _sessions is not None else None
    if found is None:
        raise Stale(f"Run {run_id} is not this worker's; whoever has it goes on.")
    return found


@DBOS.workflow(name="run")
def perform(run_id: str) -> str:
    """Do a run to its end."""
    session = _session(run_id)
    with about(run_id):
        try:
            session.prepare()
            while not (batch := Batch(**_trials(run_id))).outcome:
                pass
            if not batch.recorded:
                batch = _exported(run_id, batch)
            outcome = _end(run_id, asdict(batch))
            _notify(run_id, batch.exhausted)
            _log.info("Run %s %s", run_id, outcome)
            return outcome
        except Stale as error:
            _log.warning("%s", error)
            raise
        except Exception as error:
            if not is_full(error):
                raise
            session.postpone("The disk is full; it goes on when there is room.")
        finally:
            session.close()


def _exported(run_id: str, batch: Batch) -> Batch:
    """Results that cannot be kept are none: the run failed, and its end says why."""
    why = _export(run_id, asdict(batch))
    return replace(batch, outcome=FAILED, error=why) if why else batch


@DBOS.step(name="trials")
def _trials(run_id: str) -> dict[str, Any]:
    return asdict(_session(run_id).next())


@DBOS.step(name="export")
def _export(run_id: str, batch: dict[str, Any]) -> str:
    """Why results could not be kept, or nothing; what is recorded of a step is plain JSON."""
    try:
        _session(run_id).export(Batch(**batch))
    except RunFailed as error:
        if isinstance(error, Stale):
            raise
        return str(error)
    return ""


@DBOS.step(name="end")
def _end(run_id: str, batch: dict[str, Any]) -> str:
    return _session(run_id).finish(Batch(**batch))


@DBOS.step(name="notify")
def _notify(run_id: str, exhausted: str) -> int:
    session = _session(run_id)
    return announce(session.store, session.settings, run_id, exhausted)
