"""When a run is cut: each rule of the early time-out by itself, and which of them comes first."""

from __future__ import annotations

import math

import pytest

from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.problem import Problem
from prudent.tuning.study.limits import NEVER, NOT_CHEAPER, NOT_FASTER, TOO_DEAR, TOO_SLOW, Limit, early_limit
from prudent.tuning.trial import FINISHED, Trial

SPACE = Space.parse({"n": [1, 2], "s": [0.5, 1.0]})
PRICE = Price(3.6, "2025-01-01", "test")  # 0.001 $ a second
FULL, PART = {"n": 1, "s": 1.0}, {"n": 1, "s": 0.5}


def limit(
    goal: str, best: Trial | None = None, chosen: dict[str, object] = FULL, early_stop: bool = True
) -> Limit:
    problem = Problem(SPACE, Goal.parse(goal), lambda _: PRICE, ("accuracy",), "s", early_stop)
    return early_limit(problem, chosen, PRICE, best)


def best(time_s: float = 50.0, cost_usd: float = 0.08) -> Trial:
    return Trial(1, FULL, FINISHED, time_s, cost_usd, cost_usd, {"accuracy": 0.9}, True)


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        ("minimise cost_usd", NEVER),
        ("minimise cost_usd subject to time_s <= 300", Limit(300.0, TOO_SLOW)),
        ("minimise cost_usd subject to time_s < 300", Limit(300.0, TOO_SLOW)),
        ("minimise cost_usd subject to time_s >= 300", NEVER),
        ("minimise cost_usd subject to accuracy <= 0.5", NEVER),
        ("minimise cost_usd subject to cost_usd <= 0.2", Limit(pytest.approx(200.0), TOO_DEAR)),
        (
            "minimise time_s subject to time_s <= 300 and cost_usd <= 0.2",
            Limit(pytest.approx(200.0), TOO_DEAR),
        ),
        ("minimise time_s subject to time_s <= 100 and cost_usd <= 0.2", Limit(100.0, TOO_SLOW)),
    ],
)
def test_bounds_of_the_goal(goal: str, expected: Limit) -> None:
    assert limit(goal) == expected
    assert limit(goal, early_stop=False) == NEVER


def test_bounds_at_full_data_say_nothing_about_a_part() -> None:
    goal = "minimise cost_usd subject to time_s <= 300 at full data"
    assert limit(goal) == Limit(300.0, TOO_SLOW)
    assert limit(goal, chosen=PART) == NEVER
    assert limit("minimise cost_usd subject to time_s <= 300", chosen=PART) == Limit(300.0, TOO_SLOW)


def test_the_best_run_so_far() -> None:
    assert limit("minimise cost_usd", best()) == Limit(pytest.approx(80.0), NOT_CHEAPER)
    assert limit("minimise time_s", best()) == Limit(50.0, NOT_FASTER)
    assert limit("minimise accuracy", best()) == NEVER
    assert limit("maximise cost_usd", best()) == NEVER
    assert limit("maximise time_s", best()) == NEVER
    assert limit("minimise cost_usd", best(), early_stop=False) == NEVER
    assert limit("minimise cost_usd subject to time_s <= 60", best()) == Limit(60.0, TOO_SLOW)
    assert limit("minimise time_s subject to time_s <= 60", best()) == Limit(50.0, NOT_FASTER)


def test_a_part_is_not_held_against_the_whole_unless_it_can_be_the_answer() -> None:
    assert limit("minimise cost_usd at full data", best(), PART) == NEVER
    assert limit("minimise cost_usd", best(), PART) == Limit(pytest.approx(80.0), NOT_CHEAPER)


def test_limits_are_ordered_by_their_time() -> None:
    assert min(NEVER, Limit(3.0, "b"), Limit(2.0, "z")) == Limit(2.0, "z")
    assert NEVER.seconds == math.inf
