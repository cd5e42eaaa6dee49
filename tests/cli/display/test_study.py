"""The last lines of a study: a comparison that is fair, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prudent.cli.display.study import answer_lines, comparison_with_others, money_notes
from prudent.core.ledger import LedgerEntry
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.result import Result
from prudent.tuning.study.settlement import INTERRUPTED
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Outcome
from prudent.tuning.tune import summary

GOAL = "minimise cost_usd subject to accuracy >= 0.8"


def study_of(outcomes: Sequence[Outcome], goal: str = GOAL) -> Result:
    """A study whose runs came out like this, at a dollar a second."""
    space = Space.parse({"x": {"integer": [1, 50]}})
    study = Study(space, goal, lambda c: 3600.0, None, "grid", measures=["accuracy"])
    for outcome in outcomes:
        ask = study.ask()
        assert ask is not None
        study.tell(ask.number, outcome)
    return summary(study, "job")


def run(time_s: float, accuracy: float = 0.9, status: str = "finished") -> Outcome:
    return Outcome(status, time_s, {"accuracy": accuracy}, "" if status == "finished" else "a reason")


def comparison(outcomes: Sequence[Outcome], goal: str = GOAL) -> str:
    result = study_of(outcomes, goal)
    assert result.best is not None
    return comparison_with_others(result, result.best)


def test_only_runs_that_keep_the_goal_count() -> None:
    others = [
        run(1.0, accuracy=0.1),
        run(900.0, accuracy=0.2),
        run(800.0, status="cut"),
        run(5, status="failed"),
    ]
    assert comparison([run(10.0), run(20.0), run(40.0), *others]) == (
        "3.0 times less than the average of the 2 other runs that keep the goal, $30.00"
    )


def test_one_other_run() -> None:
    assert (
        comparison([run(10.0), run(25.0)])
        == "2.5 times less than the only other run that keeps the goal, $25.00"
    )


def test_nothing_to_compare_with_or_nothing_gained_says_nothing() -> None:
    assert comparison([run(10.0)]) == ""
    assert comparison([run(10.0), run(1.0, accuracy=0.1), run(3.0, status="cut")]) == ""
    assert comparison([run(10.0), run(10.4)]) == "", "never 1.0 times less, let alone 0.9"
    assert comparison([run(0.0), run(0.0)]) == ""


def test_other_measures_are_set_side_by_side() -> None:
    goal = "maximise accuracy subject to time_s <= 50 s"
    assert comparison([run(10, 0.95), run(20, 0.8), run(20, 0.9), run(90, 0.99)], goal) == (
        "accuracy 0.95 against 0.85, the average of the 2 other runs that keep the goal"
    )
    assert comparison([run(10, 0.95), run(20, 0.95)], goal) == ""


def test_an_interrupted_study_says_what_becomes_of_the_runs_under_way() -> None:
    result = replace(study_of([run(10.0)]), interrupted=True)
    first = str(answer_lines(result)[0])
    assert first.startswith("Interrupted.")
    for words in ("is charged", "starts again from its beginning", "--resume"):
        assert words in first
    assert "Interrupted" not in str(answer_lines(study_of([run(10.0)]))[0])


def test_the_answer_says_what_went_to_interrupted_runs_and_what_passed_the_budget() -> None:
    result = study_of([run(10.0)])
    assert list(money_notes(result)) == []
    interrupted = LedgerEntry("trial 2", 5.0, 5.0, Price(3600.0, "", "test"), note=INTERRUPTED)
    cut_off = replace(result, entries=(*result.entries, interrupted), spent_usd=15.0, budget_usd=12.0)
    assert (cut_off.interrupted_usd, cut_off.over_usd) == (5.0, 3.0)
    first, second = money_notes(cut_off)
    assert first == "$5.00 of it for a run that was interrupted"
    assert second.startswith("$3.00 more than the budget: something did not end in time")
