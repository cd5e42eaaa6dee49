"""Estimates for cut runs: right where the answer is known, bounded always, better than a straight line."""

from __future__ import annotations

import csv
import math
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.tuning.goal import Goal
from prudent.tuning.study import censoring
from prudent.tuning.study.censoring import MAX_STRETCH, METHODS, estimate_time_s, hindsight
from prudent.tuning.trial import Progress

GOAL = Goal.parse("minimise cost_usd subject to accuracy >= 0.85 and time_s <= 300")
DATA = Path(os.environ.get("PRUDENT_DATA", "/nowhere")) / "tuning"


def seen(*points: tuple[float, float], name: str = "accuracy") -> list[Progress]:
    return [Progress(elapsed_s, {name: value}) for elapsed_s, value in points]


def done(*points: tuple[float, float]) -> list[Progress]:
    return [Progress(elapsed_s, done=share) for elapsed_s, share in points]


class TestDone:
    @pytest.mark.parametrize("method", METHODS)
    def test_a_steady_run_is_extended_at_its_pace(self, method: str) -> None:
        assert estimate_time_s(GOAL, done((10, 0.1), (20, 0.2), (30, 0.3)), 30, method) == pytest.approx(100)

    def test_set_up_time_is_not_stretched_with_the_rest(self) -> None:
        # 60 s of set-up, then 1 % a second: 160 s in full.
        reports = done(*((60 + n, n / 100) for n in range(0, 41, 5)))
        curve = estimate_time_s(GOAL, reports, 100, "curve")
        linear = estimate_time_s(GOAL, reports, 100, "linear")
        assert curve == pytest.approx(160, rel=0.05)
        assert linear == pytest.approx(250)

    def test_one_odd_report_does_no_harm(self) -> None:
        reports = done((10, 0.1), (20, 0.9), (30, 0.3), (40, 0.4), (50, 0.5))
        assert estimate_time_s(GOAL, reports, 50) == pytest.approx(100, rel=0.1)

    def test_done_goes_before_a_measure(self) -> None:
        assert estimate_time_s(GOAL, [Progress(50, {"accuracy": 0.8}, done=0.1)], 50) == pytest.approx(500)

    def test_a_run_that_has_not_begun_says_nothing(self) -> None:
        assert estimate_time_s(GOAL, done((10, 0.0), (20, 0.0)), 20) is None

    @pytest.mark.parametrize("method", METHODS)
    def test_a_run_that_fell_back_is_still_estimated(self, method: str) -> None:
        estimate = estimate_time_s(GOAL, done((10, 0.5), (20, 0.0)), 20, method)
        assert estimate == pytest.approx(40)

    def test_many_reports_end_the_same(self) -> None:
        # So many that a look at every pair of them would take minutes.
        reports = done(*((n, n / 100_000) for n in range(1, 50_001)))
        assert estimate_time_s(GOAL, reports, 50_000) == pytest.approx(100_000, rel=0.01)


class TestTarget:
    def test_linear_is_the_rule_of_the_paper(self) -> None:
        assert estimate_time_s(GOAL, seen((30, 0.2), (60, 0.5)), 60, "linear") == pytest.approx(
            60 * 0.85 / 0.5
        )

    def test_a_curve_of_the_assumed_shape_is_met_to_half_a_check(self) -> None:
        # odds = (t / 40)^1.5 reach 0.85 at 40 x (0.85 / 0.15)^(2/3) = 127.1 s.
        def accuracy(t: float) -> float:
            return (t / 40) ** 1.5 / (1 + (t / 40) ** 1.5)

        reports = seen(*((t, accuracy(t)) for t in range(2, 61, 2)))
        assert estimate_time_s(GOAL, reports, 60) == pytest.approx(127.1 + 1, rel=1e-3)

    def test_a_drop_after_the_best_value_costs_little(self) -> None:
        steady, dropped = seen((30, 0.4), (60, 0.7), (90, 0.7)), seen((30, 0.4), (60, 0.7), (90, 0.3))
        assert estimate_time_s(GOAL, dropped, 90) == estimate_time_s(GOAL, steady, 90)

    def test_further_is_sooner(self) -> None:
        values = [estimate_time_s(GOAL, seen((30, v)), 30) or 0.0 for v in (0.05, 0.2, 0.4, 0.6, 0.8)]
        assert values == sorted(values, reverse=True)
        assert len(set(values)) == len(values)

    def test_past_the_target_nothing_is_said(self) -> None:
        assert estimate_time_s(GOAL, seen((30, 0.9), (60, 0.8)), 60) is None

    def test_only_lower_bounds_are_targets(self) -> None:
        goal = Goal.parse("minimise cost_usd subject to loss <= 0.2 and time_s <= 300 and cost_usd <= 1")
        assert estimate_time_s(goal, seen((30, 0.5), name="loss"), 30) is None

    def test_of_two_targets_the_slower_counts(self) -> None:
        goal = Goal.parse("minimise cost_usd subject to accuracy >= 0.85 and recall >= 0.85")
        both = [Progress(30, {"accuracy": 0.8, "recall": 0.3})]
        assert estimate_time_s(goal, both, 30) == estimate_time_s(goal, [Progress(30, {"recall": 0.3})], 30)

    def test_unseen_measures_and_rubbish_are_left_out(self) -> None:
        assert estimate_time_s(GOAL, [], 30) is None
        assert estimate_time_s(GOAL, seen((30, 0.5), name="f1"), 30) is None
        assert estimate_time_s(GOAL, seen((30, math.nan)), 30) is None
        with_nan = seen((30, 0.5), (60, math.nan))
        assert estimate_time_s(GOAL, with_nan, 60) == estimate_time_s(GOAL, with_nan[:1], 60)

    def test_what_came_after_the_cut_is_not_known(self) -> None:
        reports = seen((30, 0.3), (60, 0.6), (90, 0.8))
        assert estimate_time_s(GOAL, reports, 70) == estimate_time_s(GOAL, reports[:2], 70)
        assert estimate_time_s(GOAL, reports, 20) is None

    def test_the_order_of_the_reports_does_not_matter(self) -> None:
        reports = seen((30, 0.3), (60, 0.6), (90, 0.7))
        assert estimate_time_s(GOAL, reports[::-1], 90) == estimate_time_s(GOAL, reports, 90)

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize(("bound", "start"), [(1.0, 0.2), (0.999, 0.2), (85, 20), (200, -300), (-5, -20)])
    def test_any_scale_gives_a_finite_answer(self, method: str, bound: float, start: float) -> None:
        goal = Goal.parse({"minimise": "cost_usd", "subject_to": [f"score >= {bound}"]})
        estimate = estimate_time_s(
            goal, seen((30, start), (60, (start + bound) / 2), name="score"), 60, method
        )
        assert estimate is not None
        assert 60 <= estimate <= MAX_STRETCH * 60


class TestFormulas:
    """The rules written out, on points made by hand."""

    @pytest.mark.parametrize(
        ("target", "values", "top"),
        [
            (0.85, (0.3, 0.6), 1.0),  # a share: its top is 1
            (1.0, (0.3, 0.6), 1 / 0.99),
            (0.995, (0.1, 0.2), 0.995 / 0.99),
            (40.0, (9.0, 12.0), 40 / 0.85),  # no known top
            (0.85, (-0.5, 0.2), (0.85 + 0.5) / 0.85),  # counted from the lowest value
            (0.85, (0.001, 0.002), 1.0),  # hardly begun: no more than a fiftieth says
            (-5.0, (-20.0, -9.0), 15 / 0.85),
        ],
    )
    def test_log_odds_grow_with_log_time(self, target: float, values: tuple[float, ...], top: float) -> None:
        goal = Goal.parse({"minimise": "cost_usd", "subject_to": [f"score >= {target}"]})
        start = min(0.0, *values)
        way, best = target - start, max(max(values) - start, 0.02 * (target - start))
        odds = (way / (top - way)) / (best / (top - best))
        expected = 50 * odds ** (1 / 1.5) + 50 / 2 / 2
        found = estimate_time_s(goal, seen((20, values[0]), (50, values[1]), name="score"), 60)
        assert found == pytest.approx(min(max(expected, 60), 100 * 60), rel=1e-9)

    def test_the_pace_is_the_median_over_pairs_of_reports(self) -> None:
        points = [(0.0, 0.0), (10.0, 0.02), (25.0, 0.2), (40.0, 0.3), (70.0, 0.45)]
        paces = [(b[1] - a[1]) / (b[0] - a[0]) for k, a in enumerate(points) for b in points[k + 1 :]]
        expected = 70 + (1 - 0.45) / float(np.median(paces))
        assert estimate_time_s(GOAL, done(*points[1:]), 75) == pytest.approx(expected)

    def test_of_many_reports_some_are_looked_at(self) -> None:
        rng = np.random.default_rng(3)
        points = [(0.0, 0.0), *((float(t), 0.004 * t + 0.02 * float(rng.random())) for t in range(1, 101))]
        some = [points[int(k)] for k in np.linspace(0, 100, 64)]
        paces = [(b[1] - a[1]) / (b[0] - a[0]) for k, a in enumerate(some) for b in some[k + 1 :]]
        expected = 100 + (1 - points[-1][1]) / float(np.median(paces))
        assert estimate_time_s(GOAL, done(*points[1:]), 100) == pytest.approx(expected)

    def test_a_run_that_goes_backwards_is_extended_in_a_line(self) -> None:
        reports = done((10, 0.8), (20, 0.5), (30, 0.3), (40, 0.1))
        assert estimate_time_s(GOAL, reports, 40) == pytest.approx(40 / 0.8)
        assert estimate_time_s(GOAL, done((10, 1.2)), 40, "linear") == pytest.approx(40)
        assert estimate_time_s(GOAL, done((10, 0.5), (20, 1.2)), 40) == pytest.approx(40)

    @pytest.mark.parametrize(("target", "value"), [(0.85, 0.0), (0.85, -0.4), (-1.0, -2.0)])
    def test_a_line_from_nothing_never_arrives(self, target: float, value: float) -> None:
        goal = Goal.parse({"minimise": "cost_usd", "subject_to": [f"score >= {target}"]})
        assert estimate_time_s(goal, seen((30, value), name="score"), 30, "linear") == 100 * 30

    def test_what_was_seen_at_the_very_cut_counts(self) -> None:
        reports = seen((30, 0.3), (60, 0.6))
        just = estimate_time_s(GOAL, reports, 60 * (1 - 1e-10))
        assert just == pytest.approx(estimate_time_s(GOAL, reports, 60), rel=1e-6)
        assert estimate_time_s(GOAL, seen((0, 0.5)), 60) is None
        assert estimate_time_s(GOAL, seen((30, 0.85)), 60) is None

    def test_the_constants_are_those_of_the_documentation(self) -> None:
        assert (censoring.MAX_STRETCH, censoring.SLOPE) == (100.0, 1.5)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(BadInput, match='Did you mean "linear"'):
        estimate_time_s(GOAL, seen((30, 0.5)), 30, "liner")


def test_a_cut_without_a_moment_is_refused() -> None:
    with pytest.raises(BadInput, match="finite"):
        estimate_time_s(GOAL, seen((30, 0.5)), math.nan)


numbers = st.floats(-2, 2)


@given(
    st.lists(st.tuples(st.floats(0, 500), numbers, st.none() | numbers), max_size=12),
    st.floats(1e-3, 500),
    st.sampled_from(METHODS),
)
def test_an_estimate_keeps_its_bounds(
    rows: list[tuple[float, float, float | None]], elapsed_s: float, method: str
) -> None:
    reports = [Progress(t, {"accuracy": v}, share) for t, v, share in rows]
    estimate = estimate_time_s(GOAL, reports, elapsed_s, method)
    assert estimate is None or elapsed_s <= estimate <= MAX_STRETCH * elapsed_s


@given(st.floats(0.01, 100), st.sampled_from(METHODS))
def test_the_unit_of_time_does_not_matter(factor: float, method: str) -> None:
    points = [(30, 0.3), (60, 0.55), (90, 0.5)]
    plain = estimate_time_s(GOAL, seen(*points), 95, method)
    scaled = estimate_time_s(GOAL, seen(*((t * factor, v) for t, v in points)), 95 * factor, method)
    assert plain is not None
    assert scaled == pytest.approx(plain * factor)


class TestHindsight:
    def test_a_steady_run_is_foreseen(self) -> None:
        assert hindsight(GOAL, done(*((t, t / 80) for t in range(10, 81, 10))), 80) == pytest.approx(0)

    def test_only_the_first_half_is_used(self) -> None:
        reports = seen((20, 0.3), (40, 0.6), (60, 0.2), (80, 0.9))
        estimate = estimate_time_s(GOAL, reports[:2], 40)
        assert estimate is not None
        assert hindsight(GOAL, reports, 80) == pytest.approx(math.log(estimate / 80))

    def test_a_run_that_showed_nothing_by_then_says_nothing(self) -> None:
        assert hindsight(GOAL, seen((70, 0.9)), 80) is None
        assert hindsight(GOAL, [], 0.0) is None


@pytest.mark.skipif(not DATA.is_dir(), reason="needs measured data")
@pytest.mark.parametrize("table", ["lynceus_cnn", "lynceus_rnn"])
def test_the_curve_has_a_third_less_error_than_a_line_on_measured_runs(table: str) -> None:
    """Each run that reached the target, as if cut once a third of its checks were seen."""
    runs: dict[str, list[Progress]] = defaultdict(list)
    with open(DATA / f"{table}_progress.csv", newline="") as file:
        for row in csv.DictReader(file):
            runs[row["config_id"]].append(
                Progress(float(row["elapsed_s"]), {"accuracy": float(row["accuracy"])})
            )
    errors: dict[str, list[float]] = {method: [] for method in METHODS}
    for run in runs.values():
        if run[-1].measures["accuracy"] < 0.85 or len(run) < 3:
            continue
        cut_s = run[len(run) // 3 - 1].elapsed_s
        for method in METHODS:
            estimate = estimate_time_s(GOAL, run, cut_s, method)
            assert estimate is not None
            errors[method].append(abs(math.log(estimate / run[-1].elapsed_s)))
    assert np.mean(errors["curve"]) < 2 / 3 * np.mean(errors["linear"])
