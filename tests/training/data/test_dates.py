"""Dates and large numbers keep their digits from the file to the model, and so do rows that are asked."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from prudent.core.errors import BadInput
from prudent.training.data.dataset import CATEGORICAL, DATE, NUMERIC, Column, Dataset
from prudent.training.data.features import encode_rows, feature_blocks
from prudent.training.data.reading import read_dataset
from prudent.training.models.model import load
from prudent.training.train import train

DAY = 20_484  # 2026-01-31


def read(path: Path, **said: Any) -> Dataset:
    return read_dataset(path, cache=path.parent / "cache", **said)


def written(folder: Path, lines: list[str]) -> Path:
    path = folder / "data.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("texts", "days", "wide"),
    [
        (["2026-01-31", "", "2026-02-01"], [DAY, np.nan, DAY + 1], False),
        (["2026-01-31T12:00:00", "2026-01-31 18:00", "NA"], [DAY + 0.5, DAY + 0.75, np.nan], False),
        (
            ["2026-01-31T00:00:01", "2026-01-31T00:00:02", ""],
            [DAY + 1 / 86400, DAY + 2 / 86400, np.nan],
            True,
        ),
        (["2026-01-31T01:00:00+01:00", "2026-01-31T00:00:00Z", ""], [DAY, DAY, np.nan], False),
    ],
)
def test_iso_8601_in_csv_is_days(tmp_path: Path, texts: list[str], days: list[float], wide: bool) -> None:
    found = read(written(tmp_path, ["at,y", *(f"{text},{n}" for n, text in enumerate(texts))]))
    assert found.columns == (Column("at", DATE),)
    np.testing.assert_array_equal(found.X[:, 0], days)
    assert found.wide is wide


@pytest.mark.parametrize(
    "texts",
    [["2026-01-31", "2026-02-31"], ["2026-01-31", "soon"], ["2026", "2026-01-31"], ["2026-01-31", "7"]],
)
def test_what_is_not_always_a_date_is_a_category(tmp_path: Path, texts: list[str]) -> None:
    found = read(written(tmp_path, ["at,y", *(f"{text},{n}" for n, text in enumerate(texts))]))
    assert found.columns[0].kind == CATEGORICAL
    assert set(found.columns[0].categories) == set(texts)


def test_dates_after_empty_batches_and_before_words(tmp_path: Path) -> None:
    lines = ["at,y", *(f",{n}" for n in range(5)), *(f"2026-01-31,{n}" for n in range(5))]
    assert read(written(tmp_path, lines)).columns[0].kind == DATE
    assert read(written(tmp_path, [*lines, "later,1"])).columns[0].kind == CATEGORICAL


def test_parquet_dates_and_timestamps(tmp_path: Path) -> None:
    table = {
        "day": pa.array([date(2026, 1, 31), None], pa.date32()),
        "at": pa.array([datetime(2026, 1, 31, 6), datetime(2026, 1, 31)], pa.timestamp("ns")),
        "zoned": pa.array([datetime(2026, 1, 31, 6, tzinfo=UTC), None], pa.timestamp("ms", "Asia/Tokyo")),
        "y": [1, 2],
    }
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.table(table), path)
    found = read(path)
    assert {column.kind for column in found.columns} == {DATE}
    np.testing.assert_array_equal(found.X[:, :2], [[DAY, DAY + 0.25], [np.nan, DAY]])
    assert found.X[0, 2] == DAY + 0.25


@pytest.mark.parametrize(
    ("number", "wide"), [(2**24, False), (2**24 + 1, True), (1_700_000_001, True), (0.1, False), (1e20, True)]
)
def test_numbers_keep_their_digits(tmp_path: Path, number: float, wide: bool) -> None:
    found = read(written(tmp_path, ["a,town,b,y", f"{number},Rome,0.5,1", ",Oslo,1.5,2", "3,Oslo,,3"]))
    assert found.wide is wide
    assert found.X[0, 0] == (number if wide else np.float32(number))
    assert [column.kind for column in found.columns] == [NUMERIC, CATEGORICAL, NUMERIC]
    np.testing.assert_array_equal(found.X[:, 1], [1, 0, 0])


def test_rows_in_memory_are_those_of_the_file(tmp_path: Path) -> None:
    columns = (Column("at", DATE), Column("id"))
    path = written(tmp_path, ["at,id", "2026-01-31T10:20:30.5,16777217", ",1"])
    [block] = feature_blocks(path, columns, cache=tmp_path)
    at = datetime(2026, 1, 31, 10, 20, 30, 500_000)
    for first in (at, at.isoformat(), at.replace(tzinfo=UTC), np.datetime64(at), block[0, 0]):
        np.testing.assert_array_equal(encode_rows([[first, 16_777_217], [None, 1]], columns), block)
    frame = pytest.importorskip("pandas").DataFrame({"at": [at, None], "id": [16_777_217, 1]})
    np.testing.assert_array_equal(encode_rows(frame, columns), block)
    with pytest.raises(BadInput, match="is not a date"):
        encode_rows([["yesterday", 1]], columns)
    with pytest.raises(BadInput, match="no dates"):
        list(feature_blocks(written(tmp_path, ["at,id", "later,1"]), columns, cache=tmp_path))


def test_a_model_tells_apart_what_only_all_digits_and_the_weekday_tell(tmp_path: Path) -> None:
    """From the file to rows that are asked; the answers are held against what made the target."""
    rng = np.random.default_rng(0)
    stamps = [datetime(2025, 1, 1, int(h)) for h in rng.integers(0, 24, 600)]
    stamps = [
        at.replace(month=int(m), day=int(d))
        for at, m, d in zip(stamps, rng.integers(1, 13, 600), rng.integers(1, 29, 600), strict=True)
    ]
    number = 1_700_000_000 + rng.integers(0, 12, 600)
    y = [int((at.isoweekday() >= 6) ^ (n > 1_700_000_005)) for at, n in zip(stamps, number, strict=True)]
    lines = [f"{at.isoformat()},{n},{label}" for at, n, label in zip(stamps, number, y, strict=True)]
    names = ("decision-tree-classification", "lightgbm-classification", "xgboost-classification")
    asked = {
        "domain": "classification",
        "dataset": {"path": str(written(tmp_path, ["at,number,y", *lines]))},
        "methods": [{"algorithm": name, "hyperparameters": []} for name in names],
        "parameterSearch": "grid",
    }
    board = train(asked, "local", tmp_path / "out")
    assert sorted(entry.algorithm for entry in board.entries) == sorted(names)
    for entry in board.entries:
        model = load(entry.model_path)
        rows = [{"at": at.isoformat(), "number": int(n)} for at, n in zip(stamps, number, strict=True)]
        assert (model.predict(rows) == np.array(y)).mean() > 0.97, entry.algorithm
