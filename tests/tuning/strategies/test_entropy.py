"""Entropy search, prospects and predictions against what they mean, computed plainly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.strategies.candidates import FractionCandidates, FractionGrid
from prudent.tuning.strategies.entropy import (
    FAR,
    PosteriorDraws,
    information,
    information_of_marginals,
    joint_draws,
    joint_nodes,
)
from prudent.tuning.strategies.extrapolation import LOGIT, PLAIN
from prudent.tuning.strategies.goal_posterior import (
    INTERVAL_Z,
    FeasibleInterval,
    GoalPosterior,
    ScaledMeasure,
    bill_usd,
    goal_posterior,
    prediction_of,
)
from prudent.tuning.surrogates.product_gp import FractionSamples, FractionShape, ProductProcess


def cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def draws(seed: int, low: float = -FAR, high: float = FAR, count: int = 40, size: int = 5) -> PosteriorDraws:
    rng = np.random.default_rng(seed)
    tests = 3
    return PosteriorDraws(
        rng.standard_normal((count, size)),
        rng.standard_normal((tests, count)),
        0.6 * rng.random((tests, size)),
        rng.standard_normal(tests),
        0.5 + rng.random(tests),
        np.full(size, low),
        np.full(size, high),
    )


def searched(beliefs: list[PosteriorDraws], sign: float, offset: Any, nodes: int) -> list[float]:
    """E KL(p_opt | y) - KL(p_opt), one draw at a time."""
    points, weights = joint_nodes(len(beliefs), nodes)

    def kl(test: int | None, point: Any) -> float:
        count, size = beliefs[0].values.shape
        wins = np.zeros(size)
        for d in range(count):
            moved = []
            for b, belief in enumerate(beliefs):
                value = belief.values[d].copy()
                if test is not None:
                    outcome = belief.centre[test] + belief.spread[test] * point[b]
                    value += belief.gain[test] * (outcome - belief.outcomes[test, d])
                moved.append(value)
            miss = np.zeros(size)
            for belief, value in zip(beliefs, moved, strict=True):
                miss = np.maximum(miss, np.maximum(value - belief.upper, belief.lower - value))
            worth = sign * (moved[0] + offset)
            # Where nothing is allowed, the one that misses by least.
            allowed = np.where(miss <= 0, worth, -1e20 * (1 + miss))
            wins[int(allowed.argmax())] += 1
        p = wins[wins > 0] / count
        return math.log(size) + float((p * np.log(p)).sum())

    now = kl(None, points[0])
    told = [
        sum(w * kl(test, point) for point, w in zip(points, weights, strict=True))
        for test in range(len(beliefs[0].centre))
    ]
    return [one - now for one in told]


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    "bounds",
    [[], [(-0.7, 0.9)], [(-FAR, 0.1), (0.2, FAR)], [(2.5, 2.6)]],
    ids=["none", "one", "two", "tight"],
)
def test_information_is_that_of_counted_draws(sign: float, bounds: list[tuple[float, float]]) -> None:
    beliefs = [draws(1), *(draws(2 + k, low, high) for k, (low, high) in enumerate(bounds))]
    offset = np.array([0.3, -0.2, 0.0, 0.5, -0.1])
    found = information(beliefs, sign, offset, 3)
    assert found == pytest.approx(searched(beliefs, sign, offset, 3), abs=1e-9)
    assert np.ptp(found) > 1e-3


def test_bounds_on_the_objective_itself_count() -> None:
    one = draws(3, -0.5, 0.4)
    offset = np.zeros(5)
    assert information([one], 1.0, offset, 5) == pytest.approx(searched([one], 1.0, offset, 5), abs=1e-9)


def test_joint_draws_are_the_posterior_of_one_setting_driven_by_the_normals() -> None:
    rng = np.random.default_rng(6)
    X, s = rng.random((9, 2)), rng.choice([0.05, 0.2, 0.5], 9)
    samples = FractionSamples(X, s, 2.0 + np.sin(3 * X[:, 0]) + 0.3 * np.log(s), np.zeros(9))
    process = ProductProcess.fit(
        samples,
        rng.random((6, 2)),
        np.array([0.05, 0.2, 0.5, 1, 1, 1.0]),
        FractionShape(),
        [slice(0, 1), slice(1, 2)],
        1,
    )
    tests, chosen = np.array([0, 2]), np.array([3, 4, 5])
    normals = rng.standard_normal((7, 4))
    found = joint_draws(process, 1, tests, chosen, normals, (np.full(3, -math.inf), np.array([1.0, 2, 3])))
    part, unit = process.components[1], process.scale.deviation
    mean = part.mean * unit + process.scale.mean + process.offset
    size = unit * math.sqrt(part.variance)
    factor = np.linalg.cholesky(process.between(1, chosen, chosen))
    cross = process.between(1, tests, chosen)
    within = np.linalg.solve(factor, cross.T)
    variance = part.share[tests] + part.noise
    own = np.sqrt(variance - (within**2).sum(axis=0))
    assert found.values == pytest.approx(mean[chosen] + size * normals[:, :3] @ factor.T, abs=1e-5)
    outcomes = mean[tests] + size * (normals[:, :3] @ within + normals[:, 3:] * own)
    assert found.outcomes == pytest.approx(outcomes.T, abs=1e-5)
    assert found.gain == pytest.approx(cross / variance[:, None], abs=1e-6)
    assert found.centre == pytest.approx(mean[tests])
    assert found.spread == pytest.approx(size * np.sqrt(variance))
    assert found.lower.tolist() == [-FAR] * 3
    assert found.upper.tolist() == [1.0, 2.0, 3.0]
    free = joint_draws(process, 1, tests, chosen, normals)
    assert (free.lower.tolist(), free.upper.tolist()) == ([-FAR] * 3, [FAR] * 3)


def test_marginals_are_counted_independently() -> None:
    rng = np.random.default_rng(8)
    mean, std, normals = (
        rng.standard_normal((2, 3, 4)),
        0.3 + rng.random((2, 3, 4)),
        rng.standard_normal((50, 4)),
    )
    now, weights = (rng.standard_normal(4), 0.5 + rng.random(4)), np.array([0.2, 0.5, 0.3])

    def kl(m: Any, d: Any) -> float:
        wins = np.bincount((m + d * normals).argmax(axis=1), minlength=4) / len(normals)
        return math.log(4) + sum(p * math.log(p) for p in wins if p > 0)

    expected = [
        sum(w * kl(mean[k, j], std[k, j]) for j, w in enumerate(weights)) - kl(*now) for k in range(2)
    ]
    assert information_of_marginals(mean, std, weights, now, normals) == pytest.approx(expected)


def test_the_nodes_of_several_beliefs_are_a_cross() -> None:
    points, weights = joint_nodes(2, 7)
    reach = math.sqrt(3)
    assert points == pytest.approx(np.array([[0, 0], [reach, 0], [0, reach], [-reach, 0], [0, -reach]]))
    assert weights == pytest.approx([1 / 3, 1 / 6, 1 / 6, 1 / 6, 1 / 6])
    line, shares = joint_nodes(1, 3)
    assert line[:, 0] == pytest.approx([-math.sqrt(3), 0, math.sqrt(3)])
    assert shares == pytest.approx([1 / 6, 2 / 3, 1 / 6])


# Prospects


class Sure:
    """A curve of numbers made up; a test at a place takes half of the doubt away everywhere."""

    def __init__(self, mean: list[float], std: list[float]) -> None:
        self.mean, self.std = np.array(mean), np.array(std)

    def after(self, tests: Any, targets: Any) -> tuple[Any, Any]:
        shape = (len(tests), len(targets))
        return np.broadcast_to(self.mean[targets], shape), np.broadcast_to(self.std[targets] / 2, shape)


def problem(goal: str, minimum_s: float = 0.0, boot_s: float = 0.0) -> Problem:
    space = Space.parse({"n": [1, 4], "s": [0.1, 1.0]})

    def price(c: dict[str, Any]) -> Price:
        return Price(3.6 * c["n"], "", "", minimum_s, 0.0, boot_s)

    return Problem(space, Goal.parse(goal), price, ("accuracy", "loss"), "s")


def field(of: Problem) -> FractionCandidates:
    return FractionGrid(of, 1).pool_for(History(of.goal))


COST = Sure([-4.0, -2.0, -3.0, -0.5], [0.3, 0.5, 0.4, 0.6])
QUALITY = Sure([0.5, 1.5, 0.2, 2.0], [0.4, 0.2, 0.6, 0.1])


def prospect(goal: str, **more: float) -> tuple[GoalPosterior, FractionCandidates]:
    of = problem(goal, **more)
    here = field(of)
    works = np.array([1.0, 0.9, 0.8, 0.7])
    return goal_posterior(
        of.goal, here, COST, {"accuracy": (QUALITY, LOGIT), "loss": (QUALITY, PLAIN)}, works
    ), here


def test_constraints_become_bands_on_the_scales_of_the_beliefs() -> None:
    goal = (
        "maximise accuracy at full data subject to cost_usd <= 0.3 at full data, time_s <= 100 at full data, "
        "cost_usd >= 0.01 at full data, accuracy >= 0.6 at full data"
    )
    said, here = prospect(goal)
    log_price = np.log(np.array([3.6, 3.6, 14.4, 14.4]) / 3600)
    assert here.log_price == pytest.approx(log_price)
    cost, quality = said.intervals
    assert (cost.curve, quality.curve, said.sign) == (COST, QUALITY, 1.0)
    assert cost.upper == pytest.approx(np.minimum(math.log(0.3), math.log(100) + log_price))
    assert cost.lower == pytest.approx(np.full(4, math.log(0.01)))
    assert quality.lower == pytest.approx(np.full(4, math.log(0.6 / 0.4)))
    assert (quality.upper == math.inf).all()
    chance = [
        works
        * (cdf((u - m) / d) - cdf((math.log(0.01) - m) / d))
        * (1 - cdf((math.log(1.5) - q) / e))
        for works, u, m, d, q, e in zip(
            said.works, cost.upper, COST.mean, COST.std, QUALITY.mean, QUALITY.std, strict=True
        )
    ]  # fmt: skip
    assert said.probability(np.arange(4)) == pytest.approx(chance)
    after = said.probability_after(np.array([0]), np.array([1, 3]))
    upper = cost.upper[1]
    assert after[0, 0] == pytest.approx(
        0.9
        * (cdf((upper + 2) / 0.25) - cdf((math.log(0.01) + 2) / 0.25))
        * (1 - cdf((math.log(1.5) - 1.5) / 0.1))
    )  # fmt: skip
    miss = np.maximum(COST.mean - cost.upper, 0) + np.maximum(math.log(0.01) - COST.mean, 0)
    miss += np.maximum(math.log(1.5) - QUALITY.mean, 0)
    assert said.excess(np.arange(4)) == pytest.approx(miss)


def test_a_minimum_that_costs_more_than_is_allowed_leaves_no_chance() -> None:
    goal = "maximise accuracy at full data subject to cost_usd <= 0.05 at full data"
    # 20 s at 0.001 and at 0.004 dollars a second.
    said, _ = prospect(goal, minimum_s=20.0)
    assert said.intervals[0].upper == pytest.approx([math.log(0.05), math.log(0.05), -math.inf, -math.inf])
    just, _ = prospect(goal.replace("0.05", "0.08"), minimum_s=20.0)
    assert np.isfinite(just.intervals[0].upper).all()


@pytest.mark.parametrize(
    ("goal", "sign", "values"),
    [
        ("minimise cost_usd at full data", -1.0, np.exp(COST.mean)),
        ("minimise time_s at full data", -1.0, np.exp(COST.mean) / np.array([1, 1, 4, 4]) * 1000),
        ("maximise accuracy at full data", 1.0, 1 / (1 + np.exp(-QUALITY.mean))),
        ("minimise loss at full data", -1.0, QUALITY.mean),
    ],
)
def test_the_objective_in_its_own_units(goal: str, sign: float, values: Any) -> None:
    said, _ = prospect(goal)
    places = np.arange(4)
    assert said.value(said.objective.curve.mean, places) == pytest.approx(sign * values)


def test_the_recommended_place_is_the_best_that_is_sure_else_the_likeliest_else_the_nearest() -> None:
    places = np.array([1, 2, 3])
    none = np.zeros(4)
    interval = FeasibleInterval(COST, none - math.inf, none - 1.9)
    said = GoalPosterior(ScaledMeasure(QUALITY, PLAIN, none), 1.0, (interval,), np.ones(4))
    # P(cost <= -1.9) is 0.58, 0.997, 0.01 there.
    assert said.recommended(places, 0.5) == 1
    assert said.recommended(places, 0.99) == 2
    assert said.recommended(places, 0.9999) == 2
    hopeless = GoalPosterior(
        said.objective, 1.0, (FeasibleInterval(COST, none + 1.0, none + math.inf),), np.ones(4)
    )
    assert hopeless.recommended(places, 0.5) == 3
    assert hopeless.recommended(np.array([0, 1]), 0.5) == 1
    # With a chance of a hundredth it is the likeliest, below it the nearest.
    spread = Sure([0.0, 3.0], [1.0, 9.0])
    for shift, place in ((0.01, 1), (-0.01, 0)):
        bound = np.full(2, -math.inf), np.array([-2.5, 3.0 - 9.0 * 2.3263478740408408 + 9.0 * shift])
        assert (
            GoalPosterior(
                ScaledMeasure(spread, PLAIN, np.zeros(2)),
                1.0,
                (FeasibleInterval(spread, *bound),),
                np.ones(2),
            ).recommended(np.arange(2), 0.99)
            == place
        )


def test_cea_counts_an_objective_that_may_be_negative_by_its_rank() -> None:
    tests, places = np.array([0, 1]), np.array([1, 2, 3])
    none = np.zeros(4)
    interval = FeasibleInterval(COST, none - math.inf, none - 1.9)
    works = np.array([1.0, 1.0, 0.9, 1.0])
    chance = [cdf(0.1 / 0.25), 0.9 * cdf(1.1 / 0.2), cdf(-1.4 / 0.3)]
    for sign, value in ((1.0, [1.5, 0.2, 2.0]), (-1.0, [(2 - 1.5) / 1.8, 1.0, 0.0])):
        said = GoalPosterior(ScaledMeasure(QUALITY, PLAIN, none), sign, (interval,), works)
        best = max((i for i in range(3) if chance[i] >= 0.6), key=lambda i: value[i])
        assert said.cea(tests, places, 0.6) == pytest.approx([value[best] * chance[best]] * 2)


def test_the_bill_of_a_run_has_what_is_beside_it_and_is_at_least_the_least() -> None:
    of = problem("maximise accuracy at full data", 20.0, 10.0)
    here = field(of)
    wild = Sure([-9.0, -2.0, -3.0, -0.5], [0.3, 0.5, 0.4, 2.5])
    prices = np.array([0.001, 0.001, 0.004, 0.004])
    own = np.exp(wild.mean + np.array([0.3, 0.5, 0.4, 1.5]) ** 2 / 2)
    expected = np.maximum(own + 10 * prices, 20 * prices)
    assert bill_usd(here, wild, np.arange(4)) == pytest.approx(expected)
    assert bill_usd(here, wild, np.array([3, 0])) == pytest.approx(expected[[3, 0]])


# Predictions


def test_a_prediction_tells_median_deviation_and_interval_of_everything() -> None:
    of = problem("maximise accuracy at full data subject to cost_usd <= 0.2 at full data")
    ground = FractionGrid(of, 1)
    here = ground.pool_of(of.candidates([{"n": 4, "s": 1.0}]), History(of.goal))
    cost, quality = Sure([-2.0], [0.3]), Sure([1.2], [0.5])
    measures: Any = {"accuracy": (quality, LOGIT)}
    said = prediction_of(here, cost, measures, goal_posterior(of.goal, here, cost, measures, np.array([0.9])))
    z = np.linspace(-9, 9, 20_001)
    weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    shift = -math.log(14.4 / 3600)
    for name, unit, curve, back, offset in (
        ("accuracy", "", quality, lambda y: 1 / (1 + np.exp(-y)), 0.0),
        ("cost", "_usd", cost, np.exp, 0.0),
        ("time", "_s", cost, np.exp, shift),
    ):
        centre, spread = curve.mean[0] + offset, curve.std[0]
        values = back(centre + spread * z)
        deviation = math.sqrt((weight * values**2).sum() - (weight * values).sum() ** 2)
        assert said[f"{name}{unit}"] == pytest.approx(back(centre))
        assert said[f"{name}_low{unit}"] == pytest.approx(back(centre - 1.959964 * spread), rel=1e-6)
        assert said[f"{name}_high{unit}"] == pytest.approx(back(centre + 1.959964 * spread), rel=1e-6)
        assert said[f"{name}_std{unit}"] == pytest.approx(deviation, rel=1e-4)
    assert said["probability_feasible"] == pytest.approx(0.9 * cdf((math.log(0.2) + 2) / 0.3))
    assert len(said) == 13
    assert cdf(INTERVAL_Z) == pytest.approx(0.975, abs=1e-12)
