"""A request says which rows train, judge and test, and how much classes count: a session keeps to it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.training.engines.local.engine import LocalEngine
from prudent.training.request.request import TrainingRequest


def write(path: Path, rows: int, seed: int) -> Path:
    """Rows of ten people, whose name alone says everything; one class is rare."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "who", "day", "y"])
        for number in range(rows):
            who = int(rng.integers(10))
            writer.writerow([f"{rng.normal():.4f}", f"p{who}", number, "rare" if who == 0 else "usual"])
    return path


@pytest.fixture
def opened(tmp_path: Path, pool, monkeypatch: pytest.MonkeyPatch):
    """Opens a session of a request without processes of its own."""
    monkeypatch.setattr(LocalEngine, "pool", lambda *_: pool)

    def open_one(**asked):
        path = write(tmp_path / "rows.csv", 200, 1)
        document = {"domain": "classification", "dataset": {"path": str(path), "target": "y"}, **asked}
        return LocalEngine().open(TrainingRequest.parse(document), tmp_path / "work", 2)

    return open_one


def test_groups_stay_together_and_are_no_feature(opened) -> None:
    session = opened(validation={"groups": "who"}, test=0.2)
    assert [column["name"] for column in session.description["columns"]] == ["a", "day"]
    groups = session._dataset.X[:, 1]  # the day is the number of the row
    assert groups.tolist() == list(range(200))
    names = np.array([line.split(",")[1] for line in Path(session_rows(session)).read_text().split()[1:]])
    unseen = session.test_rows()
    for split in session._partition.splits:
        parts = [set(names[rows]) for rows in (split.train, split.validation, unseen.rows)]
        assert not parts[0] & parts[1]
        assert not (parts[0] | parts[1]) & parts[2]


def session_rows(session) -> Path:
    return Path(session._setup.data_folder).parents[1] / "rows.csv"


def test_later_rows_judge_and_the_latest_are_the_test(opened) -> None:
    session = opened(validation={"time": "day", "folds": 3}, test=0.1)
    assert session.test_rows().rows.tolist() == list(range(180, 200))
    sizes = [(len(split.train), len(split.validation)) for split in session._partition.splits]
    assert sizes == [(45, 45), (90, 45), (135, 45)]


def test_files_of_ones_own(opened, tmp_path: Path) -> None:
    own, last = write(tmp_path / "own.csv", 30, 2), write(tmp_path / "last.csv", 20, 3)
    session = opened(validation={"path": str(own)}, test={"path": str(last)})
    [split] = session._partition.splits
    assert (len(split.train), len(split.validation)) == (200, 30)
    assert session.test_rows().rows.tolist() == list(range(230, 250))
    values = [float(line.split(",")[0]) for line in last.read_text().split()[1:]]
    np.testing.assert_allclose(session.test_rows().X[:, 0], values, rtol=1e-6)


def test_classes_count_as_much_as_is_asked_for(opened, tmp_path: Path, finish, facts_of) -> None:
    from prudent.training.engines.engine import TrialSpec

    found = {}
    for weights in (None, "balanced", {"rare": 3}):
        asked = {} if weights is None else {"classWeights": weights}
        session = opened(validation={"holdout": 0.3, "groups": "day"}, **asked)
        folder = tmp_path / f"{weights}"
        spec = TrialSpec(1, "decision-tree-classification", {"maxDepth": 1}, {}, 1.0, 1, folder)
        outcome, _ = finish(session.start(spec))
        assert outcome.status == "finished", outcome.why
        facts = facts_of(folder)
        found[str(weights)] = facts["rows_trained"]
    assert set(found.values()) == {140}
    with pytest.raises(BadInput, match='Unknown class "rar"'):
        opened(classWeights={"rar": 2})


@pytest.mark.parametrize(
    ("key", "said", "words"),
    [
        ("validation", {"groups": "a", "time": "b"}, 'both "groups" and "time"'),
        ("validation", {"folds": 2, "path": "x.csv"}, 'both "folds" and "path"'),
        ("test", True, "Give the share"),
        ("test", 1.5, ""),
        ("classWeights", "equal", 'write "balanced"'),
        ("classWeights", {"a": -1}, ""),
        ("metric", "speed", "Unknown metric"),
    ],
)
def test_what_cannot_be_is_refused_at_its_place(key: str, said: object, words: str) -> None:
    document = {"domain": "classification", "dataset": {"path": "x.csv"}, key: said}
    with pytest.raises(BadInput, match=key) as caught:
        TrainingRequest.parse(document)
    assert words in str(caught.value)


def test_a_metric_is_known_by_all_its_names() -> None:
    document = {"domain": "classification", "dataset": {"path": "x.csv"}}
    for said, name in (("AUC", "auc"), ("Log-loss", "log-loss"), ("balanced_accuracy", "balanced-accuracy")):
        assert TrainingRequest.parse({**document, "metric": said}).metric == name
