"""Dates, long numbers and categories by the target: both engines make the same features of the same rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.training.data.dataset import Dataset
from prudent.training.data.dates import days_of
from prudent.training.data.reading import read_dataset
from prudent.training.engines.fitted_transforms import apply_all
from prudent.training.engines.local.features import LocalTransformFitter
from prudent.training.engines.spark import features as spark_features
from prudent.training.engines.spark.dataset import ROW
from prudent.training.engines.spark.dates import as_days, is_zoned
from prudent.training.engines.spark.features import SparkTransformFitter
from prudent.training.engines.spark.session import SparkTrainingSession
from prudent.tuning.trial import FINISHED

from .trials import finish, opened, spec_for

pytestmark = pytest.mark.timeout(900)  # Java takes its time on a busy machine
ROWS, SEED = 260, 7
TOWNS = 40


def write_sales(file: Path) -> Path:
    """Sales with the day, the second, a number of ten digits, one of 40 towns and one of three colours."""
    rng = np.random.default_rng(11)
    lines = ["day,at,account,town,colour,size,sum,kind"]
    for _ in range(ROWS):
        town, day = int(rng.integers(TOWNS)), date(1965, 2, 25) + timedelta(days=int(rng.integers(30_000)))
        at = datetime(2026, 1, 31, 23, 59, 1) + timedelta(seconds=int(rng.integers(10**7)))
        account = 9_000_000_000 + int(rng.integers(10**6))
        colour, size = "rgb"[int(rng.integers(3))], rng.normal()
        paid = town % 7 + 3 * (at.hour > 12) + (account % 1000) / 500 + 0.3 * size
        kind = ["few", "some", "many"][min(int(paid / 3.5), 2)]
        shown = ["" if rng.random() < 0.05 else said for said in (str(day), f"{at}Z", f"t{town}", colour)]
        lines.append(f"{shown[0]},{shown[1]},{account},{shown[2]},{shown[3]},{size:.3f},{paid:.4f},{kind}")
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sales(tmp_path_factory.mktemp("sales") / "sales.csv")


DOMAINS = {"regression": "sum", "classification": "kind", "clustering": None}
FEATURES = ["day", "at", "account", "town", "colour", "size"]


@pytest.fixture(scope="module")
def sessions(
    spark: Any, sales: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, SparkTrainingSession]]:
    """The sales, to tell the sum, the kind, or clusters."""
    opened_ones = {
        domain: opened(
            tmp_path_factory.mktemp(domain), sales, domain, dataset={"features": FEATURES, "target": target}
        )
        for domain, target in DOMAINS.items()
    }
    yield opened_ones
    for session in opened_ones.values():
        session.close()


@pytest.fixture(scope="module")
def here(sales: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Dataset]:
    """The same, as the local engine reads them."""
    return {
        domain: read_dataset(
            sales, None, target, FEATURES, domain=domain, cache=tmp_path_factory.mktemp(f"local-{domain}")
        )
        for domain, target in DOMAINS.items()
    }


def vectors(frame: Any, column: str) -> np.ndarray:
    """Vectors of a frame in the order of its rows."""
    return np.array([row[column].toArray() for row in frame.orderBy(ROW).select(column).collect()])


@pytest.mark.parametrize("domain", list(DOMAINS))
def test_spark_reads_what_the_local_engine_reads(
    sessions: Mapping[str, SparkTrainingSession], here: Mapping[str, Dataset], domain: str
) -> None:
    there, local = sessions[domain]._context.dataset, here[domain]
    assert there.columns == local.columns
    kinds = " ".join(column.kind for column in there.columns)
    assert kinds == "date date numeric categorical categorical numeric"
    assert there.wide
    assert local.wide
    rows = there.frame.orderBy(ROW).select(*there.inputs).toPandas().to_numpy()
    np.testing.assert_array_equal(rows, local.X)


@pytest.mark.parametrize("native", [False, True], ids=["plain", "native"])
@pytest.mark.parametrize(
    "steps",
    [
        {},
        {"target-encode": {"smoothing": 3}, "scale": {"method": "standard"}},
        {"scale": {"method": "minmax"}},
    ],
    ids=["unasked", "all by target", "scaled first"],
)
@pytest.mark.parametrize("domain", ["regression", "classification"])
def test_both_engines_make_the_same_features(
    sessions: Mapping[str, SparkTrainingSession],
    here: Mapping[str, Dataset],
    domain: str,
    steps: dict[str, Any],
    native: bool,
) -> None:
    data, there = here[domain], sessions[domain]._context.dataset
    local = LocalTransformFitter(data.X, data.columns, y=data.y, classes=len(data.classes), seed=SEED)
    inside = SparkTransformFitter(there.frame, there, SEED)
    for name, settings in steps.items():
        local.add(name, settings)
        inside.add(name, settings)
    local.finish(native=native)
    inside.finish(native)
    assert [type(step) for step in inside.transforms] == [type(step) for step in local.transforms]
    expected = apply_all(local.transforms, data.X)
    # What Spark's transforms are exported as, what Spark computes, and what it trains on.
    found = apply_all(inside.transforms, data.X)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    frame = there.frame
    for stage in inside.stages:
        frame = stage.transform(frame)
    np.testing.assert_allclose(vectors(frame, inside.output), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(vectors(inside.rows, inside.output), local.X, rtol=1e-9, atol=1e-12)
    assert not np.allclose(local.X, expected, equal_nan=True), (
        "training rows should not tell their own target"
    )
    names = [column.name for column in data.columns]
    for one, other in zip(inside.transforms, local.transforms, strict=True):
        assert one.names(names) == other.names(names)
        names = one.names(names)
    assert (inside.categories == []) == (not native or "target-encode" in steps)


def test_a_clustering_has_no_target_to_tell_categories_by(
    sessions: Mapping[str, SparkTrainingSession], here: Mapping[str, Dataset]
) -> None:
    data, there = here["clustering"], sessions["clustering"]._context.dataset
    local, inside = LocalTransformFitter(data.X, data.columns), SparkTransformFitter(there.frame, there)
    local.standardise()
    inside.standardise()
    expected = apply_all(local.transforms, data.X)
    np.testing.assert_allclose(vectors(inside.rows, inside.output), expected, rtol=1e-9, atol=1e-9)
    with pytest.raises(BadInput, match="needs a target"):
        SparkTransformFitter(there.frame, there).target_encode()


# By hand


def test_features_by_hand(spark: Any, tmp_path: Path) -> None:
    """Leap day, the last second of a year, a day before 1970; three rows of one town and one of another."""
    (tmp_path / "rows.csv").write_text(
        "at,number,town,y\n"
        "2024-02-29T18:30:00,16777217,a,1\n"
        "1999-12-31T23:59:59,9007199254740991,a,3\n"
        "1969-12-31,1,a,5\n"
        ",2,b,11\n"
    )
    with opened(tmp_path / "work", tmp_path / "rows.csv", "regression") as session:
        dataset = session._context.dataset
        assert (dataset.wide, dataset.is_vector) == (True, False)
        fitter = SparkTransformFitter(dataset.frame, dataset, SEED)
        fitter.add("target-encode", {"smoothing": 2})
        fitter.finish(native=True)
        frame = dataset.frame
        for stage in fitter.stages:
            frame = stage.transform(frame)
        found = vectors(frame, fitter.output)
    nan = np.nan
    # The overall mean is 5; (9 + 2 x 5) / 5 and (11 + 2 x 5) / 3.
    a, b = 19 / 5, 21 / 3
    expected = [
        [16777217, 2024, 2, 29, 4, 18, 19782 + 18.5 / 24, a],
        [9007199254740991, 1999, 12, 31, 5, 23, 10956 + 86399 / 86400, a],
        [1, 1969, 12, 31, 3, 0, -1, a],
        [2, nan, nan, nan, nan, nan, nan, b],
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_short_numbers_and_days_stay_single_precision(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        "day,n,y\n2026-01-31,16777216,1\n2026-02-01,33554432,2\n2026-02-02,0.1,4\n"
    )
    with opened(tmp_path / "work", tmp_path / "rows.csv", "regression") as session:
        dataset = session._context.dataset
        assert not dataset.wide
        assert dict(dataset.frame.dtypes)["c0"] == "float"
        assert [row["c0"] for row in dataset.frame.orderBy(ROW).collect()] == [20484, 20485, 20486]


# Dates as they are written

WRITTEN = [
    "2026-01-31", "2024-02-29", "1583-10-16", "1899-12-31", "9999-12-31", "2026-02-30", "2026-13-01",
    "2026-1-3", "2026-01-31T18", "2026-01-31 18:30", "2026-01-31T18:30:05.1", "2026-01-31T18:30:05.123456",
    "2026-01-31T18:30:05.1234567", "2026-01-31T1830", "2026-01-31T24:00", "2026-01-31T23:59:60",
    "2026-01-31T18:30:05Z", "2026-01-31T18:30:05+02", "2026-01-31T18:30:05-0230", "2026-01-31T18:30:05+02:30",
    "2026-01-31T01:00+12:00", "2026-01-31Z", "2026-01", "20260131", "today", "31.01.2026",
    "2026-01-31T18:30-25:00",
]  # fmt: skip


def test_dates_are_read_as_on_the_local_engine(spark: Any) -> None:
    import pyarrow as pa
    from pyspark.sql import functions as sf
    from pyspark.sql import types as st

    column = sf.col("said")
    frame = spark.createDataFrame([(word,) for word in WRITTEN], ["said"])
    found = frame.select("said", as_days(column, st.StringType()), is_zoned(column)).collect()
    read = 0
    for word, days, zoned in found:
        expected = days_of(pa.array([word]))
        assert (days is None) == (expected is None), word
        if expected is not None:
            read += 1
            assert days == expected[0], word
            assert zoned == (word[-1] == "Z" or "+" in word or word.count("-") > 2), word
    assert read == 14


def test_a_column_is_one_of_dates_only_if_all_its_values_are(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        "a,b,c,y\n2026-01-31,2026-01-31T10:00Z,?,1\n2026-02-01,2026-01-31T10:00,2026-01-01,2\nlater,,,3\n"
    )
    with opened(tmp_path / "work", tmp_path / "rows.csv", "regression") as session:
        kinds = [column.kind for column in session._context.dataset.columns]
    assert kinds == ["categorical", "categorical", "date"]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_typed_dates_are_days_too(spark: Any, tmp_path: Path, zone: str | None) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    stamps = [datetime(2026, 7, 31, 18, 30), None, datetime(1969, 12, 31, 23), datetime(2026, 1, 1)]
    columns = {
        "at": pa.array(stamps, pa.timestamp("us", zone)),
        "day": pa.array([date(2024, 2, 29), date(1960, 1, 1), None, date(2026, 1, 1)]),
        "y": pa.array([1.0, 2.0, 3.0, 4.0]),
    }
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    local = read_dataset(tmp_path / "rows.parquet", None, "y", domain="regression", cache=tmp_path / "local")
    with opened(tmp_path / "work", tmp_path / "rows.parquet", "regression") as session:
        dataset = session._context.dataset
        assert dataset.columns == local.columns
        rows = dataset.frame.orderBy(ROW).select(*dataset.inputs).toPandas().to_numpy()
    np.testing.assert_array_equal(rows, local.X)
    asked = {"validation": {"time": "day"}}
    with pytest.raises(BadInput, match='column "day" is empty'):
        opened(tmp_path / "other", tmp_path / "rows.parquet", "regression", **asked)


# Whole trials


@pytest.mark.parametrize(
    ("domain", "name", "settings"),
    [
        ("classification", "multinomial-logistic-regression", {"maxIter": 10}),
        ("classification", "random-forest-classification", {"numTrees": 3, "maxCategories": 8}),
        ("classification", "xgboost-classification", {"numRound": 5}),
        ("classification", "multilayer-perceptron-classifier", {"maxIter": 5}),
        ("regression", "linear-regression", {"maxIter": 10}),
        ("regression", "gradient-boosted-tree-regression", {"maxIter": 5}),
        ("clustering", "k-means", {"k": 3}),
    ],
)
def test_the_exported_model_takes_dates_long_numbers_and_towns(
    sessions: Mapping[str, SparkTrainingSession],
    tmp_path: Path,
    domain: str,
    name: str,
    settings: dict[str, Any],
) -> None:
    import onnxruntime

    spec = spec_for(
        tmp_path, name, hyperparameters=settings, transforms={"scale": {"method": "standard"}}
        if "boosted" not in name and "xgboost" not in name else {}
    )  # fmt: skip
    outcome, _ = finish(sessions[domain].start(spec))
    assert outcome.status == FINISHED, outcome.why
    facts = json.loads((spec.folder / "facts.json").read_text())
    assert facts["export_difference"] < 1e-5
    model = onnxruntime.InferenceSession((spec.folder / "model.onnx").read_bytes())
    assert model.get_inputs()[0].type == "tensor(double)"


def test_of_many_rows_the_parts_of_the_encoding_are_drawn_by_spark(
    sessions: Mapping[str, SparkTrainingSession],
    here: Mapping[str, Dataset],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A training row gets what four other fifths say of its town, whoever deals them."""
    monkeypatch.setattr(spark_features, "MOST_ON_DRIVER", 10)
    data, there = here["regression"], sessions["regression"]._context.dataset
    inside = SparkTransformFitter(there.frame, there, SEED)
    inside.target_encode(0.0)
    parts = inside.rows.orderBy(ROW).select("encoding_part").toPandas()["encoding_part"].to_numpy()
    assert set(parts) == set(range(5))
    inside.finish()
    towns, found = data.X[:, 3], vectors(inside.rows, inside.output)
    assert data.y is not None
    seen = 0
    for row in range(ROWS):
        others = (towns == towns[row]) & (parts != parts[row])
        if others.any():
            place = found.shape[1] - 2  # the colour is behind it
            assert found[row, place] == pytest.approx(data.y[others].mean())
            seen += 1
    assert seen > ROWS / 2
