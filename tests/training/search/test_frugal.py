"""The frugal search: cheap first, then near the best, then on more data."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from prudent.core.parameters import Categorical, Constant, Ordinal, Parameter
from prudent.core.ranges import Integer, Real
from prudent.core.space import Space
from prudent.training.search.frugal import FrugalOptions, FrugalSearch
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.trial import FINISHED, Proposal, Trial

GOAL = Goal.parse("maximise score")


def problem(*parameters: Parameter, fraction: str | None = None) -> Problem:
    from prudent.core.money import Price

    return Problem(Space(list(parameters)), GOAL, lambda c: Price(1.0, "", ""), ("score",), fraction, False)


def trial(number: int, configuration: dict[str, Any], score: float, time_s: float = 1.0) -> Trial:
    return Trial(number, configuration, FINISHED, time_s, 0.0, 0.0, {"score": score}, True)


def follow(
    strategy: FrugalSearch, score: Any, count: int, time_s: Any = lambda c: 1.0
) -> list[dict[str, Any]]:
    trials: list[Trial] = []
    for number in range(1, count + 1):
        proposal = strategy.propose(History(GOAL, tuple(trials)), math.inf)
        if proposal is None:
            break
        where = proposal.configuration
        trials.append(trial(number, where, score(where), time_s(where)))
    return [made.configuration for made in trials]


def test_the_cheap_configuration_is_first() -> None:
    asked = problem(Integer("trees", 5, 300, log=True), Real("rate", 0.01, 1, log=True))
    strategy = FrugalSearch(asked, FrugalOptions((("trees", 5), ("rate", 0.5))), 0)
    assert follow(strategy, lambda c: 0.0, 1) == [{"trees": 5, "rate": 0.5}]


def test_it_comes_near_the_best_of_a_hill() -> None:
    asked = problem(Real("x", 0, 1), Real("y", 0, 1))

    def height(c: dict[str, Any]) -> float:
        return -float((c["x"] - 0.8) ** 2 + (c["y"] - 0.2) ** 2)

    best = []
    for seed in range(5):
        tried = follow(FrugalSearch(asked, FrugalOptions((("x", 0.1), ("y", 0.9))), seed), height, 60)
        best.append(max(height(c) for c in tried))
    assert sorted(best)[2] > -0.002


def test_more_data_are_used_once_steps_stop_helping() -> None:
    asked = problem(Real("x", 0, 1), Ordinal("fraction", [0.0625, 0.25, 1.0], log=True), fraction="fraction")
    strategy = FrugalSearch(asked, FrugalOptions((("x", 0.5), ("fraction", 0.0625))), 0)
    tried = follow(strategy, lambda c: -abs(c["x"] - 0.3) + c["fraction"], 60, lambda c: c["fraction"])
    shares = [c["fraction"] for c in tried]
    assert shares == sorted(shares)
    assert set(shares) == {0.0625, 0.25, 1.0}
    first_whole = shares.index(1.0)
    best_before = max(
        (c for c in tried[:first_whole] if c["fraction"] == 0.25), key=lambda c: -abs(c["x"] - 0.3)
    )
    assert tried[first_whole]["x"] == best_before["x"]


def test_a_small_space_is_tried_whole_and_nothing_twice() -> None:
    asked = problem(Ordinal("a", [1, 2, 3]), Categorical("b", ["x", "y"]), Constant("c", 1))
    tried = follow(FrugalSearch(asked, FrugalOptions(), 3), lambda c: c["a"], 50)
    assert len(tried) == 6
    assert len({tuple(c.items()) for c in tried}) == 6


def test_what_is_under_way_is_not_proposed_again_and_the_answer_is_pure() -> None:
    asked = problem(Ordinal("a", list(range(10))), Ordinal("b", list(range(10))))
    strategy = FrugalSearch(asked, FrugalOptions((("a", 0), ("b", 0))), 1)
    pending: tuple[Proposal, ...] = ()
    for _ in range(20):
        proposal = strategy.propose(History(GOAL, (), pending), math.inf)
        assert proposal is not None
        again = FrugalSearch(asked, FrugalOptions((("a", 0), ("b", 0))), 1).propose(
            History(GOAL, (), pending), 1.0
        )
        assert again == proposal
        assert proposal.configuration not in [other.configuration for other in pending]
        pending = (*pending, proposal)


@given(st.integers(0, 1000), st.lists(st.floats(-10, 10), min_size=1, max_size=25))
@settings(max_examples=40, deadline=None)
def test_every_proposal_is_of_the_space(seed: int, scores: list[float]) -> None:
    asked = problem(
        Integer("n", 1, 50, log=True), Real("r", 1e-3, 1, log=True), Categorical("k", ["a", "b", "c"])
    )
    values = iter([*scores, *scores])
    for configuration in follow(
        FrugalSearch(asked, FrugalOptions(), seed), lambda c: next(values), len(scores)
    ):
        assert configuration in asked.space
