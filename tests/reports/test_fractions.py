"""What a report says of the full data is what the strategy believed and what the runs measured."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.space import Space
from prudent.reports.fractions import FractionAnalysis, _undominated, fractions
from prudent.reports.tuning import tuning_report
from prudent.tuning.confirm import Confirmation, confirm
from prudent.tuning.goal import Goal
from prudent.tuning.jobs.table import MeasuredRun, TableJob
from prudent.tuning.problem import Problem
from prudent.tuning.result import Result
from prudent.tuning.trial import Trial
from prudent.tuning.tune import tune

GOAL = "maximise accuracy at full data subject to cost_usd <= 0.05 at full data"
SHARES = (0.02, 0.1, 0.3, 1.0)
Study = tuple[TableJob, Result, Problem]


def outcome(vm: str, workers: int, rate: float, share: float) -> tuple[float, float, float]:
    """Seconds, dollars per hour, accuracy: more workers are dearer, a middling rate is best."""
    speed, usd = {"small": (1.0, 0.1), "large": (3.0, 0.35)}[vm]
    time_s = 4 + 900 * share / (speed * workers**0.8)
    error = (0.02 + 0.1 * abs(math.log10(rate) + 2) + 0.004 * workers) * share**-0.4
    return time_s, usd * workers, 1 - min(error, 0.9)


def table(shares: tuple[float, ...] = SHARES) -> TableJob:
    points, runs = [], []
    for vm in ("small", "large"):
        for workers in (1, 2, 4, 8):
            for rate in (1e-3, 1e-2, 1e-1):
                for share in shares:
                    time_s, usd_per_h, accuracy = outcome(vm, workers, rate, share)
                    points.append({"vm": vm, "workers": workers, "rate": rate, "share": share})
                    runs.append(MeasuredRun(time_s, usd_per_h, {"accuracy": accuracy}, ()))
    space = Space.from_points(points)
    by_key = {space.key(point): run for point, run in zip(points, runs, strict=True)}
    return TableJob(by_key, space, ["accuracy"], "share", "made up")


def studied(goal: str = GOAL, strategy: str = "fabulinus", trials: int = 18, **options: Any) -> Study:
    job = table()
    result = tune(job, goal, 2.0, strategy, options, seed=1, max_trials=trials)
    return job, result, Problem(job.space, Goal.parse(goal), job.price, job.measures, "share")


@pytest.fixture(scope="module")
def study() -> Study:
    return studied(start_configurations=4)


@pytest.fixture(scope="module")
def told(study: Study) -> FractionAnalysis:
    _, result, problem = study
    found = fractions(result, problem, {"start_configurations": 4})
    assert found is not None
    return found


@pytest.fixture(scope="module")
def confirmation(study: Study) -> Confirmation:
    return confirm(study[0], study[1], 1.0)


@pytest.fixture(scope="module")
def document(study: Study, kit: Any) -> Any:
    return kit.read(tuning_report(study[1], study[2], options={"start_configurations": 4}))


class TestBeliefs:
    def test_the_curve_of_the_recommendation_ends_where_the_strategy_predicted(
        self, study: Study, told: FractionAnalysis
    ) -> None:
        prediction, leader = study[1].prediction, told.leaders[0]
        assert leader.configuration == study[1].recommended
        assert leader.answer == 1.0
        for growth in leader.growths:
            assert growth.fractions[-1] == pytest.approx(1.0)
            ends = (growth.spread.low[-1], growth.spread.middle[-1], growth.spread.high[-1])
            name = growth.measure.removesuffix("_usd")
            unit = "_usd" if growth.measure.endswith("_usd") else ""
            wanted = [prediction[f"{name}{word}{unit}"] for word in ("_low", "", "_high")]
            assert ends == pytest.approx(wanted, rel=1e-6)

    def test_trees_are_asked_where_trees_decided(self) -> None:
        _, result, problem = studied(surrogate="trees", start_configurations=4)
        found = fractions(result, problem, {"surrogate": "trees"})
        assert found is not None
        (accuracy,) = [g for g in found.leaders[0].growths if g.measure == "accuracy"]
        assert accuracy.spread.middle[-1] == pytest.approx(result.prediction["accuracy"], rel=1e-6)

    def test_dots_are_the_runs_of_that_configuration(self, study: Study, told: FractionAnalysis) -> None:
        for leader in told.leaders:
            other = {k: v for k, v in leader.configuration.items() if k != "share"}
            own = [t for t in study[1].trials if {**t.configuration, **other} == t.configuration]
            for growth in leader.growths:
                assert [(s, t.number) for s, t in growth.runs] == [
                    (t.configuration["share"], t.number) for t in own
                ]

    def test_leaders_are_distinct_and_few(self, told: FractionAnalysis) -> None:
        keys = {str({k: v for k, v in one.configuration.items() if k != "share"}) for one in told.leaders}
        assert len(keys) == len(told.leaders) == 3


class TestFrontier:
    def test_nothing_beats_what_is_on_it(self, told: FractionAnalysis) -> None:
        front = told.frontier
        assert front is not None
        assert front.quality == "accuracy"
        assert len(front.configurations) == 24
        cost, value = front.cost.middle, front.values.middle
        for place in range(24):
            beaten = any(
                cost[other] <= cost[place]
                and value[other] >= value[place]
                and (cost[other], value[other]) != (cost[place], value[place])
                for other in range(24)
            )
            assert beaten is (place not in front.best)

    @given(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20),
    )
    def test_by_brute_force(self, points: list[tuple[int, int]]) -> None:
        cost, loss = np.array(points, dtype=float).T
        found = {points[i] for i in _undominated(cost, loss)}
        assert found == {
            p for p in points if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)
        }

    def test_what_was_measured_stands_for_itself(self, study: Study, confirmation: Confirmation) -> None:
        _, result, problem = study
        found = fractions(result, problem, {}, confirmation)
        assert found is not None
        assert found.frontier is not None
        (place,) = [i for i, trial in enumerate(found.frontier.measured) if trial is not None]
        assert found.frontier.configurations[place] == result.recommended
        assert found.frontier.values.middle[place] == confirmation.trial.measures["accuracy"]
        assert (
            found.frontier.cost.low[place] == found.frontier.cost.high[place] == confirmation.trial.cost_usd
        )

    def test_a_goal_about_cost_takes_the_quality_from_its_constraint(self) -> None:
        _, result, problem = studied("minimise cost_usd subject to accuracy >= 0.9", "nephele", 12)
        found = fractions(result, problem, {})
        assert found is not None
        assert found.frontier is not None
        assert found.frontier.quality == "accuracy"
        assert result.best is not None
        assert found.leaders[0].configuration == result.best.configuration
        assert found.leaders[0].answer == result.best.configuration["share"]

    def test_without_a_measure_there_is_no_frontier(self) -> None:
        _, result, problem = studied("minimise cost_usd at full data", trials=12)
        found = fractions(result, problem, {})
        assert found is not None
        assert found.frontier is None
        assert [g.measure for g in found.leaders[0].growths] == ["cost_usd"]


class TestSaving:
    def test_the_sum_is_near_what_the_full_runs_really_cost(
        self, study: Study, told: FractionAnalysis
    ) -> None:
        job, result, problem = study
        full = {
            job.space.key({**t.configuration, "share": 1.0}): {**t.configuration, "share": 1.0}
            for t in result.trials
        }
        runs = [job.recorded(configuration) for configuration in full.values()]
        truth = math.fsum(run.time_s * run.usd_per_h / 3600 for run in runs)
        saving = told.saving
        assert saving.configurations == len(full)
        assert saving.spent_usd == pytest.approx(result.spent_usd)
        assert saving.low_usd < saving.full_usd < saving.high_usd
        assert saving.low_usd < truth < saving.high_usd
        assert saving.times == pytest.approx(saving.full_usd / result.spent_usd)
        assert problem.fraction == "share"

    def test_runs_on_the_full_data_count_as_they_were_paid(self) -> None:
        _, result, problem = studied(strategy="gp-eic", trials=6)
        assert all(t.configuration["share"] == 1.0 for t in result.trials)
        found = fractions(result, problem, {})
        assert found is not None
        assert found.saving.full_usd == pytest.approx(result.spent_usd)
        assert found.saving.low_usd == found.saving.high_usd


class TestTooLittle:
    def test_no_fraction_or_too_few_runs(self, study: Study) -> None:
        job, result, problem = study
        assert fractions(replace(result, trials=result.trials[:2]), problem, {}) is None
        whole = Problem(job.space, Goal.parse("maximise accuracy"), job.price, job.measures)
        assert fractions(result, whole, {}) is None

    def test_failed_runs_only(self, study: Study, kit: Any) -> None:
        _, result, problem = study
        failed: tuple[Trial, ...] = tuple(replace(t, status="failed", feasible=False) for t in result.trials)
        empty = replace(result, trials=failed, recommended=None, prediction={}, nearest=None, best=None)
        assert fractions(empty, problem, {}) is None
        assert "No run finished" in kit.read(tuning_report(empty, problem)).named("answer").text


class TestPage:
    def test_the_answer_is_told_as_a_prediction(self, study: Study, document: Any, kit: Any) -> None:
        answer, prediction = document.named("answer"), study[1].prediction
        assert "accuracy predicted on the full data" in answer.text
        assert "it has not been run on all of it" in answer.text
        rows = answer.all("tbody")[0].all("tr")
        assert [kit.values(row) for row in rows] == [
            [prediction["accuracy"]], [prediction["cost_usd"]], [prediction["time_s"]],
        ]  # fmt: skip
        assert "kept by the median" in rows[1].text
        pairs = zip(answer.all("dt"), answer.all("dd"), strict=True)
        assert {dt.text for dt, _ in pairs} == set(study[1].recommended or {})

    def test_the_section_is_honest_about_predictions(self, document: Any) -> None:
        section = document.named("fractions")
        for said in (
            "predicted for the same on the full data",
            "those runs were never made",
            "times as dear",
            "predicted where it was not run",
        ):
            assert said in section.text

    def test_figures_tell_measured_and_predicted_apart(
        self, document: Any, kit: Any, told: FractionAnalysis
    ) -> None:
        drawn = kit.figures(document)
        assert {name for name in drawn if name.startswith("growth")} == {
            f"growth-{row}-{column}" for row in range(2) for column in range(3)
        }
        first = drawn["growth-0-0"]
        by_name = {trace.get("name"): trace for trace in first["data"]}
        assert by_name["predicted"]["line"]["dash"] == "dash"
        assert by_name["the recommendation"]["marker"]["symbol"] == "star-open"
        front = drawn["frontier"]
        names = [trace.get("name") for trace in front["data"]]
        assert "predicted" in names
        assert "measured" not in names
        assert front["layout"]["shapes"][0]["x0"] == 0.05
        best = next(t for t in front["data"] if "none better" in t["name"])
        assert told.frontier is not None
        assert best["x"] == pytest.approx([float(told.frontier.cost.middle[i]) for i in told.frontier.best])
        assert set(best["marker"]["symbol"]) == {"circle-open"}

    def test_partial_runs_are_not_called_infeasible(self, document: Any) -> None:
        last = [row.all("td")[-2].text for row in document.named("trials").all("tbody")[0].all("tr")]
        assert set(last) == {"–"}

    def test_a_confirmation_is_set_beside_the_prediction(
        self, study: Study, confirmation: Confirmation, kit: Any
    ) -> None:
        page = kit.read(tuning_report(study[1], study[2], confirmation=confirmation))
        answer, prediction = page.named("answer"), study[1].prediction
        assert "accuracy measured on the full data" in answer.text
        assert "then run once" in answer.text
        rows = answer.all("tbody")[0].all("tr")
        for row, name in zip(rows, ("accuracy", "cost_usd", "time_s"), strict=True):
            assert kit.values(row) == [prediction[name], confirmation.trial.values[name]]
            assert ("in range" if confirmation.within[name] else "out of range") in row.text
        assert "Confirmed by a run on the full data" in page.named("confirmation").text
        drawn = kit.figures(page)
        assert any(trace.get("name") == "measured" for trace in drawn["frontier"]["data"])
        assert drawn["growth-0-0"]["data"][-1]["marker"]["symbol"] == "star"

    def test_a_confirmation_that_failed_says_why(
        self, study: Study, confirmation: Confirmation, kit: Any
    ) -> None:
        failed = replace(
            confirmation,
            trial=replace(confirmation.trial, status="failed", why="no <room>", measures={}),
            errors={},
            within={},
        )
        answer = kit.read(tuning_report(study[1], study[2], confirmation=failed)).named("answer")
        assert "The confirming run failed: no <room>" in answer.text
        assert "predicted on the full data" in answer.text
        assert "it has not been run to its end on all of it" in answer.text

    def test_nothing_keeps_the_goal(self, kit: Any) -> None:
        goal = "maximise accuracy at full data subject to cost_usd <= 0.0001 at full data"
        _, result, problem = studied(goal, start_configurations=4)
        answer = kit.read(tuning_report(result, problem)).named("answer")
        assert "Nothing is expected to keep the goal" in answer.text
        assert "missed by the median" in answer.text
        assert "Loosen the constraint" in answer.text

    def test_a_job_without_a_fraction_has_no_such_section(self, kit: Any) -> None:
        job = kit.job()
        result = tune(job, kit.GOAL, 0.3, "random", seed=1)
        page = tuning_report(result, kit.problem_of(job))
        assert 'id="fractions"' not in page


def test_on_measured_runs_of_a_real_network(kit: Any) -> None:
    """The real table: where it is at hand, predictions of most configurations hold the measured values."""
    folder = Path(os.environ.get("PRUDENT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
    path = folder / "tuning" / "trimtuner_cnn.csv"
    if not path.exists():
        pytest.skip("the table is not here; PRUDENT_DATA names its folder")
    names = ["vm_type", "n_workers", "learning_rate", "batch_size", "synchronous"]
    job = TableJob.read_csv(path, names, measures=["accuracy"], fraction="data_fraction")
    goal = "maximise accuracy at full data subject to cost_usd <= 0.1 at full data"
    result = tune(job, goal, 0.3, "fabulinus", seed=2, max_trials=30)
    problem = Problem(job.space, Goal.parse(goal), job.price, job.measures, "data_fraction")
    found = fractions(result, problem, {})
    assert found is not None
    assert found.frontier is not None
    front, hits = found.frontier, 0
    for place, configuration in enumerate(front.configurations):
        run = job.recorded(configuration)
        hits += bool(front.cost.low[place] <= run.time_s * run.usd_per_h / 3600 <= front.cost.high[place])
    assert hits / len(front.configurations) > 0.6
    assert found.saving.times > 2
    assert "fractions" in {
        e.attributes.get("id") for e in kit.read(tuning_report(result, problem)).everything()
    }
