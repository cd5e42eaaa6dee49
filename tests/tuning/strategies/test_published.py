"""Strategies as published: the rules of the papers, each checked by what can be seen from outside."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.jobs.table import TableJob
from prudent.tuning.problem import Problem
from prudent.tuning.result import Result
from prudent.tuning.strategies.beliefs import TreesBelief
from prudent.tuning.strategies.published.extrapolators import (
    CutRun,
    extrapolated_usd,
    extrapolators,
    linear,
    register,
    truncated,
)
from prudent.tuning.strategies.published.search import PublishedAcquisition
from prudent.tuning.strategies.published.stopping import iterations_to_see
from prudent.tuning.strategies.registry import build, published, strategies
from prudent.tuning.surrogates.trees import Trees
from prudent.tuning.trial import CUT, Trial
from prudent.tuning.tune import tune

GOAL = "minimise cost_usd subject to time_s <= 200 and accuracy >= 0.7"
Table = Callable[[], TableJob]
AS = {"as": "published"}


def played(table: Table, strategy: str, budget_usd: float = 0.6, **options: Any) -> Result:
    return tune(table(), GOAL, budget_usd, strategy, {**AS, **options}, early_stop=False, seed=3)


def parts_table(folder: Path) -> TableJob:
    """Eight configurations at three shares of the data; more data make them more accurate and dearer."""
    path = folder / "parts.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["depth", "vm", "share", "time_s", "price_usd_per_h", "accuracy"])
        for depth in range(1, 9):
            for vm, speed, usd in (("a", 1.0, 0.5), ("b", 1.7, 1.0)):
                for share in (0.1, 0.4, 1.0):
                    seconds = 900 * share * (0.5 + depth / 4) / speed
                    rows.writerow([depth, vm, share, seconds, usd, 0.5 + 0.055 * depth * share**0.2])
    return TableJob.read_csv(path, ["depth", "vm"], measures=["accuracy"], fraction="share")


def test_every_paper_has_its_preset() -> None:
    assert set(published()) == {
        "obol", "lynceus", "cherrypick", "gp-ei", "gp-eic", "nephele", "fabolas", "fabulinus",
    }  # fmt: skip
    assert set(published()) <= set(strategies())


@pytest.mark.parametrize("strategy", ["obol", "lynceus", "cherrypick", "gp-ei", "gp-eic"])
def test_a_preset_spends_within_its_budget_and_answers_alike_each_time(table: Table, strategy: str) -> None:
    one, two = (played(table, strategy, 0.25, **({"lookahead": 1} if strategy == "obol" else {}))
                for _ in range(2))  # fmt: skip
    assert [t.configuration for t in one.trials] == [t.configuration for t in two.trials]
    assert one.recommended == two.recommended
    assert one.spent_usd <= 0.25 + 1e-9
    keys = [str(trial.configuration) for trial in one.trials]
    assert len(set(keys)) == len(keys), "nothing is run twice"


def test_five_random_runs_come_first_whatever_they_cost(table: Table) -> None:
    trials = played(table, "obol", 1.0, lookahead=0).trials
    firsts = [trial.chosen.startswith("first look") for trial in trials]
    assert firsts[:5] == [True] * 5
    assert not any(firsts[5:])
    other = tune(table(), GOAL, 1.0, "obol", {**AS, "lookahead": 0}, early_stop=False, seed=4)
    assert [t.configuration for t in other.trials[:5]] != [t.configuration for t in trials[:5]]


def test_a_discount_of_nought_is_no_look_ahead(table: Table) -> None:
    myopic, discounted = (
        played(table, "obol", 0.4, **options) for options in ({"lookahead": 0}, {"lookahead": 2, "gamma": 0})
    )
    assert [t.configuration for t in myopic.trials] == [t.configuration for t in discounted.trials]


def test_epsilon_is_money_and_ends_the_search(table: Table) -> None:
    whole = played(table, "obol", 1.0, lookahead=0)
    short = played(table, "obol", 1.0, lookahead=0, epsilon=10.0)
    assert len(short.trials) == 5 < len(whole.trials)


def test_only_what_the_money_surely_pays_is_run_also_with_early_time_outs(table: Table) -> None:
    """99 % of paying holds at the root: with early time-outs on, certainty changes what is run."""
    runs = [
        tune(table(), GOAL, 0.4, "lynceus", {**AS, "confidence": sure}, early_stop=True, seed=3).trials
        for sure in (0.5, 0.99)
    ]
    assert [t.configuration for t in runs[0]] != [t.configuration for t in runs[1]]


def test_early_time_outs_are_noticed_when_the_monitor_looks(table: Table) -> None:
    done = tune(
        table(), GOAL, 2.0, "lynceus", {**AS, "monitor_s": 30}, early_stop=True, seed=3, max_trials=25
    )
    cut = [trial for trial in done.trials if trial.status == CUT and "budget" not in trial.why]
    assert len(cut) > 3
    assert all(trial.time_s % 30 == pytest.approx(0, abs=1e-6) for trial in cut)
    assert all(trial.time_s <= 210 + 1e-6 for trial in cut)
    at_once = tune(table(), GOAL, 2.0, "lynceus", AS, early_stop=True, seed=3, max_trials=25)
    assert any(trial.time_s % 30 > 1e-6 for trial in at_once.trials if trial.status == CUT)


def test_cherrypick_ends_by_its_own_rule_or_by_the_budget(table: Table) -> None:
    own = played(table, "cherrypick", 5.0)
    papers = played(table, "cherrypick", 5.0, stop_below=0)
    assert 6 <= len(own.trials) < len(papers.trials)


def test_without_constraints_the_answer_has_none_either(table: Table) -> None:
    goal = "maximise accuracy subject to cost_usd <= 0.004"
    free = tune(table(), goal, 0.5, "gp-ei", AS, early_stop=False, seed=1)
    bound = tune(table(), goal, 0.5, "gp-eic", AS, early_stop=False, seed=1)
    best = max(free.trials, key=lambda trial: trial.measures["accuracy"] if trial.finished else 0.0)
    assert free.recommended == best.configuration
    assert not best.feasible
    assert bound.best is None or bound.recommended == bound.best.configuration


def test_nephele_spends_its_initial_budget_first(tmp_path: Path) -> None:
    job = parts_table(tmp_path)
    goal = "minimise cost_usd subject to accuracy >= 0.8 and time_s <= 900"
    done = tune(job, goal, 3.0, "nephele", {**AS, "start_usd": 0.7}, early_stop=False, seed=2)
    spent = np.cumsum([trial.spent_usd for trial in done.trials])
    firsts = [trial.chosen.startswith("first look") for trial in done.trials]
    assert firsts == [before < 0.7 for before in [0.0, *spent[:-1]]]
    assert {trial.configuration["share"] for trial in done.trials} == {0.1, 0.4, 1.0}
    assert done.best is not None


@pytest.mark.parametrize("strategy", ["fabolas", "fabulinus"])
def test_the_thesis_runs_first_configurations_at_every_share_below_one(tmp_path: Path, strategy: str) -> None:
    goal = "maximise accuracy at full data subject to cost_usd <= 0.2 at full data"
    options = {**AS, "start_configurations": 2}
    done = tune(parts_table(tmp_path), goal, 1.5, strategy, options, early_stop=False, seed=2, max_trials=6)
    seen: dict[tuple[Any, Any], set[float]] = {}
    for trial in done.trials[:4]:
        place = trial.configuration["depth"], trial.configuration["vm"]
        seen.setdefault(place, set()).add(trial.configuration["share"])
    assert list(seen.values()) == [{0.1, 0.4}] * 2
    assert all(trial.configuration["share"] < 1 for trial in done.trials)
    assert done.recommended is not None


def test_improvement_and_chance_are_those_of_the_gaussian(table: Table) -> None:
    """EIc against draws: what is gained on average, times how often the limit is kept."""
    free, ones = np.full(1, np.inf), np.ones(1)
    mean, std, best, limit = np.array([2.0]), np.array([0.8]), 2.5, np.array([2.2])
    acquisition = PublishedAcquisition(True, mean, std, limit, -free, ones, free, False)
    draws = np.random.default_rng(1).normal(2.0, 0.8, 400_000)
    expected = np.maximum(best - draws, 0).mean() * (draws <= 2.2).mean()
    assert acquisition.reward(mean, std, best)[0] == pytest.approx(expected, rel=0.02)
    assert acquisition.reward(mean, np.array([0.0]), best)[0] == 0, "no deviation, no improvement"
    assert acquisition.bill(mean, std, best, 9.0)[0] == 2.0
    assert acquisition.affordable(mean, std, 2.0 + 2.3264 * 0.8, 2.3263)[0]
    assert not acquisition.affordable(mean, std, 2.0 + 2.3262 * 0.8, 2.3263)[0]


def test_trees_that_agree_expect_no_improvement_whatever_they_say() -> None:
    """Their deviation is told as a floor, which goes by the dearest run; it is none for the cheap ones."""
    rows = np.array([[0.0], [0.0], [1.0], [1.0]])
    trees = Trees.fit(rows, np.array([0.1, 0.1, 90.0, 90.0]), np.random.default_rng(1), 50, 1e-14)
    belief = TreesBelief(trees, np.array([[0.0], [0.5]]))
    free, ones = np.full(2, np.inf), np.ones(2)
    acquisition = PublishedAcquisition(
        True, belief.mean, belief.std, free, -free, ones, free, False, agreed=belief.least_std
    )
    std = np.array([belief.least_std, 1.0])
    assert belief.least_std == pytest.approx(1e-7)
    rewards = acquisition.reward(np.array([0.1, 0.1]), std, 0.2)
    assert rewards[0] == 0 < rewards[1]


def test_a_node_below_nought_is_passed_over() -> None:
    """In dollars a Gaussian may reach below $0, where no run ends; in logarithms it may go anywhere."""
    free, ones = np.full(1, np.inf), np.ones(1)
    dollars, logs = (
        PublishedAcquisition(True, ones, ones, free, -free, ones, free, False, log=log)
        for log in (False, True)
    )
    outcomes = np.array([-0.5, 0.0, 0.5])
    assert dollars.possible(outcomes).tolist() == [0, 0, 1]
    assert logs.possible(outcomes).tolist() == [1, 1, 1]


class TestExtrapolators:
    GOAL = Goal.parse("minimise cost_usd subject to accuracy >= 0.8")

    def run(self, accuracy: float | None, **more: Any) -> CutRun:
        measures = {} if accuracy is None else {"accuracy": accuracy}
        return CutRun(Trial(1, {}, CUT, 60.0, 0.03, 0.03, measures, False), self.GOAL, **more)

    def test_a_line_through_what_was_reached(self) -> None:
        assert linear(self.run(0.2)) == pytest.approx(0.12)
        assert linear(self.run(None)) == 0.03
        assert linear(self.run(0.9)) == 0.03, "the target was reached"

    def test_the_mean_beyond_what_was_paid_is_that_of_draws(self) -> None:
        draws = np.random.default_rng(2).normal(0.02, 0.01, 400_000)
        told = truncated(self.run(None, expected_usd=0.02, deviation_usd=0.01))
        assert told == pytest.approx(draws[draws > 0.03].mean(), rel=0.01)
        assert truncated(self.run(None, expected_usd=-9.0, deviation_usd=0.01)) == 0.03

    def test_ones_own_is_a_name_like_the_others(self, table: Table) -> None:
        def tenfold(run: CutRun) -> float:
            return 10 * run.trial.cost_usd

        register("tenfold of the tests", tenfold)
        register("tenfold of the tests", tenfold)
        assert "tenfold of the tests" in extrapolators()
        assert extrapolated_usd("tenfold of the tests", self.run(None)) == pytest.approx(0.3)
        with pytest.raises(BadInput, match="already"):
            register("linear", tenfold)
        options = {**AS, "extrapolation": "tenfold of the tests"}
        assert tune(table(), GOAL, 0.1, "lynceus", options, seed=3).trials

    def test_never_less_than_what_was_paid(self) -> None:
        def nothing(run: CutRun) -> float:
            return math.nan if run.trial.number == 1 else 0.0

        register("nothing of the tests", nothing)
        assert extrapolated_usd("nothing of the tests", self.run(0.4)) == 0.03


@pytest.mark.parametrize(
    ("strategy", "options", "says"),
    [
        ("random", AS, "not the strategy of a paper"),
        ("obol", {"as": "printed"}, "published"),
        ("obol", {**AS, "lookahead": 6}, "0 to 5"),
        ("lynceus", {**AS, "extrapolation": "square"}, "linear, curve, truncated"),
        ("lynceus", {**AS, "start": "price"}, "random"),
    ],
)
def test_what_no_paper_has_is_refused(
    table: Table, strategy: str, options: dict[str, Any], says: str
) -> None:
    job = table()
    problem = Problem(job.space, Goal.parse(GOAL), job.price, job.measures)
    with pytest.raises(BadInput, match=says):
        build(strategy, problem, options, 0)


def test_a_trial_under_way_is_not_proposed_again(table: Table) -> None:
    job = table()
    problem = Problem(job.space, Goal.parse(GOAL), job.price, job.measures)
    strategy = build("lynceus", problem, {**AS, "start_trials": 2}, 1)
    done = tune(job, GOAL, 5.0, "lynceus", {**AS, "start_trials": 2}, False, seed=1, max_trials=4)
    history = History(problem.goal, done.trials)
    first = strategy.propose(history, 1.0)
    assert first is not None
    second = strategy.propose(History(problem.goal, done.trials, (first,)), 1.0)
    assert second is not None
    assert second.configuration != first.configuration


@pytest.mark.parametrize(("rows", "batch", "share"), [(200, 16, 0.9), (1000, 256, 0.9), (50, 1, 0.5)])
def test_so_many_batches_see_that_share_of_the_rows(rows: int, batch: int, share: float) -> None:
    rng = np.random.default_rng(4)
    count = iterations_to_see(rows, batch, share)
    seen = [
        [len(np.unique(rng.integers(rows, size=batch * draws))) / rows for _ in range(300)]
        for draws in (count, count - 1)
    ]
    assert np.mean(seen[0]) >= share - 0.004
    assert np.mean(seen[1]) < share + 0.004


def test_what_cannot_be_seen_is_refused() -> None:
    for arguments in ((0, 1), (10, 0), (10, 1, 1.0)):
        with pytest.raises(BadInput):
            iterations_to_see(*arguments)
    assert iterations_to_see(1, 1) == 1
