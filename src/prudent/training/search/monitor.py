"""Trials under way, heard fairly: first who is past its limit, then whoever has something to say, in turn."""

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
"""A run that cannot tell when something happens is listened to for this share of its age, in these bounds:
short runs are seen at once, and all are heard within the longest."""

_LONGEST_WAIT_S = 3600.0


@runtime_checkable
class ClockedRun(Protocol):
    """A run that is not waited for: asked for what happened up to now on its own clock, it answers at once.

    It may be cut from another thread than the one that asks it; nobody asks it any more then. It calls back
    when something happens (`NotifyingRun`), or has a handle that is ready to be read then (`ReadableRun`).
    """

    def elapsed_s(self) -> float: ...

    def due_s(self) -> float:
        """When it must be asked though it calls nobody; inf for never."""


@runtime_checkable
class NotifyingRun(Protocol):
    def notify(self, wake: Callable[[], None]) -> None: ...


@runtime_checkable
class ReadableRun(Protocol):
    def fileno(self) -> int: ...


@dataclass
class TrialInProgress:
    """A trial under way."""

    number: int
    index: int
    wish: TrialProposal
    run: Run
    began_s: float
    limit_s: float
    heard_s: float = 0.0
    progress: list[Progress] = field(default_factory=list)
    ending: bool = False
    outcome: Outcome | None = None
    error: BaseException | None = None

    def __post_init__(self) -> None:
        told = isinstance(self.run, NotifyingRun | ReadableRun)
        self.clocked = self.run if isinstance(self.run, ClockedRun) and told else None
        self.readable = self.run if isinstance(self.run, ReadableRun) else None

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began_s


class WakeupPipe:
    """Rung by any thread; whoever waits for it may wait for handles of others at the same time."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)
        self._lock = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        return self._out

    def ring(self) -> None:
        with self._lock:
            if not self._closed:
                with contextlib.suppress(BlockingIOError):  # it rings already
                    os.write(self._in, b"!")

    def hush(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._out, 4096):
                pass

    def close(self) -> None:
        with self._lock:
            self._closed = True
            os.close(self._out)
            os.close(self._in)


class TrialMonitor:
    """Sleeps until a trial says something or the first limit is due; nobody's talk delays another's limit.

    `limit_of` tells at which age a trial is to be cut, and holds for `every_s`; `noticed` is told how late a
    limit was seen, `sign` is called at least when `sign_due_s` says so.
    """

    def __init__(
        self,
        limit_of: Callable[[TrialInProgress, float], float],
        every_s: float,
        noticed: Callable[[float], object],
        sign: Callable[[], None],
        sign_due_s: Callable[[], float],
    ) -> None:
        self.members: dict[int, TrialInProgress] = {}
        self._limit_of, self._every_s = limit_of, every_s
        self._noticed, self._sign, self._sign_due_s = noticed, sign, sign_due_s
        self._bell = WakeupPipe()

    def add(self, member: TrialInProgress) -> None:
        self.members[member.number] = member
        if isinstance(member.run, NotifyingRun):
            member.run.notify(self._bell.ring)

    def close(self) -> None:
        self._bell.close()

    def hear(self) -> tuple[TrialInProgress, Progress | Outcome | None]:
        """The next thing that a trial says; None for one that has reached its limit."""
        while True:
            self._bell.hush()  # before anybody is asked: what happens meanwhile is not missed
            heard = self._ended() or self._due() or self._told() or self._listened()
            self._sign()
            if heard is not None:
                # Whoever was heard is heard last the next time.
                number = heard[0].number
                self.members[number] = self.members.pop(number)
                return heard
            self._sleep()

    def end_aside(self, member: TrialInProgress, end: Callable[[], Outcome]) -> None:
        """Let a trial end in a thread of its own: one that takes its time does not make the others wait."""

        def work() -> None:
            try:
                member.outcome = end()
            except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for the trial
                member.error = error
            self._bell.ring()

        member.ending = True
        threading.Thread(target=work, name=f"end of trial {member.number}", daemon=True).start()

    def end_of(self, member: TrialInProgress) -> Outcome | None:
        """The outcome of a trial that was cut, waited for; None where it was not, or its end failed."""
        while member.ending and member.outcome is None and member.error is None:
            wait([self._bell.fileno()])
            self._bell.hush()
        return member.outcome

    # Inside

    @property
    def _running(self) -> list[TrialInProgress]:
        return [member for member in self.members.values() if not member.ending]

    def _ended(self) -> tuple[TrialInProgress, Outcome] | None:
        """One that was cut and is over."""
        for member in self.members.values():
            if member.error is not None:
                raise member.error
            if member.outcome is not None:
                return member, member.outcome
        return None

    def _due(self) -> tuple[TrialInProgress, Progress | Outcome | None] | None:
        """One past its limit; what it said before counts."""
        for member in self._running:
            age_s, before_s = member.age_s, member.heard_s
            limit_s = self._limit_of(member, age_s)
            if age_s < limit_s:
                continue
            event = member.run.next(limit_s if member.clocked is None else self._now_s(member, limit_s))
            member.heard_s = max(before_s, member.age_s)
            if event is None:
                self._noticed(member.heard_s - max(limit_s, before_s))
            return member, event
        return None

    def _now_s(self, member: TrialInProgress, limit_s: float) -> float:
        assert member.clocked is not None
        return min(member.clocked.elapsed_s(), limit_s)

    def _told(self) -> tuple[TrialInProgress, Progress | Outcome] | None:
        for member in self._running:
            if member.clocked is not None:
                event = member.run.next(member.clocked.elapsed_s())
                member.heard_s = max(member.heard_s, member.age_s)
                if event is not None:
                    return member, event
        return None

    def _listened(self) -> tuple[TrialInProgress, Progress | Outcome | None] | None:
        """Those that cannot tell when something happens are listened to for a moment each."""
        for member in [one for one in self._running if one.clocked is None]:
            age_s, before_s = member.age_s, member.heard_s
            slice_s = min(max(SHARE * age_s, SHORTEST_S), LONGEST_S / len(self.members))
            limit_s = self._limit_of(member, age_s)
            event = member.run.next(min(max(age_s, before_s) + slice_s, limit_s))
            member.heard_s = max(before_s, member.age_s)
            self._sign()
            if event is None and member.heard_s >= limit_s:
                self._noticed(member.heard_s - max(limit_s, before_s))
            if event is not None or member.heard_s >= limit_s:
                return member, event
        return None

    def _sleep(self) -> None:
        """Until somebody rings, or the first limit or the next sign of life is due."""
        pauses = [_LONGEST_WAIT_S, self._every_s, self._sign_due_s() - time.monotonic()]
        for member in self._running:
            if member.clocked is None:
                return
            age_s = member.age_s
            pauses.append(self._limit_of(member, age_s) - age_s)
            pauses.append(member.clocked.due_s() - member.clocked.elapsed_s())
        if (pause_s := min(pauses)) <= 0:
            return
        handles = [one.readable.fileno() for one in self._running if one.readable is not None]
        due_s = time.monotonic() + pause_s
        if not wait([self._bell.fileno(), *handles], pause_s):
            self._noticed(time.monotonic() - due_s)
