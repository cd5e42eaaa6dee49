"""The runs under way: who reports next, or reaches its limit first."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Protocol

from prudent.core.money import Price
from prudent.tuning.jobs.job import LiveRun, ReadableRun, RentedRun, Run
from prudent.tuning.study.limits import Limit
from prudent.tuning.trial import Outcome, Progress

LimitOf = Callable[[int], Limit]

FREE = Price(0.0, "", "free")

SLICE_S = 0.05
"""How long all runs together are listened to that cannot tell when something happens."""
BILL_S = 0.1
"""How often the bill of rented machines is looked at: it changes without anybody saying so."""
_LONGEST_WAIT_S = 3600.0  # an event refuses to wait for ever in one go


@dataclass(frozen=True)
class LimitReached:
    """A run lasted as long as its limit allows."""

    limit: Limit


@dataclass
class ActiveTrial:
    """One run: what it has shown, and how long it has lasted."""

    number: int
    run: Run
    started_s: float = 0.0
    price: Price = FREE
    seen_s: float = 0.0
    begun_s: float = math.inf
    """When it began on the clock of this computer; a replayed one did not."""
    progress: list[Progress] = field(default_factory=list)
    upcoming: Progress | Outcome | None = None
    ending: bool = False
    ending_s: float = 0.0
    """How long its end took, where it was cut on the real clock."""
    error: BaseException | None = None

    def __post_init__(self) -> None:
        # Asked at every event: whether a run can do something is not looked up each time.
        self.readable = self.run if isinstance(self.run, ReadableRun) else None
        self.live = self.run if isinstance(self.run, LiveRun | ReadableRun) else None
        self.rented = self.run if isinstance(self.run, RentedRun) else None

    @property
    def lasted_s(self) -> float:
        """How long the run has lasted, by its own clock where it has one."""
        if self.live is not None:
            return max(self.live.elapsed_s(), self.seen_s)
        return max(time.monotonic() - self.begun_s, self.seen_s)


RunEvent = tuple[ActiveTrial, Progress | Outcome | LimitReached]


class ActiveTrials(Protocol):
    """Runs side by side; the replayed and the live one differ only in what a second is."""

    members: dict[int, ActiveTrial]
    late_s: float
    """How late a limit was noticed at worst."""

    @property
    def now_s(self) -> float:
        """The study's clock: seconds since it began, those of earlier sessions included."""

    def add(self, number: int, run: Run, started_s: float, price: Price = FREE) -> None:
        """Take a run in; a replayed one began at `started_s`, a live one begins now."""

    def wait(self, limit_of: LimitOf, until_s: float = float("inf")) -> RunEvent | None:
        """What happens next; None if nothing did until the clock showed `until_s`."""

    def cut(self, member: ActiveTrial, at_s: float, why: str) -> None:
        """End a run that has lasted `at_s`; its outcome is what `wait` tells of it next."""

    def remove(self, number: int) -> None: ...


class ReplayedTrials:
    """Replayed runs: the clock jumps to whatever happens next, in the order of (time, number)."""

    late_s = 0.0

    def __init__(self, now_s: float = 0.0) -> None:
        self.members: dict[int, ActiveTrial] = {}
        self._now_s = now_s
        self._cut: list[ActiveTrial] = []

    @property
    def now_s(self) -> float:
        return self._now_s

    def add(self, number: int, run: Run, started_s: float, price: Price = FREE) -> None:
        self.members[number] = ActiveTrial(number, run, started_s, price)

    def remove(self, number: int) -> None:
        del self.members[number]

    def cut(self, member: ActiveTrial, at_s: float, why: str) -> None:
        member.upcoming, member.ending = member.run.cut(at_s, why), True
        self._cut.append(member)

    def wait(self, limit_of: LimitOf, until_s: float = float("inf")) -> RunEvent | None:
        del until_s
        if self._cut:
            return self._told(self._cut.pop())

        def moment(member: ActiveTrial) -> tuple[float, int]:
            return member.started_s + min(_time_of(member), limit_of(member.number).seconds), member.number

        for member in self.members.values():
            if member.upcoming is None:
                member.upcoming = member.run.next(float("inf"))
        member = min(self.members.values(), key=moment)
        limit = limit_of(member.number)
        if _time_of(member) <= limit.seconds:
            member.seen_s = _time_of(member)
            self._now_s = max(self._now_s, member.started_s + member.seen_s)
            return self._told(member)
        # A limit that came nearer (another run ended well) cannot lie in the past of this one; what is
        # past by rounding alone is not.
        past_s = self._now_s - member.started_s
        member.seen_s = limit.seconds if past_s <= limit.seconds + 1e-9 * max(1.0, self._now_s) else past_s
        self._now_s = max(self._now_s, member.started_s + member.seen_s)
        return member, LimitReached(Limit(member.seen_s, limit.why))

    def _told(self, member: ActiveTrial) -> RunEvent:
        event, member.upcoming = member.upcoming, None
        assert event is not None
        return member, event


class WakeupPipe:
    """Any thread wakes the one that waits on this pipe (the self-pipe trick), beside the handles of runs."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        os.set_blocking(self._in, False)

    def __del__(self) -> None:
        # Not before: a run that still calls must not write into a file that got the same number.
        os.close(self._out)
        os.close(self._in)

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # a wake-up is pending already
            os.write(self._in, b"!")

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._out, 4096):
                pass

    def wait(self, handles: list[int], pause_s: float) -> bool:
        """Whether somebody woke the caller, or a handle became readable, within `pause_s`."""
        return bool(wait([self._out, *handles], pause_s))


class LiveTrials:
    """Real runs: sleeps until one of them says something, or the first of their limits is due.

    Whoever is past its limit comes first, however much the others talk; of the others each has its turn. A
    run that is cut ends in a thread of its own: one that takes its time does not make the rest wait.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self.members: dict[int, ActiveTrial] = {}
        self.late_s = 0.0
        self._zero_s = time.monotonic() - now_s
        self._wakeup = WakeupPipe()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._zero_s

    def add(self, number: int, run: Run, started_s: float, price: Price = FREE) -> None:
        self.members[number] = ActiveTrial(number, run, started_s, price, begun_s=time.monotonic())
        if isinstance(run, LiveRun):
            run.notify(self._wakeup.wake)

    def remove(self, number: int) -> None:
        del self.members[number]

    def cut(self, member: ActiveTrial, at_s: float, why: str) -> None:
        def end() -> Outcome:
            begun_s = time.monotonic()
            outcome = member.run.cut(at_s, why)
            member.ending_s = time.monotonic() - begun_s
            return outcome

        member.ending = True
        if member.live is None:
            member.upcoming = end()
        else:
            self._aside(member, end)

    def _aside(self, member: ActiveTrial, end: Callable[[], Progress | Outcome | None]) -> None:
        """Let a run end in a thread of its own; where it does not end after all it goes on."""

        def work() -> None:
            try:
                member.upcoming = end()
                member.ending = member.upcoming is not None
            except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for the run
                member.error = error
            self._wakeup.wake()

        member.ending = True
        threading.Thread(target=work, name=f"end of trial {member.number}", daemon=True).start()

    def wait(self, limit_of: LimitOf, until_s: float = float("inf")) -> RunEvent | None:
        while True:
            self._wakeup.drain()  # before anybody is asked: what happens meanwhile is not missed
            running = [member for member in self.members.values() if not member.ending]
            limits = {member.number: limit_of(member.number) for member in running}
            running = [member for member in running if not self._is_due(member, limits[member.number])]
            happened = self._ended() or self._over(running, limits) or self._heard(running, limits)
            if happened is not None:
                # Whoever was heard is heard last the next time.
                number = happened[0].number
                self.members[number] = self.members.pop(number)
                return happened
            if self.now_s >= until_s:
                return None
            self._sleep(running, min(self._pause_s(running, limits), until_s - self.now_s))

    def _sleep(self, running: list[ActiveTrial], pause_s: float) -> None:
        due_s = time.monotonic() + pause_s
        handles = [member.readable.fileno() for member in running if member.readable is not None]
        if not self._wakeup.wait(handles, min(max(pause_s, 0.0), _LONGEST_WAIT_S)):
            self.late_s = max(self.late_s, time.monotonic() - due_s)

    def _ended(self) -> RunEvent | None:
        """A run that was cut and is over."""
        for member in self.members.values():
            if member.error is not None:
                raise member.error
            if member.ending and member.upcoming is not None:
                return member, member.upcoming
        return None

    def _is_due(self, member: ActiveTrial, limit: Limit) -> bool:
        """Whether a run has reached its own time-out; it ends itself then, which may take a while."""
        live = None if member.readable is not None else member.live
        due_s = float("inf") if live is None else live.due_s()
        if live is None or due_s > min(live.elapsed_s(), limit.seconds):
            return False

        def end() -> Outcome | None:
            while isinstance(event := member.run.next(due_s), Progress):
                member.progress.append(event)
            return event

        self._aside(member, end)
        return True

    def _over(self, running: list[ActiveTrial], limits: dict[int, Limit]) -> RunEvent | None:
        """A run past its limit; one that ended by itself before anybody could cut it has ended."""
        for member in running:
            limit, live = limits[member.number], member.live
            if live is None or (lasted_s := live.elapsed_s()) < limit.seconds:
                continue
            own_end = member.readable is None and lasted_s >= live.due_s()
            until_s = limit.seconds if own_end else lasted_s
            while (event := member.run.next(until_s)) is not None:
                member.seen_s = max(member.seen_s, _elapsed(event))
                if isinstance(event, Outcome):
                    return member, event
                member.progress.append(event)  # however many there are, the limit is not made to wait
            return member, LimitReached(Limit(member.lasted_s, limit.why))
        return None

    def _heard(self, running: list[ActiveTrial], limits: dict[int, Limit]) -> RunEvent | None:
        """The first that has something to say; those that cannot tell are listened to for a moment each."""
        for member in running:
            if member.live is not None:
                until_s = min(limits[member.number].seconds, member.live.elapsed_s())
                if (event := member.run.next(until_s)) is not None:
                    member.seen_s = max(member.seen_s, _elapsed(event))
                    return member, event
        mute = [member for member in running if member.live is None]
        for member in mute:
            limit = limits[member.number]
            until_s = min(limit.seconds, member.lasted_s + SLICE_S / len(mute))
            event = member.run.next(until_s)
            heard_s = max(member.lasted_s, until_s) if event is None else _elapsed(event)
            member.seen_s = max(member.seen_s, heard_s)
            if event is not None:
                return member, event
            if member.seen_s >= limit.seconds:
                return member, LimitReached(Limit(member.seen_s, limit.why))
        return None

    def _pause_s(self, running: list[ActiveTrial], limits: dict[int, Limit]) -> float:
        """For how long nobody needs to be asked unless somebody says so."""
        pauses = [_LONGEST_WAIT_S]
        for member in running:
            live = member.live
            if live is None:
                return 0.0
            pauses.append(min(limits[member.number].seconds, live.due_s()) - live.elapsed_s())
            if member.rented is not None:
                pauses.append(BILL_S)
        return min(pauses)


def _elapsed(event: Progress | Outcome) -> float:
    return event.elapsed_s if isinstance(event, Progress) else event.time_s


def _time_of(member: ActiveTrial) -> float:
    return float("inf") if member.upcoming is None else _elapsed(member.upcoming)
