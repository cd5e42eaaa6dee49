"""Runs side by side: the replayed and the live crew tell the same story."""

from __future__ import annotations

import itertools
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

import pytest

from prudent.core.space import Space
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.jobs.job import Run
from prudent.tuning.study import active_trials as crews
from prudent.tuning.study.active_trials import SLICE_S, ActiveTrials, LimitReached, LiveTrials, ReplayedTrials
from prudent.tuning.study.limits import NEVER, Limit
from prudent.tuning.trial import Outcome, Progress


class Script:
    """A run that does what it is told, when it is told."""

    def __init__(self, *events: Progress | Outcome) -> None:
        self.events = list(events)

    def next(self, until_s: float) -> Progress | Outcome | None:
        event = self.events[0]
        at_s = event.elapsed_s if isinstance(event, Progress) else event.time_s
        return self.events.pop(0) if at_s <= until_s else None

    def cut(self, at_s: float, why: str) -> Outcome:
        return Outcome("cut", at_s, {}, why)


def finished(time_s: float, *progress_s: float) -> Run:
    return Script(*(Progress(at_s) for at_s in progress_s), Outcome("finished", time_s))


LONG_S = 60.0
"""What no test should need; who waits so long waits in vain."""


class StandingClock:
    """Time that does not pass."""

    def monotonic(self) -> float:
        return 1000.0


def never(number: int) -> Limit:
    del number
    return NEVER


def story(crew: ActiveTrials, limits: dict[int, Limit]) -> list[tuple[int, str, float]]:
    """Everything that happens until nobody is left: who, what, and when on the study's clock."""
    told = []
    while crew.members:
        happened = crew.wait(lambda number: limits.get(number, NEVER))
        assert happened is not None
        member, event = happened
        if isinstance(event, Progress):
            told.append((member.number, "shown", crew.now_s))
            continue
        told.append((member.number, "reached" if isinstance(event, LimitReached) else "ended", crew.now_s))
        crew.remove(member.number)
    return told


def test_events_come_in_the_order_of_the_shared_clock() -> None:
    crew = ReplayedTrials()
    crew.add(1, finished(100, 30, 60), 0.0)
    crew.add(2, finished(40), 0.0)
    assert story(crew, {}) == [(1, "shown", 30), (2, "ended", 40), (1, "shown", 60), (1, "ended", 100)]


def test_a_later_run_starts_when_it_is_added() -> None:
    crew = ReplayedTrials()
    crew.add(1, finished(10), 0.0)
    crew.wait(never)
    crew.remove(1)
    crew.add(2, finished(10), crew.now_s)
    assert story(crew, {}) == [(2, "ended", 20)]


def test_equal_moments_go_by_number() -> None:
    crew = ReplayedTrials()
    for number in (3, 1, 2):
        crew.add(number, finished(50), 0.0)
    assert [number for number, _, _ in story(crew, {})] == [1, 2, 3]


def test_limits_are_reached_exactly_and_an_end_on_the_limit_counts_as_an_end() -> None:
    crew = ReplayedTrials()
    crew.add(1, finished(100), 0.0)
    crew.add(2, finished(70), 0.0)
    assert story(crew, {1: Limit(33.3, "x"), 2: Limit(70.0, "x")}) == [(1, "reached", 33.3), (2, "ended", 70)]


def test_a_limit_that_comes_nearer_cannot_lie_in_the_past() -> None:
    crew = ReplayedTrials()
    crew.add(1, finished(1000), 0.0)
    crew.add(2, finished(60), 0.0)
    crew.wait(never)
    crew.remove(2)
    happened = crew.wait(lambda number: Limit(20.0, "another one ended well"))
    assert happened is not None
    member, event = happened
    assert isinstance(event, LimitReached)
    assert (event.limit.seconds, member.seen_s) == (60.0, 60.0)


def test_the_clock_goes_on_after_an_interruption() -> None:
    crew = ReplayedTrials(now_s=500.0)
    crew.add(7, finished(100), 450.0)
    crew.add(8, finished(20), 500.0)
    assert story(crew, {}) == [(8, "ended", 520), (7, "ended", 550)]


def test_the_clock_of_live_runs_goes_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crews.time, "monotonic", lambda: 1000.0)
    assert LiveTrials(now_s=500.0).now_s == 500.0


def test_live_runs_end_when_they_end() -> None:
    may_end = {number: threading.Event() for number in (1, 2, 3)}

    def work(number: int) -> dict[str, float]:
        assert may_end[number].wait(60)
        return {}

    job = FunctionJob(work, Space.parse({"number": [1, 2, 3]}))
    crew = LiveTrials()
    for number in may_end:
        crew.add(number, job.start({"number": number}, number), crew.now_s)
    told: list[tuple[int, str]] = []
    limits: dict[int, Limit] = {}
    may_end[2].set()
    while crew.members:
        happened = crew.wait(lambda number: limits.get(number, NEVER))
        assert happened is not None
        member, event = happened
        told.append((member.number, "reached" if isinstance(event, LimitReached) else "ended"))
        crew.remove(member.number)
        if member.number == 2:
            may_end[1].set()
        else:
            limits[3] = Limit(member.seen_s, "enough")
    may_end[3].set()
    assert told == [(2, "ended"), (1, "ended"), (3, "reached")]


class Listened:
    """A live run that notes until when it is listened to, and does nothing until its end."""

    def __init__(self, time_s: float) -> None:
        self.time_s, self.until_s = time_s, [0.0]

    def next(self, until_s: float) -> Outcome | None:
        self.until_s.append(until_s)
        return Outcome("finished", self.time_s) if until_s >= self.time_s else None

    def cut(self, at_s: float, why: str) -> Outcome:
        return Outcome("cut", at_s, {}, why)


def test_runs_that_cannot_tell_are_listened_to_for_a_while_each_and_never_without_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("prudent.tuning.study.active_trials.time", StandingClock())
    crew, runs = LiveTrials(), [Listened(1.0), Listened(2.0)]
    for number, run in enumerate(runs, start=1):
        crew.add(number, run, 0.0)
    assert [(number, what) for number, what, _ in story(crew, {2: Limit(1.5, "enough")})] == [
        (1, "ended"),
        (2, "reached"),
    ]
    for run in runs:
        waits = [after - before for before, after in itertools.pairwise(run.until_s)]
        assert waits[0] == pytest.approx(SLICE_S / 2)
        assert all(0 < wait <= SLICE_S + 1e-9 for wait in waits)
    assert runs[1].until_s[-1] == 1.5


class Read:
    """A run with a handle; what it has to say was read from it before its moment had come."""

    def __init__(self, handle: int) -> None:
        self._zero_s, self._handle = time.monotonic(), handle
        self._told_s = math.inf

    def next(self, until_s: float) -> Outcome | None:
        if self._told_s > until_s:
            self._told_s = min(self._told_s, math.nextafter(until_s, math.inf))
            return None
        return Outcome("finished", self._told_s, {"score": 1.0})

    def cut(self, at_s: float, why: str) -> Outcome:
        return Outcome("cut", at_s, {}, why)

    def elapsed_s(self) -> float:
        return time.monotonic() - self._zero_s

    def due_s(self) -> float:
        return self._told_s

    def fileno(self) -> int:
        return self._handle


def test_what_is_read_for_a_moment_to_come_is_heard_then_though_nobody_calls_again() -> None:
    ours, theirs = os.pipe()
    try:
        crew = LiveTrials()
        crew.add(1, Read(ours), 0.0)
        happened = crew.wait(never, crew.now_s + LONG_S)
        assert happened is not None
        assert isinstance(happened[1], Outcome)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_handle_that_becomes_readable_wakes_who_waits() -> None:
    class Line(Read):
        """It says what is written to its line."""

        def next(self, until_s: float) -> Outcome | None:
            if not select.select([self._handle], [], [], 0)[0]:
                return None
            return Outcome("finished", self.elapsed_s(), {"score": float(os.read(self._handle, 9))})

    ours, theirs = os.pipe()
    try:
        crew = LiveTrials()
        crew.add(1, Line(ours), 0.0)
        threading.Timer(0.05, os.write, (theirs, b"0.5")).start()
        happened = crew.wait(never, crew.now_s + LONG_S)
        assert happened is not None
        assert isinstance(happened[1], Outcome)
        assert happened[1].measures == {"score": 0.5}
    finally:
        os.close(ours)
        os.close(theirs)


class Told:
    """A live run whose clock the test moves: it says what it is told to say."""

    def __init__(self, elapsed_s: float = 0.0) -> None:
        self.now_s, self.events = elapsed_s, deque[Progress | Outcome]()
        self.may_end, self.asked = threading.Event(), 0
        self.may_end.set()

    def elapsed_s(self) -> float:
        return self.now_s

    def due_s(self) -> float:
        return math.inf

    def notify(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def say(self, *times_s: float) -> None:
        self.events.extend(Progress(at_s) for at_s in times_s)
        getattr(self, "wake", lambda: None)()

    def next(self, until_s: float) -> Progress | Outcome | None:
        self.asked += 1
        first = self.events[0] if self.events else Progress(math.inf)
        at_s = first.elapsed_s if isinstance(first, Progress) else first.time_s
        return self.events.popleft() if at_s <= until_s else None

    def cut(self, at_s: float, why: str) -> Outcome:
        assert self.may_end.wait(60)
        return Outcome("cut", at_s, {}, why)


def crew_of(*runs: Told) -> LiveTrials:
    crew = LiveTrials()
    for number, run in enumerate(runs, start=1):
        crew.add(number, run, 0.0)
    return crew


def test_whoever_is_past_its_limit_comes_first_however_much_the_others_talk() -> None:
    """Row 1 of the books: it ran for 6.5 s instead of 1 s while another run reported every 2 ms."""
    chatty, quiet = [Told(9.0) for _ in range(8)], Told(1.5)
    for run in chatty:
        run.say(*(step / 1000 for step in range(1000)))
    crew = crew_of(*chatty, quiet)
    happened = crew.wait(lambda number: Limit(1.0, "slow") if number == 9 else NEVER)
    assert happened is not None
    member, event = happened
    assert (member.number, event) == (9, LimitReached(Limit(1.5, "slow")))


def test_of_those_that_talk_each_has_its_turn() -> None:
    runs = [Told(9.0) for _ in range(3)]
    for run in runs:
        run.say(1.0, 2.0, 3.0)
    crew = crew_of(*runs)
    heard = [happened[0].number for _ in range(9) if (happened := crew.wait(never)) is not None]
    assert heard == [1, 2, 3] * 3


def test_what_a_run_has_said_is_kept_and_does_not_put_it_off() -> None:
    run = Told(5.0)
    run.say(*(step / 1000 for step in range(2000)))
    crew = crew_of(run)
    happened = crew.wait(lambda number: Limit(1.0, "slow"))
    assert happened is not None
    assert isinstance(happened[1], LimitReached)
    assert [shown.elapsed_s for shown in happened[0].progress][-1] == 1.999
    assert len(happened[0].progress) == 2000


@pytest.mark.parametrize("ended_s", [0.9, 1.4])
def test_a_run_that_ended_by_itself_has_ended_though_it_is_heard_after_its_limit(ended_s: float) -> None:
    """Also beyond the limit: while a decision took long nobody was there to cut it."""
    run = Told(5.0)
    run.say(0.5)
    run.events.append(Outcome("finished", ended_s))
    happened = crew_of(run).wait(lambda number: Limit(1.0, "slow"))
    assert happened is not None
    assert happened[1] == Outcome("finished", ended_s)


def test_a_run_that_takes_its_time_to_end_does_not_make_the_others_wait() -> None:
    stubborn, other = Told(5.0), Told(5.0)
    stubborn.may_end.clear()
    crew = crew_of(stubborn, other)
    crew.cut(crew.members[1], 5.0, "enough")
    other.say(1.0)
    happened = crew.wait(never)
    assert happened is not None
    assert happened[0].number == 2
    stubborn.may_end.set()
    happened = crew.wait(never)
    assert happened == (crew.members[1], Outcome("cut", 5.0, {}, "enough"))


def test_a_run_that_reached_its_own_time_out_does_not_make_the_others_wait() -> None:
    class TimedOut(Told):
        def due_s(self) -> float:
            return 3.0

        def next(self, until_s: float) -> Progress | Outcome | None:
            return super().next(until_s) or self.ended()

        def ended(self) -> Outcome:
            assert self.may_end.wait(60)
            return Outcome("failed", 3.0, {}, "took longer than its time-out")

    late, other = TimedOut(5.0), Told(5.0)
    late.may_end.clear()
    late.say(1.0, 2.0)
    other.say(1.0)
    crew = crew_of(late, other)
    happened = crew.wait(never)
    assert happened is not None
    assert happened[0].number == 2
    late.may_end.set()
    assert crew.wait(never) == (crew.members[1], Outcome("failed", 3.0, {}, "took longer than its time-out"))
    assert [shown.elapsed_s for shown in crew.members[1].progress] == [1.0, 2.0]


def test_it_sleeps_until_somebody_says_something() -> None:
    run = Told(1.0)
    crew = crew_of(run)
    speaker = threading.Timer(0.2, run.say, [0.5])
    speaker.start()
    happened = crew.wait(never)
    speaker.join()
    assert happened is not None
    assert happened[1] == Progress(0.5)
    assert run.asked <= 4  # not every few milliseconds


def test_it_wakes_up_at_the_moment_asked_for() -> None:
    crew = crew_of(Told(1.0))
    until_s = crew.now_s + 0.05
    assert crew.wait(never, until_s) is None
    assert crew.now_s >= until_s


def test_what_goes_wrong_at_an_end_is_told_to_whoever_waits() -> None:
    run = Told(1.0)
    run.cut = lambda at_s, why: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    crew = crew_of(run)
    crew.cut(crew.members[1], 1.0, "enough")
    with pytest.raises(ZeroDivisionError):
        crew.wait(never)


@pytest.mark.parametrize("kind", [ReplayedTrials, LiveTrials])
def test_a_limit_of_never_is_never(kind: type[ActiveTrials]) -> None:
    crew = kind()
    crew.add(1, finished(3.0), 0.0)
    assert [(number, what) for number, what, _ in story(crew, {1: Limit(math.inf)})] == [(1, "ended")]
