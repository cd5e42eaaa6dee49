"""When strategies begin to think, and when they think that it is enough: exactly at the borders."""

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
from prudent.tuning.strategies.lookahead import ScoredCandidate
from prudent.tuning.strategies.lynceus import SURPRISE_FACTOR, SURPRISE_SHARE, _as_log_cost
from prudent.tuning.strategies.registry import build
from prudent.tuning.trial import CUT, FAILED, FINISHED, Proposal, Trial

from .recorded import AT_FULL, CHEAP, CHEAP_AT_FULL, MIXED, PARTLY, PATIENT, SEED, WHOLLY


def problem(goal: str = "minimise cost_usd", fraction: str | None = None, **price: float) -> Problem:
    space = Space.parse({"n": [1, 2, 3, 4, 6, 8], "s": [0.1, 0.5, 1.0]})
    return Problem(
        space, Goal.parse(goal), lambda c: Price(3.6 * c["n"], "", "", **price), ("accuracy",), fraction
    )


def trial(number: int, n: int, status: str = FINISHED, time_s: float = 100.0, **more: Any) -> Trial:
    cost = time_s * n / 1000
    known = {"cost_usd": cost, "spent_usd": cost, "measures": {}, "feasible": status == FINISHED, **more}
    return Trial(number, {"n": n, "s": 1.0}, status, time_s, **known)


def early(name: str, of: Problem, *trials: Trial, pending: tuple[Proposal, ...] = (), **options: Any) -> bool:
    strategy: Any = build(name, of, options, 1)
    return bool(strategy._is_early(History(of.goal, trials, pending)))


class TestBeginning:
    def test_lynceus_thinks_once_the_first_trials_are_on_and_one_has_told(self) -> None:
        of = problem()
        three = tuple(trial(k, k) for k in (1, 2, 3))
        assert early("lynceus", of, *three)
        assert not early("lynceus", of, *three, pending=(Proposal({"n": 6, "s": 1.0}),))
        assert not early("lynceus", of, *three, trial(4, 4))
        for status, time_s, is_early in ((FAILED, 9.0, True), (CUT, 9.0, False), (FINISHED, 0.0, True)):
            alike = (trial(k, k, status, time_s) for k in (1, 2, 3, 4))
            assert early("lynceus", of, *alike) is is_early

    def test_another_measure_must_have_been_reported_at_an_end(self) -> None:
        of = problem("maximise accuracy")
        assert early("lynceus", of, *(trial(k, k) for k in (1, 2, 3, 4)))
        seen = {"measures": {"accuracy": 0.5}}
        assert early("lynceus", of, *(trial(k, k, CUT, **seen) for k in (1, 2, 3, 4)))
        assert not early("lynceus", of, *(trial(k, k, **seen) for k in (1, 2, 3, 4)))

    def test_nephele_spends_its_initial_budget_with_what_is_under_way(self) -> None:
        of = problem(fraction="s")
        own = {"start_usd": 1.0, "halving": 0, "start_trials": 1}
        spent = trial(1, 1, spent_usd=0.6)
        waiting = Proposal({"n": 6, "s": 1.0}, expected_usd=0.4)
        assert early("nephele", of, spent, **own)
        assert not early("nephele", of, spent, pending=(waiting,), **own)
        assert early("nephele", of, spent, pending=(replace(waiting, expected_usd=0.39),), **own)
        assert early("nephele", of, spent, pending=(replace(waiting, expected_usd=None),), **own)
        assert not early("nephele", of, replace(spent, spent_usd=1.0), **own)

    def test_more_first_trials_are_drawn_while_none_has_told(self) -> None:
        of = problem()
        strategy = build("lynceus", of, {"start_trials": 2}, 1)
        trials: list[Trial] = []
        for number in range(1, 8):
            proposal = strategy.propose(History(of.goal, tuple(trials)), 50.0)
            assert proposal is not None
            assert proposal.why == "first look, price start"
            assert proposal.cap_usd == 0.25 * 50.0
            failed = trial(number, 1, FAILED)
            trials.append(replace(failed, configuration=proposal.configuration))
        assert len({of.space.key(t.configuration) for t in trials}) == 7

    def test_what_no_first_trial_can_be_paid_of_is_the_cheapest_that_can(self) -> None:
        of = problem(minimum_s=100.0)
        for money, n in ((0.1, 1), (0.099, None)):
            proposal = build("lynceus", of, {"start": "random", "start_trials": 1}, 4).propose(
                History(of.goal), money
            )
            assert (proposal.configuration["n"] if proposal else None) == n

    def test_fabolas_begins_when_time_and_every_measure_were_told(self) -> None:
        of = CHEAP_AT_FULL.problem()
        strategy: Any = build("fabolas", of, {}, SEED)
        history = PARTLY.history(of)
        assert strategy._told(history)

        def without(**change: Any) -> History:
            return History(of.goal, tuple(replace(t, **change) for t in history))

        assert not strategy._told(without(time_s=0.0))
        assert not strategy._told(without(status=FAILED))
        assert not strategy._told(without(status=CUT))
        assert not strategy._told(without(measures={"accuracy": 0.5}))
        assert strategy.recommend(without(time_s=0.0)) is None
        assert strategy.predict(without(time_s=0.0), {"vm": "a"}) == {}


class TestEnough:
    def test_lynceus_stops_at_epsilon(self) -> None:
        strategy: Any = build("lynceus", problem(), {"epsilon": 0.2}, 1)
        none = History(Goal())
        assert strategy._is_enough(ScoredCandidate(0, 0.2, 1.0), none)
        assert not strategy._is_enough(ScoredCandidate(0, 0.2001, 1.0), none)

    def test_cherrypick_stops_below_a_tenth_after_six_runs(self) -> None:
        strategy: Any = build("cherrypick", problem(), {}, 1)
        six, five = (History(Goal(), tuple(trial(k, 1) for k in range(count))) for count in (6, 5))
        assert strategy._is_enough(ScoredCandidate(0, 0.0999, 1.0), six)
        assert not strategy._is_enough(ScoredCandidate(0, 0.1, 1.0), six)
        assert not strategy._is_enough(ScoredCandidate(0, 0.0, 1.0), five)

    def test_fabolas_stops_when_no_test_tells_more_than_epsilon(self) -> None:
        of = AT_FULL.problem()
        history = WHOLLY.history(of)
        assert build("fabolas", of, {"epsilon": 1e-6}, SEED).propose(history, 0.4) is not None
        assert build("fabolas", of, {"epsilon": 9.0}, SEED).propose(history, 0.4) is None
        assert build("fabolas", of, {}, SEED).propose(history, 1e-5) is None

    def test_nothing_left_that_can_be_paid_is_the_end(self) -> None:
        of = CHEAP.problem()
        history = MIXED.history(of)
        for name in ("lynceus", "gp-eic"):
            assert build(name, of, {}, SEED).propose(history, 1e-3) is None

    def test_without_early_stop_a_run_must_be_paid_with_confidence(self) -> None:
        of = PATIENT.problem()
        history = MIXED.history(of)
        sure: Any = build("lynceus", of, {"confidence": 0.99}, SEED)
        pool = of.everything
        _, acquisition = sure._acquisition(history, pool)
        money = 0.09
        proposal = sure.propose(history, money)
        assert proposal is not None
        place = of.index(proposal.configuration)
        z = 2.3263478740408408
        assert acquisition.cost_mean[place] + z * acquisition.cost_std[place] <= math.log(money)
        assert sure._lookahead_settings().confidence_z == pytest.approx(z)
        least = float(np.exp((acquisition.cost_mean + z * acquisition.cost_std).min()))
        assert sure.propose(history, 0.999 * least) is None


class TestLimits:
    def test_a_surprise_is_cut(self) -> None:
        assert (SURPRISE_FACTOR, SURPRISE_SHARE) == (4.0, 0.25)
        of = CHEAP.problem()
        history = MIXED.history(of)
        for money in (0.5, 50.0):
            proposal = build("lynceus", of, {}, SEED).propose(history, money)
            assert proposal is not None
            assert proposal.expected_usd is not None
            assert proposal.cap_usd == pytest.approx(max(4 * proposal.expected_usd, money / 4))

    def test_bounds_on_time_and_cost_are_bounds_on_the_log_cost(self) -> None:
        log_price = np.array([-7.0, -5.0])

        def bound(text: str) -> Any:
            return _as_log_cost(Constraint.parse(text), log_price)

        assert bound("cost_usd <= 0.2") == pytest.approx([math.log(0.2)] * 2)
        assert bound("time_s <= 60") == pytest.approx(math.log(60) + log_price)
        assert bound("cost_usd <= 0") == pytest.approx([math.log(1e-12)] * 2)
        assert bound("time_s <= 0") == pytest.approx(math.log(1e-9) + log_price)
        assert bound("accuracy >= 0.5") is None
        assert bound("wait_s <= 5") is None

    @pytest.mark.parametrize(
        ("goal", "value", "loss"),
        [
            ("minimise cost_usd", 0.25, math.log(0.25)),
            ("maximise time_s", 20.0, -math.log(20)),
            ("minimise time_s", 0.0, math.log(1e-12)),
            ("maximise accuracy", 0.7, -0.7),
        ],
    )
    def test_the_loss_is_on_the_scale_of_the_belief(self, goal: str, value: float, loss: float) -> None:
        strategy: Any = build("lynceus", problem(goal), {}, 1)
        assert strategy._loss(value) == pytest.approx(loss)

    def test_while_nothing_is_feasible_the_best_is_worse_than_anything_by_three_deviations(self) -> None:
        of = problem("minimise cost_usd subject to time_s <= 50")
        strategy: Any = build("lynceus", of, {}, 1)
        belief: Any = type("Belief", (), {"mean": np.array([1.0, 2.0]), "std": np.array([0.5, 0.3])})()
        late = [replace(trial(k, k), feasible=False) for k in (1, 3, 2)]
        failed = trial(9, 8, FAILED)
        found = strategy._best_loss(History(of.goal, (*late, failed)), belief)
        assert found == pytest.approx(math.log(0.3) + 1.5)
        kept = trial(4, 2, time_s=40.0)
        assert strategy._best_loss(History(of.goal, (*late, kept)), belief) == pytest.approx(math.log(0.08))
        assert strategy._best_loss(History(of.goal), belief) == 2.0 + 1.5
