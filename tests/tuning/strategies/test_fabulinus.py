"""Fabolas and Fabulinus: entropy, CEA and incumbents against brute force; what a user gets from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import prudent
from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.confirm import confirm
from prudent.tuning.goal import Goal
from prudent.tuning.jobs.table import MeasuredRun, TableJob
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.candidates import FractionGrid
from prudent.tuning.strategies.entropy import (
    FAR,
    PosteriorDraws,
    information,
    information_of_marginals,
    joint_draws,
    joint_nodes,
)
from prudent.tuning.strategies.extrapolation import LOG, LOGIT, PLAIN, GPCurve, warp_for
from prudent.tuning.strategies.goal_posterior import FeasibleInterval, GoalPosterior, ScaledMeasure, incumbent
from prudent.tuning.strategies.strategy import PredictiveStrategy
from prudent.tuning.study.study import Study
from prudent.tuning.surrogates.product_gp import FractionSamples, FractionShape, ProductProcess

GOAL = "maximise accuracy at full data subject to cost_usd <= 0.05 at full data"
FRACTIONS = (0.02, 0.1, 0.3, 1.0)
QUICK = {"start_configurations": 4}


def outcome(vm: str, workers: int, rate: float, share: float) -> tuple[float, float, float]:
    """Seconds, dollars per hour, accuracy: more workers are dearer, a middling rate is best."""
    speed, usd = {"small": (1.0, 0.1), "large": (3.0, 0.35)}[vm]
    time_s = 4 + 900 * share / (speed * workers**0.8)
    error = (0.02 + 0.1 * abs(math.log10(rate) + 2) + 0.004 * workers) * share**-0.4
    return time_s, usd * workers, 1 - min(error, 0.9)


def table(fractions: tuple[float, ...] = FRACTIONS) -> TableJob:
    points, runs = [], []
    for vm in ("small", "large"):
        for workers in (1, 2, 4, 8):
            for rate in (1e-4, 1e-3, 1e-2, 1e-1):
                for share in fractions:
                    time_s, usd_per_h, accuracy = outcome(vm, workers, rate, share)
                    points.append({"vm": vm, "workers": workers, "rate": rate, "share": share})
                    runs.append(MeasuredRun(time_s, usd_per_h, {"accuracy": accuracy}, ()))
    space = Space.from_points(points)
    by_key = {space.key(point): run for point, run in zip(points, runs, strict=True)}
    return TableJob(by_key, space, ["accuracy"], "share", "made up")


def full_cost(job: TableJob, configuration: dict[str, Any]) -> float:
    run = job.recorded(configuration)
    return run.time_s * run.usd_per_h / 3600


def study_of(job: TableJob, name: str = "fabulinus", **options: Any) -> Study:
    return Study(
        job.space, GOAL, job.price, 1.0, name, {**QUICK, **options}, measures=job.measures, fraction="share"
    )


def advance(study: Study, job: TableJob, trials: int) -> list[dict[str, Any]]:
    asked = []
    for _ in range(trials):
        ask = study.ask()
        if ask is None:
            break
        run = job.recorded(ask.configuration)
        study.tell(ask.number, time_s=run.time_s, measures=run.measures)
        asked.append(ask.configuration)
    return asked


# Entropy


def kl(p: np.ndarray) -> float:
    p = p[p > 0]
    return float((p * np.log(p)).sum())


def gaussian_draws(count: int, seed: int = 0) -> tuple[PosteriorDraws, np.ndarray, np.ndarray, float]:
    """A joint Gaussian over two representers and one noisy test of the first, drawn from directly."""
    mean = np.array([0.3, 0.0])
    cov = np.array([[1.0, 0.2], [0.2, 0.8]])
    noise = 0.1
    rng = np.random.default_rng(seed)
    values = rng.multivariate_normal(mean, cov, size=count)
    outcomes = values[:, 0] + math.sqrt(noise) * rng.standard_normal(count)
    variance = cov[0, 0] + noise
    gain = cov[:, 0] / variance
    far = np.full(2, FAR)
    draws = PosteriorDraws(
        values, outcomes[None], gain[None], mean[:1], np.array([math.sqrt(variance)]), -far, far
    )
    return draws, mean, cov, noise


def test_entropy_search_is_the_closed_form_of_two_representers() -> None:
    draws, mean, cov, noise = gaussian_draws(40_000)
    gap = np.array([1.0, -1.0])
    spread = math.sqrt(gap @ cov @ gap)
    first = norm.cdf(gap @ mean / spread)
    now = kl(np.array([first, 1 - first]))
    points, weights = joint_nodes(1, 5)
    variance = cov[0, 0] + noise
    after = cov - np.outer(cov[:, 0], cov[:, 0]) / variance
    expected = 0.0
    for z, weight in zip(points[:, 0], weights, strict=True):
        moved = mean + cov[:, 0] / math.sqrt(variance) * z
        first = norm.cdf(gap @ moved / math.sqrt(gap @ after @ gap))
        expected += weight * kl(np.array([first, 1 - first]))
    found = information([draws], 1.0, np.zeros(2), 5)
    assert found[0] == pytest.approx(expected - now, abs=0.01)
    # What is minimised is the mirror image.
    mirrored = PosteriorDraws(
        -draws.values, -draws.outcomes, draws.gain, -draws.centre, draws.spread, draws.lower, draws.upper
    )
    assert information([mirrored], -1.0, np.zeros(2), 5)[0] == pytest.approx(found[0], abs=1e-9)


def test_a_constraint_known_to_hold_changes_nothing_and_one_known_to_break_moves_the_optimum() -> None:
    draws, *_ = gaussian_draws(4_000)
    plain = information([draws], 1.0, np.zeros(2), 3)
    cost = PosteriorDraws(
        np.zeros((4_000, 2)), np.zeros((1, 4_000)), np.zeros((1, 2)), np.zeros(1), np.ones(1),
        np.full(2, -FAR), np.full(2, 1.0),
    )  # fmt: skip
    assert information([draws, cost], 1.0, np.zeros(2), 3)[0] == pytest.approx(plain[0])
    only_second = PosteriorDraws(
        cost.values, cost.outcomes, cost.gain, cost.centre, cost.spread, cost.lower, np.array([-1.0, 1.0])
    )
    # Only one representer is allowed: where the optimum lies is known, no test tells more.
    assert information([draws, only_second], 1.0, np.zeros(2), 3)[0] == pytest.approx(0.0)


def test_marginals_are_searched_as_independent_gaussians() -> None:
    normals = np.random.default_rng(1).standard_normal((20_000, 2))
    now = np.array([0.0, 0.0]), np.array([1.0, 1.0])
    mean = np.array([[[1.0, 0.0], [-1.0, 0.0]]])
    std = np.full((1, 2, 2), 0.5)
    first = norm.cdf(1.0 / math.sqrt(0.5))
    expected = kl(np.array([first, 1 - first])) + math.log(2)
    found = information_of_marginals(mean, std, np.array([0.5, 0.5]), now, normals)
    assert found[0] == pytest.approx(expected, abs=0.01)


def process(seed: int = 0) -> ProductProcess:
    rng = np.random.default_rng(seed)
    X, s = rng.random((14, 2)), rng.choice([0.02, 0.1, 0.5], 14)
    samples = FractionSamples(X, s, np.sin(3 * X[:, 0]) + 0.3 * np.log(s), np.zeros(14))
    places = rng.random((8, 2))
    fractions = np.array([0.1, 0.5, 0.1, 0.5, 1.0, 1.0, 1.0, 1.0])
    return ProductProcess.fit(samples, places, fractions, FractionShape(), [slice(0, 1), slice(1, 2)], 1)


def test_joint_draws_have_the_moments_of_the_posterior() -> None:
    belief, tests, chosen = process(), np.array([0, 1]), np.array([4, 5, 6, 7])
    normals = np.random.default_rng(2).standard_normal((60_000, 5))
    draws = joint_draws(belief, 0, tests, chosen, normals)
    part, unit = belief.components[0], belief.scale.deviation
    cov = belief.between(0, chosen, chosen) * part.variance * unit**2
    assert np.allclose(draws.values.mean(axis=0), part.mean[chosen] * unit + belief.scale.mean, atol=0.02)
    assert np.allclose(np.cov(draws.values.T), cov, atol=0.03 * np.abs(cov).max())
    cross = belief.between(0, tests, chosen) * part.variance * unit**2
    for row in range(2):
        both = np.cov(draws.outcomes[row], draws.values.T)
        assert both[0, 0] == pytest.approx(draws.spread[row] ** 2, rel=0.03)
        assert np.allclose(both[0, 1:], cross[row], atol=0.03 * np.abs(cov).max())
        # Moved to an outcome, the draws are those of the posterior given it.
        moved = draws.values + draws.gain[row] * (0.5 - draws.outcomes[row][:, None])
        given = cov - np.outer(cross[row], cross[row]) / draws.spread[row] ** 2
        assert np.allclose(np.cov(moved.T), given, atol=0.03 * np.abs(cov).max())
    assert multivariate_normal(np.zeros(4), cov + 1e-9 * np.eye(4)).pdf(np.zeros(4)) > 0


@pytest.mark.parametrize("beliefs", [1, 2, 3, 4])
def test_nodes_keep_mean_and_variance(beliefs: int) -> None:
    points, weights = joint_nodes(beliefs, 3)
    assert weights.sum() == pytest.approx(1.0)
    assert np.allclose(weights @ points, 0.0)
    assert np.allclose(points.T @ (weights[:, None] * points), np.eye(beliefs))


# Incumbent and CEA


def test_cea_is_what_the_incumbent_of_a_refit_promises() -> None:
    quality, cost = GPCurve(process(0)), GPCurve(process(1))
    tests, targets = np.arange(4), np.array([4, 5, 6, 7])
    none = np.zeros(8)
    upper = none + float(cost.mean[targets].mean()) + 1.5 * float(cost.std[targets].mean())
    prospect = GoalPosterior(
        ScaledMeasure(quality, LOGIT, none), 1.0, (FeasibleInterval(cost, none - np.inf, upper),), np.ones(8)
    )
    found = prospect.cea(tests, targets, 0.9)
    for row, test in enumerate(tests):
        inner, means = np.zeros(4), []
        for h, part in enumerate(cost.process.components):
            every = np.append(targets, test)
            cov = cost.process.between(h, every, every)
            noisy = cov[-1, -1] + part.noise
            inner += part.variance * (np.diag(cov)[:-1] - cov[-1, :-1] ** 2 / noisy)
            means.append(part.mean[targets])
        count = len(cost.process.components)
        std = np.sqrt(inner / count + np.var(means, axis=0)) * cost.process.scale.deviation
        chance = norm.cdf((upper[targets] - cost.mean[targets]) / std)
        value = 1 / (1 + np.exp(-quality.mean[targets]))
        allowed = [i for i in range(4) if chance[i] >= 0.9]
        best = max(allowed, key=lambda i: value[i]) if allowed else int(chance.argmax())
        assert found[row] == pytest.approx(value[best] * chance[best], rel=1e-6)


def test_the_incumbent_is_the_best_that_is_sure_or_else_the_surest() -> None:
    value, chance = np.array([3.0, 2.0, 1.0]), np.array([0.6, 0.99, 0.999])
    assert int(incumbent(value, chance, 0.99)) == 1
    assert int(incumbent(value, chance, 0.9999)) == 2


def test_measures_are_seen_on_a_scale_that_suits_them() -> None:
    assert warp_for(np.array([0.0, 0.98])) is LOGIT
    assert warp_for(np.array([0.5, 3.0])) is LOG
    assert warp_for(np.array([-0.5, 3.0])) is PLAIN
    values = np.array([0.1, 0.5, 0.99])
    for warp in (LOGIT, LOG, PLAIN):
        assert np.allclose(warp.back(warp.forward(values)), values)


# What a user gets


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fabulinus", {}),
        ("fabulinus", {"acquisition": "es"}),
        ("fabulinus", {"surrogate": "trees"}),
        ("fabolas", {}),
    ],
)
def test_finds_a_good_full_data_configuration_without_ever_running_one(
    name: str, options: dict[str, Any]
) -> None:
    job = table()
    study = study_of(job, name, **options)
    asked = advance(study, job, 20)
    assert all(configuration["share"] < 1 for configuration in asked)
    assert len({job.space.key(c) for c in asked}) == len(asked)
    recommended = study.recommended
    assert recommended is not None
    assert recommended["share"] == 1.0
    assert full_cost(job, recommended) <= 0.05
    full = [c for c in job.space.configurations() if c["share"] == 1.0]
    allowed = [job.recorded(c).measures["accuracy"] for c in full if full_cost(job, c) <= 0.05]
    assert max(allowed) - job.recorded(recommended).measures["accuracy"] < 0.02
    assert study.spent_usd < 0.5 * sum(full_cost(job, c) for c in full) / len(full) * len(asked)


def test_the_same_seed_recommends_and_predicts_the_same() -> None:
    job = table()
    answers = []
    for _ in range(2):
        study = study_of(job)
        advance(study, job, 9)
        assert isinstance(study.strategy, PredictiveStrategy)
        recommended = study.recommended
        assert recommended is not None
        answers.append((recommended, study.strategy.predict(study.history, recommended)))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "goal",
    [
        "minimise cost_usd at full data subject to accuracy >= 0.9 at full data",
        "minimise time_s at full data subject to cost_usd <= 0.1 at full data, accuracy >= 0.9 at full data",
        "maximise accuracy at full data",
    ],
)
def test_any_measure_can_be_the_goal(goal: str) -> None:
    job = table()
    result = prudent.tune(job, goal, 0.3, "fabulinus", QUICK, seed=2, max_trials=14)
    assert result.recommended is not None
    truth = job.recorded(result.recommended)
    values = {
        **truth.measures,
        "time_s": truth.time_s,
        "cost_usd": full_cost(job, result.recommended),
    }
    parsed = Goal.parse(goal)
    assert parsed.feasible(values)
    everyone = [job.recorded(c) for c in job.space.configurations() if c["share"] == 1.0]
    losses = sorted(
        parsed.loss(
            {**r.measures, "time_s": r.time_s, "cost_usd": r.time_s * r.usd_per_h / 3600}[parsed.measure]
        )
        for r in everyone
    )
    assert parsed.loss(values[parsed.measure]) <= losses[len(losses) // 2]


def test_the_first_trials_are_thrifty_or_as_published() -> None:
    job = table()
    thrifty = advance(study_of(job), job, 6)
    assert [c["share"] for c in thrifty[:4]] == [0.02] * 4
    assert [c["share"] for c in thrifty[4:]] == [0.1, 0.3]
    assert len({(c["vm"], c["workers"], c["rate"]) for c in thrifty[4:]}) == 1
    every = advance(study_of(job, start_fractions="every", start_configurations=2), job, 6)
    assert sorted(c["share"] for c in every) == [0.02, 0.02, 0.1, 0.1, 0.3, 0.3]


def test_a_prediction_has_an_interval_and_a_confirmation_says_how_far_off_it_was() -> None:
    job = table()
    result = prudent.tune(job, GOAL, 0.5, "fabulinus", QUICK, seed=1, max_trials=14)
    told = result.prediction
    assert told["accuracy_low"] < told["accuracy"] < told["accuracy_high"] <= 1.0
    assert told["cost_low_usd"] < told["cost_usd"] < told["cost_high_usd"]
    assert told["probability_feasible"] >= 0.99
    confirmed = confirm(job, result)
    truth = job.recorded(result.recommended or {})
    assert confirmed.trial.finished
    assert confirmed.spent_usd == pytest.approx(truth.time_s * truth.usd_per_h / 3600)
    assert confirmed.errors["accuracy"] == pytest.approx(truth.measures["accuracy"] - told["accuracy"])
    is_within = told["accuracy_low"] <= truth.measures["accuracy"] <= told["accuracy_high"]
    assert confirmed.within["accuracy"] == is_within
    assert set(confirmed.to_dict()) == {"trial", "prediction", "errors", "within", "spent_usd", "over_usd"}


def test_nothing_is_predicted_before_anything_ran() -> None:
    study = study_of(table())
    assert study.recommended is None
    assert isinstance(study.strategy, PredictiveStrategy)
    assert study.strategy.predict(study.history, {"vm": "small"}) == {}


def test_a_constraint_that_nothing_keeps_recommends_what_comes_nearest() -> None:
    job = table()
    goal = "maximise accuracy at full data subject to cost_usd <= 0.0001 at full data"
    result = prudent.tune(job, goal, 0.2, "fabulinus", QUICK, max_trials=10)
    assert result.recommended is not None
    costs = sorted(full_cost(job, c) for c in job.space.configurations() if c["share"] == 1.0)
    assert full_cost(job, result.recommended) <= costs[len(costs) // 3]
    assert result.prediction["probability_feasible"] < 0.5


def test_failed_runs_are_kept_away_from() -> None:
    job = table()
    study = study_of(job)
    for _ in range(14):
        ask = study.ask()
        assert ask is not None
        if ask.configuration["vm"] == "large":
            study.tell(ask.number, time_s=1.0, status="failed", why="no memory")
        else:
            run = job.recorded(ask.configuration)
            study.tell(ask.number, time_s=run.time_s, measures=run.measures)
    recommended = study.recommended
    assert recommended is not None
    assert recommended["vm"] == "small"


# Bad input


def test_a_job_without_a_fraction_is_refused() -> None:
    problem = Problem(
        Space.parse({"n": [1, 2]}), Goal.parse("minimise cost_usd"), lambda _: Price(1.0, "", "test")
    )
    with pytest.raises(BadInput, match="names no fraction; add"):
        FractionGrid(problem, 0)


def test_a_fraction_that_is_always_one_is_refused() -> None:
    with pytest.raises(BadInput, match="no value below 1"):
        study_of(table((1.0,)))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("surrogate", "tree", "Did you mean"),
        ("acquisition", "ei", "acquisition"),
        ("beta", 0.0, "beta must be above 0"),
        ("draws", 1, "draws must be at least 8"),
        ("overhead_usd", 0.0, "overhead_usd must be above 0"),
        ("confidence", 1.0, "confidence must be"),
        ("lookahed", 1, "option of fabulinus"),
    ],
)
def test_a_wrong_option_is_named(option: str, value: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        study_of(table(), **{option: value})


def test_fractions_of_a_range_form_a_ladder() -> None:
    space = Space.parse({"n": [1, 2], "s": {"log": [0.01, 1.0]}})
    problem = Problem(
        space, Goal.parse("minimise cost_usd at full data"), lambda _: Price(1.0, "", ""), (), "s"
    )
    ladder = FractionGrid(problem, 0).ladder
    assert ladder[-1] == 1.0
    assert list(ladder) == sorted(ladder)
    assert ladder[0] == pytest.approx(0.01)
