"""A run that this worker has claimed: from its claim to its end, or until another takes over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy import Connection

from prudent.cloud.spending import SpendingLog
from prudent.core.errors import BadInput, RunFailed
from prudent.service.intake import tune_request
from prudent.service.security.protection import own_folders
from prudent.service.settings import Settings
from prudent.service.store import charges, claims, models, runs, trials
from prudent.service.store.charges import Charge, asked_usd
from prudent.service.store.disk import has_room, is_full
from prudent.service.store.models import StoredModel
from prudent.service.store.runs import CANCELLED, FAILED, SUCCEEDED, RunRow
from prudent.service.store.store import Change, DiskFull, P, Store, T
from prudent.service.store.tables import runs as table
from prudent.service.worker import artifacts, machines, recording
from prudent.service.worker.messages import (
    DoneMessage,
    FailedMessage,
    InterruptedMessage,
    PostponedMessage,
    ProcessMessage,
    RunTask,
)
from prudent.service.worker.work_process import (
    LAST_WORDS,
    LimitExceeded,
    ProcessDied,
    WorkPool,
    WorkProcess,
    end_leftovers,
)

_log = logging.getLogger("prudent.worker")
_LOOK_S, _TOGETHER, _PAUSE_S = 0.2, 64, 0.05
_FULL_S = 1.0
_STOP_S = 10.0
"""A run that was told to stop and has not by then is ended as it is."""


class HandedOver(BaseException):
    """This worker leaves; the run waits for another. Not an error: nothing of it is recorded."""


@dataclass(frozen=True)
class StepOutcome:
    """What a step of the workflow has come to: trials that ended, and at the end how the run did."""

    trials: tuple[int, ...] = ()
    outcome: str = ""
    """Empty while the run goes on; then succeeded, failed or cancelled."""
    error: str = ""
    models: tuple[dict[str, Any], ...] = ()
    exhausted: str = ""
    recorded: bool = False
    """The store has the outcome already."""


def _may_spend(connection: Connection, run_id: str) -> float | None:
    """The most that a run may cost in all: what it has cost, and what is put aside for it. None: no limit."""
    reserved_usd, run = charges.reserved_usd(connection, run_id), runs.get(connection, run_id)
    return None if reserved_usd is None or run is None else run.spent_usd + reserved_usd


@dataclass
class ClaimedRun:
    """Does a run with a process of its own, and records what it says."""

    run: RunRow
    store: Store
    settings: Settings
    pool: WorkPool
    parallelism: int
    leave: Callable[[str], None] = lambda run_id: None
    pause: Callable[[], None] = lambda: None
    """Asks the worker to begin nothing for a while."""
    settled: threading.Event = field(default_factory=threading.Event)
    """Set when nothing of the run is left here."""
    _cancel: bool = False
    _hand_over: bool = False
    _stop_sent_s: float | None = None
    _process: WorkProcess | None = None
    _left: bool = False

    # Orders of the worker, from its thread

    def cancel(self) -> None:
        self._cancel = True

    def hand_over(self) -> None:
        self._hand_over = True

    # Steps of the workflow, from its thread

    def prepare(self) -> None:
        """Forget what a former worker had under way, and end what it left running; it is begun again."""
        if self.run.fence > 1:
            if not self.run.ended:
                self._write(trials.drop_unfinished, self.run.id, self.run.fence)
            self._clear()

    def next(self) -> StepOutcome:
        """Go on until trials have ended or the run has."""
        if self.run.ended:  # while nobody had it: cancelled, or given up
            return StepOutcome(outcome=self.run.status, recorded=True)
        while True:
            try:
                process = self._begin()
                said = self._gather(process)
                new = self._write(recording.record_messages, self.run, said) if said else []
                if new:
                    self._tell_spending()
            except LimitExceeded as error:
                self._drop()
                return StepOutcome(outcome=FAILED, error=str(error))
            except ProcessDied as error:
                self._drop()
                if not self._go_on_after(str(error)):
                    return StepOutcome(outcome=FAILED, recorded=True)
                continue
            last = said[-1] if said and isinstance(said[-1], LAST_WORDS) else None
            if last is not None:
                return self._ended(last, tuple(new))
            if new:
                return StepOutcome(tuple(new))

    def export(self, batch: StepOutcome) -> str:
        """Copy results to where they are kept, and register the models."""
        folder = self.settings.folder_of(self.run.id)
        place = self._kept(folder)
        now_s = time.time()
        made = [
            StoredModel(
                f"{self.run.id}-{model['rank']}",
                self.run.id,
                self.run.user,
                model["rank"],
                model["algorithm"],
                model["score"],
                model["metric"],
                model["value"],
                f"{place}/{artifacts.MODELS}/{model['folder']}",
                now_s,
            )
            for model in batch.models
        ]

        def change(connection: Any) -> None:
            models.record(connection, made, self.run.id, self.run.fence)
            connection.execute(table.update().where(table.c.id == self.run.id).values(folder=place))

        self._write(change)
        return place

    def finish(self, batch: StepOutcome) -> str:
        """Record the outcome of the run, unless the store has it already."""
        self._charge_machines()
        self._tell_spending()
        if not batch.recorded:
            now = self.store.read(runs.get, self.run.id)
            if now is None or not (now.ended and now.fence == self.run.fence):
                self._write(runs.finish, self.run.id, self.run.fence, batch.outcome, batch.error)
        return batch.outcome

    def close(self) -> None:
        """End the run's process and forget the run."""
        self._drop()
        if not self._left:
            self.leave(self.run.id)
        self.settled.set()

    def postpone(self, why: str) -> NoReturn:
        """Let the run wait for better times: whoever takes it up later goes on, and no attempt is counted."""
        _log.warning("Run %s waits again: %s", self.run.id, why, extra={"run": self.run.id})
        self.pause()
        self._drop()
        self._left = True
        self.leave(self.run.id)  # first: it may be this worker that takes it up again
        self._write(claims.give_back, self.run.id, self.run.fence, why, False)
        raise HandedOver

    # Inside

    def _write(self, change: Change[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Write; while the disk is full, wait for room: what was done and paid for is not lost."""
        while True:
            try:
                return self.store.write(change, *args, **kwargs)
            except DiskFull as error:
                self._wait_for_room(error)

    def _kept(self, folder: Path) -> str:
        """Store the results and return their place; while the disk is full, wait for room."""
        while True:
            try:
                return artifacts.store_results(self.settings.artifacts, self.run.id, folder)
            except (OSError, RunFailed) as error:
                if not is_full(error):
                    raise
                self._wait_for_room(error)

    def _wait_for_room(self, error: Exception) -> None:
        if self._hand_over:
            raise HandedOver from error
        _log.warning("Run %s waits: %s", self.run.id, error, extra={"run": self.run.id})
        time.sleep(_FULL_S)

    def _begin(self) -> WorkProcess:
        if self._process is None:
            left_usd = self.store.read(_may_spend, self.run.id)
            folder = self.settings.folder_of(self.run.id).absolute()
            self._process = self.pool.take(folder if runs_programs(self.run) else None)
            self._process.start_run(
                RunTask(
                    self.run.id,
                    self.run.kind,
                    dict(self.run.document),
                    folder,
                    self.parallelism,
                    left_usd,
                    self.settings.engine,
                    self.settings.where,
                    self.settings.home.absolute(),
                    own_folders(self.settings, self.run.user),
                )
            )
        return self._process

    def _gather(self, process: WorkProcess) -> list[ProcessMessage]:
        """Receive messages until there is a pause, and pass on orders to stop."""
        process.check_limits()  # first: what was said and paid for is not lost with a run that is ended here
        said: list[ProcessMessage] = []
        until_s = None
        while len(said) < _TOGETHER:
            wait_s = _LOOK_S if until_s is None else until_s - time.monotonic()
            message = process.receive(max(wait_s, 0.0))
            if message is not None:
                said.append(message)
                if isinstance(message, LAST_WORDS):
                    break
                # A trial's end is worth telling at once; what comes in the same blink goes with it.
                until_s = until_s or time.monotonic() + _PAUSE_S
            self._obey(process)
            if until_s is not None and time.monotonic() >= until_s:
                break
            if until_s is None and message is None:
                break
        return said

    def _obey(self, process: WorkProcess) -> None:
        if not (self._cancel or self._hand_over):
            return
        if self._stop_sent_s is None:
            self._stop_sent_s = time.monotonic()
            process.interrupt()
        elif time.monotonic() - self._stop_sent_s > _STOP_S:
            process.stop(0.0)

    def _ended(self, last: ProcessMessage, new: tuple[int, ...]) -> StepOutcome:
        if isinstance(last, DoneMessage):
            made = tuple(asdict(model) for model in last.models)
            self._give_back()
            return StepOutcome(new, SUCCEEDED, models=made, exhausted=last.exhausted)
        if isinstance(last, FailedMessage):
            self._drop() if last.worn else self._give_back()
            return StepOutcome(new, FAILED, last.error)
        why = "its process was interrupted"  # by nobody here, or to hand over
        if isinstance(last, PostponedMessage):
            if not self._is_doubtful:
                self.postpone(last.why)
            why = last.why
        else:
            assert isinstance(last, InterruptedMessage)
        self._drop()
        if self._cancel:
            return StepOutcome(new, CANCELLED)
        if self._go_on_after(why):
            return self.next()
        return StepOutcome(outcome=FAILED, recorded=True)

    @property
    def _is_doubtful(self) -> bool:
        """Whether a full disk may be the run's own fault, and counts as an attempt.

        In the sandbox a command may have filled the /tmp that it has for itself, or the word is forged.
        """
        walled = self._process is not None and self._process.sandboxed
        return walled and has_room(self.settings.folder_of(self.run.id))

    def _go_on_after(self, why: str) -> bool:
        """A process ended before its run did: whether the run is tried again here."""
        if self._cancel:
            self._write(runs.finish, self.run.id, self.run.fence, CANCELLED)
            return False
        if self._hand_over:
            self._let_go()
        _log.warning("Run %s lost its process: %s", self.run.id, why, extra={"run": self.run.id})
        return self._write(claims.retry, self.run.id, self.run.fence, self.settings.tries, why)

    def _let_go(self) -> NoReturn:
        why = f"{self.run.worker} is leaving; another goes on."
        self._write(claims.give_back, self.run.id, self.run.fence, why, False)
        raise HandedOver

    def _give_back(self) -> None:
        if self._process is not None and self._process.sandboxed:
            self._drop()
        elif self._process is not None:
            self.pool.give_back(self._process)
            self._process = None

    def _drop(self) -> None:
        """End the process, with what it may have left running."""
        if self._process is not None:
            self.pool.give_back(self._process, good=False)
            self._process = None
            self._clear()

    def _clear(self) -> None:
        """End commands and machines that a process which is gone has left."""
        folder = self.settings.folder_of(self.run.id)
        if self.pool.sandbox is not None and runs_programs(self.run):
            self.pool.sandbox.clear(folder.absolute())
            if machines.end_in_sandbox(self.pool.sandbox, folder.absolute()):
                self.pool.sandbox.close(folder.absolute())
        else:
            end_leftovers(folder)
        if self._may_have_machines:
            machines.end_left_machines(folder, self.settings.home)

    @property
    def _may_have_machines(self) -> bool:
        return machines.may_have_machines(self.run.kind, self.run.document, self.settings.where)

    def _tell_spending(self) -> None:
        """Add what the run has cost to the spending log of this computer."""
        run = self.store.read(runs.get, self.run.id)
        if run is not None and run.spent_usd > 0:
            try:
                SpendingLog().tell(
                    "serve", run.title or run.kind, run.id, run.spent_usd, asked_usd(run.document)
                )
            except BadInput as error:
                _log.warning("%s", error, extra={"run": run.id})

    def _charge_machines(self) -> None:
        """What machines cost beside their trials: their start, and the time in which they waited."""
        if not self._may_have_machines:
            return
        paid = machines.machine_cost(self.settings.folder_of(self.run.id), self.settings.home)

        def charge(connection: Connection) -> None:
            run = runs.get(connection, self.run.id)
            if run is not None and paid.usd > run.spent_usd:
                price = (paid.price.usd_per_h, str(paid.price.date)) if paid.price else (None, "")
                usd = paid.usd - run.spent_usd
                charges.record(connection, Charge(run.id, "machines", run.user, run.kind, usd, *price))

        self._write(charge)


def runs_programs(run: RunRow) -> bool:
    """Whether a run starts programs that its document names."""
    if run.kind == "tune":
        return tune_request.runs_programs(run.document)
    execute = run.document.get("execute")
    return run.kind == "schedule" and execute is not None and not _replays(execute)


def _replays(execute: Any) -> bool:
    return isinstance(execute, Mapping) and execute.get("replay") is not None
