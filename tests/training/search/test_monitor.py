"""Who is heard next among trials under way; nobody is asked while nothing happens."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from prudent.training.search.monitor import TrialInProgress, TrialMonitor
from prudent.training.search.proposers import TrialProposal
from prudent.tuning.jobs.timeline import Timeline
from prudent.tuning.trial import CUT, FINISHED, Outcome, Progress

LONG_S = 60.0
"""What no test should need; who waits so long waits in vain."""


class Telling:
    """A run that says what a test lets it say, and calls whoever listens."""

    def __init__(self) -> None:
        self.timeline, self.asked, self.may_end = Timeline(), 0, threading.Event()
        self.may_end.set()

    def say(self) -> None:
        self.timeline.add(Progress(self.timeline.now_s(), {"score": 1.0}, 0.5))

    def next(self, until_s: float) -> Progress | Outcome | None:
        self.asked += 1
        return self.timeline.next(until_s)

    def cut(self, at_s: float, why: str) -> Outcome:
        assert self.may_end.wait(LONG_S)
        return Outcome(CUT, at_s, {}, why)

    def elapsed_s(self) -> float:
        return self.timeline.now_s()

    def due_s(self) -> float:
        return math.inf

    def notify(self, wake: Callable[[], None]) -> None:
        self.timeline.notify(wake)


class Chatty(Telling):
    """It always has something to say."""

    def next(self, until_s: float) -> Progress | Outcome | None:
        self.asked += 1
        return Progress(min(until_s, self.elapsed_s()), {"score": 1.0}, 0.5)


class Early:
    """What it has to say was read from its line before its moment had come: nobody calls for it again."""

    def __init__(self, line: int) -> None:
        self._zero_s, self._line = time.monotonic(), line
        self._told_s = math.inf

    def next(self, until_s: float) -> Progress | Outcome | None:
        if self._told_s > until_s:
            self._told_s = min(self._told_s, math.nextafter(until_s, math.inf))
            return None
        return Outcome(FINISHED, self._told_s, {"score": 1.0})

    def cut(self, at_s: float, why: str) -> Outcome:
        return Outcome(CUT, at_s, {}, why)

    def elapsed_s(self) -> float:
        return time.monotonic() - self._zero_s

    def due_s(self) -> float:
        return self._told_s

    def fileno(self) -> int:
        return self._line


@pytest.fixture
def monitor() -> Iterator[TrialMonitor]:
    due_s = time.monotonic() + LONG_S

    def in_vain() -> None:
        assert time.monotonic() < due_s, "nobody was heard"

    made = TrialMonitor(lambda one, age_s: one.limit_s, math.inf, lambda late_s: None, in_vain, lambda: due_s)
    yield made
    made.close()


def trial(number: int, run: Telling | Early, limit_s: float = math.inf) -> TrialInProgress:
    return TrialInProgress(number, 0, TrialProposal(number, {}, ""), run, time.monotonic(), limit_s)


def test_nobody_is_asked_while_nothing_happens(monitor: TrialMonitor) -> None:
    """Four silent runs for half a second: each is asked before it is waited for, and at the first limit."""
    runs = [Telling() for _ in range(4)]
    for number, run in enumerate(runs):
        monitor.add(trial(number, run, 0.5 if number == 3 else math.inf))
    late, event = monitor.next_event()
    assert (late.number, event) == (3, None)
    assert late.age_s >= 0.5
    assert max(run.asked for run in runs) <= 4


def test_who_says_something_is_heard_at_once_and_in_turn(monitor: TrialMonitor) -> None:
    runs = [Telling() for _ in range(3)]
    for number, run in enumerate(runs):
        monitor.add(trial(number, run))
    threading.Timer(0.05, runs[1].say).start()
    assert monitor.next_event()[0].number == 1
    for run in runs:
        run.say()
        run.say()
    assert [monitor.next_event()[0].number for _ in range(6)] == [0, 2, 1, 0, 2, 1]


def test_a_limit_comes_before_what_others_say(monitor: TrialMonitor) -> None:
    """However much eight others talk: whoever is past its limit is the next to be heard of."""
    for number in range(8):
        monitor.add(trial(number, Chatty()))
    quiet = trial(8, Telling(), 0.1)
    monitor.add(quiet)
    while quiet.age_s < 0.1:
        monitor.next_event()
    assert monitor.next_event() == (quiet, None)


def test_what_is_told_for_a_moment_to_come_is_heard_then(monitor: TrialMonitor) -> None:
    ours, theirs = os.pipe()
    try:
        monitor.add(trial(1, Early(ours)))
        heard = monitor.next_event()[1]
        assert isinstance(heard, Outcome)
        assert heard.status == FINISHED
    finally:
        os.close(ours)
        os.close(theirs)


def test_one_that_takes_its_time_to_end_makes_nobody_wait(monitor: TrialMonitor) -> None:
    slow, other = Telling(), Telling()
    slow.may_end.clear()
    ending = trial(1, slow)
    monitor.add(ending)
    monitor.add(trial(2, other))
    monitor.end_in_thread(ending, lambda: slow.cut(0.1, "it is time"))
    other.say()
    assert monitor.next_event()[0].number == 2
    slow.may_end.set()
    ended, outcome = monitor.next_event()
    assert (ended, outcome) == (ending, Outcome(CUT, 0.1, {}, "it is time"))


def test_an_end_that_fails_is_told_to_who_waits(monitor: TrialMonitor) -> None:
    def fail() -> Outcome:
        raise OSError("the disk is full")

    ending = trial(1, Telling())
    monitor.add(ending)
    monitor.end_in_thread(ending, fail)
    with pytest.raises(OSError, match="disk is full"):
        monitor.next_event()
    assert monitor.wait_for_end(ending) is None


def test_an_end_under_way_is_waited_for(monitor: TrialMonitor) -> None:
    run = Telling()
    run.may_end.clear()
    ending = trial(1, run)
    monitor.add(ending)
    assert monitor.wait_for_end(ending) is None
    monitor.end_in_thread(ending, lambda: run.cut(0.1, "it is time"))
    threading.Timer(0.05, run.may_end.set).start()
    assert monitor.wait_for_end(ending) == Outcome(CUT, 0.1, {}, "it is time")
