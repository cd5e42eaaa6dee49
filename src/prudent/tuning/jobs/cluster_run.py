"""One run of a command on rented machines: boot, bring the files, run, fetch; again after a loss."""

from __future__ import annotations

import contextlib
import math
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prudent.cloud.machine_sampler import begin_all, end_all
from prudent.cloud.providers.channel import LOST, Channel, RemoteProcess, concurrently
from prudent.cloud.providers.provider import LaunchFailed
from prudent.cloud.readings import Readings
from prudent.core.errors import PrudentError
from prudent.core.money import Price
from prudent.core.processes import kill_point
from prudent.tuning.jobs.cluster_pool import ClusterPool, PooledCluster
from prudent.tuning.jobs.run_output import (
    ReportedMeasures,
    TrialLog,
    keep_output,
    outcome_of_exit,
    trial_name,
)
from prudent.tuning.jobs.timeline import Timeline
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FAILED, Outcome, Progress

LOSSES = 3
"""A run whose machines were lost so often has failed; before that it is tried on others."""

FOLDER = "job"
"""Where the job's files are, in the workspace of each machine."""

_LOOK_S = 15.0  # how often the owner of the machines is asked whether they are still there
_DRAIN_S = 3.0
_STEP_S = 0.25


@dataclass(frozen=True)
class ClusterTask:
    """What one run does on its machines."""

    number: int
    command: str
    worker: str | None
    environment: dict[str, str]
    type: str
    count: int
    price: Price
    run: str
    source: Path
    exclude: tuple[str, ...]
    fetch: tuple[str, ...]
    results: Path | None
    measures: tuple[str, ...]
    grace_s: float
    timeout_s: float | None


class _Lost(Exception):
    """The machines are gone, but the run may go on with others."""


class ClusterRun:
    """A run under way. Its clock starts with the order of the machines: booting is paid (see `RentedRun`)."""

    def __init__(self, task: ClusterTask, rentals: ClusterPool, logs: tuple[TrialLog, TrialLog]) -> None:
        self._task, self._rentals, self._logs = task, rentals, logs
        self._reports = ReportedMeasures(task.measures)
        self._timeline = Timeline()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._held: PooledCluster | None = None
        self._processes: list[RemoteProcess] = []
        self._began_s: float | None = None
        self._lost_usd = 0.0
        self._allowed_usd: float | None = None
        self._broke = ""
        self._bill: tuple[float, float] | None = None
        self._readings: Readings | None = None
        self._thread = threading.Thread(target=self._work, name=f"trial {task.number}", daemon=True)
        self._thread.start()

    # What a study asks

    def next(self, until_s: float) -> Progress | Outcome | None:
        if self._allowed_usd is None:
            self._allowed_usd = math.inf  # who only waits for it sets no limit
        if self._task.timeout_s is None:
            return self._timeline.next(until_s)
        while True:
            # Until the command begins nobody knows when its time is out.
            limit_s = self._limit_s()
            step_s = min(until_s, limit_s, self._timeline.now_s() + _STEP_S)
            event = self._timeline.next(step_s)
            if event is not None:
                return event
            if step_s >= limit_s:
                break
            if step_s >= until_s:
                return None
        self._end()
        why = f"took longer than its time-out of {self._task.timeout_s:g} s"
        return self._billed_outcome(Outcome(FAILED, limit_s, self._reports.measures, why))

    def cut(self, at_s: float, why: str) -> Outcome:
        seen = self._reports.measures
        self._broke = why if why == OUT_OF_MONEY else ""
        self._end()
        outcome = self._billed_outcome(Outcome(CUT, at_s, seen, why))
        held = self._held
        if held is not None and not held.up:
            # It may be booting still: without money for nobody, else for whoever comes next.
            self._rentals.give_back(held, why) if self._broke else self._rentals.abandon(held)
        return outcome

    def elapsed_s(self) -> float:
        return self._timeline.now_s()

    def due_s(self) -> float:
        return self._limit_s()

    def notify(self, wake: Callable[[], None]) -> None:
        self._timeline.notify(wake)

    @property
    def overhead_s(self) -> float:
        began_s = self._began_s
        return self._timeline.now_s() if began_s is None else began_s

    def lasts_s(self, usd: float) -> float:
        """Until when `usd` pay for its boots, losses, command and end, and for clusters that were idle.

        Machines are ordered only if this money pays for them, and not before this method, or `next`, is
        called for the first time: until then nobody has said how much money there is.
        """
        self._allowed_usd = usd
        held, usd = self._held, self._in_hand()
        if held is None:
            return self._timeline.now_s() + (0.0 if usd < 0 else math.inf)
        return self._timeline.now_s() + self._rentals.lasts_s(held, usd)

    def _in_hand(self) -> float:
        """The money for the present machines: less what was spent on lost ones and is owed for idle ones."""
        usd = -math.inf if self._allowed_usd is None else self._allowed_usd
        with self._lock:
            return usd - self._lost_usd - self._rentals.unassigned_usd

    # The thread

    def _work(self) -> None:
        try:
            result = self._attempts()
        except LaunchFailed as error:
            result = Outcome(FAILED, self._timeline.now_s(), {}, f"could not start: {error}", started=False)
        except (PrudentError, OSError) as error:
            result = Outcome(
                FAILED, self._timeline.now_s(), {}, str(error), started=self._began_s is not None
            )
        outcome = None if self._stopped.is_set() else self._billed_outcome(result)
        for log in self._logs:
            log.close()
        held = self._held
        # Machines that can be used again are given back first: who hears of the end may want them at once.
        if held is not None and held.up:
            self._rentals.give_back(held, self._broke)
        if outcome is not None:
            self._timeline.add(outcome)
        if held is not None and not held.up:
            self._rentals.give_back(held, "it did not come up")

    def _attempts(self) -> Outcome:
        why = ""
        for losses in range(1, LOSSES + 1):
            task = self._task
            held = self._rentals.take(task.type, task.count, task.run, task.price)
            with self._lock:
                self._held = held
            try:
                return self._attempt(held)
            except _Lost as loss:
                why = str(loss)
                self._lose(held, why, losses < LOSSES)
                if self._stopped.is_set():
                    break
        return Outcome(FAILED, self._timeline.now_s(), {}, f"its machines were lost {LOSSES} times: {why}")

    def _attempt(self, held: PooledCluster) -> Outcome:
        self._rentals.boot(held, self._stopped, self._in_hand)
        try:
            channels = [held.rental.channel(index) for index in range(self._task.count)]
            if self._stopped.is_set():
                return Outcome(CUT, self._timeline.now_s())
            self._bring(channels)
            kill_point("trial.put")
            first = self._begin(held, channels)
        except (PrudentError, OSError) as error:
            if why := self._lost_why(held):
                raise _Lost(why) from error
            raise
        return self._follow(held, channels, first)

    def _bring(self, channels: Sequence[Channel]) -> None:
        """Bring the job's files to every machine, and remove the results of the run before."""
        task = self._task

        def bring(channel: Channel) -> None:
            for path in task.fetch:
                channel.run(f"rm -rf -- {FOLDER}/{shlex.quote(path)}")
            channel.put(task.source, FOLDER, task.exclude)

        concurrently(bring, channels)

    def _begin(self, held: PooledCluster, channels: Sequence[Channel]) -> RemoteProcess:
        task, addresses = self._task, held.rental.addresses
        shared = {
            **task.environment,
            "PRUDENT_MACHINES": held.rental.text,
            "PRUDENT_ADDRESSES": ",".join(addresses),
            "PRUDENT_COUNT": str(task.count),
        }
        started: list[RemoteProcess] = []
        if task.worker is not None:
            for index, channel in enumerate(channels[1:], start=1):
                environment = {**shared, "PRUDENT_INDEX": str(index)}
                quiet = f"{{ {task.worker}\n}} >> ../worker.log 2>&1"
                started.append(channel.start(quiet, environment, FOLDER))
        with self._lock:
            self._began_s = self._timeline.now_s()
            self._processes = started
        first = channels[0].start(task.command, {**shared, "PRUDENT_INDEX": "0"}, FOLDER)
        with self._lock:
            self._processes = [first, *started]
        kill_point("trial.started")
        if self._stopped.is_set():
            first.end(0.0)
        return first

    def _follow(self, held: PooledCluster, channels: Sequence[Channel], process: RemoteProcess) -> Outcome:
        out, err = self._logs
        readers = [
            threading.Thread(target=keep_output, args=(process.stdout, out, self._take), daemon=True),
            threading.Thread(target=keep_output, args=(process.stderr, err), daemon=True),
        ]
        for reader in readers:
            reader.start()
        samplers = begin_all(channels, self._processes, f"readings-{self._task.number}")
        code = self._wait(held, process)
        ended_s = self._timeline.now_s()
        if code != LOST and not self._broke:
            self._readings = end_all(samplers)
        for reader in readers:
            reader.join(_DRAIN_S)
        if self._stopped.is_set():
            return Outcome(CUT, ended_s)
        if code == LOST:
            raise _Lost(self._lost_why(held) or "the connection to the first machine was lost")
        kill_point("trial.ended")
        time_s = max(ended_s, self._timeline.latest_s())
        last_line = err.last_line or (out.last_line if code else "")
        result = outcome_of_exit(code, ended_s - self.overhead_s, time_s, self._reports, last_line)
        result = replace(result, time_s=time_s)  # where it could not start, the machines are paid for yet
        problem = self._fetch(channels[0]) or out.problem or err.problem
        kill_point("trial.fetched")
        for one in self._processes:
            one.end(0.0)  # what it left behind would disturb the next run
        return (
            replace(result, why=f"{result.why}; {problem}" if result.why else problem) if problem else result
        )

    def _wait(self, held: PooledCluster, process: RemoteProcess) -> int:
        """Wait until the command ends; if its machines are lost meanwhile, it is `LOST`."""
        look_s = time.monotonic() + _LOOK_S
        while True:
            code = process.wait(1.0)
            if code is not None:
                # Without its other machines a command fails, too; that says nothing about the configuration.
                broken = code != 0 and not self._stopped.is_set() and self._task.count > 1
                return LOST if broken and self._lost_why(held) else code
            late = time.monotonic() >= look_s
            look_s = time.monotonic() + _LOOK_S if late else look_s
            if held.rental.lost is not None or (late and self._lost_why(held)):
                return LOST

    def _fetch(self, channel: Channel) -> str:
        """Bring the results here; answers what went wrong."""
        task = self._task
        if task.results is None:
            return ""
        for path in task.fetch:
            try:
                channel.get(f"{FOLDER}/{path}", task.results / trial_name(task.number) / path)
            except (PrudentError, OSError) as error:
                return f"its {path} could not be fetched: {error}"
        return ""

    def _take(self, lines: list[str]) -> None:
        now_s = self._timeline.now_s()
        for line in lines:
            progress = self._reports.line(line, now_s)
            if progress is not None:
                self._timeline.add(progress)

    # Ends

    def _limit_s(self) -> float:
        began_s, timeout_s = self._began_s, self._task.timeout_s
        return float("inf") if began_s is None or timeout_s is None else began_s + timeout_s

    def _end(self) -> None:
        """Stop whatever is going on: a command is ended, a boot goes on for the next run."""
        self._stopped.set()
        with self._lock:
            processes = list(self._processes)
        if processes:
            concurrently(lambda process: process.end(self._task.grace_s), processes)
            self._thread.join(2 * _DRAIN_S)

    def _lose(self, held: PooledCluster, why: str, again: bool) -> None:
        """Charge a lost cluster to this run, and begin anew with nothing known."""
        self._logs[1].write(f"\n[prudent] the machines were lost ({why})\n".encode())
        held.up = False
        with self._lock:
            self._lost_usd += held.settle()
            self._held, self._processes = None, []
            if again:
                self._began_s = None
            self._reports = ReportedMeasures(self._task.measures)
        self._rentals.give_back(held, why)

    def _lost_why(self, held: PooledCluster) -> str:
        if held.rental.lost is not None:
            return held.rental.lost
        try:
            return held.rental.preempted() or ""
        except (PrudentError, OSError) as error:
            return str(error)

    def _billed_outcome(self, result: Outcome) -> Outcome:
        """The outcome with what was paid until now; what comes later is charged to later runs.

        A run may end while it is being cut. Whichever of the two outcomes counts, the bill is the same.
        """
        held = self._held
        # An order under way has a price when it is through: nobody else would be charged for it in time.
        with contextlib.nullcontext() if held is None else held.ordering, self._lock:
            if self._bill is None:
                began_s = math.inf if self._began_s is None else self._began_s
                own_usd = self._lost_usd + (self._held.settle() if self._held is not None else 0.0)
                self._bill = (began_s, self._rentals.settle_unassigned(own_usd))
            began_s, bill_usd = self._bill
        overhead_s = min(began_s, result.time_s)
        return replace(result, overhead_s=overhead_s, bill_usd=bill_usd, readings=self._readings)
