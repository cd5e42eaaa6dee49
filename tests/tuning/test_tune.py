"""A whole study of a job: within its budget, cut in time, the same again by the same seed."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.cli.exits import ended_by_signals
from prudent.core.errors import BadInput, RunFailed
from prudent.core.money import ROUNDING_USD, Price
from prudent.core.space import Space
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.jobs.table import TableJob
from prudent.tuning.study.limits import NOT_CHEAPER, OUT_OF_MONEY, TOO_SLOW
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome
from prudent.tuning.tune import GIVE_UP, Event, TrialEnded, TrialExtended, TrialReported, TrialStarted, tune

from .metered import MeteredJob

GOAL = "minimise cost_usd subject to time_s <= 300 and accuracy >= 0.8"


def simulated(times_s: dict[int, float], usd_per_h: float = 3.6, minimum_s: float = 0.0) -> FunctionJob:
    """A job whose run at n takes times_s[n]; n machines, each at the same price."""
    space = Space.parse({"n": sorted(times_s)})

    def run(n: int) -> dict[str, float]:
        return {"time_s": times_s[n]}

    def price(configuration: dict[str, Any]) -> Price:
        return Price(usd_per_h * configuration["n"], "2025-01-01", "test", minimum_s)

    return FunctionJob(run, space, price=price, virtual=True)


class TestBudget:
    @settings(max_examples=60, deadline=None)
    @given(
        times_s=st.lists(st.floats(0.01, 5000), min_size=3, max_size=12),
        budget=st.floats(0.001, 20),
        parallel=st.integers(1, 5),
        minimum_s=st.sampled_from([0.0, 60.0]),
        early_stop=st.booleans(),
        strategy=st.sampled_from(["random", "grid"]),
        seed=st.integers(0, 5),
    )
    def test_it_is_never_overrun_at_any_moment(
        self, times_s: list[float], budget: float, parallel: int, minimum_s: float, early_stop: bool,
        strategy: str, seed: int,
    ) -> None:  # fmt: skip
        job = MeteredJob(
            Space.parse({"n": list(range(1, len(times_s) + 1))}),
            lambda chosen: Outcome(FINISHED, times_s[chosen["n"] - 1]),
            lambda chosen: 3.6 * chosen["n"],
            minimum_s=minimum_s,
        )
        seen: list[float] = []

        def watch(event: Event, study: Study) -> None:
            del event
            seen.append(study.ledger.spent_usd + study.ledger.reserved_usd)
            assert len(study.pending) <= parallel

        if budget < 0.001 * minimum_s:
            budget += 1.0
        result = tune(
            job, "minimise cost_usd subject to time_s <= 1000", budget, strategy,
            early_stop=early_stop, parallel=parallel, seed=seed, watch=watch,
        )  # fmt: skip
        # By the job's own meter: what was really used, not what the ledger says.
        assert job.used_usd <= budget + ROUNDING_USD
        assert result.spent_usd == pytest.approx(job.used_usd, abs=ROUNDING_USD)
        assert max(seen, default=0.0) <= budget + ROUNDING_USD
        # What the minimum bill alone makes dearer than the best run is not even begun.
        begun = [trial for trial in result.trials if trial.number in job.runs]
        assert len(begun) == len(job.runs)
        assert all(t.why == NOT_CHEAPER and not t.spent_usd for t in result.trials if t not in begun)
        configurations = [trial.configuration["n"] for trial in result.trials]
        assert len(configurations) == len(set(configurations))
        for trial in begun:
            run = job.runs[trial.number]
            assert trial.time_s == pytest.approx(run.lasted_s)
            assert trial.spent_usd == pytest.approx(run.used_usd, abs=ROUNDING_USD)
            if trial.finished:
                assert trial.time_s == times_s[trial.configuration["n"] - 1]

    @pytest.mark.parametrize("parallel", [1, 4])
    def test_the_model_keeps_it_too(self, table: Callable[[], TableJob], parallel: int) -> None:
        measured = table()
        job = MeteredJob(
            measured.space,
            lambda chosen: Outcome(
                FINISHED, measured.recorded(chosen).time_s, measured.recorded(chosen).measures
            ),
            lambda chosen: measured.recorded(chosen).usd_per_h,
            measured.measures,
        )
        result = tune(job, GOAL, 0.3, "lynceus", parallel=parallel, seed=1)
        assert 0.2 < job.used_usd <= 0.3 + ROUNDING_USD
        assert result.spent_usd == pytest.approx(job.used_usd)
        assert len(result.trials) >= 4

    def test_a_run_that_the_rest_cannot_pay_is_cut_exactly_there(self) -> None:
        result = tune(simulated({1: 100, 2: 100_000}), "minimise cost_usd", 1.0, "grid", early_stop=False)
        assert [(t.status, t.time_s) for t in result.trials] == [(FINISHED, 100), (CUT, pytest.approx(450))]
        assert result.trials[1].why == OUT_OF_MONEY
        assert result.spent_usd == pytest.approx(1.0, abs=ROUNDING_USD)

    def test_without_a_budget_everything_is_tried(self) -> None:
        result = tune(simulated(dict.fromkeys(range(1, 7), 10.0)), "minimise cost_usd", None, "random")
        assert len(result.trials) == 6
        assert result.budget_usd is None


class TestCuts:
    def test_at_the_time_of_the_goal(self) -> None:
        result = tune(
            simulated({1: 300.0, 2: 300.1}), "minimise time_s subject to time_s <= 300", 10.0, "grid"
        )
        assert [(t.status, t.time_s, t.why) for t in result.trials] == [
            (FINISHED, 300.0, ""),
            (CUT, 300.0, result.trials[1].why),
        ]

    def test_reasons(self) -> None:
        job = simulated({1: 100.0, 2: 60.0, 3: 500.0})
        result = tune(job, "minimise cost_usd subject to time_s <= 300", 10.0, "grid")
        assert [(t.time_s, t.why) for t in result.trials[1:]] == [
            (pytest.approx(50.0), NOT_CHEAPER),
            (pytest.approx(100 / 3), NOT_CHEAPER),
        ]
        alone = tune(simulated({3: 500.0}), "minimise cost_usd subject to time_s <= 300", 10.0, "grid")
        assert [(t.time_s, t.why, t.feasible) for t in alone.trials] == [(300.0, TOO_SLOW, False)]
        assert (alone.best, alone.nearest) == (None, None)

    def test_a_cut_run_shows_what_was_seen_until_then(self, table: Callable[[], TableJob]) -> None:
        result = tune(table(), "minimise cost_usd subject to time_s <= 100", 1.0, "random", max_trials=20)
        cut = [trial for trial in result.trials if trial.status == CUT and trial.measures]
        assert cut
        for trial in cut:
            assert trial.time_s <= 100
            assert trial.cost_usd == pytest.approx(trial.spent_usd)

    def test_nothing_is_cut_when_nobody_asked(self, table: Callable[[], TableJob]) -> None:
        result = tune(table(), GOAL, 100.0, "random", early_stop=False)
        assert {trial.status for trial in result.trials} == {FINISHED}
        assert len(result.trials) == 72


class TestDeterminism:
    @pytest.mark.parametrize("parallel", [1, 3])
    @pytest.mark.parametrize("strategy", ["random", "lynceus"])
    def test_same_seed_same_study(self, table: Callable[[], TableJob], strategy: str, parallel: int) -> None:
        def told() -> list[Any]:
            result = tune(table(), GOAL, 0.2, strategy, parallel=parallel, seed=11, max_trials=10)
            return [(t.number, t.configuration, t.status, t.time_s, t.spent_usd) for t in result.trials]

        assert told() == told()

    def test_another_seed_another_study(self, table: Callable[[], TableJob]) -> None:
        one, other = (tune(table(), GOAL, 0.2, "random", seed=seed, max_trials=8) for seed in (1, 2))
        assert [t.configuration for t in one.trials] != [t.configuration for t in other.trials]

    def test_parallel_trials_end_in_the_order_of_virtual_time(self) -> None:
        job = simulated({1: 100.0, 2: 10.0, 3: 20.0, 4: 5.0, 5: 200.0})
        result = tune(job, "minimise cost_usd", 100.0, "grid", parallel=2, early_stop=False)
        assert [trial.number for trial in result.trials] == [2, 3, 4, 1, 5]


class TestFailures:
    def test_failed_runs_are_paid_not_repeated_and_learnt_from(self) -> None:
        space = Space.parse({"n": list(range(1, 9)), "kind": ["good", "bad"]})

        def run(n: int, kind: str) -> dict[str, float]:
            if kind == "bad":
                raise MemoryError
            return {"time_s": 10.0 * n}

        job = FunctionJob(run, space, price=3.6, virtual=True, setup_s=5.0)
        result = tune(job, "minimise cost_usd", 1.0, "lynceus", seed=2, early_stop=False)
        failed = [trial for trial in result.trials if trial.status == FAILED]
        assert failed
        assert {(trial.why, trial.time_s) for trial in failed} == {("out of memory", 5.0)}
        assert all(trial.spent_usd > 0 for trial in failed)
        assert len({str(trial.configuration) for trial in result.trials}) == len(result.trials)
        assert result.best is not None
        assert result.best.configuration == {"n": 1, "kind": "good"}

    def test_a_job_that_never_starts_is_given_up_for_free(self) -> None:
        job = Unstartable()
        with pytest.raises(
            RunFailed, match=rf"{GIVE_UP} runs in a row could not start.*no such machine.*fix"
        ):
            tune(job, "minimise cost_usd", 1.0, "random")
        assert job.started == GIVE_UP


class Unstartable:
    """A job over an endless space that nothing can run."""

    name, measures, fraction, virtual = "broken", (), None, True

    def __init__(self) -> None:
        self.space = Space.parse({"x": {"real": [0, 1]}})
        self.started = 0

    def price(self, configuration: dict[str, Any]) -> Price:
        return Price(1.0, "", "test")

    def start(self, configuration: dict[str, Any], number: int) -> Unstartable:
        self.started += 1
        return self

    def next(self, until_s: float) -> Outcome:
        return Outcome(FAILED, 0.0, why="no such machine", started=False)

    def cut(self, at_s: float, why: str) -> Outcome:
        raise AssertionError("it never ran")

    def fingerprint(self) -> str:
        return "broken"


class TestLive:
    def test_real_runs_are_side_by_side(self) -> None:
        met = threading.Barrier(4)

        def work(n: int) -> dict[str, float]:
            met.wait(60)  # each run waits for the three others: one after another they would never end
            return {}

        job = FunctionJob(work, Space.parse({"n": [1, 2, 3, 4]}), price=3.6)
        result = tune(job, "minimise cost_usd", 1.0, "grid", parallel=4, early_stop=False)
        assert [(trial.status, trial.why) for trial in result.trials] == [(FINISHED, "")] * 4

    def test_no_more_real_runs_at_once_than_allowed(self) -> None:
        counting, now, most = threading.Lock(), 0, 0

        def work(n: int) -> Iterator[dict[str, float]]:
            nonlocal now, most
            with counting:
                now += 1
                most = max(most, now)
            time.sleep(0.02)  # or one would have ended before the next begins
            yield {"progress": 0.5}
            with counting:
                now -= 1

        job = FunctionJob(work, Space.parse({"n": [1, 2, 3, 4, 5]}), price=3.6)
        result = tune(job, "minimise cost_usd", 1.0, "grid", parallel=2, early_stop=False)
        assert len(result.trials) == 5
        assert most <= 2

    def test_an_interrupt_ends_what_runs_and_answers_with_the_best_so_far(self, tmp_path: Path) -> None:
        stopped = threading.Event()

        def work(n: int) -> Iterator[dict[str, float]]:
            try:
                for _ in range(1 if n == 1 else 100_000):
                    time.sleep(0.002)
                    yield {"progress": 0.5}
            finally:
                stopped.set()

        def watch(event: Event, study: Study) -> None:
            if isinstance(event, TrialReported) and event.number == 2:
                raise KeyboardInterrupt

        job = FunctionJob(work, Space.parse({"n": [1, 2]}), price=3.6)
        path = tmp_path / "j.jsonl"
        result = tune(job, "minimise cost_usd", 1.0, "grid", watch=watch, journal=path, early_stop=False)
        assert result.interrupted
        assert stopped.wait(60)
        assert result.best is not None
        assert [trial.number for trial in result.trials] == [1]
        again = tune(job, "minimise cost_usd", 1.0, "grid", journal=path, resume=True, max_trials=1,
                     early_stop=False)  # fmt: skip
        assert (again.trials, again.spent_usd) == (result.trials, result.spent_usd)


def test_events_tell_the_whole_story(table: Callable[[], TableJob]) -> None:
    events: list[Event] = []
    result = tune(table(), GOAL, 0.1, "random", watch=lambda event, study: events.append(event))
    started = [event.ask.number for event in events if isinstance(event, TrialStarted)]
    ended = [event.trial for event in events if isinstance(event, TrialEnded)]
    assert started == [trial.number for trial in result.trials]
    assert tuple(ended) == result.trials
    assert any(isinstance(event, TrialReported) for event in events)
    assert all(
        event.number in started for event in events if isinstance(event, (TrialReported, TrialExtended))
    )


def test_at_most_so_many_trials(table: Callable[[], TableJob]) -> None:
    assert len(tune(table(), GOAL, 10.0, "random", max_trials=5, parallel=3).trials) == 5


def test_nobody_runs_zero_trials_at_a_time(table: Callable[[], TableJob]) -> None:
    with pytest.raises(BadInput, match="parallel is 0"):
        tune(table(), GOAL, 1.0, parallel=0)


def test_the_result_is_plain_json(table: Callable[[], TableJob]) -> None:
    result = tune(table(), GOAL, 0.05, "random")
    said = json.loads(json.dumps(result.to_dict()))
    assert said["spent_usd"] == result.spent_usd
    assert len(said["trials"]) == len(said["charges"]) == len(result.trials)


def test_a_space_smaller_than_the_start_is_searched_whole() -> None:
    """The price-aware start must not run dry in a space of which the cheapest share is one configuration."""
    job = simulated({1: 900.0, 2: 400.0, 3: 250.0, 4: 100.0})
    result = tune(job, "minimise cost_usd subject to time_s <= 600", 10.0, "lynceus")
    assert result.best is not None
    assert len(result.trials) == 4


@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_a_run_begins_ends_that_run_too(number: signal.Signals) -> None:
    """Its process is there before the study knows of it: it would live on, unpaid and unseen."""
    space = Space.parse({"n": [1, 2, 3]})
    job = FunctionJob(lambda n: {"error": n}, space, measures=["error"], price=1.0)
    cut: list[float] = []

    class Begun:
        def next(self, until_s: float) -> None:
            raise AssertionError("the interrupt comes first")

        def cut(self, at_s: float, why: str) -> Outcome:
            cut.append(at_s)
            return Outcome("cut", at_s, {}, why)

    def start(configuration: object, number: int) -> Begun:
        signal.raise_signal(number)
        return Begun()

    job.start = start  # type: ignore[method-assign,assignment]
    with ended_by_signals():
        assert tune(job, "minimise error", 1.0, "random").interrupted
    assert len(cut) == 1
