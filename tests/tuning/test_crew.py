"""Runs side by side: the replayed and the live crew tell the same story."""

from __future__ import annotations

import itertools
import math
import threading

import pytest

from prudent.core.space import Space
from prudent.tuning.crew import SLICE_S, Crew, LiveCrew, Reached, VirtualCrew
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.jobs.job import Run
from prudent.tuning.limits import NEVER, Limit
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


def never(number: int) -> Limit:
    del number
    return NEVER


def story(crew: Crew, limits: dict[int, Limit]) -> list[tuple[int, str, float]]:
    """Everything that happens until nobody is left: who, what, and when on the study's clock."""
    told = []
    while crew.members:
        member, event = crew.wait(lambda number: limits.get(number, NEVER))
        if isinstance(event, Progress):
            told.append((member.number, "shown", crew.now_s))
            continue
        told.append((member.number, "reached" if isinstance(event, Reached) else "ended", crew.now_s))
        crew.remove(member.number)
    return told


def test_events_come_in_the_order_of_the_shared_clock() -> None:
    crew = VirtualCrew()
    crew.add(1, finished(100, 30, 60), 0.0)
    crew.add(2, finished(40), 0.0)
    assert story(crew, {}) == [(1, "shown", 30), (2, "ended", 40), (1, "shown", 60), (1, "ended", 100)]


def test_a_later_run_starts_when_it_is_added() -> None:
    crew = VirtualCrew()
    crew.add(1, finished(10), 0.0)
    crew.wait(never)
    crew.remove(1)
    crew.add(2, finished(10), crew.now_s)
    assert story(crew, {}) == [(2, "ended", 20)]


def test_equal_moments_go_by_number() -> None:
    crew = VirtualCrew()
    for number in (3, 1, 2):
        crew.add(number, finished(50), 0.0)
    assert [number for number, _, _ in story(crew, {})] == [1, 2, 3]


def test_limits_are_reached_exactly_and_an_end_on_the_limit_counts_as_an_end() -> None:
    crew = VirtualCrew()
    crew.add(1, finished(100), 0.0)
    crew.add(2, finished(70), 0.0)
    assert story(crew, {1: Limit(33.3, "x"), 2: Limit(70.0, "x")}) == [(1, "reached", 33.3), (2, "ended", 70)]


def test_a_limit_that_comes_nearer_cannot_lie_in_the_past() -> None:
    crew = VirtualCrew()
    crew.add(1, finished(1000), 0.0)
    crew.add(2, finished(60), 0.0)
    crew.wait(never)
    crew.remove(2)
    member, event = crew.wait(lambda number: Limit(20.0, "another one ended well"))
    assert isinstance(event, Reached)
    assert (event.limit.seconds, member.seen_s) == (60.0, 60.0)


def test_the_clock_goes_on_after_an_interruption() -> None:
    crew = VirtualCrew(now_s=500.0)
    crew.add(7, finished(100), 450.0)
    crew.add(8, finished(20), 500.0)
    assert story(crew, {}) == [(8, "ended", 520), (7, "ended", 550)]


def test_live_runs_end_when_they_end() -> None:
    may_end = {number: threading.Event() for number in (1, 2, 3)}

    def work(number: int) -> dict[str, float]:
        assert may_end[number].wait(60)
        return {}

    job = FunctionJob(work, Space.parse({"number": [1, 2, 3]}))
    crew = LiveCrew()
    for number in may_end:
        crew.add(number, job.start({"number": number}, number), crew.now_s)
    told: list[tuple[int, str]] = []
    limits: dict[int, Limit] = {}
    may_end[2].set()
    while crew.members:
        member, event = crew.wait(lambda number: limits.get(number, NEVER))
        told.append((member.number, "reached" if isinstance(event, Reached) else "ended"))
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


def test_a_live_crew_listens_for_a_while_to_each_and_never_without_waiting() -> None:
    crew, runs = LiveCrew(), [Listened(1.0), Listened(2.0)]
    for number, run in enumerate(runs, start=1):
        crew.add(number, run, 0.0)
    assert [(number, what) for number, what, _ in story(crew, {2: Limit(1.5, "enough")})] == [
        (1, "ended"),
        (2, "reached"),
    ]
    for run in runs:
        waits = [after - before for before, after in itertools.pairwise(run.until_s)]
        assert waits[:-1] == pytest.approx([SLICE_S] * (len(waits) - 1))
    assert runs[1].until_s[-1] == 1.5


@pytest.mark.parametrize("kind", [VirtualCrew, LiveCrew])
def test_a_limit_of_never_is_never(kind: type[Crew]) -> None:
    crew = kind()
    crew.add(1, finished(3.0), 0.0)
    assert [(number, what) for number, what, _ in story(crew, {1: Limit(math.inf)})] == [(1, "ended")]
