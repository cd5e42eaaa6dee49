"""The live view shows what is true, and fits."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from prudent.cli.display.study_live import BudgetState, StudyProgress, draw, money_bar, trial_text
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.reports import formatting
from prudent.tuning.goal import Goal
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Outcome, Progress
from prudent.tuning.tune import TrialEnded, TrialExtended, TrialReported, TrialStarted


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def shown(board: StudyProgress, width: int = 100, over: bool = False) -> str:
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    console.print(draw(board, width, over))
    return console.export_text()


@pytest.fixture
def study() -> Study:
    space = Space.parse({"workers": [1, 2, 4], "kind": ["plain", "fancy"], "epochs": 20})
    goal = "minimise cost_usd subject to time_s <= 100 and accuracy >= 0.8"
    return Study(
        space, goal, lambda c: Price(3.6 * c["workers"], "", "test"), 1.0, "grid", measures=["accuracy"]
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(study: Study, clock: Clock) -> StudyProgress:
    return StudyProgress("digits", study.goal, 1.0, virtual=False, clock=clock)


def begin(board: StudyProgress, study: Study) -> int:
    ask = study.ask()
    assert ask is not None
    board.watch(TrialStarted(ask), study)
    return ask.number


def end(board: StudyProgress, study: Study, number: int, outcome: Outcome) -> None:
    trial = study.tell(number, outcome)
    board.watch(TrialEnded(trial), study)


def test_before_anything_happened(board: StudyProgress) -> None:
    text = shown(board)
    assert "digits  minimise cost_usd subject to time_s <= 1 min 40 s and accuracy >= 0.8" in text
    assert "$0.00 spent · $1.00 left of $1.00" in text
    assert "Running" not in text


def test_what_runs_how_far_it_is_what_it_costs_and_why(
    board: StudyProgress, study: Study, clock: Clock
) -> None:
    number = begin(board, study)
    study.extend(number)
    board.watch(TrialExtended(number), study)
    board.watch(TrialReported(number, Progress(10.0, {"accuracy": 0.5, "memory_mb": 9.0}, 0.4)), study)
    clock.now_s += 40
    text = shown(board)
    assert "#1  workers=1 kind=plain epochs=20" in text
    first, second = (line for line in text.splitlines() if "#1" in line or "next on the grid" in line)
    assert first.endswith("40.0 s of 1 min 40 s  $0.04")
    assert second.endswith("40%  accuracy 0.5")
    assert "next on the grid" in text
    assert "reserved" in text
    assert "seed 0  0:40" in text


def test_the_clock_of_a_replayed_job_is_its_own(study: Study, clock: Clock) -> None:
    board = StudyProgress("digits", study.goal, 1.0, virtual=True, clock=clock)
    number = begin(board, study)
    board.watch(TrialReported(number, Progress(12.0, {}, 0.4)), study)
    clock.now_s += 500
    assert "  12.0 s  $0.012" in shown(board)


def test_a_run_that_does_not_end_is_shown_with_what_it_costs(
    board: StudyProgress, study: Study, clock: Clock
) -> None:
    number = begin(board, study)
    study.extend(number)
    board.watch(TrialExtended(number), study)
    clock.now_s += 130
    assert "2 min 10 s of 1 min 40 s  $0.13" in shown(board)


def test_ended_trials_and_the_best(board: StudyProgress, study: Study) -> None:
    outcomes = [
        Outcome("finished", 50.0, {"accuracy": 0.9}),
        Outcome("finished", 20.0, {"accuracy": 0.95}),
        Outcome("cut", 10.0, {"accuracy": 0.3}, "its bill passed the best run so far"),
        Outcome("failed", 1.0, {}, "exit code 3"),
    ]
    for outcome in outcomes:
        end(board, study, begin(board, study), outcome)
    text = shown(board, 120)
    assert "✓ #1" in text
    assert "★ #2" in text
    assert "best so far" in next(line for line in text.splitlines() if "#2" in line)
    assert ">10.0 s" in next(line for line in text.splitlines() if "✂ #3" in line)
    assert "exit code 3" in next(line for line in text.splitlines() if "✗ #4" in line)
    assert "epochs" not in text.split("Trials")[1].split("Best")[0], "what never varies is left out"
    assert "Best  $0.02 a run, 20.0 s, accuracy 0.95" in text
    assert "Best  $" not in shown(board, 120, over=True), "the answer follows, no need to say it twice"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_no_line_is_wider_than_the_window(board: StudyProgress, study: Study, width: int) -> None:
    for number in range(3):
        end(board, study, begin(board, study), Outcome("finished", 5.0 + number, {"accuracy": 0.9}))
    begin(board, study)
    assert max(len(line) for line in shown(board, width).splitlines()) <= width


def test_the_bar_is_in_proportion() -> None:
    bar = money_bar(BudgetState(2.0, 0.5, 0.5), 150)
    text = bar.plain
    full, empty = text.count("━"), text.count("─")
    assert full == pytest.approx((full + empty) / 2, abs=1)
    assert "$0.50 spent · $0.50 reserved · $1.00 left of $2.00" in text
    assert "no budget" in money_bar(BudgetState(None, 0.5), 100).plain


def test_a_trial_in_one_line(study: Study, board: StudyProgress) -> None:
    end(board, study, begin(board, study), Outcome("finished", 50.0, {"accuracy": 0.9}))
    assert trial_text(study.trials[0], 1) == (
        "#1 finished  50.0 s  $0.05  accuracy 0.9  workers=1 kind=plain epochs=20"
    )


def test_a_goal_in_a_long_line_is_shortened_not_wrapped(clock: Clock) -> None:
    goal = Goal.parse("minimise cost_usd subject to " + " and ".join(f"m{n} >= {n}" for n in range(30)))
    board = StudyProgress("digits", goal, 1.0, virtual=False, clock=clock)
    assert len(shown(board, 80).splitlines()) == 3


def of_many_parameters(clock: Clock, parameters: dict[str, Any], trials: int = 12) -> StudyProgress:
    """A study with long names, cut and finished runs, and a measure that the goal does not speak of."""
    space = Space.parse(parameters)
    goal = "minimise cost_usd subject to accuracy >= 0.8"
    study = Study(space, goal, lambda c: 3.6, None, "random", measures=["accuracy", "memory_mb"])
    board = StudyProgress("wide", study.goal, None, virtual=False, clock=clock)
    for place in range(trials):
        measures = {"accuracy": 0.8123 + place / 1000, "memory_mb": 1234.0 + place}
        why = "its bill passed the best run so far" if place % 2 else ""
        end(board, study, begin(board, study), Outcome("cut" if why else "finished", 125.0, measures, why))
    begin(board, study)
    return board


SEVEN = {
    "machine": ["m5.large", "c5.2xlarge"], "workers": [1, 2, 4], "learning_rate": {"log": [1e-4, 1e-1]},
    "batch_size": [16, 64], "hidden_units": [32, 512], "dropout": [0.0, 0.5], "optimiser": ["adam", "sgd"],
}  # fmt: skip
ROW = re.compile(r"^  [★✓✂] #\d+ .* [ >]2 min 05 s  [ >]\$0\.125    0\.8\d+")


@pytest.mark.parametrize("width", [60, 80, 100, 120, 140])
def test_numbers_are_shown_in_full_at_any_width(clock: Clock, width: int) -> None:
    text = shown(of_many_parameters(clock, SEVEN), width)
    rows = text.split("Trials", 1)[1].split("Best")[0].splitlines()[1:]
    assert len([row for row in rows if ROW.match(row)]) == 8
    assert "time" in text
    assert "cost" in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_column_for_each_parameter_as_soon_as_there_is_room(clock: Clock) -> None:
    board = of_many_parameters(clock, SEVEN)
    header = {w: shown(board, w).split("Trials", 1)[1].splitlines()[0] for w in (80, 100, 140)}
    assert header[80].split() == ["configuration", "time", "cost", "accuracy"]
    assert header[100].split()[0] == "machine"
    assert len(header[100].split()) == 7 + 3, "the goal says nothing of memory: it gives way"
    assert header[140].split() == [*SEVEN, "time", "cost", "accuracy", "memory_mb"]


def test_many_parameters_share_one_column_which_is_shortened(clock: Clock) -> None:
    board = of_many_parameters(clock, {**{f"parameter_{n}": [1, 2] for n in range(12)}, "same": 3})
    text = shown(board, 100)
    rows = [line for line in text.splitlines() if ROW.match(line)]
    assert "configuration" in text
    assert all("parameter_0=" in row and "…" in row for row in rows)
    assert "same=3" not in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_the_best_configuration_is_told_in_full(clock: Clock) -> None:
    board = of_many_parameters(clock, SEVEN)
    told = " ".join(shown(board, 80).split("Best  ")[1].split())
    assert board.best is not None
    assert told.endswith(" ".join(f"{n}={formatting.value(v)}" for n, v in board.best.configuration.items()))


def test_a_first_trial_alone_shows_every_parameter(clock: Clock) -> None:
    parameters = {"workers": [1, 2, 4], "epochs": 20}
    titles = [shown(of_many_parameters(clock, parameters, n), 100).split("Trials")[1].split() for n in (1, 2)]
    assert titles[0][:3] == ["workers", "epochs", "time"]
    assert titles[1][:2] == ["workers", "time"]


def test_less_is_said_about_the_money_where_there_is_less_room() -> None:
    money = BudgetState(0.0123, 0.00456, 0.00123)
    said = {width: money_bar(money, width).plain for width in (100, 70, 45)}
    assert said[100].endswith("$0.00456 spent · $0.00123 reserved · $0.00651 left of $0.0123")
    assert said[70].endswith("$0.00456 spent · $0.00651 left of $0.0123")
    assert said[45].endswith("─  $0.00456 of $0.0123")
    assert all(len(text) == width for width, text in said.items())
