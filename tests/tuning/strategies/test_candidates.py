"""Where strategies look: first trials, pools of candidates, shares of the data, and who goes on to more."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.strategies import candidates as pool
from prudent.tuning.strategies import candidates as subsampling
from prudent.tuning.strategies import hyperband
from prudent.tuning.strategies import hyperband as bohb
from prudent.tuning.strategies import initial_design as halving
from prudent.tuning.strategies import initial_design as start
from prudent.tuning.strategies.candidates import FractionGrid, candidate_pool, on_full_data
from prudent.tuning.strategies.hyperband import BracketState
from prudent.tuning.strategies.initial_design import (
    HalvingDesign,
    ScalingDesign,
    balanced_rows,
    first_affordable,
    initial_configurations,
)
from prudent.tuning.strategies.registry import build
from prudent.tuning.strategies.strategy import untried
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Proposal, Trial

COST = "minimise cost_usd subject to time_s <= 100"
QUALITY = "maximise accuracy at full data"
LISTED = {"n": [1, 2, 4, 8], "rate": [0.1, 0.2, 0.3], "s": [0.1, 0.3, 1.0]}
ENDLESS = {"n": {"integer": [1, 64]}, "rate": {"log": [1e-4, 1.0]}, "s": {"log": [0.01, 1.0]}}


def problem(
    parameters: dict[str, Any] = LISTED, goal: str = COST, fraction: str | None = "s", **price: float
) -> Problem:
    def of(c: Configuration) -> Price:
        return Price(3.6 * c["n"], "", "", **price)

    return Problem(Space.parse(parameters), Goal.parse(goal), of, ("accuracy",), fraction)


def trial(number: int, c: Configuration, status: str = FINISHED, time_s: float = 10.0, **more: Any) -> Trial:
    cost = time_s * c["n"] / 1000
    known = {"cost_usd": cost, "spent_usd": cost, "measures": {"accuracy": 0.5}, "feasible": True, **more}
    return Trial(number, c, status, time_s, **known)


def at(n: int, rate: float = 0.1, s: float = 0.1) -> Configuration:
    return {"n": n, "rate": rate, "s": s}


def history(of: Problem, *trials: Trial, pending: Iterable[Configuration] = ()) -> History:
    return History(of.goal, trials, tuple(Proposal(c) for c in pending))


class Spied:
    """A space that tells what was sampled from it."""

    def __init__(self, space: Space) -> None:
        self._space, self.calls = space, []  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._space, name)

    def __contains__(self, c: Any) -> bool:
        return c in self._space

    def __getitem__(self, name: str) -> Any:
        return self._space[name]

    def sample(self, n: int, rng: Any, method: str = "random") -> list[Configuration]:
        self.calls.append((n, method))
        return self._space.sample(n, rng, method)

    def neighbours(self, c: Any, rng: Any, n: int) -> list[Configuration]:
        self.calls.append((c["n"], n))
        return self._space.neighbours(c, rng, n)


def spied(of: Problem) -> tuple[Problem, list[Any]]:
    space: Any = Spied(of.space)
    seen = replace(of, space=space)
    _ = seen._price_range
    space.calls.clear()
    return seen, space.calls


class TestStart:
    def test_the_price_aware_start_spreads_over_the_cheapest(self) -> None:
        of = problem({"n": list(range(1, 21)), "rate": [0.1, 0.2, 0.3]}, fraction=None)
        chosen = initial_configurations(of, "price", 6, 1)
        # The cheapest 15 % of 60: three sizes, each with all its rates.
        assert all(c["n"] <= 3 for c in chosen)
        assert len({of.space.key(c) for c in chosen}) == 6
        rows = [of.candidates([c]).features[0] for c in chosen]
        every = [
            of.candidates([c]).features[0] for c in of.space.configurations() if c["n"] <= 3
        ]  # fmt: skip
        for place in range(1, 6):
            apart = [min(float(((row - own) ** 2).sum()) for own in rows[:place]) for row in every]
            here = min(float(((rows[place] - own) ** 2).sum()) for own in rows[:place])
            assert here == pytest.approx(max(apart), abs=1e-5)
        assert start.CHEAP_SHARE == 0.15

    def test_a_small_space_gives_as_many_of_the_cheapest_as_there_are(self) -> None:
        of = problem({"n": [8, 1, 4, 2]}, fraction=None)
        assert sorted(c["n"] for c in initial_configurations(of, "price", 3, 1)) == [1, 2, 4]
        assert sorted(c["n"] for c in initial_configurations(of, "price", 9, 1)) == [1, 2, 4, 8]
        assert len(initial_configurations(of, "price", 1, 1)) == 1

    def test_seeds_differ_and_repeat(self) -> None:
        of = problem()
        starts = [tuple(c["rate"] for c in initial_configurations(of, "price", 4, seed)) for seed in range(8)]
        assert len(set(starts)) > 1
        assert initial_configurations(of, "random", 4, 3) == initial_configurations(of, "random", 4, 3)

    @pytest.mark.parametrize("method", ["price", "latin", "random", "sobol"])
    @pytest.mark.parametrize("parameters", [LISTED, ENDLESS], ids=["listed", "endless"])
    def test_on_full_data_only(self, method: str, parameters: dict[str, Any]) -> None:
        of, calls = spied(problem(parameters))
        chosen = initial_configurations(of, method, 5, 1, full_only=True)
        assert len({of.space.key(c) for c in chosen}) == 5
        assert {c["s"] for c in chosen} == {1.0}
        if method != "price":
            # Several become one: sixteen times as many are drawn, or all there are.
            assert calls == [(36 if of.listed else 80, method)]
        elif not of.listed:
            assert calls == [(4096, "random")]
        plain, calls = spied(problem(parameters))
        assert len(initial_configurations(plain, method, 5, 1)) == 5
        if method != "price":
            assert calls == [(5, method)]

    def test_the_first_that_can_be_paid_whole_goes_first_then_what_can_be_begun(self) -> None:
        of = problem(minimum_s=10.0)
        order = [at(8), at(4), at(2), at(1)]
        # A run of 100 s, the longest allowed, costs $0.1 per worker, the shortest $0.01.
        assert first_affordable(of, order, 0.8) == at(8)
        assert first_affordable(of, order, 0.8 - 5e-10) == at(8)
        assert first_affordable(of, order, 0.79) == at(4)
        assert first_affordable(of, order, 0.1) == at(1)
        assert first_affordable(of, order, 0.09) == at(8)
        assert first_affordable(of, order, 0.05) == at(4)
        assert first_affordable(of, order, 0.01) == at(1)
        assert first_affordable(of, order, 0.0099) is None


class TestPool:
    def test_a_listed_space_is_looked_at_whole(self) -> None:
        of = problem()
        tried, waiting = at(2), at(4, 0.2)
        candidates, fresh = candidate_pool(of, history(of, trial(1, tried), pending=[waiting]), 1)
        assert len(candidates) == 36
        gone = [c for c, is_fresh in zip(candidates.configurations, fresh, strict=True) if not is_fresh]
        assert gone == [tried, waiting]
        other = problem({"n": [1, 2, 4], "s": [0.1, 1.0]}, fraction="s")
        ruled = replace(other, space=Space.parse({"n": [1, 2, 4], "s": [0.1, 1.0]}, rule="n < 4"))
        assert untried(ruled, history(ruled, trial(1, {"n": 4, "s": 0.1}))).all()

    def test_an_endless_one_is_sampled_and_searched_around_the_best(self) -> None:
        of, calls = spied(problem(ENDLESS))
        trials = [trial(k, at(n, 0.01, 0.5), time_s=100.0 - n) for k, n in enumerate(range(1, 9), start=1)]
        trials[0] = replace(trials[0], feasible=False)
        trials[1] = replace(trials[1], status=CUT)
        candidates, fresh = candidate_pool(of, history(of, *trials, pending=[at(40)]), 1)
        # Cheapest first, what breaks a constraint last, what did not end never.
        assert calls == [(1500, "latin"), *((n, 60) for n in (3, 4, 5, 6, 7))]
        assert fresh.all()
        assert len(fresh) == len(candidates) == len({of.space.key(c) for c in candidates.configurations})
        calls.clear()
        candidate_pool(of, history(of, *trials[:1]), 1)
        assert calls == [(1500, "sobol"), (1, 60)]
        assert (pool.SAMPLED, pool.NEIGHBOURS, pool.LEADERS) == (1500, 60, 5)

    def test_each_decision_draws_anew(self) -> None:
        of = problem(ENDLESS)
        one, two, same = (
            [of.space.key(c) for c in candidate_pool(of, h, 1)[0].configurations[:20]]
            for h in (
                history(of, pending=[at(1)]),
                history(of, pending=[at(1), at(2)]),
                history(of, pending=[at(3)]),
            )
        )
        assert one == same != two

    def test_tried_ones_are_left_out_and_full_data_are_kept(self) -> None:
        of = problem(ENDLESS)
        first = candidate_pool(of, history(of), 1)[0].configurations[0]
        again = candidate_pool(of, history(of, trial(1, first)), 1)[0].configurations
        assert of.space.key(first) not in {of.space.key(c) for c in again}
        full = candidate_pool(of, history(of), 1, full_only=True)[0].configurations
        assert {c["s"] for c in full} == {1.0}
        assert on_full_data(of, [at(1, 0.1, 0.5), at(1, 0.1, 0.2), at(2)]) == [
            at(1, 0.1, 1.0),
            at(2, 0.1, 1.0),
        ]


class TestGround:
    def test_the_ladder_is_the_listed_values_or_five_steps(self) -> None:
        assert FractionGrid(problem(), 1).ladder == (0.1, 0.3, 1.0)
        ladder = FractionGrid(problem(ENDLESS), 1).ladder
        assert ladder == pytest.approx([0.01, 0.01**0.75, 0.1, 0.01**0.25, 1.0])
        twenty = [round(0.05 * k, 2) for k in range(1, 21)]
        assert FractionGrid(problem({"n": [1, 2], "s": twenty}), 1).ladder == tuple(twenty)
        # Of a longer list those nearest to even steps: 0.0316 and 0.316 are not on it.
        more = problem({"n": [1, 2], "s": [0.01, *twenty]}, QUALITY)
        assert FractionGrid(more, 1).ladder == (0.01, 0.05, 0.1, 0.3, 1.0)
        proposal = build("fabulinus", more, {}, 1).propose(history(more), 1.0)
        assert proposal is not None
        assert proposal.configuration["s"] == 0.01
        assert subsampling.LADDER == 5

    def test_only_distinct_configurations_are_climbed(self) -> None:
        """Those that differ in their share of the data alone are one."""
        of = problem({"n": [1, 2], "s": [0.1, 0.3, 1.0]})
        ground = FractionGrid(of, 1)
        climbed = ground.climbed([{"n": 1, "s": 0.1}, {"n": 1, "s": 1.0}, {"n": 2, "s": 0.3}])
        told = [(c["n"], c["s"]) for c in climbed]
        assert told == [(n, s) for n in (1, 2) for s in (0.1, 0.3, 1.0)]

    def test_features_leave_the_fraction_out(self) -> None:
        of = problem({"s": [0.1, 1.0], "vm": ["a", "b", "c"], "n": [1, 2, 4]})
        ground = FractionGrid(of, 1)
        candidates = of.everything
        own = next(columns for name, columns in of.space.groups if name == "s")
        expected = np.delete(candidates.features, own, axis=1)
        assert ground.features(candidates) == pytest.approx(expected)
        widths = [group.stop - group.start for group in ground.groups]
        assert sum(widths) == expected.shape[1]
        assert [group.start for group in ground.groups] == [0, *np.cumsum(widths)[:-1].tolist()]
        X, s, log_price = ground.rows([{"s": 0.1, "vm": "b", "n": 4}])
        assert (s.tolist(), log_price.tolist()) == ([0.1], [pytest.approx(math.log(0.004))])
        assert X[0] == pytest.approx(expected[of.index({"s": 0.1, "vm": "b", "n": 4})])

    def test_a_field_tells_what_can_be_recommended_and_what_can_be_tested(self) -> None:
        of = problem(goal=QUALITY)
        field = FractionGrid(of, 1).pool_for(history(of, trial(1, at(2)), pending=[at(1, 0.3, 0.3)]))
        configurations = field.candidates.configurations
        assert len(field) == 36
        assert [configurations[i]["s"] for i in field.full] == [1.0] * 12
        tests = [configurations[i] for i in field.tests]
        assert len(tests) == 22
        assert at(2) not in tests
        assert at(1, 0.3, 0.3) not in tests

    def test_an_endless_one_is_drawn_around_the_best_at_every_share(self) -> None:
        of, calls = spied(problem(ENDLESS, QUALITY))
        trials = [
            trial(k, at(n, 0.01, 0.01), measures={"accuracy": n / 10})
            for k, n in enumerate(range(1, 8), start=1)
        ]
        trials[6] = replace(trials[6], status=FAILED)
        field = FractionGrid(of, 1).pool_for(history(of, *trials))
        assert calls == [(300, "random"), *((n, 20) for n in (6, 5, 4, 3, 2))]
        ladder = set(FractionGrid(of, 1).ladder)
        assert {c["s"] for c in field.candidates.configurations} == ladder
        places = [(c["n"], c["rate"]) for c in field.candidates.configurations]
        assert len(places) == 5 * len(set(places))
        assert {(n, 0.01) for n in range(1, 8)} <= set(places)

    def test_what_has_no_full_data_is_refused(self) -> None:
        of = Problem(
            Space.parse(LISTED, rule="s < 1"), Goal.parse(COST), lambda c: Price(1.0, "", ""), (), "s"
        )
        with pytest.raises(BadInput, match="No configuration can be run on the full data"):
            FractionGrid(of, 1).pool_for(history(of))

    def test_a_long_list_is_drawn_from(self, monkeypatch: pytest.MonkeyPatch) -> None:
        of, calls = spied(problem(goal=QUALITY))
        assert subsampling.WHOLE == 5000
        for most, drawn in ((36, []), (35, [(300, "random")])):
            monkeypatch.setattr(subsampling, "WHOLE", most)
            calls.clear()
            FractionGrid(of, 1).pool_for(history(of))
            assert calls == drawn


class TestHalving:
    def test_a_third_goes_on_and_never_to_the_full_data(self) -> None:
        found = [
            [(r.fraction, r.count) for r in HalvingDesign(problem(), k, 1)._rungs]
            for k in (1, 2, 3, 8, 9, 27)
        ]
        assert found == [
            [(0.1, 1)], [(0.1, 2)], [(0.1, 3), (0.3, 1)], [(0.1, 8), (0.3, 2)], [(0.1, 9), (0.3, 3)],
            [(0.1, 27), (0.3, 9)],
        ]  # fmt: skip
        steps = [r.fraction for r in HalvingDesign(problem(ENDLESS), 100, 1)._rungs]
        assert steps == pytest.approx([0.01, 0.01**0.75, 0.1, 0.01**0.25])
        one = HalvingDesign(problem({"n": [1, 2], "s": [1.0]}), 3, 1)._rungs
        assert [(r.fraction, r.count) for r in one] == [(1.0, 3)]
        twenty = [round(0.05 * k, 2) for k in range(1, 21)]
        assert len(HalvingDesign(problem({"n": [1, 2], "s": twenty}), 3**9, 1)._rungs) == 10

    def test_the_design_is_among_the_cheapest_and_balanced(self) -> None:
        of = problem({"n": list(range(1, 11)), "rate": [0.1, 0.2, 0.3], "s": [0.1, 1.0]})
        design = HalvingDesign(of, 6, 1)._design
        # 30 on the least data; the cheapest 30 % of them have one to three workers.
        assert {c["s"] for c in design} == {0.1}
        assert max(c["n"] for c in design) <= 3
        assert sorted(c["rate"] for c in design) == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
        assert halving.HALVING_CHEAP_SHARE == 0.3
        assert max(c["n"] for c in HalvingDesign(of, 12, 1)._design) <= 4

    def test_an_endless_space_is_sampled(self) -> None:
        of, calls = spied(problem(ENDLESS))
        design = HalvingDesign(of, 6, 1)._design
        assert calls == [(512, "latin")]
        assert [c["s"] for c in design] == pytest.approx([0.01] * 6)
        assert all(c["n"] <= 24 for c in design)

    def test_near_values_are_alike(self) -> None:
        of = problem({"n": [1, 2, 4], "rate": {"integer": [0, 100]}, "s": [0.1, 1.0]})
        levels = HalvingDesign(of, 6, 1)._levels(of.everything.features)
        name = [name for name, _ in of.space.groups].index("rate")
        by_rate = {
            c["rate"]: int(row[name]) for c, row in zip(of.everything.configurations, levels, strict=True)
        }
        # A fifth level lies at either end: 0, 25, 50, 75, 100.
        assert [by_rate[r] for r in (0, 12, 13, 37, 38, 62, 63, 87, 88, 100)] == [
            0,
            0,
            1,
            1,
            2,
            2,
            3,
            3,
            4,
            4,
        ]
        assert halving.BINS == 4

    def test_a_design_uses_what_was_used_least(self) -> None:
        levels = np.array([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]])
        for seed in range(6):
            rows = balanced_rows(levels, 6, np.random.default_rng(seed))
            assert sorted(rows) == list(range(6))
            first = levels[rows[:2]]
            assert (first[0] != first[1]).all()
            assert len(set(levels[rows[:3], 1])) == 3
            assert sorted(levels[rows[:4], 0]) == [0, 0, 1, 1]

    def test_the_best_go_on_when_all_have_ended(self) -> None:
        of = problem()
        halve = HalvingDesign(of, 6, 1)
        trials: list[Trial] = []
        first = [halve.next(history(of, pending=[])) for _ in range(2)]
        assert first[0] == first[1]
        for number in range(1, 7):
            c = halve.next(history(of, *trials))
            assert c is not None
            assert c["s"] == 0.1
            trials.append(trial(number, c, time_s=20.0 - number))
        waiting = history(of, *trials[:5], pending=[trials[5].configuration])
        assert halve.next(waiting) is None
        # Two of six: those of least cost.
        ranked = sorted(trials, key=lambda t: t.cost_usd)[:2]
        for best in ranked:
            c = halve.next(history(of, *trials))
            assert c == {**best.configuration, "s": 0.3}
            trials.append(trial(len(trials) + 1, c))
        assert halve.next(history(of, *trials)) is None


class TestFirstLooks:
    def looks(self, of: Problem, count: int = 3, every: bool = False) -> ScalingDesign:
        return ScalingDesign(of, (0.1, 0.3), "random", count, every, 1)

    def test_the_least_data_first_then_the_cheapest_on_more(self) -> None:
        of = problem(goal=QUALITY)
        looks = self.looks(of)
        assert looks.size == 4
        trials: list[Trial] = []
        for number, time_s in ((1, 9.0), (2, 1.0), (3, 4.0)):
            proposal = looks.next(history(of, *trials), 1.0)
            assert proposal is not None
            assert proposal.configuration["s"] == 0.1
            assert proposal.why == "first look, on the least data"
            trials.append(trial(number, proposal.configuration, cost_usd=time_s, time_s=time_s))
        scaled = looks.next(history(of, *trials), 1.0)
        assert scaled is not None
        assert scaled.configuration == {**trials[1].configuration, "s": 0.3}
        assert scaled.why == "first look, at how it scales"
        done = history(of, *trials, trial(4, scaled.configuration))
        assert looks.next(done, 1.0) is None
        failed = history(of, *trials, trial(4, scaled.configuration, FAILED, measures={}))
        other = looks.next(failed, 1.0)
        assert other is not None
        assert other.configuration["s"] == 0.1
        assert other.configuration not in [t.configuration for t in trials]

    def test_only_runs_that_ended_and_took_time_are_scaled(self) -> None:
        of = problem(goal=QUALITY)
        looks = self.looks(of)
        trials: list[Trial] = []
        for number in (1, 2, 3):
            proposal = looks.next(history(of, *trials), 1.0)
            assert proposal is not None
            more: dict[str, Any] = [{"status": CUT}, {"time_s": 0.0}, {}][number - 1]
            trials.append(trial(number, proposal.configuration, cost_usd=float(number), **more))
        scaled = looks.next(history(of, *trials), 1.0)
        assert scaled is not None
        assert scaled.configuration == {**trials[2].configuration, "s": 0.3}

    def test_as_published_every_one_at_every_share(self) -> None:
        of = problem(goal=QUALITY)
        looks = self.looks(of, 2, every=True)
        assert looks.size == 4
        trials: list[Trial] = []
        for number in range(1, 5):
            proposal = looks.next(history(of, *trials), 1.0)
            assert proposal is not None
            trials.append(trial(number, proposal.configuration))
        assert [t.configuration["s"] for t in trials] == [0.1, 0.1, 0.3, 0.3]
        assert looks.next(history(of, *trials), 1.0) is None

    def test_what_the_money_cannot_start_is_passed_over(self) -> None:
        of = problem(goal=QUALITY, minimum_s=100.0)
        for money, most in ((0.4, 4), (0.1, 1)):
            proposal = self.looks(of, 9).next(history(of), money)
            assert proposal is not None
            assert proposal.configuration["n"] <= most
        assert self.looks(of).next(history(of), 0.09) is None


class TestHyperband:
    def test_a_record_keeps_order_and_beginnings(self) -> None:
        of = problem(goal=QUALITY)
        trials = (
            trial(2, at(2, s=0.3)), trial(1, at(1)), trial(3, at(1, s=0.3)), trial(4, at(8), known=True),
        )  # fmt: skip
        record = BracketState(of, history(of, *trials, pending=[at(4)]))
        assert record.by_start() == {0.1: [(1, 0.1), (4, 0.1)], 0.3: [(2, 0.1)]}
        assert record.pending == {((4, 0.1), 0.1)}
        assert record.beta == 0.0
        assert ((8, 0.1), 0.1) in record.trials

    def test_bohb_splits_by_the_largest_share_that_tells_enough(self) -> None:
        of = problem(goal=QUALITY)
        strategy: Any = build("bohb", of, {"good_share": 0.5}, 1)
        groups = len(of.groups)
        least = [c for c in of.space.configurations() if c["s"] == 0.1]
        more = [c for c in of.space.configurations() if c["s"] == 0.3]
        scores = {of.space.key(c): k for k, c in enumerate([*least, *more])}

        def split(*chosen: Configuration) -> Any:
            trials = [
                trial(k, c, measures={"accuracy": 1 - scores[of.space.key(c)] / 100})
                for k, c in enumerate(chosen, start=1)
            ]
            return strategy._split(BracketState(of, history(of, *trials)))

        enough = 2 * (groups + 1)
        assert split(*least[: enough - 1]) is None
        good, rest = split(*reversed(least[:enough]))
        assert (good, rest) == (least[: enough // 2], least[enough // 2 : enough])
        good, rest = split(*least, *more[:enough])
        assert good + rest == more[:enough]
        good, rest = split(*least)
        assert good == least[: max(groups + 1, 6)]
        features = strategy._features(least[:2])
        own = next(columns for name, columns in of.space.groups if name == "s")
        assert features == pytest.approx(np.delete(of.candidates(least[:2]).features, own, axis=1))

    def test_bohb_draws_where_the_good_are_denser(self) -> None:
        of = problem(goal=QUALITY)
        strategy: Any = build("bohb", of, {"random_share": 0.0}, 1)
        least = [c for c in of.space.configurations() if c["s"] == 0.1]
        trials = [
            trial(k, c, measures={"accuracy": 1 / c["n"] + c["rate"]})
            for k, c in enumerate(least[:11], start=1)
        ]
        record = BracketState(of, history(of, *trials))
        good, bad = strategy._split(record)
        ratio = [
            bohb.log_density(strategy._features(good), strategy._features([c]))[0]
            - bohb.log_density(strategy._features(bad), strategy._features([c]))[0]
            for c in least
        ]
        picked = strategy._pick(record, least, np.random.default_rng(1))
        assert ratio[least.index(picked)] == pytest.approx(max(ratio), abs=1e-8)
        always: Any = build("bohb", of, {"random_share": 1.0}, 1)
        drawn = {of.space.key(always._pick(record, least, np.random.default_rng(k))) for k in range(20)}
        assert len(drawn) > 5

    def test_an_endless_space_is_drawn_from_anew(self) -> None:
        of, calls = spied(problem(ENDLESS, QUALITY))
        strategy = build("hyperband", of, {}, 1)
        proposal = strategy.propose(
            history(of, trial(1, at(1, 0.01, 0.01)), pending=[at(2, 0.01, 0.01)]), 1.0
        )
        assert proposal is not None
        assert calls == [(66, "random")]
        assert hyperband.DRAWS == 64


class TestSimple:
    def test_random_and_grid_take_what_the_money_can_start(self) -> None:
        of = problem({"n": [8, 4, 2]}, fraction=None, minimum_s=100.0)
        grid = build("grid", of, {}, 1)
        random = build("random", of, {}, 1)
        for money, sizes in ((0.8, {8, 4, 2}), (0.79, {4, 2}), (0.2, {2}), (0.19, set())):
            drawn = {
                p.configuration["n"]
                for seed in range(12)
                if (p := build("random", of, {}, seed).propose(history(of), money)) is not None
            }
            assert drawn == sizes
            following = grid.propose(history(of), money)
            order = [c["n"] for c in of.space.configurations() if c["n"] in sizes]
            assert (following.configuration["n"] if following else None) == next(iter(order), None)
        seen = history(of, trial(1, {"n": 8}), pending=[{"n": 2}])
        for strategy in (grid, random):
            proposal = strategy.propose(seen, 9.0)
            assert proposal is not None
            assert proposal.configuration == {"n": 4}
            assert (
                strategy.propose(history(of, trial(1, {"n": 8}), pending=[{"n": 2}, {"n": 4}]), 9.0) is None
            )

    def test_random_draws_one_more_than_were_tried_where_there_is_no_list(self) -> None:
        of, calls = spied(problem(ENDLESS))
        seen = history(of, trial(1, at(3, 0.01, 0.5)), pending=[at(4, 0.01, 0.5)])
        proposal = build("random", of, {}, 1).propose(seen, 9.0)
        assert calls == [(3, "random")]
        assert proposal is not None
        assert proposal.configuration in of.space
