"""Waiting for events of the running trials: first of those past their limit, then of the others in turn."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Protocol, runtime_checkable

from prudent.training.search.proposers import TrialProposal
from prudent.tuning.jobs.job import Run
from prudent.tuning.trial import Outcome, Progress

SHORTEST_S, LONGEST_S, SHARE = 0.001, 0.05, 0.02
"""A run that cannot notify is polled for this share of its age, within these bounds: short runs are seen at
once, and every run is polled within the longest."""

_LONGEST_WAIT_S = 3600.0


@runtime_checkable
class ClockedRun(Protocol):
    """A run with a clock of its own: asked for what happened up to now, it answers without waiting.

    It may be cut from another thread than the one that polls it; it is not polled any more then. It calls
    back when something happens (`NotifyingRun`), or has a handle that becomes readable (`ReadableRun`).
    """

    def elapsed_s(self) -> float: ...

    def due_s(self) -> float:
        """When it must be polled though it has not notified; inf for never."""


@runtime_checkable
class NotifyingRun(Protocol):
    """A run that calls back when something happens."""

    def notify(self, wake: Callable[[], None]) -> None: ...


@runtime_checkable
class ReadableRun(Protocol):
    """A run with a handle that becomes readable when something happens."""

    def fileno(self) -> int: ...


@dataclass
class TrialInProgress:
    """A trial that runs: its proposal, its limit, and what it has reported."""

    number: int
    index: int
    proposal: TrialProposal
    run: Run
    began_s: float
    limit_s: float
    heard_s: float = 0.0
    progress: list[Progress] = field(default_factory=list)
    ending: bool = False
    outcome: Outcome | None = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        notifies = isinstance(self.run, NotifyingRun | ReadableRun)
        self.clocked = self.run if isinstance(self.run, ClockedRun) and notifies else None
        self.readable = self.run if isinstance(self.run, ReadableRun) else None

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began_s


class WakeupPipe:
    """Any thread wakes the one that waits on this pipe (the self-pipe trick), beside other handles."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)
        self._lock = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        return self._out

    def wake(self) -> None:
        with self._lock:
            if not self._closed:
                with contextlib.suppress(BlockingIOError):  # a wake-up is pending already
                    os.write(self._in, b"!")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._out, 4096):
                pass

    def close(self) -> None:
        with self._lock:
            self._closed = True
            os.close(self._out)
            os.close(self._in)


class TrialMonitor:
    """Sleeps until a trial reports something or the first limit is due; no report delays a limit.

    `limit_of` answers the age at which a trial is to be cut, and is asked again every `poll_every_s`.
    `noticed` is told how late a limit was seen. `record_heartbeats` is called at `heartbeat_due_s` at the
    latest.
    """

    def __init__(
        self,
        limit_of: Callable[[TrialInProgress, float], float],
        poll_every_s: float,
        noticed: Callable[[float], object],
        record_heartbeats: Callable[[], None],
        heartbeat_due_s: Callable[[], float],
    ) -> None:
        self.trials: dict[int, TrialInProgress] = {}
        self._limit_of, self._poll_every_s = limit_of, poll_every_s
        self._noticed, self._record_heartbeats, self._heartbeat_due_s = (
            noticed,
            record_heartbeats,
            heartbeat_due_s,
        )
        self._wakeup = WakeupPipe()

    def add(self, trial: TrialInProgress) -> None:
        self.trials[trial.number] = trial
        if isinstance(trial.run, NotifyingRun):
            trial.run.notify(self._wakeup.wake)

    def close(self) -> None:
        self._wakeup.close()

    def next_event(self) -> tuple[TrialInProgress, Progress | Outcome | None]:
        """The next event of a trial; None for one that has reached its limit."""
        while True:
            self._wakeup.drain()  # before any trial is polled, so that no later event is missed
            heard = (
                self._ended_in_thread() or self._past_limit() or self._clocked_event() or self._polled_event()
            )
            self._record_heartbeats()
            if heard is not None:
                # This trial is polled last the next time.
                number = heard[0].number
                self.trials[number] = self.trials.pop(number)
                return heard
            self._sleep()

    def end_in_thread(self, trial: TrialInProgress, end: Callable[[], Outcome]) -> None:
        """Let a trial end in a thread of its own, so that the others need not wait for it."""

        def work() -> None:
            try:
                trial.outcome = end()
            except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for the trial
                trial.error = error
            self._wakeup.wake()

        trial.ending = True
        threading.Thread(target=work, name=f"end of trial {trial.number}", daemon=True).start()

    def wait_for_end(self, trial: TrialInProgress) -> Outcome | None:
        """Wait for the outcome of a trial that is being cut; None if it was not cut, or cutting it failed."""
        while trial.ending and trial.outcome is None and trial.error is None:
            wait([self._wakeup.fileno()])
            self._wakeup.drain()
        return trial.outcome

    # Inside

    @property
    def _running(self) -> list[TrialInProgress]:
        return [trial for trial in self.trials.values() if not trial.ending]

    def _ended_in_thread(self) -> tuple[TrialInProgress, Outcome] | None:
        """A trial that was cut and has ended."""
        for trial in self.trials.values():
            if trial.error is not None:
                raise trial.error
            if trial.outcome is not None:
                return trial, trial.outcome
        return None

    def _past_limit(self) -> tuple[TrialInProgress, Progress | Outcome | None] | None:
        """A trial past its limit; what it reported before counts."""
        for trial in self._running:
            age_s, before_s = trial.age_s, trial.heard_s
            limit_s = self._limit_of(trial, age_s)
            if age_s < limit_s:
                continue
            event = trial.run.next(limit_s if trial.clocked is None else self._now_s(trial, limit_s))
            trial.heard_s = max(before_s, trial.age_s)
            if event is None:
                self._noticed(trial.heard_s - max(limit_s, before_s))
            return trial, event
        return None

    def _now_s(self, trial: TrialInProgress, limit_s: float) -> float:
        assert trial.clocked is not None
        return min(trial.clocked.elapsed_s(), limit_s)

    def _clocked_event(self) -> tuple[TrialInProgress, Progress | Outcome] | None:
        for trial in self._running:
            if trial.clocked is not None:
                event = trial.run.next(trial.clocked.elapsed_s())
                trial.heard_s = max(trial.heard_s, trial.age_s)
                if event is not None:
                    return trial, event
        return None

    def _polled_event(self) -> tuple[TrialInProgress, Progress | Outcome | None] | None:
        """Poll each trial that cannot notify for a moment."""
        for trial in [one for one in self._running if one.clocked is None]:
            age_s, before_s = trial.age_s, trial.heard_s
            slice_s = min(max(SHARE * age_s, SHORTEST_S), LONGEST_S / len(self.trials))
            limit_s = self._limit_of(trial, age_s)
            event = trial.run.next(min(max(age_s, before_s) + slice_s, limit_s))
            trial.heard_s = max(before_s, trial.age_s)
            self._record_heartbeats()
            if event is None and trial.heard_s >= limit_s:
                self._noticed(trial.heard_s - max(limit_s, before_s))
            if event is not None or trial.heard_s >= limit_s:
                return trial, event
        return None

    def _sleep(self) -> None:
        """Sleep until a wake-up, or until the first limit or the next heartbeat is due."""
        pauses = [_LONGEST_WAIT_S, self._poll_every_s, self._heartbeat_due_s() - time.monotonic()]
        for trial in self._running:
            if trial.clocked is None:
                return
            age_s = trial.age_s
            pauses.append(self._limit_of(trial, age_s) - age_s)
            pauses.append(trial.clocked.due_s() - trial.clocked.elapsed_s())
        if (pause_s := min(pauses)) <= 0:
            return
        handles = [one.readable.fileno() for one in self._running if one.readable is not None]
        due_s = time.monotonic() + pause_s
        if not wait([self._wakeup.fileno(), *handles], pause_s):
            self._noticed(time.monotonic() - due_s)
