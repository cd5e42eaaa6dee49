"""The page of a comparison: its numbers and curves are those of the replays."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from prudent.reports.comparison import comparison_report
from prudent.tuning.comparison import compare
from prudent.tuning.jobs.table import TableJob

GOAL = "minimise cost_usd subject to time_s <= 300 and accuracy >= 0.8"


def test_curves_end_where_the_answers_are(table: Callable[[], TableJob], kit: SimpleNamespace) -> None:
    made = compare(table(), GOAL, "5 avg", ["random", "gp-eic"], seeds=3)
    read = kit.read(comparison_report(made))
    figures = kit.figures(read)
    assert set(figures) == {"distance", "found", "regret"}
    by_name = {trace["name"]: trace for trace in figures["distance"]["data"]}
    for score in made.scores:
        assert by_name[score.strategy]["y"][-1] == pytest.approx(score.p50)
        found = next(t for t in figures["found"]["data"] if t["name"] == score.strategy)
        assert found["y"][-1] == pytest.approx(score.found)
        regrets = next(t for t in figures["regret"]["data"] if t["name"] == score.strategy)["y"]
        answers = [replay.value for replay in made.replays[score.strategy] if replay.value is not None]
        assert sorted(regrets) == pytest.approx(sorted(np.array(answers) - made.optimum.value))


def test_a_strategy_without_an_answer_is_told_and_not_drawn(
    table: Callable[[], TableJob], kit: SimpleNamespace
) -> None:
    made = compare(table(), GOAL, 0.001, ["random"], seeds=2)
    page = comparison_report(made)
    assert made.scores[0].answered == 0
    assert ">none<" in page
    assert kit.figures(kit.read(page))["distance"]["data"] == []
