"""A worker: claims runs while it has room, does them as durable workflows, and leaves in good order.

What a step of a workflow came to is recorded, and a worker that takes over skips it. Steps: trials, once for
every batch of trials that ended; export; end; notify. The trials themselves are in the store before their
step is recorded, under their numbers, so that a crash in between records them once all the same. What must
happen each time a worker takes the run up (see `ClaimedRun.prepare`) is no step.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from dbos import DBOS, SetWorkflowID

from prudent.core.errors import PrudentError, RunFailed
from prudent.service.intake.admission import policy_for
from prudent.service.logs import log_run
from prudent.service.notify.notifier import announce
from prudent.service.security.accounts import all_accounts
from prudent.service.settings import Settings
from prudent.service.store import claims, disk, runs, workers
from prudent.service.store.runs import FAILED, RunRow, StaleClaim
from prudent.service.store.store import Store
from prudent.service.worker import durable
from prudent.service.worker.child import ProcessOptions
from prudent.service.worker.claimed_run import ClaimedRun, StepOutcome
from prudent.service.worker.heartbeat import Heartbeat
from prudent.service.worker.sandbox import NO_SANDBOX, sandbox_of
from prudent.service.worker.warm_pool import cores
from prudent.service.worker.work_process import WorkPool, WorkProcess

_log = logging.getLogger("prudent.worker")
_LIMITS_S = 10.0
_PAUSE_S = 5.0
_OVER = ("SUCCESS", "ERROR", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")


class Worker:
    """One process that claims and does runs; `run` returns when it has drained."""

    def __init__(self, settings: Settings, store: Store, name: str | None = None) -> None:
        self.settings, self.store = settings, store
        self.id = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"[-100:]
        self.parallelism = max(1, cores() // settings.concurrency)
        # The lease ends well before others may take over, so that a journal is free when they do.
        self.options = options = ProcessOptions(
            self.parallelism,
            settings.takeover_s * 0.7,
            tuple(folder.absolute() for folder in settings.data_folders),
            policy_for(settings, settings.data_folders),
            settings.home.absolute() / "cache" / "warm",
            settings.home.absolute(),
            settings.warm,
            settings.run_memory_mb,
            nice=settings.nice,
        )
        sandbox = sandbox_of(settings)
        if sandbox is None:
            _log.warning("%s", NO_SANDBOX)
        self.pool = WorkPool(
            lambda folder: WorkProcess(options, sandbox, folder), settings.concurrency, sandbox
        )
        self.heartbeat = Heartbeat(store, settings, self.described, self.mine, self.pool.keep_alive)
        self._lock = threading.Lock()
        self._active: dict[str, ClaimedRun] = {}
        self._draining = threading.Event()
        self._paused_s = 0.0
        self._limits: tuple[float, Mapping[str, float]] = (0.0, {})

    # What it is

    def described(self) -> workers.WorkerRow:
        state = workers.DRAINING if self._draining.is_set() else workers.ALIVE
        slots = self.settings.concurrency
        return workers.WorkerRow(
            self.id, socket.gethostname(), os.getpid(), 0.0, 0.0, state, slots, len(self.mine())
        )

    def mine(self) -> set[str]:
        with self._lock:
            return set(self._active)

    def claimed_run(self, run_id: str) -> ClaimedRun | None:
        """For the workflow: the claimed run, or one that has ended and only wants its last steps."""
        with self._lock:
            found = self._active.get(run_id)
        if found is not None:
            return found
        run = self.store.read(runs.get, run_id)
        return self._claimed_run(run) if run is not None and run.ended else None

    # Its life

    def run(self) -> None:
        """Work until drained."""
        self.pool.fill()
        durable.launch(self.settings, self.id)
        global _worker  # noqa: PLW0603 - DBOS calls functions, and one process is one worker
        _worker = self
        self.heartbeat.start()
        _log.info("Worker %s takes %d runs at a time", self.id, self.settings.concurrency)
        while not self._draining.wait(self.settings.poll_s):
            try:
                self.step()
            except PrudentError as error:
                _log.warning("%s", error)
                time.sleep(1.0)
            except Exception:  # noqa: BLE001 - a worker that stops claiming helps nobody
                _log.exception("The worker failed; it goes on")
                time.sleep(1.0)
        self._drain()

    def drain(self) -> None:
        """Take no new work; safe in a signal handler."""
        self._draining.set()

    def step(self) -> int:
        """Obey cancellations, and claim runs while there is room; answers how many were begun."""
        self._obey()
        begun = 0
        # Whoever is ready takes it: a worker that still loads its libraries would only let the run wait.
        while self._has_room() and self.store.read(claims.any_queued):
            limits = self._daily_usd()
            run = self.store.write(claims.claim, self.id, self.settings.per_user, limits)
            if run is None:
                break
            self._begin(run)
            begun += 1
        if begun == 0:
            self.pool.fill()
        return begun

    def _has_room(self) -> bool:
        if time.monotonic() < self._paused_s or not disk.has_room(self.settings.home):
            return False
        return len(self.mine()) < self.settings.concurrency and self.pool.ready()

    def _pause(self) -> None:
        self._paused_s = time.monotonic() + _PAUSE_S

    def _begin(self, run: RunRow) -> None:
        claimed = self._claimed_run(run)
        with self._lock:
            self._active[run.id] = claimed
        _log.info("Run %s begins (attempt %d)", run.id, run.attempts, extra={"run": run.id})
        try:
            self._start(run)
        except BaseException as error:
            self._forget(run.id)
            full = disk.is_full(error)
            if full:
                self._pause()
            self.store.write(claims.give_back, run.id, run.fence, "it could not be begun.", not full)
            raise

    def _start(self, run: RunRow) -> None:
        """Begin the workflow of a run, or take it up where it stands."""
        status = DBOS.get_workflow_status(run.id) if run.fence > 1 else None
        if status is not None and status.status not in _OVER:
            DBOS.resume_workflow(run.id, queue_name=durable.queue_of(self.id))
            return
        # A workflow that ended although its run did not (its end could not be recorded) is begun anew.
        with SetWorkflowID(run.id if status is None else f"{run.id}.{run.fence}"):
            DBOS.start_workflow(perform_run, run.id)

    def _claimed_run(self, run: RunRow) -> ClaimedRun:
        return ClaimedRun(
            run, self.store, self.settings, self.pool, self.parallelism, self._forget, self._pause
        )

    def _forget(self, run_id: str) -> None:
        with self._lock:
            self._active.pop(run_id, None)

    def _obey(self) -> None:
        if self.mine():
            for run_id in self.store.read(claims.cancelled, self.id):
                with self._lock:
                    claimed = self._active.get(run_id)
                if claimed is not None:
                    claimed.cancel()

    def _daily_usd(self) -> Mapping[str, float]:
        """What users may spend on a day; looked up now and then."""
        read_s, limits = self._limits
        if time.monotonic() - read_s > _LIMITS_S or not read_s:
            accounts = all_accounts(self.store, self.settings)
            limits = {user.name: user.daily_usd for user in accounts if user.daily_usd is not None}
            self._limits = (time.monotonic(), limits)
        return limits

    def _drain(self) -> None:
        """Let what runs end within the grace time; hand the rest over."""
        _log.info("Worker %s drains %d runs", self.id, len(self.mine()))
        until_s = time.monotonic() + self.settings.grace_s
        while self.mine() and time.monotonic() < until_s:
            self._obey()
            time.sleep(0.1)
        with self._lock:
            left = list(self._active.values())
        for claimed in left:
            claimed.hand_over()
        for claimed in left:
            claimed.settled.wait(20.0)
        self.pool.close()
        self.heartbeat.stop()
        durable.delete_queue(self.id)
        _log.info("Worker %s has left", self.id)


# The workflow of a run; DBOS knows it and its steps by their names.

_worker: Worker | None = None
"""The worker of this process, which knows the runs that are claimed."""


def _claimed_run(run_id: str) -> ClaimedRun:
    found = _worker.claimed_run(run_id) if _worker is not None else None
    if found is None:
        raise StaleClaim(f"Run {run_id} is not this worker's; whoever has it goes on.")
    return found


@DBOS.workflow(name="run")
def perform_run(run_id: str) -> str:
    """Do a run to its end."""
    run = _claimed_run(run_id)
    with log_run(run_id):
        try:
            run.prepare()
            while not (batch := StepOutcome(**_trials(run_id))).outcome:
                pass
            if not batch.recorded:
                batch = _exported(run_id, batch)
            outcome = _end(run_id, asdict(batch))
            _notify(run_id, batch.exhausted)
            _log.info("Run %s %s", run_id, outcome)
            return outcome
        except StaleClaim as error:
            _log.warning("%s", error)
            raise
        except Exception as error:
            if not disk.is_full(error):
                raise
            run.postpone("The disk is full; it goes on when there is room.")
        finally:
            run.close()


def _exported(run_id: str, batch: StepOutcome) -> StepOutcome:
    """Export the results; if they cannot be kept, the run has failed."""
    why = _export(run_id, asdict(batch))
    return replace(batch, outcome=FAILED, error=why) if why else batch


@DBOS.step(name="trials")
def _trials(run_id: str) -> dict[str, Any]:
    return asdict(_claimed_run(run_id).next())


@DBOS.step(name="export")
def _export(run_id: str, batch: dict[str, Any]) -> str:
    """Export; returns why results could not be kept, or nothing. DBOS records the answer as JSON."""
    try:
        _claimed_run(run_id).export(StepOutcome(**batch))
    except RunFailed as error:
        if isinstance(error, StaleClaim):
            raise
        return str(error)
    return ""


@DBOS.step(name="end")
def _end(run_id: str, batch: dict[str, Any]) -> str:
    return _claimed_run(run_id).finish(StepOutcome(**batch))


@DBOS.step(name="notify")
def _notify(run_id: str, exhausted: str) -> int:
    run = _claimed_run(run_id)
    return announce(run.store, run.settings, run_id, exhausted)
