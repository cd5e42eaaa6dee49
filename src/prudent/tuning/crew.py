"""The runs under way: who reports next, or reaches its limit first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from prudent.tuning.jobs.job import Run
from prudent.tuning.limits import Limit
from prudent.tuning.trial import Outcome, Progress

LimitOf = Callable[[int], Limit]

SLICE_S = 0.05
"""How long a live run is listened to before the others are asked."""


@dataclass(frozen=True)
class Reached:
    """A run lasted as long as its limit allows."""

    limit: Limit


@dataclass
class Member:
    """One run: what it has shown, and how long it has lasted."""

    number: int
    run: Run
    started_s: float = 0.0
    seen_s: float = 0.0
    progress: list[Progress] = field(default_factory=list)
    upcoming: Progress | Outcome | None = None


class Crew(Protocol):
    """Runs side by side; the replayed and the live one differ only in what a second is."""

    members: dict[int, Member]

    @property
    def now_s(self) -> float:
        """The study's clock: seconds since it began, those of earlier sessions included."""

    def add(self, number: int, run: Run, started_s: float) -> None:
        """Take a run in; a replayed one began at `started_s`, a live one begins now."""

    def wait(self, limit_of: LimitOf) -> tuple[Member, Progress | Outcome | Reached]: ...

    def remove(self, number: int) -> None: ...


class VirtualCrew:
    """Replayed runs: the clock jumps to whatever happens next, in the order of (time, number)."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.members: dict[int, Member] = {}
        self._now_s = now_s

    @property
    def now_s(self) -> float:
        return self._now_s

    def add(self, number: int, run: Run, started_s: float) -> None:
        self.members[number] = Member(number, run, started_s)

    def remove(self, number: int) -> None:
        del self.members[number]

    def wait(self, limit_of: LimitOf) -> tuple[Member, Progress | Outcome | Reached]:
        def moment(member: Member) -> tuple[float, int]:
            return member.started_s + min(_time_of(member), limit_of(member.number).seconds), member.number

        for member in self.members.values():
            if member.upcoming is None:
                member.upcoming = member.run.next(float("inf"))
        member = min(self.members.values(), key=moment)
        limit = limit_of(member.number)
        if _time_of(member) <= limit.seconds:
            event = member.upcoming
            assert event is not None
            member.upcoming, member.seen_s = None, _time_of(member)
            self._now_s = max(self._now_s, member.started_s + _elapsed(event))
            return member, event
        # A limit that came nearer (another run ended well) cannot lie in the past of this one; what is
        # past by rounding alone is not.
        past_s = self._now_s - member.started_s
        member.seen_s = limit.seconds if past_s <= limit.seconds + 1e-9 * max(1.0, self._now_s) else past_s
        self._now_s = max(self._now_s, member.started_s + member.seen_s)
        return member, Reached(Limit(member.seen_s, limit.why))


class LiveCrew:
    """Real runs: listens to each in turn, a slice at a time."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.members: dict[int, Member] = {}
        self._zero_s = time.monotonic() - now_s

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._zero_s

    def add(self, number: int, run: Run, started_s: float) -> None:
        self.members[number] = Member(number, run, started_s)

    def remove(self, number: int) -> None:
        del self.members[number]

    def wait(self, limit_of: LimitOf) -> tuple[Member, Progress | Outcome | Reached]:
        while True:
            for member in list(self.members.values()):
                limit = limit_of(member.number)
                until_s = min(limit.seconds, member.seen_s + SLICE_S)
                event = member.run.next(until_s)
                if event is not None:
                    member.seen_s = max(member.seen_s, _elapsed(event))
                    return member, event
                member.seen_s = max(member.seen_s, until_s)
                if member.seen_s >= limit.seconds:
                    return member, Reached(Limit(member.seen_s, limit.why))


def _elapsed(event: Progress | Outcome) -> float:
    return event.elapsed_s if isinstance(event, Progress) else event.time_s


def _time_of(member: Member) -> float:
    return float("inf") if member.upcoming is None else _elapsed(member.upcoming)
