"""The default on made-up clusters: what it tries first, what it learns, and what it leaves behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prudent.cloud.readings import Readings
from prudent.core.space import Space
from prudent.tuning.history import History
from prudent.tuning.result import Result
from prudent.tuning.strategies.registry import build
from prudent.tuning.study.study import Study
from prudent.tuning.trial import FAILED, FINISHED, Configuration, Outcome
from prudent.tuning.tune import tune

from ..metered import MeteredJob

PRICES = {
    "c4.large": 0.1, "m4.large": 0.1, "r4.large": 0.133,
    "c4.2xlarge": 0.4, "m4.2xlarge": 0.4, "r4.2xlarge": 0.53,
}  # fmt: skip
MEMORY = {"c4": 3.75, "m4": 8.0, "r4": 15.25}
SPACE = Space.parse({"vm": list(PRICES), "n": [2, 4, 6, 8, 12, 16, 24]})
EVERYTHING = list(SPACE.configurations())


def price(configuration: Configuration) -> float:
    return PRICES[configuration["vm"]] * int(configuration["n"])


def cores(configuration: Configuration) -> int:
    return (8 if "2x" in configuration["vm"] else 2) * int(configuration["n"])


def memory(configuration: Configuration) -> float:
    return MEMORY[configuration["vm"][:2]] * cores(configuration) / 2


def shared_out(configuration: Configuration) -> float:
    """Work that is shared out, with a part that is not: dearer clusters are faster."""
    odd = 0.1 * math.sin(7.0 * cores(configuration) + len(configuration["vm"]))
    return (200.0 + 40_000.0 / cores(configuration)) * math.exp(odd)


def crowded(configuration: Configuration) -> float:
    """More machines only stand in each other's way."""
    return 300.0 + 30.0 * int(configuration["n"])


def played(
    time_s: Callable[[Configuration], float],
    runs: float,
    seed: int,
    share: float = 0.5,
    fails: Callable[[Configuration], bool] = lambda configuration: False,
    **how: Any,
) -> Result:
    """A study with money for so many average runs, with a limit that this share of the clusters keeps."""
    limit_s = float(np.quantile([time_s(c) for c in EVERYTHING], share))

    def run(configuration: Configuration) -> Outcome:
        status = FAILED if fails(configuration) else FINISHED
        return Outcome(status, time_s(configuration))

    average = float(np.mean([price(c) * time_s(c) / 3600 for c in EVERYTHING]))
    job = MeteredJob(SPACE, run, price)
    goal = f"minimise cost_usd subject to time_s <= {limit_s}"
    return tune(job, goal, runs * average, seed=seed, **how)


def first(
    budget_usd: float, goal: str = "minimise cost_usd subject to time_s <= 600", early_stop: bool = True
) -> Configuration:
    ask = Study(SPACE, goal, price, budget_usd, "prudent", early_stop=early_stop, seed=1).ask()
    assert ask is not None
    return ask.configuration


def cheapest(time_s: Callable[[Configuration], float], limit_s: float) -> float:
    return min(price(c) * time_s(c) / 3600 for c in EVERYTHING if time_s(c) <= limit_s)


class TestFirstRuns:
    def test_with_money_for_three_runs_it_tries_what_keeps_the_limit(self) -> None:
        found = [played(shared_out, 3.0, seed, early_stop=False).best is not None for seed in range(8)]
        assert sum(found) >= 7

    def test_with_money_for_a_hundred_runs_it_starts_cheap(self) -> None:
        few, many = first(0.5, early_stop=False), first(60.0)
        cheap = np.quantile([price(c) for c in EVERYTHING], 0.25)
        assert price(many) <= cheap < price(few)

    def test_a_tight_limit_on_the_cost_starts_cheaper_than_a_tight_limit_on_time(self) -> None:
        slow_is_fine = first(2.0, "minimise time_s subject to cost_usd <= 0.02", False)
        haste = first(2.0, "minimise cost_usd subject to time_s <= 60", False)
        assert price(slow_is_fine) < price(haste)

    def test_without_any_limit_it_starts_with_what_costs_least(self) -> None:
        assert price(first(5.0, "minimise cost_usd")) <= np.quantile([price(c) for c in EVERYTHING], 0.2)


class TestLearning:
    def test_what_everybody_knows_leaves_when_runs_disagree(self) -> None:
        result = played(crowded, 6.0, 1, early_stop=False)
        assert result.best is not None
        assert result.best.cost_usd == pytest.approx(cheapest(crowded, math.inf))
        later = [int(trial.configuration["n"]) for trial in result.trials[3:]]
        assert np.median(later) <= 6

    def test_a_memory_cliff_is_learned(self) -> None:
        needed = 100.0

        def fails(configuration: Configuration) -> bool:
            return memory(configuration) < needed

        share = np.mean([fails(c) for c in EVERYTHING])
        assert 0.3 < share < 0.7
        for seed in range(3):
            result = played(shared_out, 8.0, seed, 0.9, fails)
            ended = [trial.status == FAILED for trial in result.trials]
            assert result.best is not None
            assert sum(ended[4:]) <= 0.4 * len(ended[4:])

    def test_a_failure_is_held_against_what_is_smaller(self) -> None:
        study = Study(SPACE, "minimise cost_usd", price, 50.0, "prudent", early_stop=False, seed=1)
        ask = study.ask()
        assert ask is not None
        study.tell(ask.number, Outcome(FAILED, 900.0, {}, "out of memory"))
        strategy: Any = study.strategy
        works = strategy._fitter.works(study.history, study.problem.everything)
        size = np.array([memory(c) for c in study.problem.everything.configurations])
        small, large = np.quantile(size, [0.1, 0.9])
        assert works[size <= small].mean() < works[size >= large].mean() - 0.1

    def test_the_first_run_says_what_time_runs_take(self) -> None:
        study = Study(SPACE, "minimise cost_usd", price, 50.0, "prudent", early_stop=False, seed=1)
        strategy: Any = study.strategy
        pool = study.problem.everything
        before = strategy._fitter.log_cost(History(study.goal), pool)
        ask = study.ask()
        assert ask is not None
        study.tell(ask.number, time_s=45.0)
        after = strategy._fitter.log_cost(study.history, pool)
        place = study.problem.index(ask.configuration)
        assert after.mean[place] == pytest.approx(math.log(45.0 * price(ask.configuration) / 3600), abs=0.2)
        assert np.median(after.std) < 0.5 * np.median(before.std)


class TestReadings:
    """What a run did to its machines says what more of them would bring."""

    def forecast(self, cpu_share: float | None) -> float:
        """By how much log time changes from 4 machines to 16, as is expected after one run."""
        study = Study(SPACE, "minimise cost_usd", price, 50.0, "prudent", early_stop=False, seed=1)
        ask = study.ask()
        assert ask is not None
        readings = None if cpu_share is None else Readings(cpu_share=cpu_share)
        study.tell(ask.number, Outcome(FINISHED, 900.0, readings=readings))
        strategy: Any = study.strategy
        belief = strategy._fitter.log_cost(study.history, study.problem.everything)
        few, many = (study.problem.index({"vm": "m4.large", "n": n}) for n in (4, 16))
        prices = math.log(price({"vm": "m4.large", "n": 16}) / price({"vm": "m4.large", "n": 4}))
        return float(belief.mean[many] - belief.mean[few]) - prices

    def test_more_machines_help_where_cores_are_busy(self) -> None:
        idle, unread, busy = (self.forecast(share) for share in (0.05, None, 0.95))
        assert busy < unread - 0.1 < idle - 0.2

    def test_a_shared_work_is_found_sooner_and_wrong_readings_cost_little(self) -> None:
        def score(share: Callable[[Configuration], float] | None) -> float:
            found = [self.played(share, seed) for seed in range(12)]
            return float(np.mean(np.log(found)))

        def right(configuration: Configuration) -> float:
            return 0.98 * (40_000.0 / cores(configuration)) / (200.0 + 40_000.0 / cores(configuration))

        plain = score(None)
        assert score(right) <= plain
        assert score(lambda configuration: 0.02) <= plain + 0.1

    def played(self, share: Callable[[Configuration], float] | None, seed: int) -> float:
        """The cost of the answer over the least, in a study with money for three runs."""
        limit_s = float(np.quantile([shared_out(c) for c in EVERYTHING], 0.5))
        average = float(np.mean([price(c) * shared_out(c) / 3600 for c in EVERYTHING]))

        def run(configuration: Configuration) -> Outcome:
            readings = None if share is None else Readings(cpu_share=share(configuration))
            return Outcome(FINISHED, shared_out(configuration), readings=readings)

        job = MeteredJob(SPACE, run, price)
        goal = f"minimise cost_usd subject to time_s <= {limit_s}"
        best = tune(job, goal, 3.0 * average, seed=seed, early_stop=False).best
        return 5.0 if best is None else best.cost_usd / cheapest(shared_out, limit_s)


def test_a_run_that_the_money_cannot_pay_to_its_end_is_no_answer() -> None:
    for seed in range(3):
        result = played(shared_out, 2.0, seed, early_stop=False)
        wasted = [trial for trial in result.trials if trial.status == "cut"]
        assert sum(trial.spent_usd for trial in wasted) <= 0.6 * result.spent_usd


@pytest.mark.parametrize("runs", [4, 26])
def test_it_decides_alike_however_it_came_to_its_history(runs: int) -> None:
    study = Study(SPACE, "minimise cost_usd subject to time_s <= 900", price, 90.0, "prudent", seed=4)
    for place in range(runs):
        ask = study.ask()
        assert ask is not None
        readings = Readings(cpu_share=0.1 + 0.02 * place)
        study.tell(ask.number, Outcome(FINISHED, shared_out(ask.configuration), readings=readings))
    fresh = build("prudent", study.problem, {}, 4)
    assert fresh.propose(study.history, 5.0) == study.strategy.propose(study.history, 5.0)
