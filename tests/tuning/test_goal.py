"""Goals as people write them, and what keeps them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.core.errors import BadInput
from prudent.tuning.goal import Constraint, Goal


def test_a_sentence_and_a_mapping_mean_the_same() -> None:
    sentence = Goal.parse("minimise cost_usd subject to time_s <= 5 min and accuracy >= 85 %")
    listed = Goal.parse({"minimise": "cost_usd", "subject_to": ["time_s <= 300", "accuracy >= 0.85"]})
    named = Goal.parse({"minimise": "cost_usd", "subject_to": {"time_s": "<= 5 min", "accuracy": ">= 0.85"}})
    text = Goal.parse({"minimise": "cost_usd", "subject_to": "time_s <= 5 min, accuracy >= 0.85"})
    assert sentence == listed == named == text
    assert sentence.measures == ("cost_usd", "time_s", "accuracy")


@pytest.mark.parametrize(
    ("text", "minimise", "measure", "bounds"),
    [
        ("maximise accuracy", False, "accuracy", []),
        ("MAXIMIZE accuracy subject to cost_usd < $0.10", False, "accuracy", [0.1]),
        ("minimise time_s subject to memory_mb ≤ 4 GB, error <= 5 %", True, "time_s", [4000.0, 0.05]),
        ("minimise cost_usd   subject   to time_s <= 1 h 30 min", True, "cost_usd", [5400.0]),
        ("minimise cost_usd subject to time_s <= 5 min For 1,000 runs", True, "cost_usd", [300.0]),
    ],
)
def test_forms(text: str, minimise: bool, measure: str, bounds: list[float]) -> None:
    goal = Goal.parse(text)
    assert (goal.minimise, goal.measure) == (minimise, measure)
    assert [constraint.bound for constraint in goal.constraints] == bounds
    assert Goal.parse(str(goal)) == goal


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("minimse cost_usd", 'Did you mean "minimise"'),
        ("cost_usd", "write it like"),
        ("minimise cost_usd subject to time_s", "Cannot read the constraint"),
        ("minimise cost_usd subject to time_s <= 5 minuts", 'Did you mean "minutes"'),
        ("minimise cost_usd subject to time_s <= $5", "wrong unit"),
        ("minimise cost_usd subject to cost_usd <= 5 min", "wrong unit"),
        ({"minimise": "cost_usd", "subjct_to": []}, 'Did you mean "subject_to"'),
        ({"minimise": "cost_usd", "maximise": "accuracy"}, "exactly one"),
        ({"subject_to": ["time_s <= 5"]}, "exactly one"),
        (["minimise cost_usd"], "a sentence or a mapping"),
        ("minimise cost_usd for many runs", "give a whole number"),
        ("minimise cost_usd for 0 runs", "give 1 or more"),
        ("minimise time_s for 20 runs", "leave it out"),
        ({"minimise": "cost_usd", "runs_planned": 2.5}, "give a whole number"),
        ({"minimise": "cost_usd", "runs_planed": 20}, 'Did you mean "runs_planned"'),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_remedy(text: object, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Goal.parse(text)  # type: ignore[arg-type]


def test_planned_runs_are_part_of_the_goal() -> None:
    sentence = Goal.parse("minimise cost_usd subject to time_s <= 300 for 1,200 runs")
    assert sentence.runs_planned == 1200
    assert sentence == Goal.parse(
        {"minimise": "cost_usd", "subject_to": "time_s <= 300", "runs_planned": 1200}
    )
    assert sentence == Goal.parse(
        {"minimise": "cost_usd", "subject_to": "time_s <= 300", "runs_planned": "1200"}
    )
    assert sentence != Goal.parse("minimise cost_usd subject to time_s <= 300")
    assert Goal.parse("minimise cost_usd for 1 run").runs_planned == 1


def test_a_constraint_on_something_nobody_measures_is_refused() -> None:
    goal = Goal.parse("minimise cost_usd subject to acuracy >= 0.8")
    with pytest.raises(BadInput, match=r'"acuracy"\. Did you mean "accuracy"'):
        goal.check_measures(["accuracy"])


def test_bounds_that_cut_runs() -> None:
    goal = Goal.parse("minimise cost_usd subject to time_s <= 300 and time_s <= 200 and cost_usd <= $1")
    assert (goal.max_time_s, goal.max_cost_usd) == (200, 1)
    free = Goal.parse("minimise cost_usd subject to time_s >= 10")
    assert free.max_time_s == math.inf


def test_full_data() -> None:
    goal = Goal.parse("maximise accuracy at full data subject to cost_usd <= $0.1 at full data")
    assert goal.at_full_data
    assert goal.constraints[0].at_full_data
    assert goal.speaks_of_full_data
    assert Goal.parse(str(goal)) == goal


def test_unmeasured_values_keep_nothing() -> None:
    goal = Goal.parse("minimise cost_usd subject to accuracy >= 0.8")
    assert not goal.feasible({})
    assert goal.excess({}) == math.inf
    assert goal.excess({"accuracy": math.nan}) == math.inf


@given(
    sign=st.sampled_from(["<=", ">=", "<", ">"]),
    bound=st.floats(-1e6, 1e6).filter(lambda x: abs(x) > 1e-3),
    value=st.floats(-1e6, 1e6),
)
def test_excess_is_zero_exactly_where_it_holds_or_touches(sign: str, bound: float, value: float) -> None:
    constraint = Constraint("x", sign, bound)
    if constraint.holds(value):
        assert constraint.excess(value) == 0
    else:
        assert constraint.excess(value) > 0 or value == bound
