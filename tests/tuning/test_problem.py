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


def candidates(*prices: Price) -> module.Candidates:
    many = Problem(Space.parse({"i": list(range(len(prices)))}), GOAL, lambda chosen: prices[chosen["i"]])
    return many.everything


PRICES = (
    Price(3.6, "", "by the second", minimum_s=60.0),
    Price(7.2, "", "with a boot", boot_s=100.0, release_s=20.0),
    Price(36.0, "", "by the hour", step_s=3600.0, boot_s=30.0),
    Price(0.0, "", "free", minimum_s=60.0, boot_s=30.0),
    Price(3.6, "", "in steps", minimum_s=90.0, step_s=60.0),
)


@pytest.mark.parametrize("seconds", [1.0, 60.0, 61.0, 120.0, 3570.0, 3571.0])
def test_the_bills_of_all_at_once_are_those_of_each_price(seconds: float) -> None:
    found = candidates(*PRICES)
    assert found.bill_usd(seconds) == pytest.approx([price.bill_usd(seconds) for price in PRICES])
    assert found.least_usd == pytest.approx([price.least_usd for price in PRICES])
    assert found.usd_per_s == pytest.approx([price.usd_per_h / 3600 for price in PRICES])


def test_beside_the_run_there_are_boot_give_back_and_half_a_step() -> None:
    assert candidates(*PRICES).beside_usd == pytest.approx([0.0, 0.24, 18.3, 0.0, 0.03])


def test_what_the_money_just_pays_can_be_started() -> None:
    found = candidates(*PRICES)
    assert found.payable(0.06).tolist() == [True, False, False, True, False]
    assert found.payable(0.0599).tolist() == [False, False, False, True, False]
    chosen = found.subset(np.array([4, 1]))
    assert chosen.payable(0.12).tolist() == [True, False]
    assert (len(chosen), chosen.configurations) == (2, [{"i": 4}, {"i": 1}])
    assert chosen.features.tolist() == found.features[[4, 1]].tolist()


def test_the_price_is_the_last_feature_where_it_varies() -> None:
    varying = problem({"n": [1, 2, 4]})
    assert varying.everything.features[:, -1] == pytest.approx([0.0, 0.5, 1.0])
    assert varying.groups[-1] == slice(varying.space.width, varying.space.width + 1)
    assert varying.everything.features.shape[1] == varying.space.width + 1
    same = problem({"m": [1, 2, 4]})
    assert same.everything.features.shape[1] == same.space.width
    assert [group.stop for group in same.groups] == [same.space.width]
    free = Problem(Space.parse({"n": [0, 1]}), GOAL, lambda chosen: Price(3.6 * chosen["n"], "", "test"))
    assert free.everything.features[:, -1] == pytest.approx([0.0, 1.0])
    assert free.candidates([]).features.shape == (0, free.space.width + 1)


def test_a_problem_stops_early_unless_told() -> None:
    assert problem({"n": [1]}).early_stop
    assert problem({"n": [1]}).measures == ("accuracy",)
    assert module.LISTED == 200_000


@pytest.mark.parametrize(("count", "listed"), [(4, True), (5, False)])
def test_up_to_some_size_a_space_is_listed(count: int, listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED", 4)
    one = problem({"n": list(range(1, count + 1))})
    assert one.listed is listed
    if not listed:
        with pytest.raises(BadInput, match="too large to list"):
            _ = one.everything
        return
    assert [one.index({"n": n}) for n in (1, 4)] == [0, 3]


def test_what_the_rule_excludes_has_no_place() -> None:
    assert [problem({"n": [1, 2, 3]}, rule="n != 2").index({"n": n}) for n in (1, 2, 3)] == [0, -1, 1]
