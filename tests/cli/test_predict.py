"""`prudent predict`: rows of a file in, predictions out, in the same order."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Make = Callable[..., Path]

CSV = "age,colour,weight,bought\n31,red,1.5,no\n,green,80,no\n20,violet,,no\n"
ANSWERS = ["yes", "yes", "no"]


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(CSV)
    return path


def test_predictions_go_to_stdout_as_csv(prudent: Callable[..., Any], make_model: Make, people: Path) -> None:
    done = prudent("predict", make_model(), people)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == ["bought", *ANSWERS]


def test_predictions_as_json(prudent: Callable[..., Any], make_model: Make, people: Path) -> None:
    folder = make_model()
    assert prudent("predict", folder, people, "--json").json == {"rows": 3, "predictions": ANSWERS}
    said = prudent("predict", folder, people, "--json", "--proba").json
    assert said["classes"] == ["no", "yes"]
    assert [max(row) == row[1] for row in said["probabilities"]] == [answer == "yes" for answer in ANSWERS]


def test_predictions_to_a_file(
    prudent: Callable[..., Any], make_model: Make, people: Path, tmp_path: Path
) -> None:
    folder, to = make_model(), tmp_path / "new" / "out.csv"
    done = prudent("predict", folder, people, "--out", to, "--proba")
    assert done.code == 0
    assert "3 rows predicted" in done.out
    rows = list(csv.DictReader(to.read_text().splitlines()))
    assert [row["bought"] for row in rows] == ANSWERS
    assert all(
        float(row["probability of yes"]) + float(row["probability of no"]) == pytest.approx(1) for row in rows
    )
    assert prudent("predict", folder, people, "-o", to, "--json").json == {"rows": 3, "out": str(to)}
    assert [path.name for path in to.parent.iterdir()] == ["out.csv"]


def test_a_regression(prudent: Callable[..., Any], make_model: Make, people: Path) -> None:
    folder = make_model(())
    assert prudent("predict", folder, people).out.splitlines() == ["bought", "132.5", "120.0", "20.0"]
    done = prudent("predict", folder, people, "--proba")
    assert done.code == 2
    assert "leave out --proba" in done.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,color,weight\n1,red,2\n", 'no column "colour".* Did you mean "color"'),
        (
            "age,colour,weight\n1,red,2\nold,red,2\n",
            'row 2 of "people.csv", column "age": "old" is not a number',
        ),
        ("age,colour,weight\n1,red\n", "row 1 .* has 2 values where 3"),
        ("", "has no rows"),
    ],
)
def test_wrong_data_are_one_sentence_and_leave_no_file(
    text: str, message: str, prudent: Callable[..., Any], make_model: Make, people: Path, tmp_path: Path
) -> None:
    people.write_text(text)
    done = prudent("predict", make_model(), people, "--out", tmp_path / "out.csv")
    assert done.code == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert re.search(message, done.err)
    assert not (tmp_path / "out.csv").exists()


def test_a_wrong_folder_or_place(
    prudent: Callable[..., Any], make_model: Make, people: Path, tmp_path: Path
) -> None:
    done = prudent("predict", tmp_path, people)
    assert (done.code, done.out) == (2, "")
    assert "is not a model folder" in done.err
    assert prudent("predict", make_model(), tmp_path / "none.csv").code == 2
    done = prudent("predict", tmp_path / "1-model", people, "--out", people / "x.csv")
    assert done.code == 2
    assert "Cannot write" in done.err
