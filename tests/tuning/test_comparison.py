"""Strategies beside each other: the optimum is the table's, and answers are judged by what was measured."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.tuning.comparison import compare, find_optimum, judged
from prudent.tuning.goal import Goal
from prudent.tuning.jobs.table import TableJob

GOAL = "minimise cost_usd subject to time_s <= 300 and accuracy >= 0.8"
Table = Callable[[], TableJob]


@pytest.fixture
def parts(tmp_path: Path) -> TableJob:
    """Eight configurations at two shares of the data; the most accurate ones are too dear at full data."""
    path = tmp_path / "parts.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["depth", "share", "time_s", "price_usd_per_h", "accuracy"])
        for depth in range(1, 9):
            for share in (0.1, 1.0):
                rows.writerow([depth, share, 3600 * share * depth, 1.0, 0.5 + 0.05 * depth * share])
    return TableJob.read_csv(path, ["depth"], measures=["accuracy"], fraction="share")


def test_the_optimum_is_the_cheapest_row_that_keeps_the_goal(table: Table, tmp_path: Path) -> None:
    optimum = find_optimum(table(), Goal.parse(GOAL))
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    costs = [float(row["time_s"]) * float(row["price_usd_per_h"]) / 3600 for row in rows]
    kept = [
        cost
        for cost, row in zip(costs, rows, strict=True)
        if float(row["time_s"]) <= 300 and float(row["accuracy"]) >= 0.8
    ]
    assert optimum.value == pytest.approx(min(kept))
    assert optimum.average_usd == pytest.approx(np.mean(costs))


def test_scores_are_those_of_the_replays(table: Table) -> None:
    made = compare(table(), GOAL, "6 avg", ["random", "gp-ei"], seeds=4)
    assert [score.strategy for score in made.scores] == ["random", "gp-ei"]
    for score in made.scores:
        replays = made.replays[score.strategy]
        cno = sorted(
            math.inf if replay.value is None else replay.value / made.optimum.value for replay in replays
        )
        assert score.p50 == cno[2]
        assert score.p90 == cno[3]
        assert score.mean == pytest.approx(np.mean(cno))
        assert score.found == np.mean([value <= 1 + 1e-9 for value in cno])
        assert score.runs == np.mean([len(replay.steps) for replay in replays])
        assert all(replay.spent_usd <= made.budget_usd + 1e-9 for replay in replays)
        assert cno[0] >= 1


def test_an_answer_only_gets_better_with_money_and_ends_at_the_final_one(table: Table) -> None:
    made = compare(table(), GOAL, "4 avg", ["random"], seeds=3)
    early, late = (made.distances_at("random", made.budget_usd * share) for share in (0.3, 1.0))
    assert (late <= early).all()
    assert late.tolist() == [made.optimum.distance(replay.value) for replay in made.replays["random"]]


def test_options_are_part_of_the_name_and_the_seeds_are_those_asked_for(table: Table) -> None:
    made = compare(table(), GOAL, 0.3, ["random", "cherrypick:stop_below=0.5"], 2, first_seed=5)
    assert list(made.replays) == ["random", "cherrypick:stop_below=0.5"]
    assert [replay.seed for replay in made.replays["random"]] == [5, 6]


def test_two_processes_answer_what_one_does(table: Table) -> None:
    one, two = (compare(table(), GOAL, 0.2, ["random"], 3, processes=n) for n in (1, 2))
    assert one.to_dict()["replays"] == two.to_dict()["replays"]


def test_an_answer_at_full_data_is_judged_at_full_data(parts: TableJob) -> None:
    goal = Goal.parse("maximise accuracy at full data subject to cost_usd <= 4.5 at full data")
    optimum = find_optimum(parts, goal)
    assert optimum.configuration == {"depth": 4, "share": 1.0}
    assert not optimum.has_cno
    assert judged(parts, goal, {"depth": 3, "share": 0.1}) == (pytest.approx(0.65), False)
    assert judged(parts, goal, {"depth": 8, "share": 0.1}) == (None, True)
    assert optimum.regret(0.65) == pytest.approx(0.05)


def test_without_strategies_the_default_is_beside_two_that_everybody_knows(parts: TableJob) -> None:
    made = compare(parts, "minimise cost_usd subject to accuracy >= 0.6", "8 avg", seeds=1)
    assert list(made.replays) == ["nephele", "gp-eic", "random"]


def test_all_takes_those_that_can_play(table: Table) -> None:
    made = compare(table(), GOAL, 0.02, "all", seeds=1)
    assert {"random", "grid", "lynceus", "obol", "gp-ei"} <= set(made.replays)
    assert "fabulinus" not in made.replays, "the table has no fraction"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"goal": "minimise cost_usd subject to time_s <= 1"}, "loosen the goal"),
        ({"strategies": ["lynceus:lookahead"]}, "lynceus:lookahead=1"),
        ({"strategies": ["linceus"]}, "lynceus"),
        ({"seeds": 0}, "at least 1"),
        ({"budget_usd": "3 apples"}, "apples"),
        ({"budget_usd": "0 avg"}, "above 0"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_remedy(
    table: Table, changes: dict[str, object], says: str
) -> None:
    said = {"goal": GOAL, "budget_usd": "2 avg", "strategies": ["random"], **changes}
    with pytest.raises(BadInput, match=says):
        compare(table(), **said)  # type: ignore[arg-type]
