"""The end of a request: scores that fresh rows confirm, models on all rows, within time and money."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prudent
from prudent.core.money import Price
from prudent.training.engines.predictions import Predictions
from prudent.training.leaderboard import Leaderboard
from prudent.training.search.final import Refit
from prudent.tuning.trial import CUT, FAILED, Outcome

METHODS = [
    {
        "algorithm": "binomial-logistic-regression",
        "hyperparameters": [{"param": "regParam", "values": [0, 0.1]}],
    },
    {
        "algorithm": "decision-tree-classification",
        "hyperparameters": [{"param": "maxDepth", "values": [1, 6]}],
    },
]


def rows_of(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    return X, (X[:, 0] + 0.5 * X[:, 1] + rng.logistic(scale=0.5, size=rows) > 0).astype(int)


def write(path: Path, rows: int, seed: int = 1) -> Path:
    X, y = rows_of(rows, seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "y"])
        writer.writerows([*row, label] for row, label in zip(X.tolist(), y.tolist(), strict=True))
    return path


def train(folder: Path, rows: int, out: str = "models", **asked: Any) -> Leaderboard:
    path = folder / "rows.csv"
    if not path.exists():
        write(path, rows)
    request = {
        "domain": "classification",
        "dataset": {"path": str(path), "target": "y"},
        "methods": METHODS,
        "parameterSearch": "grid",
        "ensemble": False,
        **asked,
    }
    return prudent.train(request, out=folder / out)


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    return train(tmp_path_factory.mktemp("judged"), 600)


def test_the_line_stands_first_and_its_score_is_what_fresh_rows_give(board: Leaderboard) -> None:
    best = board.entries[0]
    assert best.algorithm == "binomial-logistic-regression"
    X, y = rows_of(20_000, 2)
    counts = np.histogram2d(y, prudent.load(best.model_path).predict(X.astype(np.float32)), bins=2)[0]
    (a, b), (c, d) = counts
    fresh = (a * d - b * c) / np.sqrt((a + b) * (c + d) * (a + c) * (b + d))
    low, high = best.interval
    assert low < fresh < high
    assert low < best.score < high
    assert best.score == pytest.approx(fresh, abs=0.08)


def test_no_model_is_told_to_be_better_than_one_before_it(board: Leaderboard) -> None:
    scores = [entry.score for entry in board.entries]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 4


def test_files_tell_all_scores_and_on_how_many_rows(board: Leaderboard) -> None:
    best = board.entries[0]
    assert (best.rows_trained, best.refitted) == (600, True)
    said = json.loads((Path(best.model_path) / "model.json").read_text())
    told = json.loads((Path(board.out) / "leaderboard.json").read_text())
    for name in ("score", "validation_score", "test_score", "rows_trained", "refitted"):
        assert said[name] == getattr(best, name) == told["entries"][0][name], name
    assert said["interval"] == list(best.interval)
    assert told["guess"] == 0.0
    [header, first, *_] = (Path(board.out) / "leaderboard.csv").read_text().splitlines()
    assert {"validation_score", "test_score", "interval", "rows_trained"} <= {*header.split(",")}
    assert str(best.validation_score) in first


def test_the_test_part_was_judged_before_the_models_saw_it(board: Leaderboard) -> None:
    parts = [Predictions.read(Path(entry.model_path), "test.npz") for entry in board.entries]
    assert all(len(part.rows) == 120 for part in parts)
    for entry, part in zip(board.entries, parts, strict=True):
        seen = Predictions.read(Path(entry.model_path))
        assert not {*part.rows} & {*seen.rows}
        assert {*seen.rows} == {*range(600)} - {*part.rows}


def test_what_is_not_wanted_is_not_done(tmp_path: Path) -> None:
    board = train(tmp_path, 150, refit=False, test=False, methods=METHODS[:1])
    assert [entry.test_score for entry in board.entries] == [None, None]
    assert {entry.rows_trained for entry in board.entries} == {120}
    assert not any(entry.refitted for entry in board.entries)


def test_a_request_that_goes_on_judges_by_the_test_what_has_not_seen_it(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", 150)
    asked = {
        "domain": "classification",
        "dataset": {"path": str(path), "target": "y"},
        "methods": METHODS[1:],
        "parameterSearch": "random",
        "test": 0.3,
    }
    first = prudent.train({**asked, "budget": "1 trials"}, out=tmp_path / "models")
    again = prudent.train({**asked, "budget": "2 trials"}, out=tmp_path / "models", resume=True)
    tests = {entry.trial: entry.test_score for entry in again.entries}
    assert len(tests) == 2
    assert tests[first.entries[0].trial] == first.entries[0].test_score
    assert all(entry.rows_trained == 150 for entry in again.entries)


class EndingRun:
    """A run that ends as it is told, after being asked once; None: it is interrupted."""

    def __init__(self, outcome: Outcome | None) -> None:
        self.outcome = outcome

    def next(self, until_s: float) -> Outcome:
        del until_s
        if self.outcome is None:
            raise KeyboardInterrupt
        return self.outcome

    def cut(self, at_s: float, why: str) -> Outcome:
        return Outcome(CUT, at_s, {}, why)


class EndingSession:
    def __init__(self, outcome: Outcome | None) -> None:
        self.outcome, self.started, self.charged = outcome, 0, [0.0]

    def start(self, spec: Any) -> EndingRun:
        self.started += 1
        assert self.charged[-1] > 0, "a kill from here on would cost nothing in the book"
        return EndingRun(self.outcome)


@pytest.mark.parametrize(
    ("outcome", "left_s", "started"),
    [(Outcome(FAILED, 0.1, {}, "no memory"), 60.0, 4), (None, 60.0, 1), (None, 0.0, 0)],
)
def test_models_that_cannot_be_refitted_stay_as_they_were_judged(
    board: Leaderboard, tmp_path: Path, outcome: Outcome | None, left_s: float, started: int
) -> None:
    entries = []
    for entry in board.entries:
        folder = tmp_path / str(entry.trial)
        folder.mkdir()
        facts = json.loads((Path(entry.model_path) / "facts.json").read_text())
        (folder / "facts.json").write_text(json.dumps({**facts, "refitted": False}))
        entries.append(replace(entry, model_path=str(folder), refitted=False))
    session = EndingSession(outcome)
    refit = Refit(session, tmp_path, 1, Price(3600.0, "", "a machine"), session.charged.append)
    assert list(refit.entries(entries, left_s, 100.0)) == entries
    assert session.started == started
    assert sum(session.charged) == pytest.approx(refit.spent_usd)
    rest = EndingSession(outcome)
    poor = Refit(rest, tmp_path, 1, Price(3600.0, "", "a machine"), rest.charged.append)
    assert list(poor.entries(entries, left_s, 1e-9)) == entries
    assert poor.spent_usd == sum(rest.charged) == 0
