"""The heartbeat of a worker: it reports that the worker lives, and releases runs of workers that died.

DBOS by itself starts a dead executor's workflows again only when an executor of the same name comes back. So
workers write heartbeats; one that has missed them for `takeover_s` is released by whoever sees it first: its
runs wait again (with a higher fence), and whoever claims one resumes its workflow by DBOS's public call.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from dbos import DBOS

from prudent.core.errors import PrudentError
from prudent.service.settings import Settings
from prudent.service.store import claims, runs, workers
from prudent.service.store.store import DiskFull, Store
from prudent.service.store.workers import WorkerRow
from prudent.service.worker import artifacts, durable
from prudent.service.worker.durable import VERSION, queue_of

_log = logging.getLogger("prudent.worker")
_PRUNE_S = 600.0
_DAY_S = 86_400.0


@dataclass
class Heartbeat:
    """Sends heartbeats from a thread of its own until it is stopped."""

    store: Store
    settings: Settings
    me: Callable[[], WorkerRow]
    mine: Callable[[], set[str]]
    """The runs that this worker is doing."""
    keep_alive: Callable[[], None]
    """Tell the processes at work that their worker lives; done only after the database heard so too."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _beats_s: list[float] = field(default_factory=list)
    _strays: set[str] = field(default_factory=set)
    _gone: set[str] = field(default_factory=set)
    _swept_s: float = -math.inf
    _pruned_s: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        self.send_heartbeat()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)
        self.store.write(workers.leave, self.me().id)

    def _run(self) -> None:
        while not self._stop.wait(self.settings.heartbeat_s):
            try:
                self.send_heartbeat()
                self.release_dead()
                self.reconcile()
                self.finish_orphaned_workflows()
                self.prune()
            except PrudentError as error:
                _log.warning("The heartbeat failed: %s", error)
            except Exception:  # noqa: BLE001 - a worker without a heartbeat would lose its runs
                _log.exception("The heartbeat failed")

    def send_heartbeat(self) -> None:
        try:
            self.store.write(workers.record_heartbeat, self.me())
        except DiskFull:
            self.keep_alive()  # while nobody can write, nobody takes over: what runs may go on
            raise
        self._beats_s = [*self._beats_s[-2:], time.monotonic()]
        self.keep_alive()

    def release_dead(self) -> list[str]:
        """Free the runs of workers that are silent.

        Not before two beats of our own at the usual pace: after the database was away everybody looks dead,
        and everybody must have the time to say otherwise.
        """
        recent_s = self._beats_s[-3:]
        if len(recent_s) < 3 or recent_s[-1] - recent_s[0] > self.settings.takeover_s:
            return []
        freed = self.store.write(claims.release_dead, self.settings.takeover_s, self.settings.tries)
        for run_id in freed:
            _log.warning("Run %s is freed of a worker that fell silent", run_id, extra={"run": run_id})
        if freed:
            self._swept_s = -math.inf  # one that was cancelled ended by this, and its workflow did not
        return freed

    def reconcile(self) -> None:
        """Free runs that the store gives to this worker and it knows nothing of.

        A claim whose answer was lost on the way leaves one. It must be seen twice: a claim takes a moment.
        """
        me = self.me().id
        strays = set(self.store.read(claims.claimed_by, me)) - self.mine()
        if strays & self._strays:
            known = self.mine() | (strays - self._strays)
            blame = not self.store.was_full(within_s=self.settings.takeover_s)
            self.store.write(claims.release_worker, me, self.settings.tries, known, blame)
        self._strays = strays

    def finish_orphaned_workflows(self) -> None:
        """Finish workflows of dead workers whose run has ended: their last steps may not have been done."""
        if time.monotonic() - self._swept_s < self.settings.takeover_s:
            return
        self._swept_s = time.monotonic()
        living = {worker.id for worker in self.store.read(workers.all_)}
        found = DBOS.list_workflows(
            status=["PENDING", "ENQUEUED"],
            app_version=VERSION,
            limit=200,
            load_input=False,
            load_output=False,
        )
        for workflow in found:
            if (workflow.executor_id or "") in living:
                continue
            run = self.store.read(runs.get, workflow.workflow_id.partition(".")[0])
            if run is None:
                DBOS.cancel_workflow(workflow.workflow_id)
            elif run.ended:
                DBOS.resume_workflow(workflow.workflow_id, queue_name=queue_of(self.me().id))
        # It must be gone twice: a worker that only begins has its queue before its first heartbeat.
        gone = durable.orphaned_queues(living)
        for worker in gone & self._gone:
            durable.delete_queue(worker)
        self._gone = gone

    def prune(self) -> None:
        """Remove ended runs that are older than the operator wants them kept."""
        keep_days = self.settings.keep_days
        if keep_days is None or time.monotonic() - self._pruned_s < min(_PRUNE_S, keep_days * _DAY_S):
            return
        self._pruned_s = time.monotonic()
        for run_id in self.store.read(runs.ended_before, time.time() - keep_days * _DAY_S):
            folder, cache = self.settings.folder_of(run_id), self.settings.home / "cache"
            artifacts.remove(self.settings.artifacts, run_id, folder, cache)
            self.store.write(runs.remove, run_id)
            DBOS.delete_workflows([run_id])
