"""Rows that belong together, follow each other or have a file of their own, as on the local engine."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.training.data.links import read_links
from prudent.training.data.reading import read_dataset
from prudent.training.data.splitting import RowLinks
from prudent.training.engines.partition import Partition, inner_split
from prudent.training.engines.predictions import Predictions
from prudent.training.engines.spark import splits as splitting
from prudent.training.engines.spark.dataset import ROW
from prudent.training.engines.spark.session import SparkTrainingSession
from prudent.training.request.limits import ValidationMethod
from prudent.tuning.trial import FINISHED

from .trials import finish, opened, spec_for

pytestmark = pytest.mark.timeout(900)  # Java takes its time on a busy machine
ROWS = 240


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Visits of 13 people, some of whom came often, out of order; `a` is a different number in each row."""
    return write(tmp_path_factory.mktemp("visits") / "visits.csv", ROWS, 5)


def write(file: Path, rows: int, seed: int) -> Path:
    rng = np.random.default_rng(seed)
    days = rng.permutation(rows)
    with file.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["a", "who", "day", "y"])
        for number in range(rows):
            who = min(int(rng.exponential(3.0)), 12)
            day = np.datetime64("2025-03-01") + days[number]
            writer.writerow([1000 * seed + number, f"p{who}", day, "yes" if rng.random() < 0.4 else "no"])
    return file


def numbers_of(session: SparkTrainingSession, frame: Any) -> list[int]:
    """Rows of a frame by their places in the file."""
    found = np.array([row[ROW] for row in frame.select(ROW).collect()], dtype=np.int64)
    return sorted(session._context.split.numbers(found).tolist())


def linked(visits: Path, work: Path, **asked: Any) -> tuple[SparkTrainingSession, RowLinks, Partition]:
    """A session by groups or by time, and what the local engine makes of the same request."""
    validation = ValidationMethod(**asked["validation"])
    session = opened(work / "spark", visits, dataset={"target": "y"}, **asked)
    data = read_dataset(visits, None, "y", domain="classification", cache=work / "local")
    links = read_links(visits, None, work / "local", validation.groups, validation.time)
    columns = len(session.description["columns"])
    partition = Partition.of(data.y, ROWS, columns, validation, 0, asked.get("test") or 0.0, links)
    return session, links, partition


@pytest.mark.parametrize(
    "validation",
    [
        {"groups": "who", "folds": 3},
        {"groups": "who", "holdout": 0.3},
        {"time": "day", "folds": 3},
        {"time": "day", "holdout": 0.3},
    ],
    ids=["groups in folds", "groups held out", "time in folds", "time held out"],
)
def test_rows_are_parted_as_on_the_local_engine(
    spark: Any, visits: Path, tmp_path: Path, validation: dict[str, Any]
) -> None:
    session, links, partition = linked(visits, tmp_path, validation=validation, test=0.2)
    split = session._context.split
    with session:
        assert numbers_of(session, split.test()) == partition.test.tolist()
        assert split.splits == len(partition.splits)
        y = split._y  # type: ignore[attr-defined]
        for number, found in enumerate(partition.splits):
            train, judges = (
                numbers_of(session, split.train(number, 1.0)),
                numbers_of(session, split.held_out(number)),
            )
            assert (train, judges) == (found.train.tolist(), found.validation.tolist())
            _check_apart(links, [train, judges, partition.test])
            inner = inner_split(found.train, y, 0, links)
            assert inner is not None
            parts = split.inner(number, 1.0)
            assert parts is not None
            assert [numbers_of(session, part) for part in parts] == [
                inner.train.tolist(),
                inner.validation.tolist(),
            ]
            _check_apart(links, [inner.train, inner.validation])


def _check_apart(links: RowLinks, parts: list[Any]) -> None:
    """No group is in two of the parts; of times, each part is later than those before it."""
    for number, part in enumerate(parts):
        for before in parts[:number]:
            if links.groups is not None:
                assert not set(links.groups[part]) & set(links.groups[before])
            if links.times is not None:
                assert links.times[before].max() < links.times[part].min()


def test_the_column_of_groups_is_no_feature_and_a_trial_judges_other_people(
    spark: Any, visits: Path, tmp_path: Path
) -> None:
    session, links, _ = linked(visits, tmp_path, validation={"groups": "who", "folds": 2}, test=0.2)
    assert links.groups is not None
    with session:
        assert [column["name"] for column in session.description["columns"]] == ["a", "day"]
        unseen = session.test_rows()
        spec = spec_for(tmp_path, "xgboost-classification", hyperparameters={"numRound": 3})
        outcome, _ = finish(session.start(spec))
        assert outcome.status == FINISHED, outcome.why
    kept = Predictions.read(spec.folder)
    assert unseen is not None
    assert kept is not None
    for number in (0, 1):
        judges = set(links.groups[kept.rows[kept.split == number]])
        assert not judges & set(links.groups[kept.rows[kept.split != number]])
        assert not judges & set(links.groups[unseen.rows])


def test_files_of_ones_own_judge_and_test(spark: Any, visits: Path, tmp_path: Path) -> None:
    own, last = write(tmp_path / "own.csv", 30, 6), write(tmp_path / "last.csv", 20, 7)
    # Its columns may stand in another order.
    with last.open() as file:
        turned = [row[::-1] for row in csv.reader(file)]
    with last.open("w", newline="") as file:
        csv.writer(file).writerows(turned)
    asked = {"validation": {"path": str(own)}, "test": {"path": str(last)}}
    with opened(tmp_path / "work", visits, dataset={"target": "y"}, **asked) as session:
        split, dataset = session._context.split, session._context.dataset
        assert (dataset.rows, dataset.apart, split.splits) == (ROWS + 50, (30, 20), 1)
        first = {name: [row["c0"] for row in frame.select("c0").collect()] for name, frame in [
            ("train", split.train(0, 1.0)), ("judges", split.held_out(0)), ("all", split.train(None, 1.0))
        ]}  # fmt: skip
        assert sorted(first["train"]) == list(range(5000, 5000 + ROWS))
        assert sorted(first["judges"]) == list(range(6000, 6030))
        assert len(first["all"]) == ROWS + 50
        unseen = session.test_rows()
        assert unseen is not None
        assert unseen.X[:, 0].tolist() == list(range(7000, 7020))
        assert unseen.rows.tolist() == list(range(ROWS + 30, ROWS + 50))
        labels = [row[0] for row in turned[1:]]
        assert [["no", "yes"][int(label)] for label in unseen.y] == labels
        spec = spec_for(tmp_path, "decision-tree-classification")
        outcome, _ = finish(session.start(spec))
        assert outcome.status == FINISHED, outcome.why
    kept = Predictions.read(spec.folder)
    assert kept is not None
    assert sorted(kept.rows.tolist()) == list(range(ROWS, ROWS + 30))


def test_libsvm_files_of_ones_own_are_as_wide_as_the_widest(spark: Any, tmp_path: Path) -> None:
    for name, text in (("rows", "1 1:2\n0 2:3\n1 1:4\n0 2:5\n"), ("own", "1 1:1\n0 3:7\n")):
        (tmp_path / name).write_text(text)
    asked = {"dataset": {"format": "libsvm"}, "validation": {"path": str(tmp_path / "own")}}
    with opened(tmp_path / "work", tmp_path / "rows", **asked) as session:
        judges = session._context.split.held_out(0).select("features").collect()
        assert [row["features"].toArray().tolist() for row in judges] == [[1, 0, 0], [0, 0, 7]]
    with pytest.raises(BadInput, match="libsvm file has no column"):
        opened(tmp_path / "other", tmp_path / "rows", **{**asked, "validation": {"groups": "who"}})


@pytest.mark.parametrize(
    ("validation", "said"),
    [
        ({"groups": "whom"}, 'Did you mean "who"'),
        ({"groups": "y", "folds": 4}, "2 groups, but 4"),
        ({"time": "who"}, "neither a date nor a number"),
    ],
)
def test_what_cannot_part_rows_is_refused_as_on_the_local_engine(
    spark: Any, visits: Path, tmp_path: Path, validation: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        opened(tmp_path, visits, dataset={"target": "y"}, validation=validation)


def test_a_row_without_a_group_is_named(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("who,a,y\nann,1,0\n,2,1\nbob,3,0\n")
    with pytest.raises(BadInput, match=r'row 2 of "rows.csv", column "who" is empty'):
        opened(tmp_path / "work", tmp_path / "rows.csv", validation={"groups": "who"})


# The way that large data take, on little data


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "MOST_ON_DRIVER", 10)


@pytest.mark.parametrize("validation", [{"groups": "who"}, {"time": "day"}], ids=["groups", "time"])
@pytest.mark.parametrize("folds", [None, 3])
def test_many_rows_are_parted_whole(
    spark: Any, many: None, visits: Path, tmp_path: Path, validation: dict[str, Any], folds: int | None
) -> None:
    parts = {"folds": folds} if folds else {"holdout": 0.3}
    with opened(
        tmp_path, visits, dataset={"target": "y"}, validation={**validation, **parts}, test=0.2
    ) as session:
        split = session._context.split
        assert type(split).__name__ == "LinkedSplit"
        every = numbers_of(session, split.train(None, 1.0))
        places = {row: place for place, row in enumerate(every)}
        links = read_links(visits, None, tmp_path, validation.get("groups"), validation.get("time"))

        def of(frame: Any) -> np.ndarray:
            return np.array([places[row] for row in numbers_of(session, frame)])

        test = of(split.test())
        assert 0.1 * ROWS < len(test) < 0.35 * ROWS
        assert split.splits == (folds or 1)
        judged = []
        for number in range(split.splits):
            train, judges = of(split.train(number, 1.0)), of(split.held_out(number))
            judged += judges.tolist()
            _check_apart(links, [train, judges, test])
            if not (folds and "time" in validation):
                assert len(train) + len(judges) + len(test) == ROWS
            inner = split.inner(number, 1.0)
            assert inner is not None
            learned, watched = map(of, inner)
            assert sorted([*learned, *watched]) == sorted(train)
            _check_apart(links, [learned, watched])
            assert 0 < len(watched) < 0.5 * len(train)
        assert len(set(judged)) == len(judged)
        if folds and "groups" in validation:
            assert sorted([*judged, *test]) == list(range(ROWS))


def test_of_many_rows_files_of_ones_own_judge_and_test(
    spark: Any, many: None, visits: Path, tmp_path: Path
) -> None:
    own, last = write(tmp_path / "own.csv", 30, 6), write(tmp_path / "last.csv", 20, 7)
    for validation in ({"path": str(own)}, {"groups": "who", "holdout": 0.3}):
        asked = {"validation": validation, "test": {"path": str(last)}}
        with opened(tmp_path / "work", visits, dataset={"target": "y"}, **asked) as session:
            split = session._context.split
            unseen = session.test_rows()
            assert unseen is not None
            assert sorted(unseen.X[:, 0].tolist()) == list(range(7000, 7020))
            train, judges = (
                {row["c0"] for row in frame.select("c0").collect()}
                for frame in (split.train(0, 1.0), split.held_out(0))
            )
            if "path" in validation:
                assert judges == set(range(6000, 6030))
                assert train == set(range(5000, 5000 + ROWS))
            else:
                assert train | judges == set(range(5000, 5000 + ROWS))
                assert not train & judges
            assert len(split.sampled(0, split.held_out(0)).collect()) == len(judges)
