"""The live view shows what is true, and fits."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from prudent.cli.board import Board, Money
from prudent.cli.live import draw, money_bar, trial_text
from prudent.core.money import Price
from prudent.core.space import Space
from prudent.tuning.goal import Goal
from prudent.tuning.study import Study
from prudent.tuning.trial import Outcome, Progress
from prudent.tuning.tune import Ended, Shown, Started


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def shown(board: Board, width: int = 100, over: bool = False) -> str:
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
def board(study: Study, clock: Clock) -> Board:
    return Board("digits", study.goal, 1.0, virtual=False, clock=clock)


def begin(board: Board, study: Study) -> int:
    ask = study.ask()
    assert ask is not None
    board.watch(Started(ask), study)
    return ask.number


def end(board: Board, study: Study, number: int, outcome: Outcome) -> None:
    trial = study.tell(number, outcome)
    board.watch(Ended(trial), study)


def test_before_anything_happened(board: Board) -> None:
    text = shown(board)
    assert "digits  minimise cost_usd subject to time_s <= 1 min 40 s and accuracy >= 0.8" in text
    assert "$0.00 spent · $1.00 left of $1.00" in text
    assert "Running" not in text


def test_what_runs_how_far_it_is_what_it_costs_and_why(board: Board, study: Study, clock: Clock) -> None:
    number = begin(board, study)
    study.extend(number)
    board.watch(Shown(number, Progress(10.0, {"accuracy": 0.5}, 0.4)), study)
    clock.now_s += 40
    text = shown(board)
    assert "#1  workers=1 kind=plain epochs=20" in text
    assert "40%  accuracy 0.5  40.0 s" in text
    assert "$0.04" in text
    assert "next on the grid" in text
    assert "reserved" in text
    assert "seed 0  0:40" in text


def test_the_clock_of_a_replayed_job_is_its_own(study: Study, clock: Clock) -> None:
    board = Board("digits", study.goal, 1.0, virtual=True, clock=clock)
    number = begin(board, study)
    board.watch(Shown(number, Progress(12.0, {}, 0.4)), study)
    clock.now_s += 500
    assert "40%  12.0 s" in shown(board)


def test_ended_trials_and_the_best(board: Board, study: Study) -> None:
    outcomes = [
        Outcome("finished", 50.0, {"accuracy": 0.9}),
        Outcome("finished", 20.0, {"accuracy": 0.95}),
        Outcome("cut", 10.0, {"accuracy": 0.3}, "its bill passed the best run so far"),
        Outcome("failed", 1.0, {}, "exit code 3"),
    ]
    for outcome in outcomes:
        end(board, study, begin(board, study), outcome)
    text = shown(board, 120)
    assert "✓ #2" in text
    assert "best so far" in next(line for line in text.splitlines() if "#2" in line)
    assert ">10.0 s" in next(line for line in text.splitlines() if "✂ #3" in line)
    assert "exit code 3" in next(line for line in text.splitlines() if "✗ #4" in line)
    assert "epochs" not in text.split("Trials")[1].split("Best")[0], "what never varies is left out"
    assert "Best  $0.02 a run, 20.0 s, accuracy 0.95" in text
    assert "Best  $" not in shown(board, 120, over=True), "the answer follows, no need to say it twice"


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_no_line_is_wider_than_the_window(board: Board, study: Study, width: int) -> None:
    for number in range(3):
        end(board, study, begin(board, study), Outcome("finished", 5.0 + number, {"accuracy": 0.9}))
    begin(board, study)
    assert max(len(line) for line in shown(board, width).splitlines()) <= width


def test_the_bar_is_in_proportion() -> None:
    bar = money_bar(Money(2.0, 0.5, 0.5), 150)
    text = bar.plain
    full, empty = text.count("━"), text.count("─")
    assert full == pytest.approx((full + empty) / 2, abs=1)
    assert "$0.50 spent · $0.50 reserved · $1.00 left of $2.00" in text
    assert "no budget" in money_bar(Money(None, 0.5), 100).plain


def test_a_trial_in_one_line(study: Study, board: Board) -> None:
    end(board, study, begin(board, study), Outcome("finished", 50.0, {"accuracy": 0.9}))
    assert trial_text(study.trials[0]) == (
        "#1 finished  50.0 s  $0.05  accuracy 0.9  workers=1 kind=plain epochs=20"
    )


def test_a_goal_in_a_long_line_is_shortened_not_wrapped(clock: Clock) -> None:
    goal = Goal.parse("minimise cost_usd subject to " + " and ".join(f"m{n} >= {n}" for n in range(30)))
    board = Board("digits", goal, 1.0, virtual=False, clock=clock)
    assert len(shown(board, 80).splitlines()) == 3


def test_many_parameters_share_one_column(clock: Clock, write_runs: Callable[..., object]) -> None:
    del write_runs
    space = Space.parse({f"parameter_{n}": [1, 2] for n in range(12)})
    study = Study(space, "minimise cost_usd", lambda c: 3.6, 1.0, "random")
    board = Board("wide", study.goal, 1.0, virtual=False, clock=clock)
    for _ in range(3):
        end(board, study, begin(board, study), Outcome("finished", 5.0))
    text = shown(board, 100)
    assert "configuration" in text
    assert max(len(line) for line in text.splitlines()) <= 100
