"""What the whole of a run is taken to cost that was cut, and the first runs of the published presets."""

from __future__ import annotations

import pytest

from prudent.core.errors import BadInput
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.strategies.published.extrapolators import CutRun, curve
from prudent.tuning.strategies.published.stopping import iterations_to_see
from prudent.tuning.study.study import Study
from prudent.tuning.trial import CUT, Configuration, Trial

GOAL = Goal.parse("minimise cost_usd subject to accuracy >= 0.8")


def cut(estimate: dict[str, float], time_s: float = 60.0) -> CutRun:
    return CutRun(Trial(1, {}, CUT, time_s, 0.02, 0.02, {"accuracy": 0.4}, False, estimate=estimate), GOAL)


def test_the_curve_takes_the_time_that_was_estimated_for_the_whole_run() -> None:
    assert curve(cut({"time_s": 180.0})) == pytest.approx(0.06)


def test_the_curve_is_never_below_what_was_paid() -> None:
    assert curve(cut({"time_s": 30.0})) == 0.02


def test_without_an_estimate_the_curve_knows_what_was_paid() -> None:
    assert curve(cut({})) == 0.02
    assert curve(cut({"time_s": 180.0}, time_s=0.0)) == 0.02


@pytest.mark.parametrize("share", [-0.5, 0.0, 1.0, 1.5])
def test_a_share_of_the_rows_lies_between_none_and_all(share: float) -> None:
    with pytest.raises(BadInput, match="above 0 and below 1"):
        iterations_to_see(100, 10, share)


def firsts(start_trials: int, asked: int) -> list[Configuration]:
    space = Space.parse({"n": list(range(1, 11)), "size": [1, 2, 4]})
    options = {"as": "published", "start_trials": start_trials}
    study = Study(space, "minimise cost_usd", lambda c: Price(float(c["n"]), "", ""), 1e6, "obol", options)
    found = []
    for _ in range(asked):
        ask = study.ask()
        assert ask is not None
        study.tell(ask.number, time_s=100.0)
        found.append(ask.configuration)
    return found


def test_random_first_runs_are_the_same_however_many_are_wanted() -> None:
    assert firsts(3, 3) == firsts(7, 7)[:3] == firsts(12, 12)[:3]
