"""Hyperband's brackets, and the model of BOHB that draws for them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.strategies.hyperband import (
    LEAST_WIDTH,
    Rung,
    brackets,
    log_density,
    rank_key,
    time_exponent,
)
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Outcome, Trial

GOAL = "maximise accuracy at full data subject to cost_usd <= 0.5 at full data"
SHARES = [1 / 27, 1 / 9, 1 / 3, 1.0]


def study(strategy: str = "hyperband", goal: str = GOAL, seed: int = 2, **more: Any) -> Study:
    space = Space.parse({"x": {"integer": [0, 99]}, "s": more.pop("shares", SHARES)})
    options = {"measures": ["accuracy"], "fraction": "s", "seed": seed, **more}
    return Study(space, goal, lambda c: 1.0, None, strategy, **options)


def run(c: Configuration) -> Outcome:
    """The nearer x is to 70 the better, and the more so the more data there are."""
    return Outcome(FINISHED, 3600 * 0.3 * c["s"], {"accuracy": 0.9 * c["s"] ** 0.1 - abs(c["x"] - 70) / 200})


def walk(of: Study, trials: int) -> list[Configuration]:
    asked = []
    for _ in range(trials):
        ask = of.ask()
        if ask is None:
            break
        asked.append(ask.configuration)
        of.tell(ask.number, run(ask.configuration))
    return asked


def trial(number: int, accuracy: float, cost_usd: float = 0.1, status: str = FINISHED) -> Trial:
    return Trial(number, {}, status, 10.0, cost_usd, cost_usd, {"accuracy": accuracy}, False)


class TestBrackets:
    def test_are_those_of_the_paper(self) -> None:
        plan = brackets((), 3.0, 1 / 81)
        assert [[rung.count for rung in bracket] for bracket in plan] == [
            [81, 27, 9, 3, 1],
            [34, 11, 3, 1],
            [15, 5, 1],
            [8, 2],
            [5],
        ]
        assert [rung.fraction for rung in plan[0]] == pytest.approx([1 / 81, 1 / 27, 1 / 9, 1 / 3, 1])

    def test_shares_that_are_not_offered_become_the_nearest(self) -> None:
        plan = brackets([0.1, 1.0], 3.0, 0.1)
        assert plan[0] == (Rung(0.1, 9), Rung(1.0, 3))

    def test_a_job_with_full_data_only_has_plain_brackets(self) -> None:
        assert brackets([1.0], 3.0, 1.0) == [(Rung(1.0, 1),)]

    @given(
        st.lists(st.floats(0.01, 0.99), max_size=6).map(lambda shares: sorted({*shares, 1.0})),
        st.floats(1.5, 6.0),
    )
    def test_rungs_climb_to_the_full_data_and_grow_smaller(self, shares: list[float], eta: float) -> None:
        for bracket in brackets(shares, eta, shares[0]):
            assert bracket[-1].fraction == 1.0
            assert all(rung.fraction in shares and rung.count >= 1 for rung in bracket)
            for low, high in itertools.pairwise(bracket):
                assert low.fraction < high.fraction
                assert low.count >= high.count


class TestStanding:
    def test_keeping_constraints_comes_first_then_the_objective(self) -> None:
        goal = Goal.parse("maximise accuracy subject to cost_usd <= 0.2")
        ranked = [
            trial(1, 0.8),
            trial(2, 0.7),
            trial(3, 0.99, cost_usd=0.3),
            trial(4, 0.99, cost_usd=0.9),
            trial(5, 0.99, status=CUT),
            trial(6, 0.99, status=FAILED),
        ]
        assert sorted([*ranked[3:], *ranked[:3]], key=lambda t: rank_key(goal, t, 1.0, 1.0)) == ranked

    def test_a_bound_at_full_data_counts_there(self) -> None:
        goal = Goal.parse("maximise accuracy at full data subject to cost_usd <= 0.2 at full data")
        good, dear = trial(1, 0.6, cost_usd=0.01), trial(2, 0.9, cost_usd=0.05)
        assert rank_key(goal, good, 0.1, 1.0) < rank_key(goal, dear, 0.1, 1.0)
        assert rank_key(goal, good, 0.1, 0.3) > rank_key(goal, dear, 0.1, 0.3)

    def test_growth_is_learnt_from_the_same_configuration_on_two_shares(self) -> None:
        def timed(time_s: float) -> Trial:
            return Trial(1, {}, FINISHED, time_s, 0.1, 0.1, {}, False)

        assert time_exponent([]) == 1.0
        assert time_exponent([("a", 0.25, timed(10.0)), ("b", 1.0, timed(90.0))]) == 1.0
        assert time_exponent([("a", 0.25, timed(10.0)), ("a", 1.0, timed(20.0))]) == pytest.approx(0.5)


class TestHyperband:
    def test_the_first_bracket_keeps_the_best_third_at_each_rung(self) -> None:
        one = study()
        asked = walk(one, 27 + 9 + 3 + 1)
        by_share = {share: [c["x"] for c in asked if c["s"] == share] for share in SHARES}
        assert [len(by_share[share]) for share in SHARES] == [27, 9, 3, 1]
        for low, high in itertools.pairwise(SHARES):
            nearest = sorted(by_share[low], key=lambda x: abs(x - 70))
            assert sorted(abs(x - 70) for x in by_share[high]) == [
                abs(x - 70) for x in nearest[: len(by_share[high])]
            ]

    def test_the_answer_is_a_run_on_the_full_data(self) -> None:
        one = study()
        walk(one, 39)
        assert one.best is None
        walk(one, 1)
        assert one.best is not None
        assert one.best.configuration["s"] == 1.0

    def test_the_next_bracket_starts_while_the_first_waits(self) -> None:
        one = study()
        walk(one, 26)
        waiting, ahead = one.ask(), one.ask()
        assert waiting is not None
        assert ahead is not None
        assert (waiting.configuration["s"], ahead.configuration["s"]) == (SHARES[0], SHARES[1])
        one.tell(waiting.number, run(waiting.configuration))
        promoted = one.ask()
        assert promoted is not None
        first = {c.configuration["x"] for c in one.trials}
        assert promoted.configuration["s"] == SHARES[1]
        assert promoted.configuration["x"] in first

    def test_a_run_that_failed_is_not_given_more_data(self) -> None:
        one = study()
        for _ in range(27):
            ask = one.ask()
            assert ask is not None
            near = abs(ask.configuration["x"] - 70) < 25
            outcome = Outcome(FAILED, 1.0, {}, "broke") if near else run(ask.configuration)
            one.tell(ask.number, outcome)
        climbed = walk(one, 9)
        assert all(c["s"] == SHARES[1] for c in climbed)
        assert all(abs(c["x"] - 70) >= 25 for c in climbed[:3])

    def test_a_range_of_fractions_is_used_from_its_least(self) -> None:
        one = study(shares={"log": [0.04, 1.0]})
        shares = {round(c["s"], 4) for c in walk(one, 20)}
        assert shares == {round(1 / 9, 4), round(1 / 3, 4), 1.0}

    def test_without_a_fraction_it_says_what_to_do(self) -> None:
        for strategy in ("hyperband", "bohb"):
            with pytest.raises(BadInput, match=r'add "fraction: PARAMETER" to the job, or choose another'):
                Study(Space.parse({"x": [1, 2]}), "minimise cost_usd", lambda c: 1.0, None, strategy)

    @pytest.mark.parametrize("options", [{"eta": 1}, {"eta": 0.5}, {"eta": "much"}, {"etta": 3}])
    def test_wrong_options_are_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(BadInput):
            study(options=options)


class TestBohb:
    def test_draws_nearer_to_what_was_good(self) -> None:
        far = {"hyperband": [], "bohb": []}
        for name, distances in far.items():
            for seed in range(4):
                asked = walk(study(name, seed=seed), 70)
                late = {c["x"] for c in asked[40:]} - {c["x"] for c in asked[:40]}
                distances.extend(abs(x - 70) for x in late)
        assert np.median(far["bohb"]) < 0.6 * np.median(far["hyperband"])

    def test_the_density_is_a_mixture_of_gaussians(self) -> None:
        rng = np.random.default_rng(1)
        samples, point = rng.random((30, 2)), np.array([[0.4, 0.6]])
        spread = np.maximum(samples.std(axis=0) * 30 ** (-1 / 6), LEAST_WIDTH)
        kernels = np.exp(-0.5 * (((point - samples) / spread) ** 2).sum(axis=1)) / spread.prod()
        assert log_density(samples, point)[0] == pytest.approx(math.log(kernels.sum()))
