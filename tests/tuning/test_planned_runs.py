"""A goal that says how often its answer will run: a trial must earn its price, and what is left is kept."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from prudent.cli.display.study import money_notes
from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.reports.tuning import tuning_report
from prudent.tuning.problem import Problem
from prudent.tuning.result import Result
from prudent.tuning.trial import FINISHED, Configuration, Outcome
from prudent.tuning.tune import tune

from .metered import MeteredJob

SPACE = Space.parse({"size": [1, 2, 4, 8], "n": [1, 2, 3, 4, 6, 8, 12, 16], "batch": [16, 64, 256]})
LIMIT_S = 900.0
BUDGET_USD = 4.0
FEW, MANY = 10, 10_000


def price(configuration: Configuration) -> float:
    return 0.1 * float(configuration["size"]) ** 0.95 * int(configuration["n"])


def time_s(configuration: Configuration) -> float:
    cores = int(configuration["size"]) * int(configuration["n"])
    batch = int(configuration["batch"])
    odd = 0.15 * math.sin(3.0 * cores + batch)
    return (60.0 + 4_000.0 / cores**0.9) * (1 + abs(math.log2(batch / 64)) / 4) * math.exp(odd)


def played(runs: int | None, seed: int, **how: object) -> tuple[Result, float]:
    """A study, and what its job's own meter says that it used."""
    job = MeteredJob(SPACE, lambda c: Outcome(FINISHED, time_s(c)), price)
    goal = f"minimise cost_usd subject to time_s <= {LIMIT_S}" + ("" if runs is None else f" for {runs} runs")
    result = tune(job, goal, BUDGET_USD, seed=seed, **how)  # type: ignore[arg-type]
    return result, math.fsum(run.used_usd for run in job.runs.values())


@pytest.fixture(scope="module", params=["prudent", "lynceus"])
def studies(request: pytest.FixtureRequest) -> dict[int | None, list[tuple[Result, float]]]:
    return {
        runs: [played(runs, seed, strategy=request.param) for seed in range(5)] for runs in (None, FEW, MANY)
    }


Studies = dict[int | None, list[tuple[Result, float]]]


def whole_usd(study: tuple[Result, float], runs: int) -> float:
    """What searching and running the answer cost together."""
    result, used_usd = study
    assert result.best is not None
    return used_usd + runs * time_s(result.best.configuration) * price(result.best.configuration) / 3600


def test_searching_and_running_cost_less_together(studies: Studies) -> None:
    for runs in (FEW, MANY):
        own = np.mean([whole_usd(study, runs) for study in studies[runs]])
        others = [
            np.mean([whole_usd(study, runs) for study in found])
            for known, found in studies.items()
            if known != runs
        ]
        assert own <= min(others) * 1.02, runs


def test_few_runs_are_worth_few_trials(studies: Studies) -> None:
    for few, many, all_of_it in zip(studies[FEW], studies[MANY], studies[None], strict=True):
        assert few[1] < many[1] <= all_of_it[1] + 1e-9
        assert few[1] < 0.5 * BUDGET_USD


def test_the_answer_says_why_money_was_left(studies: Studies) -> None:
    result, used_usd = studies[FEW][0]
    assert result.left_usd == pytest.approx(BUDGET_USD - used_usd)
    assert "save its own price over the 10 runs that are planned" in result.stopped
    assert result.to_dict()["stopped"] == result.stopped
    assert any(result.stopped in note and "of the budget is left" in note for note in money_notes(result))
    problem = Problem(SPACE, result.goal, lambda c: Price(price(c), "", ""))
    assert result.stopped in tuning_report(result, problem)


def test_a_study_without_planned_runs_says_nothing_of_them(studies: Studies) -> None:
    for result, _ in studies[None]:
        assert result.stopped == ""
        assert not any("left" in note for note in money_notes(result))


def test_what_ended_for_want_of_money_is_not_called_enough() -> None:
    job = MeteredJob(SPACE, lambda c: Outcome(FINISHED, time_s(c)), price)
    result = tune(job, f"minimise cost_usd subject to time_s <= {LIMIT_S} for 1_000_000 runs", 1.5, seed=0)
    assert result.best is not None
    assert result.stopped == ""


def test_until_something_keeps_the_goal_the_search_goes_on() -> None:
    job = MeteredJob(SPACE, lambda c: Outcome(FINISHED, time_s(c)), price)
    result = tune(job, "minimise cost_usd subject to time_s <= 1 for 1 run", 1.0, seed=1, early_stop=False)
    assert result.best is None
    assert result.stopped == ""
    assert result.spent_usd == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("strategy", ["random", "grid"])
def test_a_strategy_that_would_not_heed_them_refuses(strategy: str) -> None:
    with pytest.raises(BadInput, match='use "prudent"'):
        played(FEW, 1, strategy=strategy)


def test_shares_of_the_data_are_refused() -> None:
    space = Space.parse({"n": [1, 2], "share": [0.1, 1.0]})
    job = MeteredJob(space, lambda c: Outcome(FINISHED, 10.0), lambda c: 1.0, fraction="share")
    with pytest.raises(BadInput, match="shares of its data"):
        tune(job, "minimise cost_usd for 10 runs", 1.0)


def test_a_resumed_study_keeps_its_planned_runs(tmp_path: Path) -> None:
    journal = tmp_path / "study.jsonl"
    first, _ = played(FEW, 3, journal=journal, max_trials=3)
    again, _ = played(FEW, 3, journal=journal, resume=True)
    whole, _ = played(FEW, 3)
    assert [trial.configuration for trial in again.trials] == [trial.configuration for trial in whole.trials]
    assert len(first.trials) == 3
    with pytest.raises(BadInput, match="goal"):
        played(MANY, 3, journal=journal, resume=True)
