"""The loop of a study by itself: how runs are ended, and what ends the study."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from prudent.core.errors import RunFailed
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.confirm import AROUND_S, allowance_usd, confirm
from prudent.tuning.goal import Goal
from prudent.tuning.jobs.job import SupervisingJob
from prudent.tuning.result import Result
from prudent.tuning.study.active_trials import ActiveTrial, LiveTrials, ReplayedTrials
from prudent.tuning.study.limits import NEVER, OUT_OF_MONEY
from prudent.tuning.study.runner import (
    GIVE_UP,
    StudyRunner,
    TrialEnded,
    TrialExtended,
    TrialReported,
    TrialStarted,
    interrupt_later,
)
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Outcome, Progress

SPACE = Space.parse({"n": {"real": [1.0, 2.0]}})
PRICE = Price(3.6, "", "a thousandth of a dollar a second")


class Scripted:
    """A run in virtual time that tells one thing after the other."""

    def __init__(self, *events: Progress | Outcome) -> None:
        self.events = list(events)

    def next(self, until_s: float) -> Progress | Outcome | None:
        event = self.events[0]
        at_s = event.elapsed_s if isinstance(event, Progress) else event.time_s
        return self.events.pop(0) if at_s <= until_s else None

    def cut(self, at_s: float, why: str) -> Outcome:
        return Outcome(CUT, at_s, {}, why)


class Stubborn:
    """A real run that has lasted for long when anybody looks, and never ends by itself."""

    lasted_s = 99.9

    def __init__(self, ending_s: float = 0.0) -> None:
        self.ending_s = ending_s
        self.cuts: list[tuple[float, str]] = []

    def elapsed_s(self) -> float:
        return self.lasted_s

    def due_s(self) -> float:
        return math.inf

    def notify(self, wake: Callable[[], None]) -> None:
        pass

    def next(self, until_s: float) -> Outcome | None:
        return None

    def cut(self, at_s: float, why: str) -> Outcome:
        self.cuts.append((at_s, why))
        return Outcome(CUT, at_s, {}, why, ending_s=self.ending_s)


class Polite(Stubborn):
    grace_s, lasted_s = 50.0, 95.0


class Job:
    """Runs that the test made."""

    name, measures, fraction, space = "scripted", (), None, SPACE

    def __init__(self, runs: Callable[[int], Any], virtual: bool = True, price: Price = PRICE) -> None:
        self._runs, self.virtual, self._price = runs, virtual, price
        self.started: list[int] = []

    def price(self, configuration: Configuration) -> Price:
        return self._price

    def start(self, configuration: Configuration, number: int) -> Any:
        self.started.append(number)
        return self._runs(number)

    def fingerprint(self) -> str:
        return ""


def loop_of(
    job: Job, budget_usd: float | None = 0.1, max_trials: int | None = None, parallel: int = 1, **more: Any
) -> tuple[StudyRunner, Study, list[Any]]:
    study = Study(SPACE, more.pop("goal", "minimise cost_usd"), job.price, budget_usd, "random", **more)
    crew, told = (ReplayedTrials() if job.virtual else LiveTrials()), []
    return (
        StudyRunner(job, study, crew, parallel, lambda event, _: told.append(event), max_trials),
        study,
        told,
    )


def unpaid(bill_usd: float = 0.0, why: str = OUT_OF_MONEY) -> Scripted:
    return Scripted(Outcome(CUT, 0.0, {}, why, bill_usd=bill_usd))


@pytest.mark.parametrize(
    ("fifth", "trials"),
    [
        (unpaid, GIVE_UP),
        (lambda: unpaid(0.001), 5 + GIVE_UP),
        (lambda: unpaid(0.0, "too slow"), 5 + GIVE_UP),
        (lambda: Scripted(Outcome(FINISHED, 1.0)), GIVE_UP + 1),
    ],
)
def test_ten_in_a_row_that_wait_for_money_in_vain_are_enough(
    fifth: Callable[[], Scripted], trials: int
) -> None:
    assert GIVE_UP == 10
    job = Job(lambda number: fifth() if number == 5 else unpaid())
    loop, study, _ = loop_of(job)
    assert not loop.run()
    assert len(study.trials) == len(job.started) == trials


@pytest.mark.parametrize(("good", "last"), [(None, 10), (4, 14)])
def test_ten_in_a_row_that_cannot_start_mean_a_broken_job(good: int | None, last: int) -> None:
    bad = Outcome(FAILED, 0.0, why="not found.", started=False)
    job = Job(lambda number: Scripted(Outcome(FINISHED, 1.0) if number == good else bad))
    loop, study, _ = loop_of(job)
    with pytest.raises(RunFailed, match="10 runs in a row could not start, the last because: not found; fix"):
        loop.run()
    assert len(study.trials) == last


def test_at_most_so_many_trials_those_under_way_included() -> None:
    job = Job(lambda _: Scripted(Progress(0.5), Outcome(FINISHED, 1.0)))
    loop, study, told = loop_of(job, max_trials=5, parallel=3)
    loop.run()
    assert len(study.trials) == 5
    assert [
        sum(isinstance(event, kind) for event in told) for kind in (TrialStarted, TrialReported, TrialEnded)
    ] == [5, 5, 5]
    assert [type(event) for event in told[:4]] == [TrialStarted, TrialStarted, TrialStarted, TrialReported]
    assert study.trials[-1].finished


def test_what_cannot_be_the_answer_is_not_begun() -> None:
    job = Job(lambda _: Scripted(Outcome(FINISHED, 1.0)), price=Price(3.6, "", "", minimum_s=60.0))
    loop, study, told = loop_of(job, max_trials=2, goal="minimise cost_usd subject to cost_usd <= 0.05")
    loop.run()
    assert job.started == []
    assert [type(event) for event in told] == [TrialStarted, TrialEnded] * 2
    assert [(trial.status, trial.time_s, trial.spent_usd) for trial in study.trials] == [(CUT, 0.0, 0.0)] * 2


@pytest.mark.parametrize(
    ("budget_usd", "grace_s"),
    # A tenth of what all the money pays for, and no more than the run asks for.
    [(0.1, 10.0), (0.098, 9.8), (0.6, 50.0)],
)
def test_a_run_gets_as_much_grace_as_was_kept_back(budget_usd: float, grace_s: float) -> None:
    run = Polite()
    if budget_usd > 0.5:
        run.lasted_s = 595.0
    job = Job(lambda _: run, virtual=False)
    loop, study, told = loop_of(job, budget_usd, max_trials=1)
    loop.run()
    [(_, why)] = run.cuts
    assert why == OUT_OF_MONEY
    assert run.grace_s == pytest.approx(grace_s)
    assert any(isinstance(event, TrialExtended) for event in told)
    [trial] = study.trials
    assert (trial.status, trial.time_s) == (CUT, run.elapsed_s())


def test_in_virtual_time_no_room_is_kept_for_the_end() -> None:
    run = Scripted(Outcome(FINISHED, 1000.0))
    loop, study, _ = loop_of(Job(lambda _: run), max_trials=1)
    loop.run()
    assert study.trials[0].time_s == pytest.approx(100.0)
    assert study.spent_usd == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("kind", "ending_s", "least_s"),
    [(Stubborn, 3.0, 3.1), (Stubborn, 0.05, 0.2), (Polite, 12.0, 2.1), (Polite, 9.0, 0.2)],
)
def test_what_an_end_took_beyond_its_grace_is_kept_back_from_then_on(
    kind: type[Stubborn], ending_s: float, least_s: float
) -> None:
    run = kind(ending_s)
    loop, _, _ = loop_of(Job(lambda _: run, virtual=False), 0.1, max_trials=1)
    loop._endings.noticed(0.0)
    loop.run()
    noticed_s = loop._endings.noticing_s - 0.1  # a busy computer notices late
    assert loop._endings.least_s - noticed_s == pytest.approx(least_s)


def test_an_interrupt_ends_what_runs_and_charges_it() -> None:
    run = Polite()
    loop, study, _ = loop_of(Job(lambda _: run, virtual=False), 0.3, max_trials=1)

    def interrupt(*said: Any) -> None:
        raise KeyboardInterrupt

    loop._crew.wait, wait = interrupt, loop._crew.wait  # type: ignore[method-assign,assignment]
    drop = loop._drop

    def dropped() -> None:
        loop._crew.wait = wait  # type: ignore[method-assign]
        drop()

    loop._drop = dropped  # type: ignore[method-assign]
    assert loop.run()
    assert run.cuts == [(95.0, "interrupted")]
    assert run.grace_s == pytest.approx(30.0)
    assert study.trials == ()
    assert study.spent_usd == pytest.approx(0.095)
    assert [entry.note for entry in study.ledger.entries] == ["interrupted"]


def test_a_replayed_run_that_is_cut_is_ending() -> None:
    crew = ReplayedTrials()
    crew.add(1, Scripted(Outcome(FINISHED, 9.0)), 0.0)
    member = crew.members[1]
    assert (member.started_s, member.seen_s, member.ending, member.upcoming) == (0.0, 0.0, False, None)
    crew.cut(member, 4.0, "enough")
    assert member.ending
    assert crew.wait(lambda _: NEVER) == (member, Outcome(CUT, 4.0, {}, "enough"))
    assert ActiveTrial(1, Scripted()).price.usd_per_h == 0.0


def result(**more: Any) -> Result:
    told = {"goal": Goal.parse("minimise cost_usd"), "best": None, "trials": (), "spent_usd": 0.0}
    told |= {"budget_usd": 1.0, "strategy": "random", "seed": 1, "recommended": {"n": 1.5}}
    return Result(**{**told, **more})  # type: ignore[arg-type]


def test_a_real_confirming_run_is_allowed_half_a_minute_more() -> None:
    assert AROUND_S == 30.0
    foretold = result(prediction={"cost_usd": 0.2, "cost_high_usd": 0.25})
    assert allowance_usd(Job(lambda _: None, virtual=False), foretold) == pytest.approx(0.53)  # type: ignore[arg-type]
    assert allowance_usd(Job(lambda _: None), foretold) == pytest.approx(0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Stubborn, Polite])
def test_a_confirming_run_is_cut_with_its_grace(kind: type[Stubborn]) -> None:
    run, signs = kind(), []
    job = Job(lambda _: run, virtual=False)
    said = confirm(job, result(), budget_usd=0.1, sign=signs.append)  # type: ignore[arg-type]
    assert (said.trial.status, said.trial.why, said.trial.time_s) == (CUT, OUT_OF_MONEY, run.lasted_s)
    assert run.cuts == [(run.lasted_s, OUT_OF_MONEY)]
    assert getattr(run, "grace_s", None) == (pytest.approx(10.0) if kind is Polite else None)
    assert signs[0] == 0.0


def test_a_confirming_run_that_is_interrupted_tells_what_it_lasted() -> None:
    class Interrupted(Stubborn):
        def next(self, until_s: float) -> Outcome | None:
            raise KeyboardInterrupt

    run, signs = Interrupted(ending_s=2.0), []
    with pytest.raises(KeyboardInterrupt):
        confirm(Job(lambda _: run, virtual=False), result(), budget_usd=1.0, sign=signs.append)  # type: ignore[arg-type]
    assert signs == [0.0, pytest.approx(101.9)]
    assert run.cuts == [(99.9, "interrupted")]


class Supervising(Job):
    """A job with a word in its trials: `most` of them, each asked about after 2 s, and worth at least 0.5."""

    poll_every_s = math.inf

    def __init__(self, runs: Callable[[int], Any], most: int = 9, more_s: tuple[float, ...] = ()) -> None:
        super().__init__(runs)
        self.most, self.more_s = most, list(more_s)
        self.limits: dict[int, float] = {}
        self.asked: list[tuple[int, float]] = []

    def stop_reason(self) -> str:
        return "enough" if len(self.started) >= self.most else ""

    def limit_s(self, number: int, lasted_s: float) -> float:
        return self.limits.setdefault(number, 2.0)

    def at_limit(self, number: int, lasted_s: float) -> str:
        self.asked.append((number, lasted_s))
        if not self.more_s:
            return "it had its time"
        self.limits[number] = lasted_s + self.more_s.pop(0)
        return ""

    def cut_reason(self, number: int, progress: Sequence[Progress]) -> str:
        return "others do better" if progress[-1].measures["score"] < 0.5 else ""

    def settled(self, number: int, outcome: Outcome) -> Outcome:
        return replace(outcome, bill_usd=0.003)


def test_a_job_that_supervises_says_when_it_is_enough_and_what_a_trial_has_cost() -> None:
    job = Supervising(lambda number: Scripted(Outcome(FINISHED, 1.0)), most=3)
    assert isinstance(job, SupervisingJob)
    loop, study, _ = loop_of(job, None)
    assert not loop.run()
    assert job.started == [1, 2, 3]
    assert [entry.usd for entry in study.ledger.entries] == [0.003] * 3


def test_a_supervised_trial_is_asked_about_at_its_limit_and_may_go_on() -> None:
    job = Supervising(lambda number: Scripted(Outcome(FINISHED, 4.5)), most=2, more_s=(3.0, 1.0))
    loop, study, _ = loop_of(job, None, early_stop=False)
    loop.run()
    assert job.asked == [(1, 2.0), (2, 2.0), (2, 3.0)]
    assert [(trial.status, trial.time_s, trial.why) for trial in study.trials] == [
        (FINISHED, 4.5, ""),
        (CUT, 3.0, "it had its time"),
    ]


def test_a_supervised_trial_that_is_not_worth_its_end_is_cut_when_it_says_so() -> None:
    said = (Progress(0.5, {"score": 0.7}), Progress(1.0, {"score": 0.4}), Progress(1.5, {"score": 0.9}))
    job = Supervising(lambda number: Scripted(*said, Outcome(FINISHED, 1.9)), most=1)
    loop, study, events = loop_of(job, None)
    loop.run()
    assert [(trial.status, trial.time_s, trial.why) for trial in study.trials] == [
        (CUT, 1.0, "others do better")
    ]
    assert sum(isinstance(event, TrialReported) for event in events) == 2


class NearItsLimit(Stubborn):
    """A real run with a second of its money left, which ends once another one was begun beside it."""

    def __init__(self, lasted_s: float, started: list[int]) -> None:
        super().__init__()
        self.lasted_s, self.started = lasted_s, started

    def next(self, until_s: float) -> Outcome | None:
        return Outcome(FINISHED, self.lasted_s) if len(self.started) == 2 else None


def test_what_runs_cost_while_the_next_is_chosen_is_put_aside_first() -> None:
    def run(number: int) -> NearItsLimit:
        return NearItsLimit(PRICE.lasts_s(study.reserved_usd(number)) - 1.0, job.started)

    job = Job(run, virtual=False)
    loop, study, told = loop_of(job, budget_usd=1.0, max_trials=2, parallel=2)
    loop.run()
    events = [(type(one), getattr(one, "number", None)) for one in told]
    extended = events.index((TrialExtended, 1))
    assert [kind for kind, _ in events].index(TrialStarted) < extended
    assert TrialStarted in [kind for kind, _ in events[extended:]], "the second begins after that"


def test_an_interrupt_that_comes_meanwhile_is_heeded_at_the_end_and_later_ones_at_once() -> None:
    heard: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("heeded"))
    try:
        with interrupt_later():
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard == []
        assert heard == ["heeded"]
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == ["heeded", "heeded"]
    finally:
        signal.signal(signal.SIGTERM, before)
