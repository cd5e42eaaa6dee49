"""For any table: formats agree, prediction sees what training saw, and no bytes end in a traceback."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from prudent.core.errors import BadInput
from prudent.training.data.csv_files import is_number
from prudent.training.data.dataset import CATEGORICAL
from prudent.training.data.features import encode_rows, feature_blocks
from prudent.training.data.reading import read_dataset

words = st.text("abcXYZ äß€,;\"'|#%\n", min_size=1, max_size=6).map(lambda word: "w" + word.strip())
numbers = st.floats(-1e6, 1e6, width=32) | st.integers(-1000, 1000).map(float)
rows = st.lists(
    st.tuples(st.none() | numbers, st.none() | words, st.booleans(), numbers).map(
        lambda found: dict(zip(("n", "c", "b", "label"), found, strict=True))
    ),
    min_size=2,
    max_size=12,
).filter(
    lambda found: (
        len({row["label"] for row in found}) > 1
        and any(row["n"] is not None for row in found)
        and any(row["c"] is not None for row in found)
    )
)


def write(path: Path, table: list[dict[str, Any]]) -> None:
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(table[0])
            writer.writerows(["" if value is None else value for value in row.values()] for row in table)
    elif path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(table), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table), encoding="utf-8")


@given(rows)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_formats_agree_and_prediction_sees_what_training_saw(
    tmp_path_factory: pytest.TempPathFactory, table: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    as_numbers = [{**row, "b": float(row["b"])} for row in table]
    prints = set()
    for ending in ("csv", "parquet", "jsonl"):
        path = folder / f"data.{ending}"
        write(path, as_numbers)
        found = read_dataset(path, cache=folder / "cache")
        prints.add(found.fingerprint)
        np.testing.assert_array_equal(encode_rows(table, found.columns), found.X)
        again = np.concatenate(list(feature_blocks(path, found.columns, cache=folder / "cache")))
        np.testing.assert_array_equal(again, found.X)
        np.testing.assert_array_equal(found.y, [row["label"] for row in table])
        for place, column in enumerate(found.columns):
            if column.kind == CATEGORICAL:
                decoded = [None if np.isnan(x) else column.categories[int(x)] for x in found.X[:, place]]
                assert decoded == [row[column.name] for row in table]
    assert len(prints) == 1


text = st.text("ab01.-:,;\t\n\"' #{}[]?é\0", max_size=80).map(lambda said: said.encode())
lines = st.lists(
    st.lists(st.sampled_from(["1", "2.5", "x", "", "NA", '"', "1:2", "nan", "1e999"])), max_size=8
).map(lambda said: "\n".join(",".join(line) for line in said).encode())


@given(
    st.binary(max_size=120) | text | lines,
    st.sampled_from(["csv", "svm", "jsonl", "parquet", "avro", "csv.gz", ""]),
)
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_a_data_set_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, ending: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    path = folder / f"data.{ending}".rstrip(".")
    path.write_bytes(content)
    for domain in ("regression", "classification", "clustering"):
        try:
            found = read_dataset(path, domain=domain, cache=folder / "cache")
        except BadInput:
            continue
        assert len(found) > 0
        assert found.X.shape == (len(found), len(found.columns))
        assert not np.isinf(found.X).any()
        assert (found.y is None) == (domain == "clustering")


@given(
    st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["{}", "{:e}", "{:+f}", " {} "]),
    st.sampled_from(["x", "_0", ",5", " 1"]),
)
@settings(deadline=None)
def test_numbers_are_told_from_words(number: float, form: str, more: str) -> None:
    word = form.format(number)
    assert is_number(word)
    assert not is_number(word + more)
