"""The report of a training request: its numbers are the leaderboard's, its pictures the best model's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prudent.reports import evaluation
from prudent.reports.training import FIRST_ROWS, MOST_ROWS, training_report, write_training_report
from prudent.training.engines.predictions import TEST_FILE, Predictions
from prudent.training.insight.calibration import Reliability, ReliabilityBin
from prudent.training.insight.dependence import PartialDependence
from prudent.training.insight.importance import ColumnImportance, PermutationImportance
from prudent.training.insight.insight import ModelInsight
from prudent.training.insight.more_rows import RowsCurve, RowsPoint
from prudent.training.insight.segments import Segment
from prudent.training.leaderboard import Leaderboard, LeaderboardEntry, TrialFailure

Make = Callable[..., Path]

CONFUSION = {"confusion": {"labels": [0, 1], "counts": [[90, 10], [4, 96]]}}
LEARNED = {
    "curve": {"step": [1, 2, 3], "train": [0.5, 0.7, 0.9], "validation": [0.4, 0.6, 0.55]},
    "stopped": {"best": 2, "of": 3, "why": "no better for 1 step"},
    "importance": {"feature": ["age", "<b>colour</b>"], "value": [0.7, 0.3]},
}


def board_of(folder: Path, models: int = 12, metric: str = "mcc", **changed: Any) -> Leaderboard:
    """A ranking by two algorithms, in which a smaller regParam is better."""
    sign = -1.0 if metric == "rmse" else 1.0
    entries = tuple(
        LeaderboardEntry(
            rank=rank,
            algorithm=("binomial-logistic-regression", "naive-bayes")[rank % 3 == 0],
            hyperparameters={"regParam": 0.001 * rank} if rank % 3 else {"modelType": "gaussian"},
            score=sign * (1 - sign * rank / 1000),
            metric=metric,
            value=1 - sign * rank / 1000,
            model_path=str(folder) if rank == 1 else f"{folder}-{rank}",
            train_s=0.5 * rank,
            predict_ms=0.01,
            cost_usd=0.001,
            trial=models - rank,
        )
        for rank in range(1, models + 1)
    )
    failures = tuple(
        TrialFailure(90 + n, "naive-bayes", {"modelType": "x<y"}, "it refused", 0.002) for n in (1, 2)
    )
    board = Leaderboard(
        entries, failures, "classification", metric, "local", str(folder.parent), 30.0, 0.016, "12 were made"
    )
    return replace(board, **changed)


@pytest.fixture
def page(make_model: Make, kit: SimpleNamespace) -> Any:
    folder = make_model(picture={**CONFUSION, **LEARNED})
    return kit.read(training_report(board_of(folder)))


def test_the_best_model_comes_first(page: Any) -> None:
    hero = page.named("answer").text
    assert "0.999" in hero
    assert "MCC on 30 rows it had not seen" in hero
    assert "binomial-logistic-regression" in hero
    assert "regParam 0.001" in hero
    assert "naive-bayes with MCC 0.997, rank 3" in hero
    assert page.all("h1")[0].text == "Training on people.csv"


def test_the_confusion_matrix_has_the_users_labels(page: Any) -> None:
    section = page.named("practice")
    said = section.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "right for 93.0 % of the 200 rows it was judged on;" in said
    matrix, classes = section.all("table")[:2]
    assert [cell.text for cell in matrix.all("th")][1:] == ["no", "yes", "no", "yes"]
    assert [cell.text.split()[0] for cell in matrix.all("td")] == ["90", "10", "4", "96"]
    assert [cell.text for cell in classes.all("tr")[1].all("td")][:2] == ["no", "100"]


def test_a_confusion_matrix_says_of_which_rows_it_is(make_model: Make, kit: SimpleNamespace) -> None:
    def says(folder: Path) -> str:
        text = kit.read(training_report(board_of(folder))).named("practice").text
        return str(text.replace("\N{NO-BREAK SPACE}", " "))

    folder = make_model(picture={**CONFUSION, "of": "folds"})
    assert "93.0 % of the 200 rows that the folds held out, each judged by a model that had" in says(folder)
    actual = np.array([0, 0, 1, 1])
    test = Predictions(np.arange(4), np.zeros(4, np.int64), np.array([0, 1, 1, 1]), actual)
    test.write(folder, TEST_FILE)
    assert "75 % of the 4 rows of the test part, which no trial had seen" in says(folder)


def test_figures_are_the_models(page: Any, kit: SimpleNamespace) -> None:
    figures = kit.figures(page)
    learned, judged = figures["curve"]["data"]
    assert learned["y"] == [0.5, 0.7, 0.9]
    assert judged["y"] == [0.4, 0.6, 0.55]
    assert figures["curve"]["layout"]["shapes"][0]["x0"] == 2
    assert figures["importance"]["data"][0]["x"] == [0.7, 0.3]
    assert figures["importance"]["layout"]["yaxis"]["ticktext"][1] == "&lt;b&gt;colour&lt;/b&gt;"
    assert sum(len(trace["x"]) for trace in figures["quality"]["data"]) == 12 + 1
    assert figures["progress"]["data"][0]["y"][-1] == 0.999


def test_the_ranking_and_what_it_took(page: Any, kit: SimpleNamespace) -> None:
    rows = page.named("ranking").all("table")[0].all("tr")[1:]
    assert len(rows) == 12
    assert [kit.values(row)[:3] for row in rows[:2]] == [[1, 0.999, 0.5], [2, 0.998, 1.0]]
    money = page.named("money")
    assert "$0.016" in money.text
    assert "No further trial was started because 12 were made." in money.text
    by_algorithm = {row.all("td")[0].text: kit.values(row) for row in money.all("tr")[1:]}
    assert by_algorithm["naive-bayes"][1:4] == [3, 4, 2]
    assert by_algorithm["naive-bayes"][-1] == pytest.approx(0.008)
    assert "it refused" in page.named("failures").text


def test_parameters_say_what_they_did(page: Any, kit: SimpleNamespace) -> None:
    text = page.named("parameters").text
    assert "regParam : mostly better when smaller" in text
    assert "modelType" not in text  # it was always the same
    shown = kit.figures(page)["effect-0-0"]["data"]
    assert len(shown[0]["x"]) == 8
    assert shown[1]["x"] == [0.001]


def test_what_users_wrote_stays_text(make_model: Make) -> None:
    folder = make_model(("</script><script>alert(1)</script>", "b"), picture={**CONFUSION, **LEARNED})
    html = training_report(board_of(folder))
    assert "<script>alert(1)" not in html
    assert "<b>colour" not in html


def test_the_page_loads_nothing(make_model: Make, tmp_path: Path) -> None:
    folder = make_model(picture=CONFUSION)
    path = write_training_report(board_of(folder), tmp_path / "out")
    assert path == tmp_path / "out" / "report.html"
    html = path.read_text()
    assert "default-src 'none'; script-src 'sha256-" in html.replace("&#39;", "'")
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", html)


def test_a_regression_shows_residuals(make_model: Make, kit: SimpleNamespace) -> None:
    picture = {"residuals": {"predicted": [1.0, 2.0, 3.0, None], "actual": [1.5, 2.0, 2.0, 1.0]}}
    folder = make_model(
        (), picture={**picture, "curve": {"step": [1, 2], "train": [], "validation": [-3.0, -2]}}
    )
    document = kit.read(training_report(board_of(folder, metric="rmse")))
    figures = kit.figures(document)
    assert figures["residuals"]["data"][0]["y"] == [0.5, 0.0, -1.0]
    assert figures["predictions"]["data"][1]["x"] == [1.0, 2.0, 3.0]
    assert figures["curve"]["data"][0]["y"] == [3.0, 2.0]  # RMSE, not its negative
    assert "off by less than 0.5, nine in ten by less than 0.9" in document.named("practice").text
    assert "less is better" in document.all("header")[0].text


def test_clusters_show_silhouettes(make_model: Make, kit: SimpleNamespace) -> None:
    picture = {"silhouette": {"cluster": [0, 1, 0, 1, 1], "value": [0.5, 0.9, 0.8, -0.1, 0.3]}}
    folder = make_model((), picture=picture)
    document = kit.read(training_report(board_of(folder, metric="silhouette", domain="clustering")))
    first, second = kit.figures(document)["silhouettes"]["data"]
    assert first["x"] == [0.0, 0.8, 0.5, 0.0]
    assert second["x"] == [0.0, 0.9, 0.3, -0.1, 0.0]
    text = document.named("practice").text.replace("\N{NO-BREAK SPACE}", " ")
    assert "2 clusters; the largest holds 60 % of the rows. 20 % of the rows lie nearer" in text


def test_many_classes_are_told_by_their_confusions() -> None:
    counts = np.diag([50] * 40)
    counts[3, 7] = 9
    found = evaluation.confusion({"labels": list(range(40)), "counts": counts.tolist()}, range(40))
    assert found is not None
    assert not found.whole
    assert found.worst[0][:3] == ("3", "7", 9)


def test_without_models_or_pictures_there_is_still_a_page(tmp_path: Path, kit: SimpleNamespace) -> None:
    moved = kit.read(training_report(board_of(tmp_path / "gone")))
    assert "not where it was" in moved.all("header")[0].text
    assert moved.named("ranking")
    nothing = kit.read(training_report(board_of(tmp_path / "gone", entries=())))
    assert "No model" in nothing.named("answer").text
    assert "it refused" in nothing.named("failures").text


def test_a_function_has_a_ranking_but_no_practice(tmp_path: Path, kit: SimpleNamespace) -> None:
    board = board_of(tmp_path, models=2, metric="value", domain="misc-functions")
    entries = tuple(
        replace(e, algorithm="branin", hyperparameters={"x1": 3.1, "x2": 2.3}) for e in board.entries
    )
    document = kit.read(training_report(replace(board, entries=entries)))
    assert "branin" in document.named("answer").text


def test_a_very_long_ranking_stays_a_readable_page(make_model: Make, kit: SimpleNamespace) -> None:
    html = training_report(board_of(make_model(picture=CONFUSION), models=10_000))
    document = kit.read(html)
    first, rest = document.named("ranking").all("table")
    assert len(first.all("tr")) - 1 == FIRST_ROWS
    assert len(rest.all("tr")) - 1 == MOST_ROWS - FIRST_ROWS
    assert "9,700 more; leaderboard.csv has them all" in document.named("ranking").text
    assert len(html) < 9_000_000


INSIGHT = ModelInsight(
    PermutationImportance(
        (ColumnImportance("<i>age</i>", 0.3, 0.2, 0.4), ColumnImportance("noise", 0.0, -0.1, 0.1)), 900, 8, 2
    ),
    (PartialDependence("<i>age</i>", (20.0, 40.0, 60.0), ((0.1, 0.4, 0.8),), ("yes",)),),
    Reliability(
        (ReliabilityBin(0.2, 0.4, 0.3, 0.5, 90), ReliabilityBin(0.9, 0.7, 0.6, 0.8, 90)),
        0.2,
        "yes",
        "too sure",
    ),
    (Segment("town", "Graz", 120, 0.4, 0.1),),
    RowsCurve((RowsPoint(100, 0.5), RowsPoint(200, 0.6)), 0.1, 0.05, 0.15, 0.05),
)  # fmt: skip


def test_insight_is_told_and_drawn(make_model: Make, kit: SimpleNamespace) -> None:
    folder = make_model(picture={**CONFUSION, **LEARNED})
    INSIGHT.write(folder)
    assert ModelInsight.read(folder) == INSIGHT
    page = kit.read(training_report(board_of(folder)))
    section, figures = page.named("insight").text, kit.figures(page)
    assert "On 900 rows it had not seen it depends most on “<i>age</i>”." in section
    assert "1 of 2 make no difference beyond chance. There was no time for 2 more." in section
    assert "It is too sure of itself" in section
    assert "town: Graz 120 40 % 10 %" in section
    assert "from 100 to 200 rows the MCC got better by 0.1 (95 % between +0.05 and +0.15)" in section
    assert figures["permutation"]["data"][0]["x"] == [0.3, 0.0]
    assert figures["permutation"]["layout"]["yaxis"]["ticktext"][0] == "&lt;i&gt;age&lt;/i&gt;"
    assert figures["dependence-0"]["data"][0]["y"] == [0.1, 0.4, 0.8]
    assert figures["reliability"]["data"][1]["y"] == [0.4, 0.7]
    assert figures["more-rows"]["data"][1]["y"] == pytest.approx([0.6, 0.65])
    assert "importance" not in figures  # that of the learner would say the same of encoded columns


def test_a_damaged_insight_is_left_out(make_model: Make, kit: SimpleNamespace) -> None:
    folder = make_model(picture=CONFUSION)
    (folder / "insight.json").write_text('{"importance": 3}')
    page = kit.read(training_report(board_of(folder)))
    assert "insight" not in {element.attributes.get("id") for element in page.everything()}


def test_what_is_suspicious_about_the_data_stands_at_the_top(make_model: Make, kit: SimpleNamespace) -> None:
    from prudent.cli.display.training import answer_lines

    board = board_of(make_model(picture=CONFUSION), warnings=('"<b>paid" alone predicts the target.',))
    assert '"<b>paid" alone predicts the target.' in kit.read(training_report(board)).all("header")[0].text
    assert any('"<b>paid" alone' in str(line) for line in answer_lines(board, None))
    assert board.to_dict()["warnings"] == list(board.warnings)
