"""A trial that runs in a worker."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from prudent.training.engines.engine import TrialSpec
from prudent.training.engines.local.pool import LIMIT, PoolWorker, WorkerPool, WorkerSetup
from prudent.training.engines.local.worker import FINISHED as FINISHED_MESSAGE
from prudent.training.engines.local.worker import PROGRESS, TrialMessage
from prudent.training.engines.model_files import remove_model_files
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Progress

_LONGEST_WAIT_S = 3600.0  # a poll refuses to wait for ever in one go


class LocalRun:
    """Reads the messages of the worker that trains a trial; releases it when the trial is over.

    The clock starts when the worker has the trial, and is the worker's own: a caller who listens late does
    not make a trial longer.
    """

    def __init__(self, pool: WorkerPool, setup: WorkerSetup, spec: TrialSpec) -> None:
        self._pool, self._setup = pool, setup
        self._spec = replace(
            spec, hyperparameters=dict(spec.hyperparameters), transforms=dict(spec.transforms)
        )
        self._worker = self._assign_worker()
        self._started_s = time.monotonic()
        self._measures: dict[str, float] = {}
        self._pending: Progress | Outcome | None = None
        self._over = False

    def next(self, until_s: float) -> Progress | Outcome | None:
        while self._pending is None:
            left_s = until_s - (time.monotonic() - self._started_s)
            if self._worker.connection.poll(min(max(left_s, 0.0), _LONGEST_WAIT_S)):
                self._pending = self._receive()
            elif left_s <= 0:
                return None
        if self.due_s() > until_s:
            return None
        event, self._pending = self._pending, None
        return event

    def cut(self, at_s: float, why: str) -> Outcome:
        if not self._over:
            self._over = True
            self._pool.end(self._worker)
        remove_model_files(self._spec.folder)
        return Outcome(CUT, at_s, self._measures, why)

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def due_s(self) -> float:
        """What was heard for a moment that had not come yet is told then; the line says nothing about it."""
        event = self._pending
        if event is None:
            return math.inf
        return event.elapsed_s if isinstance(event, Progress) else event.time_s

    def fileno(self) -> int:
        """For `multiprocessing.connection.wait`: ready when there is something to hear."""
        return self._worker.connection.fileno()

    def _assign_worker(self) -> PoolWorker:
        while True:
            worker = self._pool.acquire(self._setup)
            try:
                worker.connection.send(self._spec)
            except ConnectionError:  # it ended while nobody used it
                self._pool.end(worker)
            else:
                return worker

    def _receive(self) -> Progress | Outcome:
        try:
            message: TrialMessage = self._worker.connection.recv()
        except (EOFError, ConnectionError):
            return self._worker_died()
        at_s = max(0.0, message.at_s - self._started_s)
        self._measures.update(message.measures)
        if message.kind == PROGRESS:
            return Progress(at_s, message.measures, message.done)
        self._over = True
        if message.ends_worker:
            self._pool.end(self._worker)
        else:
            self._pool.release(self._worker)
        if message.kind == FINISHED_MESSAGE:
            return Outcome(FINISHED, at_s, message.measures)
        remove_model_files(self._spec.folder)
        return Outcome(FAILED, at_s, self._measures, message.why)

    def _worker_died(self) -> Outcome:
        at_s = time.monotonic() - self._started_s
        self._over = True
        why = self._pool.end(self._worker)
        remove_model_files(self._spec.folder)
        if why == LIMIT:
            at_s = min(at_s, self._spec.limit_s or at_s)
            why = f"It was not ready within its limit of {self._spec.limit_s:g} s; allow more."
        return Outcome(FAILED, at_s, self._measures, why)
