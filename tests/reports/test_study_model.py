"""What the report's model says about parameters and prospects agrees with what the job really does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prudent.core.money import Price
from prudent.core.ranges import Integer, Real
from prudent.core.space import Space
from prudent.reports.expectations import ASKED, expectations_of, hit_rate, remaining_potential
from prudent.reports.study_model import MOST, StudyModel, effects, sample
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.jobs.function import FunctionJob
from prudent.tuning.problem import Problem
from prudent.tuning.trial import Trial
from prudent.tuning.tune import tune

GOAL = Goal.parse("minimise cost_usd")


def studied(space: Space, function: Any, trials: int = 14) -> tuple[StudyModel, History]:
    job = FunctionJob(function, space, price=3.6, virtual=True)
    result = tune(job, GOAL, 1e6, "random", seed=3, early_stop=False, max_trials=trials)
    return StudyModel(Problem(space, GOAL, job.price), 3), History(GOAL, result.trials)


def test_an_effect_follows_the_truth_and_an_idle_parameter_has_none() -> None:
    space = Space([Integer("work", 1, 8), Integer("idle", 1, 8)])
    model, history = studied(space, lambda work, idle: {"time_s": 100.0 * work})
    found = effects(model, history, seed=3)
    assert list(found) == ["work", "idle"]
    work, idle = found["work"][0], found["idle"][0]
    assert (np.diff(work.middle) > 0).all()
    assert work.span == pytest.approx(8, rel=0.25)
    assert idle.span < 1.15
    truth = np.array([0.1 * value for value in work.values])
    assert np.abs(np.log(work.middle / truth)).max() < 0.2
    assert ((work.low < work.middle) & (work.middle < work.high)).all()


def test_continuous_spaces_have_effects_too() -> None:
    space = Space([Real("size", 1.0, 100.0, log=True), Real("idle", 0.0, 1.0)])
    model, history = studied(space, lambda size, idle: {"time_s": 10.0 * size})
    size = effects(model, history, seed=3)["size"][0]
    assert len(size.values) == 16
    assert size.numeric
    assert size.log_values
    assert size.middle[-1] / size.middle[0] == pytest.approx(100, rel=0.5)


def test_a_table_s_effects_count_only_rows_that_exist() -> None:
    rows = [{"vm": vm, "n": n} for vm, counts in (("a", (1, 2, 3)), ("b", (4, 5, 6))) for n in counts]
    model, history = studied(Space.from_points(rows), lambda vm, n: {"time_s": 60.0 * n}, trials=5)
    found = effects(model, history, seed=3)
    assert found["vm"][0].values == ("a", "b")
    assert len(found["n"][0].values) == 6


def test_expectations_come_from_earlier_runs_alone() -> None:
    space = Space([Integer("work", 1, 20), Integer("idle", 1, 4)])
    model, history = studied(space, lambda work, idle: {"time_s": 100.0 * work}, trials=16)
    told = expectations_of(model, "cost_usd", history)
    assert [item.number for item in told] == [trial.number for trial in history.trials[3:]]
    assert hit_rate(told) > 0.6
    changed = replace(history.trials[-1], time_s=history.trials[-1].time_s * 50)
    again = expectations_of(model, "cost_usd", History(GOAL, (*history.trials[:-1], changed)))
    assert [item.expected for item in again] == [item.expected for item in told]


def test_a_better_one_left_out_is_found_likely_and_a_worse_one_not() -> None:
    space = Space([Integer("work", 1, 12)])
    model, history = studied(space, lambda work: {"time_s": 100.0 * work}, trials=12)
    by_work = {trial.configuration["work"]: trial for trial in history}
    without_best = History(GOAL, tuple(trial for trial in history if trial.configuration["work"] != 1))
    ahead = remaining_potential(model, without_best, by_work[2], seed=3)
    assert ahead is not None
    assert ahead.untested == 1
    assert ahead.chance > 0.8
    assert ahead.likeliest[0].configuration == {"work": 1}
    assert ahead.gain == pytest.approx(by_work[2].cost_usd - by_work[1].cost_usd, rel=0.5)
    without_worst = History(GOAL, tuple(trial for trial in history if trial.configuration["work"] != 12))
    behind = remaining_potential(model, without_worst, by_work[1], seed=3)
    assert behind is not None
    assert behind.chance < 0.02


def test_too_few_runs_say_nothing() -> None:
    model, history = studied(Space([Integer("work", 1, 12)]), lambda work: {"time_s": 1.0 * work}, trials=2)
    assert effects(model, history, seed=3) == {}
    assert remaining_potential(model, history, history.best, seed=3) is None


def long_history(trials: int, cut_from: int = 0) -> tuple[StudyModel, History]:
    """So many runs of a simple job; every second one from `cut_from` on was cut half-way."""
    space = Space([Real("work", 1.0, 100.0, log=True)])
    rng = np.random.default_rng(1)
    made = []
    for number in range(1, trials + 1):
        work = float(rng.uniform(1.0, 100.0))
        is_cut = number > cut_from and number % 2 == 0
        time_s = 50.0 * work if is_cut else 100.0 * work
        status, usd = "cut" if is_cut else "finished", time_s / 1000
        made.append(Trial(number, {"work": work}, status, time_s, usd, usd, {}, feasible=not is_cut))
    return StudyModel(Problem(space, GOAL, lambda c: Price(3.6, "", "test")), 3), History(GOAL, tuple(made))


def test_a_long_history_is_thinned_evenly_and_keeps_its_best() -> None:
    _, history = long_history(1000)
    thin = sample(history)
    numbers = [trial.number for trial in thin]
    assert len(thin) == MOST
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (1, 1000)
    assert max(np.diff(numbers)) < 20
    assert thin.best is history.best
    assert sum(trial.finished for trial in thin) == MOST * 3 // 4, "what ended by itself tells more"
    short = long_history(MOST)[1]
    assert sample(short) is short


def test_few_runs_that_ended_are_all_kept() -> None:
    _, history = long_history(900)
    few = tuple(replace(t, status="cut") if t.number > 40 else t for t in history)
    ended = [trial.number for trial in few if trial.finished]
    thin = sample(History(GOAL, few))
    assert len(thin) == MOST
    assert [trial.number for trial in thin if trial.finished] == ended


def test_a_long_study_asks_for_as_many_forecasts_as_a_short_one_over_all_of_it() -> None:
    model, history = long_history(120)
    told = expectations_of(model, "cost_usd", history)
    assert len(told) == ASKED
    assert (told[0].number, told[-1].number) == (4, 120)
    assert hit_rate(told) > 0.6
