"""A trial of a joint search tells when something happens, and is cut in time beside others that talk."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prudent.cloud.meter import Meter
from prudent.core.money import Price
from prudent.training.engines.engine import TrialSpec
from prudent.training.joint.cluster import ClusterSize, SharedCluster
from prudent.training.joint.job import JointRun
from prudent.tuning.jobs.job import LiveRun
from prudent.tuning.study.active_trials import LimitReached, LiveTrials
from prudent.tuning.study.limits import NEVER, Limit
from prudent.tuning.trial import CUT, FINISHED, Outcome, Progress

LONG_S = 60.0
KIND = ClusterSize("small", 1, Price(0.36, "", "test"))
SPEC = TrialSpec(1, "any", {}, {}, 1.0, 0, Path("nowhere"))


class Said:
    """A run that has said a lot already, or says what it is told to."""

    def __init__(self, *events: Progress | Outcome) -> None:
        self.events = deque(events)
        self._wake: Callable[[], None] = lambda: None

    def elapsed_s(self) -> float:
        return 9.0

    def due_s(self) -> float:
        return math.inf

    def notify(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def say(self, event: Progress | Outcome) -> None:
        self.events.append(event)
        self._wake()

    def next(self, until_s: float) -> Progress | Outcome | None:
        return self.events.popleft() if self.events else None

    def cut(self, at_s: float, why: str) -> Outcome:
        return Outcome(CUT, at_s, {}, why)


class Chatty(Said):
    def next(self, until_s: float) -> Progress:
        return Progress(0.001)


@pytest.fixture
def inner() -> Said:
    return Said()


@pytest.fixture
def run(inner: Said) -> Iterator[JointRun]:
    session: Any = SimpleNamespace(start=lambda spec: inner, __exit__=lambda *error: None)
    cluster: Any = SimpleNamespace(trouble=None, abort=lambda: None)
    shared_cluster = SharedCluster(lambda kind, number: (cluster, lambda: session), Meter())
    yield JointRun(shared_cluster, KIND, SPEC)
    shared_cluster.close()


def test_it_is_cut_at_its_limit_beside_eight_that_never_stop_talking(run: JointRun) -> None:
    crew = LiveTrials()
    for number in range(1, 9):
        crew.add(number, Chatty(), 0.0)
    crew.add(9, run, 0.0)
    limit = Limit(0.2, "slow")
    while True:
        lasted_s = run.elapsed_s()
        happened = crew.wait(lambda number: limit if number == 9 else NEVER)
        assert happened is not None
        if happened[0].number == 9:
            break
        assert lasted_s < limit.seconds, "somebody else was heard though its time was over"
    assert isinstance(happened[1], LimitReached)
    crew.cut(happened[0], happened[1].limit.seconds, "slow")


def test_it_rings_when_its_machines_are_there_and_when_its_model_has_something_to_tell(
    run: JointRun, inner: Said
) -> None:
    assert isinstance(run, LiveRun)
    rung = threading.Event()
    run.notify(rung.set)
    assert run.next(run.elapsed_s()) is None
    assert not rung.is_set()
    assert run.lasts_s(math.inf) == math.inf  # there is money: machines are ordered
    assert rung.wait(LONG_S)
    assert run.next(run.elapsed_s()) is None  # the model begins
    rung.clear()
    inner.say(Outcome(FINISHED, 0.0, {"score": 1.0}))
    assert rung.is_set()
    heard = run.next(run.elapsed_s())
    assert isinstance(heard, Outcome)
    assert heard.status == FINISHED
