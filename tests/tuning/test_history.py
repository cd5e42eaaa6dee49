"""What a study knows: which trial is the best, which comes nearest, and what was tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prudent.core.errors import BadInput
from prudent.tuning.goal import Goal
from prudent.tuning.history import History
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Proposal, Trial

GOAL = Goal.parse("minimise cost_usd subject to time_s <= 100")
BEST = Goal.parse("maximise accuracy subject to time_s <= 100")


def trial(
    number: int, cost_usd: float, status: str = FINISHED, time_s: float = 50.0, **more: object
) -> Trial:
    values = {"measures": {"accuracy": 0.5}, "feasible": status == FINISHED and time_s <= 100, **more}
    return Trial(number, {"n": number}, status, time_s, cost_usd, cost_usd, **values)  # type: ignore[arg-type]


def test_the_best_is_finished_feasible_and_the_earliest_among_equals() -> None:
    trials = (
        trial(1, 0.1, time_s=101.0),
        trial(2, 0.2, CUT),
        trial(3, 0.3, FAILED),
        trial(4, 0.5),
        trial(5, 0.4),
        trial(6, 0.4),
    )
    found = History(GOAL, trials).best
    assert found is not None
    assert found.number == 5
    assert History(GOAL, trials[:3]).best is None
    assert History(GOAL).best is None


def test_the_best_of_what_is_maximised() -> None:
    trials = tuple(trial(n, 1.0, measures={"accuracy": value}) for n, value in ((1, 0.5), (2, 0.9), (3, 0.9)))
    found = History(BEST, trials).best
    assert found is not None
    assert found.number == 2
    assert History(BEST, (trial(1, 1.0, measures={}),)).best is None


def test_the_nearest_has_finished_and_misses_by_least() -> None:
    trials = (trial(1, 1.0, time_s=140.0), trial(2, 1.0, time_s=120.0), trial(3, 1.0, CUT, time_s=101.0))
    found = History(GOAL, trials).nearest
    assert found is not None
    assert found.number == 2
    assert History(GOAL, trials[2:]).nearest is None


def test_failed_runs_tell_nothing_about_cost_but_are_not_tried_again() -> None:
    history = History(GOAL, (trial(1, 1.0), trial(2, 1.0, CUT), trial(3, 1.0, FAILED)), (Proposal({"n": 9}),))
    assert [one.number for one in history.working] == [1, 2]
    assert list(history.configurations) == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 9}]
    assert (len(history), [one.number for one in history]) == (3, [1, 2, 3])
    longer = history.plus(trial(4, 0.5))
    assert ([one.number for one in longer], longer.pending) == ([1, 2, 3, 4], history.pending)
    assert len(history) == 3


def test_the_distance_from_a_bound_is_relative_to_it() -> None:
    both = Goal.parse("minimise cost_usd subject to time_s <= 100 and accuracy >= 0.8")
    assert both.excess({"time_s": 150.0, "accuracy": 0.6}) == pytest.approx(0.5 + 0.25)
    assert both.excess({"time_s": 100.0, "accuracy": 0.8}) == 0.0


def test_a_trial_survives_a_journal_and_knows_its_values() -> None:
    one = trial(1, 0.25, estimate={"time_s": 70.0})
    assert Trial.from_dict(one.to_dict()) == one
    assert one.values == {"accuracy": 0.5, "time_s": 50.0, "cost_usd": 0.25}
    assert (one.finished, replace(one, status=CUT).finished) == (True, False)
    with pytest.raises(BadInput, match="damaged"):
        Trial.from_dict({**one.to_dict(), "colour": "red"})


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"status": "gone"}, "not a way to end"),
        ({"time_s": -0.1}, "cannot last"),
        ({"time_s": float("inf")}, "cannot last"),
        ({"measures": {"x": float("inf")}}, "measure x is inf"),
    ],
)
def test_an_impossible_end_is_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Outcome(**{"status": FINISHED, "time_s": 0.0, **wrong})  # type: ignore[arg-type]
    assert Outcome(FINISHED, 0.0).time_s == 0.0
