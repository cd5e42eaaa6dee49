"""What a strategy may know before the first run: prices, shares of the data, and what can be paid at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning import problem as module
from prudent.tuning.goal import Goal
from prudent.tuning.problem import Problem

GOAL = Goal.parse("minimise cost_usd")


def problem(
    parameters: dict[str, Any], goal: Goal = GOAL, fraction: str | None = None, **more: Any
) -> Problem:
    def price(chosen: dict[str, Any]) -> Price:
        return Price(3.6 * chosen.get("n", 1), "2025-01-01", "test", minimum_s=60.0)

    return Problem(Space.parse(parameters, **more), goal, price, ("accuracy",), fraction)


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ([0.0, 1.0], "has the value 0"),
        ([0.5, 1.5], "has the value 1.5"),
        ([-0.5, 1.0], "has the value -0.5"),
        (["half", "all"], "has the value half"),
        ([False, True], "has the value False"),
        ([0.5, 0.9], "never reaches 1"),
        ({"real": [0.0, 1.0]}, r"has the value 0\.0"),
        ({"real": [0.1, 0.9]}, "never reaches 1"),
    ],
)
def test_a_fraction_is_a_share_of_the_data_and_reaches_all_of_it(shares: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        problem({"s": shares}, fraction="s")


def test_a_goal_about_full_data_needs_a_fraction() -> None:
    with pytest.raises(BadInput, match="names no fraction"):
        problem({"n": [1, 2]}, Goal.parse("minimise cost_usd at full data"))


def test_what_is_full_and_what_answers() -> None:
    full = problem({"s": [0.5, 1.0]}, Goal.parse("maximise accuracy at full data"), "s")
    part = problem({"s": [0.5, 1.0]}, GOAL, "s")
    assert [full.is_full({"s": share}) for share in (0.5, 1.0, 1.0 - 1e-12)] == [False, True, True]
    assert [full.answers({"s": share}) for share in (0.5, 1.0)] == [False, True]
    assert [part.answers({"s": share}) for share in (0.5, 1.0)] == [True, True]
    assert problem({"n": [1]}).is_full({"n": 1})
    assert full.with_fraction({"s": 0.5, "n": 2}, 1.0) == {"s": 1.0, "n": 2}


def test_money_that_pays_the_billing_minimum_can_start_a_run() -> None:
    everything = problem({"n": [1, 2, 4]}).everything
    assert everything.usd_per_s.tolist() == pytest.approx([0.001, 0.002, 0.004])
    least_usd = float(everything.minimum_s[1] * everything.usd_per_s[1])
    assert everything.payable(least_usd).tolist() == [True, True, False]
    assert everything.payable(least_usd * (1 - 1e-9)).tolist() == [True, False, False]
    some = everything.subset(np.array([2, 0]))
    assert (some.configurations, some.usd_per_h.tolist()) == (
        [{"n": 4}, {"n": 1}],
        pytest.approx([14.4, 3.6]),
    )
    assert some.features.tolist() == everything.features[[2, 0]].tolist()


def test_the_price_is_one_more_feature_where_it_varies() -> None:
    varies = problem({"n": [1, 2, 4]})
    assert varies.everything.features[:, -1].tolist() == pytest.approx([0.0, 0.5, 1.0])
    assert varies.groups == [slice(0, 1), slice(1, 2)]
    same = problem({"m": [1, 2, 4]})
    assert same.everything.features.shape == (3, 1)
    assert same.groups == [slice(0, 1)]


def test_configurations_have_a_place() -> None:
    listed = problem({"n": [1, 2, 4], "k": ["a", "b"]}, rule="n < 4 or k == 'a'")
    assert [listed.index(one) for one in listed.everything.configurations] == [0, 1, 2, 3, 4]
    assert listed.index({"k": "b", "n": 2}) == listed.index({"n": 2, "k": "b"}) == 3
    assert listed.index({"n": 4, "k": "b"}) == -1


def test_spaces_are_listed_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED", 6)
    assert problem({"n": [1, 2, 4], "k": ["a", "b"]}).listed
    larger = problem({"n": [1, 2, 4, 8, 16, 32, 64]})
    assert not larger.listed
    with pytest.raises(BadInput, match="too large to list"):
        _ = larger.everything
    assert not problem({"x": {"real": [0, 1]}}).listed
    with pytest.raises(BadInput, match="excludes every configuration"):
        _ = problem({"n": [1, 2]}, rule="n > 2").everything
