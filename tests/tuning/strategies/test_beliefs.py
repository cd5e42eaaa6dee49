"""Beliefs: the formulas behind the models, written out, and what each trial tells them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Constraint, Goal
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.strategies import beliefs, margins, nephele
from prudent.tuning.strategies.beliefs import (
    RegressionTargets,
    ShiftedBelief,
    SurrogateFitter,
    TreesBelief,
    last_refit,
    price_slope,
)
from prudent.tuning.strategies.candidates import FractionGrid
from prudent.tuning.strategies.extrapolation import (
    LOG,
    LOGIT,
    PLAIN,
    Extrapolator,
    TreesCurve,
    warp_for,
)
from prudent.tuning.strategies.hyperband import (
    LEAST_WIDTH,
    Rung,
    brackets,
    log_density,
    rank_key,
    time_exponent,
)
from prudent.tuning.strategies.lynceus import first_cap_usd
from prudent.tuning.strategies.margins import MeasureScale, margins_of
from prudent.tuning.strategies.nephele import dropped
from prudent.tuning.surrogates.product_gp import FractionSamples, power_law
from prudent.tuning.trial import CUT, FAILED, FINISHED, Trial

GOAL = Goal.parse("minimise cost_usd subject to accuracy >= 0.8")


def trial(number: int, n: int = 1, status: str = FINISHED, time_s: float = 100.0, **more: Any) -> Trial:
    cost = time_s * n / 3600
    known = {"cost_usd": cost, "spent_usd": cost, "measures": {}, "feasible": False, **more}
    return Trial(number, {"n": n, "s": 1.0}, status, time_s, **known)


def problem(
    goal: Goal = GOAL, usd: float = 1.0, minimum_s: float = 0.0, fraction: str | None = None
) -> Problem:
    space = Space.parse({"n": [1, 2, 3, 4, 6, 8], "s": [0.1, 0.5, 1.0]})
    measures = ("accuracy", "loss", "memory_mb")
    return Problem(space, goal, lambda c: Price(usd * c["n"], "", "", minimum_s), measures, fraction)


class TestCheckpoint:
    def test_hyper_parameters_are_weighed_each_time_at_first_and_then_ever_rarer(self) -> None:
        assert [last_refit(n) for n in range(26)] == [*range(25), 24]
        # From 48 samples on every 8, from 96 on every 16, from 192 on every 32.
        found = {n: last_refit(n) for n in (27, 28, 47, 48, 55, 56, 95, 96, 111, 112, 191, 192, 223, 224)}
        assert found == {
            27: 24, 28: 28, 47: 44, 48: 48, 55: 48, 56: 56, 95: 88, 96: 96, 111: 96, 112: 112, 191: 176,
            192: 192, 223: 192, 224: 224,
        }  # fmt: skip


class TestPriceSlope:
    def test_is_the_ridge_regression_of_log_cost_on_log_price(self) -> None:
        price, cost = np.array([0.0, 1.0, 2.5, 4.0]), np.array([0.3, 0.2, 1.9, 9.0])
        is_cut = np.array([False, False, False, True])
        x, y = price[:3] - price[:3].mean(), cost[:3] - cost[:3].mean()
        # A priori 0.5 give or take 0.5, where log costs differ by 0.7: worth (0.7 / 0.5)² of evidence.
        prior = (0.7 / 0.5) ** 2
        expected = (prior * 0.5 + (x * y).sum()) / (prior + (x * x).sum())
        assert 0 < expected < 1
        assert price_slope(price, cost, is_cut) == pytest.approx(expected)

    def test_is_the_prior_before_anything_ended_and_stays_within_nothing_and_proportion(self) -> None:
        price = np.array([0.0, 2.0, 4.0])
        every, none = np.ones(3, bool), np.zeros(3, bool)
        assert price_slope(price, price, every) == 0.5
        assert price_slope(price, 5 * price, none) == 1.0
        assert price_slope(price, -5 * price, none) == 0.0


class TestCutRuns:
    def told(self, trials: list[Trial]) -> tuple[Any, Any, Any]:
        return SurrogateFitter(problem(), "gp", 1)._log_costs(trials)

    def runs(self, *errors: float) -> list[Trial]:
        ended = [trial(k + 1, 2, estimate={"log_error": e}) for k, e in enumerate(errors)]
        cut = [
            trial(8, 4, CUT, 50.0, estimate={"time_s": 200.0}),
            trial(9, 4, CUT, 50.0, estimate={"time_s": 20.0}),
            trial(10, 4, CUT, 50.0),
        ]
        return [*ended, *cut]

    def test_good_guesses_count_as_measurements_with_their_doubt(self) -> None:
        y, is_cut, doubt = self.told(self.runs(0.3, -0.5))
        own = math.log(50 * 4 / 3600)
        assert y[2:] == pytest.approx([own + math.log(4), own, own])
        assert is_cut.tolist() == [False, False, False, False, True]
        assert doubt == pytest.approx([0, 0, (0.3**2 + 0.5**2) / 2, (0.3**2 + 0.5**2) / 2, 0])

    def test_they_are_never_held_surer_than_a_fifth(self) -> None:
        _, _, doubt = self.told(self.runs(0.1, 0.1, -0.1))
        assert doubt[3] == pytest.approx(0.2**2)

    @pytest.mark.parametrize("errors", [(0.1,), (), (0.51, -0.51)])
    def test_few_or_bad_guesses_leave_a_bound(self, errors: tuple[float, ...]) -> None:
        y, is_cut, doubt = self.told(self.runs(*errors))
        assert is_cut[-3:].all()
        assert not doubt.any()
        assert y[-3:] == pytest.approx(math.log(50 * 4 / 3600))

    def test_half_off_is_just_good_enough(self) -> None:
        assert not self.told(self.runs(0.5, -0.5))[1][2]

    def test_trees_take_a_cut_run_to_be_twice_as_long(self) -> None:
        p = problem()
        trials = tuple(trial(k, n, CUT, 50.0) for k, n in enumerate((1, 2, 3), start=1))
        found = SurrogateFitter(p, "trees", 1, 20).log_cost(History(GOAL, trials), p.everything)
        low, high = (math.log(50 * n / 3600) + 0.7 for n in (1, 3))
        assert low - 1e-9 <= float(found.mean.min()) < float(found.mean.max()) <= high + 1e-9


class TestLearner:
    def test_the_constants_are_those_of_the_documentation(self) -> None:
        assert pytest.approx(1e-9 / 3600) == beliefs.CHEAPEST_USD_PER_S
        assert (beliefs.LEAST_MEASURED, beliefs.USUAL_LOG_COST, beliefs.UNKNOWN_STRETCH) == (3, 0.7, 0.7)

    def test_a_free_machine_costs_next_to_nothing_by_its_time(self) -> None:
        p = problem(usd=0.0)
        found = SurrogateFitter(p, "gp", 1).log_cost(History(GOAL, (trial(1), trial(2, 2))), p.everything)
        assert found.mean == pytest.approx(math.log(100 * 1e-9 / 3600), abs=0.2)

    def test_only_what_ended_tells_a_measure(self) -> None:
        p = problem()
        learner = SurrogateFitter(p, "gp", 1)
        seen = [
            trial(1, 1, measures={"accuracy": 0.7}),
            trial(2, 4, measures={"accuracy": 0.8}),
            trial(3, 8, CUT, measures={"accuracy": 0.1}),
            trial(4, 6, measures={"loss": 3.0}),
        ]
        found = learner.measure("accuracy", History(GOAL, tuple(seen)), p.everything)
        only = SurrogateFitter(p, "gp", 1).measure("accuracy", History(GOAL, tuple(seen[:2])), p.everything)
        assert found is not None
        assert only is not None
        assert found.mean == pytest.approx(only.mean)
        assert learner.measure("accuracy", History(GOAL, tuple(seen[2:])), p.everything) is None

    def test_nothing_failed_means_that_everything_works(self) -> None:
        p = problem()
        assert (
            SurrogateFitter(p, "gp", 1).works(History(GOAL, (trial(1), trial(2, 4, CUT))), p.everything) == 1
        ).all()
        mixed = History(GOAL, (trial(1), trial(2, 2), trial(3, 8, FAILED), trial(4, 6, FAILED)))
        chance = SurrogateFitter(p, "gp", 1).works(mixed, p.everything)
        by_n = {c["n"]: x for c, x in zip(p.everything.configurations, chance, strict=True)}
        assert by_n[1] > 0.6 > 0.4 > by_n[8] >= 1e-3

    def test_a_trial_under_way_leaves_the_mean_and_takes_away_doubt(self) -> None:
        p = problem()
        seen = tuple(trial(k, n, time_s=60.0 + 9 * n) for k, n in enumerate((1, 3, 8), start=1))
        for surrogate in ("gp", "trees"):
            history = History(GOAL, seen)
            waiting = replace(history, pending=(_proposal({"n": 6, "s": 1.0}),))
            before, after = (
                SurrogateFitter(p, surrogate, 1).log_cost(h, p.everything) for h in (history, waiting)
            )
            place = p.index({"n": 6, "s": 1.0})
            if surrogate == "gp":
                assert after.mean[place] == pytest.approx(before.mean[place], abs=0.02)
                assert after.std[place] < 0.5 * before.std[place]

    def test_a_shifted_belief_learns_as_the_one_behind_it(self) -> None:
        p = problem()
        seen = tuple(trial(k, n, time_s=60.0 + 9 * n) for k, n in enumerate((1, 3, 8), start=1))
        cost = SurrogateFitter(p, "gp", 1).log_cost(History(GOAL, seen), p.everything)
        assert isinstance(cost, ShiftedBelief)
        offset = np.linspace(-1, 2, len(p.everything))
        loss = ShiftedBelief(cost, offset, -1.0)
        assert loss.mean == pytest.approx(-(cost.mean + offset))
        paths, values = np.array([[4], [9]]), np.array([[0.3], [-2.0]])
        mean, std = loss.given(paths, values)
        plain, wide = cost.given(paths, -values - offset[paths])
        assert mean == pytest.approx(-(plain + offset))
        assert std == pytest.approx(wide)
        some = np.array([2, 9])
        assert loss.narrowed(some).mean == pytest.approx(loss.mean[some])
        assert loss.narrowed(some).given(np.array([[1]]), values[1:])[0][0] == pytest.approx(mean[1][some])

    def test_targets_without_the_bounds(self) -> None:
        targets = RegressionTargets(
            np.arange(3.0), np.array([True, False, False]), np.array([0.1, 0.2, 0.3]), 0.7
        )
        left = targets.measured
        assert (left.y.tolist(), left.doubt.tolist(), left.usual) == ([1.0, 2.0], [0.2, 0.3], 0.7)
        sure = RegressionTargets.sure([4.0, 5.0])
        assert (sure.is_cut.any(), sure.doubt.any(), sure.usual) == (False, False, None)

    def test_trees_are_never_sure(self) -> None:
        X, y = np.arange(6.0)[:, None], np.array([0.0, 0.0, 0.0, 0.0, 0.0, 10.0])
        forest = TreesBelief.fit(X, y, X, np.random.default_rng(1), 4)
        assert float(forest.std.min()) == pytest.approx(0.05 * y.std())
        alike = TreesBelief.fit(X, np.ones(6), X, np.random.default_rng(1), 4)
        assert alike.std == pytest.approx(1e-3)
        assert forest.narrowed(np.array([5, 0])).mean == pytest.approx(forest.mean[[5, 0]])


def _proposal(configuration: dict[str, Any], expected_usd: float | None = None) -> Any:
    from prudent.tuning.trial import Proposal

    return Proposal(configuration, expected_usd=expected_usd)


class TestMargins:
    def test_scales(self) -> None:
        def odds(v: float) -> float:
            return math.log(v / (1 - v))

        share = MeasureScale.of([0.2, 0.9], 0.85)
        assert (share.kind, share.usual) == ("share", 1.5)
        assert share.of_values(np.array([0.3, 0.0, 0.004, 1.0])) == pytest.approx(
            [odds(0.3), odds(0.01), odds(0.01), odds(0.99)]
        )
        positive = MeasureScale.of([120.0, 5000.0], 4000)
        assert (positive.kind, positive.usual) == ("positive", 0.7)
        assert positive.of_values(5.0) == pytest.approx(math.log(5))
        plain = MeasureScale.of([-3.0, 5.0], 2)
        assert (plain.kind, plain.usual) == ("plain", 4.0)
        assert plain.of_values(-3.0) == -3.0
        assert MeasureScale.of([-2.0], -2.0).usual == 1e-6

    @pytest.mark.parametrize(
        ("values", "bound", "kind"),
        [
            ([0.0, 1.0], 0.5, "share"), ([0.5], 1.0, "positive"), ([0.0], 0.0, "plain"),
            ([0.1, 1.1], 0.5, "positive"),
            ([-0.1, 0.9], 0.5, "plain"), ([0.0, 2.0], 1.5, "plain"), ([0.5], 0.01, "share"),
        ],
    )  # fmt: skip
    def test_kinds_at_their_borders(self, values: list[float], bound: float, kind: str) -> None:
        assert MeasureScale.of(values, bound).kind == kind
        assert MeasureScale.of(values, bound, "plain").kind == "plain"

    def test_margins_are_differences_on_the_scale(self) -> None:
        seen = [trial(1, measures={"memory_mb": 100.0}), trial(2, measures={"memory_mb": 800.0})]
        upper = margins_of(Constraint.parse("memory_mb <= 400"), seen)
        lower = margins_of(Constraint.parse("memory_mb >= 400"), seen)
        assert upper is not None
        assert lower is not None
        assert upper.values == pytest.approx([math.log(4), -math.log(2)])
        assert lower.values == pytest.approx([-math.log(4), math.log(2)])
        assert margins.LEAST_SHARE == 0.01


class TestDropping:
    """More data never costs less, and never hurts."""

    def drops(self, goal: str, *trials: Trial) -> set[float]:
        p = problem(Goal.parse(goal), fraction="s")
        mask = dropped(p, History(p.goal, trials), p.everything)
        return {c["s"] for c, gone in zip(p.everything.configurations, mask, strict=True) if gone}

    def at(self, number: int, s: float, **more: Any) -> Trial:
        made = trial(number, 2, **more)
        return replace(made, configuration={"n": 2, "s": s})

    def test_a_bound_that_is_just_kept_or_just_passed(self) -> None:
        goal = "minimise cost_usd subject to time_s <= 300 and cost_usd <= 2"
        late = {"status": CUT, "time_s": 300.0}
        assert self.drops(goal, self.at(1, 0.5, **late)) == {0.5, 1.0}
        assert self.drops(goal, self.at(1, 0.5, **late, feasible=True)) == set()
        assert self.drops(goal, self.at(1, 0.5, **{**late, "time_s": 299.9})) == set()
        dear = {"status": CUT, "time_s": 9.0}
        assert self.drops(goal, self.at(1, 0.5, **dear, cost_usd=2.0)) == {0.5, 1.0}
        assert self.drops(goal, self.at(1, 0.5, **dear, cost_usd=1.99)) == set()

    def test_no_better_than_the_best(self) -> None:
        best = trial(1, 1, cost_usd=0.5, feasible=True)
        for goal, is_dropped in (("minimise cost_usd", True), ("maximise cost_usd", False)):
            as_dear = self.at(2, 0.5, status=CUT, cost_usd=0.5)
            cheaper = self.at(2, 0.5, status=CUT, cost_usd=0.49)
            assert (self.drops(goal, best, as_dear) >= {0.5, 1.0}) is is_dropped
            assert self.drops(goal, best, cheaper) == set()
        assert self.drops("maximise accuracy", replace(best, measures={"accuracy": 0.5})) == set()

    def test_a_measure_may_do_better_by_chance_within_two_percent(self) -> None:
        goal = "minimise cost_usd subject to accuracy >= 0.8 and loss <= 1"
        for accuracy, gone in ((0.79, set()), (0.783, {0.1, 0.5})):
            seen = self.at(1, 0.5, measures={"accuracy": accuracy, "loss": 9.0})
            assert self.drops(goal, seen) == gone
        assert nephele.CHANCE == 0.02
        cut = self.at(1, 0.5, status=CUT, measures={"accuracy": 0.1})
        assert self.drops(goal, cut) == set()

    def test_the_least_share_that_was_too_dear_and_the_largest_that_was_too_bad_count(self) -> None:
        goal = "minimise cost_usd subject to time_s <= 300 and accuracy >= 0.8"
        late, bad = {"status": CUT, "time_s": 300.0}, {"measures": {"accuracy": 0.2}}
        assert self.drops(goal, self.at(1, 0.5, **late), self.at(2, 1.0, **late)) == {0.5, 1.0}
        assert self.drops(goal, self.at(1, 0.5, **bad), self.at(2, 0.1, **bad)) == {0.1, 0.5}


def test_the_first_run_may_cost_a_quarter_of_the_money_or_the_least_there_is() -> None:
    c = {"n": 2, "s": 1.0}
    assert first_cap_usd(problem(), c, 8.0) == 2.0
    assert first_cap_usd(problem(minimum_s=3600.0), c, 4.0) == 2.0


class TestBrackets:
    def test_every_share_is_the_nearest_offered_on_a_log_scale(self) -> None:
        # 1/9 is nearer to 0.08 than to 0.2, by their ratio; 1/3 to 0.2.
        plan = brackets((0.08, 0.2, 1.0), 3.0, 0.08)
        assert plan[0] == (Rung(0.08, 9), Rung(0.2, 3), Rung(1.0, 1))
        assert [len(bracket) for bracket in plan] == [3, 2, 1]

    def test_rungs_that_fall_together_are_one_and_keep_their_first_count(self) -> None:
        assert brackets((0.1, 1.0), 2.0, 0.1)[0] == (Rung(0.1, 8), Rung(1.0, 2))

    def test_any_eta(self) -> None:
        plan = brackets((), 4.0, 1 / 16)
        assert [[(rung.fraction, rung.count) for rung in bracket] for bracket in plan] == [
            [(1 / 16, 16), (1 / 4, 4), (1.0, 1)],
            [(1 / 4, 6), (1.0, 1)],
            [(1.0, 3)],
        ]

    def test_growth_is_the_median_slope_within_bounds(self) -> None:
        def seen(place: str, *points: tuple[float, float]) -> list[tuple[object, float, Trial]]:
            return [(place, s, trial(k, time_s=t)) for k, (s, t) in enumerate(points)]

        assert time_exponent(seen("a", (0.1, 10.0))) == 1.0
        assert time_exponent(seen("a", (0.1, 10.0), (0.4, 20.0))) == pytest.approx(0.5)
        assert time_exponent(seen("a", (0.4, 20.0), (0.1, 10.0))) == pytest.approx(0.5)
        assert time_exponent(seen("a", (0.1, 10.0), (1.0, 1000.0))) == 1.0
        assert time_exponent(seen("a", (0.1, 10.0), (1.0, 5.0))) == 0.0
        three = [
            *seen("a", (0.1, 10.0), (1.0, 10.0)),
            *seen("b", (0.1, 10.0), (1.0, 10.0 * 10**0.3)),
            *seen("c", (0.1, 10.0), (1.0, 10.0 * 10**0.8)),
        ]
        assert time_exponent(three) == pytest.approx(0.3)
        assert time_exponent([("a", 0.1, trial(1)), ("b", 1.0, trial(2, time_s=900.0))]) == 1.0
        cut = [("a", 0.1, trial(1, time_s=10.0)), ("a", 0.4, trial(2, status=CUT, time_s=20.0))]
        assert time_exponent(cut) == 1.0
        assert time_exponent([("a", 0.1, trial(1, time_s=0.0)), ("a", 0.4, trial(2))]) == 1.0

    def test_standing_looks_at_the_full_data_where_the_goal_does(self) -> None:
        one = trial(7, time_s=100.0, cost_usd=0.2, measures={"loss": 3.0})
        full = Goal.parse(
            "minimise cost_usd at full data subject to time_s <= 150 at full data, time_s <= 50"
        )
        # At a quarter of the data with β = 0.5 both double on the way to all of it.
        misses = (200 - 150) / 150 + (100 - 50) / 50
        assert rank_key(full, one, 0.25, 0.5) == (0.0, pytest.approx(misses), pytest.approx(0.4), 7)
        assert rank_key(Goal.parse("maximise loss"), one, 0.25, 0.5) == (0.0, 0.0, -3.0, 7)
        assert rank_key(Goal.parse("maximise accuracy"), one, 0.25, 0.5)[2] == math.inf
        statuses = [rank_key(GOAL, replace(one, status=s), 1.0, 1.0)[0] for s in (FINISHED, CUT, FAILED)]
        assert statuses == [0.0, 1.0, 2.0]


def test_the_density_of_bohb_is_a_sum_of_kernels() -> None:
    rng = np.random.default_rng(2)
    samples, points = rng.random((6, 2)) * [1.0, 0.05], rng.random((4, 2))
    widths = np.maximum(samples.std(axis=0) * 6 ** (-1 / 6), LEAST_WIDTH)
    assert widths[1] == LEAST_WIDTH == 0.15
    assert widths[0] > LEAST_WIDTH
    expected = [
        math.log(sum(math.exp(-0.5 * (((p - s) / widths) ** 2).sum()) for s in samples) / widths.prod())
        for p in points
    ]
    assert log_density(samples, points) == pytest.approx(expected)


class TestExtrapolation:
    def test_scales_of_measures_at_their_borders(self) -> None:
        found = [
            warp_for(np.array(v)) for v in ([0.0, 1.0], [0.5, 1.01], [0.0, 2.0], [-0.01, 0.5], [0.2, 9.0])
        ]
        assert found == [LOGIT, LOG, PLAIN, PLAIN, LOG]
        ends = LOGIT.forward(np.array([0.0, 1.0, 0.5, 1e-4]))
        assert ends == pytest.approx([math.log(1e-4 / (1 - 1e-4)), -math.log(1e-4 / (1 - 1e-4)), 0, ends[0]])
        assert LOGIT.back(np.array([-1e4, 0.0, 50.0])) == pytest.approx([0.0, 0.5, 1.0], abs=1e-12)
        assert LOG.forward(np.array([0.0, 2.0])) == pytest.approx([math.log(1e-12), math.log(2)])
        assert LOG.back(np.array([1.0, 400.0])) == pytest.approx([math.e, math.exp(300)])

    def test_trees_follow_a_ridge_regression_beyond_what_was_seen(self) -> None:
        rng = np.random.default_rng(4)
        X, s = rng.random((12, 2)), rng.choice([0.05, 0.1, 0.3], 12)
        y = 1.0 + 0.7 * np.log(s) + X[:, 0] + 0.1 * rng.standard_normal(12)
        places, fractions = rng.random((5, 2)), np.array([0.1, 0.3, 1.0, 1.0, 0.6])
        curve = TreesCurve(FractionSamples(X, s, y, np.zeros(12)), places, fractions, power_law, 1, 6)
        design = np.column_stack([power_law(s), X])
        gram = design.T @ design + np.diag([1e-3, 1e-2, 1.0, 1.0])
        line = np.linalg.inv(gram) @ design.T @ y
        left = y - design @ line
        noise = (left**2).mean() + 1e-6
        doubt = math.sqrt(noise * np.linalg.inv(gram)[1, 1] + 0.1 * noise)
        trend = np.column_stack([power_law(fractions), places]) @ line
        beyond = doubt * np.maximum(np.log(fractions / 0.3), 0.0)
        # What trees add is a mean of residuals, and never surer than a twentieth of the spread.
        assert (np.abs(curve.mean - trend) <= np.abs(left).max() + 1e-9).all()
        inner = np.sqrt(curve.std**2 - beyond**2)
        assert float(inner.min()) >= 0.05 * y.std() - 1e-9
        assert (inner <= np.ptp(left) / 2 + 0.06 * y.std()).all()
        mean, std = curve.given(np.array([0]), curve.mean[[0]], np.array([2, 3]))
        assert mean.shape == std.shape == (1, 2)
        assert (std >= beyond[2:4] - 1e-9).all()

    def test_a_cut_run_is_taken_at_its_estimate_or_twice_as_long(self) -> None:
        goal = Goal.parse("maximise accuracy at full data")
        p = problem(goal, fraction="s")
        found = []

        def curve(name: str, trials: Any, samples: FractionSamples, *rest: Any) -> None:
            found.append(samples)

        extrapolator = Extrapolator(FractionGrid(p, 1), "gp", "power", 1)
        extrapolator._curve = curve  # type: ignore[method-assign, assignment]
        trials = (
            trial(1, 2),
            trial(2, 3, CUT, estimate={"time_s": 250.0}),
            trial(3, 4, CUT, estimate={"time_s": 50.0}),
            trial(4, 6, CUT),
            trial(5, 8, FAILED),
            trial(6, 8, time_s=0.0),
        )
        extrapolator.log_cost(History(goal, trials), FractionGrid(p, 1).pool_for(History(goal, trials)))
        own = [math.log(100 * n / 3600) for n in (2, 3, 4, 6)]
        assert found[0].y == pytest.approx([own[0], own[1] + math.log(2.5), own[2], own[3] + 0.7])
        assert found[0].extra_noise.tolist() == [0.0, 0.5, 0.5, 0.5]
