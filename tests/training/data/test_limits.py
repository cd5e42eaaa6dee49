"""Small files that stand for much: what they stand for is refused before there is room made for it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from prudent.core.errors import BadInput
from prudent.training.data import dataset, features, fetch, libsvm_files, record_files
from prudent.training.data.dataset import Column
from prudent.training.data.fetch import UNRESTRICTED
from prudent.training.data.reading import read_dataset

Restrict = Callable[..., None]


@pytest.fixture
def restrict(monkeypatch: pytest.MonkeyPatch) -> Restrict:
    """Limits of this process, as a service's processes have them."""

    def now(**limits: Any) -> None:
        monkeypatch.setattr(fetch, "_in_force", replace(UNRESTRICTED, **limits))

    return now


def used_mb(folder: Path) -> float:
    """What files take on the disk, by the disk's own account."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 1e6


def test_a_large_index_is_refused(tmp_path: Path, restrict: Restrict) -> None:
    """24 bytes that took a gigabyte."""
    (tmp_path / "a.svm").write_text("1 1:1\n2 3000000:1\n")
    with pytest.raises(BadInput, match=r"3,000,000 columns, and at most 1,000,000 .*hash them into fewer"):
        read_dataset(tmp_path / "a.svm", cache=tmp_path / "cache")
    restrict(most_columns=1000)
    (tmp_path / "a.svm").write_text("1 1:1\n2 1001:1\n")
    with pytest.raises(BadInput, match="at most 1,000"):
        read_dataset(tmp_path / "a.svm", cache=tmp_path / "cache")
    (tmp_path / "a.svm").write_text("1 1:1\n2 1000:1\n")
    assert read_dataset(tmp_path / "a.svm", cache=tmp_path / "cache").X.shape == (2, 1000)


def test_what_is_zero_takes_no_room(tmp_path: Path) -> None:
    rows = [f"{number} {number * 100 + 1}:{number + 1}" for number in range(200)]
    (tmp_path / "a.svm").write_text("\n".join([*rows, "1 20000:9"]) + "\n")
    found = read_dataset(tmp_path / "a.svm", cache=tmp_path / "cache")
    assert found.X.shape == (201, 20_000)
    assert (found.X[199, 19_900], found.X[200, 19_999], found.X[7].sum()) == (200, 9, 8)
    assert used_mb(tmp_path) < 4  # 16 MB as a table


@pytest.mark.parametrize("block", [1 << 10, 4 << 20])
def test_a_table_that_would_be_too_large_is_refused_before_it_is_written(
    tmp_path: Path, restrict: Restrict, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(libsvm_files, "_BLOCK", block)
    restrict(largest_table_mb=4000)
    (tmp_path / "a.svm").write_text("1 100000:1\n" + "2\n" * 20_000)
    with pytest.raises(BadInput, match="as a table of numbers they may have 4000 MB here"):
        read_dataset(tmp_path / "a.svm", cache=tmp_path / "cache")
    assert used_mb(tmp_path) < 10


def test_rows_of_a_wide_file_are_predicted_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "BLOCK_CELLS", 12)
    (tmp_path / "a.svm").write_text("".join(f"0 {n + 1}:{n}\n" for n in range(5)))
    columns = [Column("f5"), Column("f2")]
    blocks = list(features.feature_blocks(tmp_path / "a.svm", columns, cache=tmp_path / "cache"))
    assert [len(block) for block in blocks] == [2, 2, 1]
    np.testing.assert_array_equal(np.concatenate(blocks), [[0, 0], [0, 1], [0, 0], [0, 0], [4, 0]])


ROWS = {
    "a.csv.gz": b"x,label\n" + b"1,2\n2,1\n" * 500_000,
    "a.svm.gz": b"1 1:1\n2 1:2\n" * 350_000,
    "a.json.gz": b'{"x":1,"label":2}\n{"x":2,"label":1}\n' * 120_000,
}


@pytest.mark.parametrize("name", ROWS)
def test_what_comes_out_of_a_packed_file_is_counted(name: str, tmp_path: Path, restrict: Restrict) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(ROWS[name]))
    assert path.stat().st_size < 50_000 < 4e6 < len(ROWS[name])
    restrict(largest_mb=1)
    with pytest.raises(BadInput, match=f'"{name}" has more than the 1 MB that are read here'):
        read_dataset(path, cache=tmp_path / "cache")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, restrict: Restrict) -> None:
    for name, rows in ROWS.items():
        (tmp_path / name.removesuffix(".gz")).write_bytes(rows[:100_000])
    restrict(largest_mb=0.05)
    for name in ROWS:
        with pytest.raises(BadInput, match=r"more than the 0\.05 MB"):
            read_dataset(tmp_path / name.removesuffix(".gz"), cache=tmp_path / "cache")


@pytest.mark.parametrize("name", ["a.json.gz", "a.svm.gz"])
def test_a_line_without_end_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prudent.training.data.formats.LONGEST_LINE", 1 << 20)
    (tmp_path / name).write_bytes(gzip.compress(b"1" * (9 << 20)))
    with pytest.raises(BadInput, match="a line of more than 1 MB"):
        read_dataset(tmp_path / name, cache=tmp_path / "cache")


def test_a_first_line_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a," * (1 << 18))
    with pytest.raises(BadInput, match=r"first line .* longer than 256 kB"):
        read_dataset(tmp_path / "a.csv", cache=tmp_path / "cache")


@pytest.mark.parametrize("before", [b"", b"\n"])
def test_a_header_that_is_too_long_is_not_told_as_no_rows(before: bytes, tmp_path: Path) -> None:
    header = ",".join(f"feature{number}" for number in range(30_000)).encode()
    (tmp_path / "a.csv").write_bytes(before + header + b"\n" + b",".join([b"1"] * 30_000) + b"\n")
    with pytest.raises(BadInput, match=r"256 kB; write one row per line"):
        read_dataset(tmp_path / "a.csv", cache=tmp_path / "cache")


def wide(path: Path, columns: int) -> None:
    row = {**{f"c{number}": number for number in range(columns - 1)}, "label": 1}
    if path.suffix == ".csv":
        path.write_text("\n".join([",".join(row), *[",".join(map(str, row.values()))] * 2]))
    elif path.suffix == ".json":
        path.write_text(json.dumps(row) + "\n" + '{"label": 2}\n')
    else:
        parquet.write_table(pa.table({name: [value, value + 1] for name, value in row.items()}), path)


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.parquet"])
def test_columns_are_limited(name: str, tmp_path: Path, restrict: Restrict) -> None:
    wide(tmp_path / name, 50)
    restrict(most_columns=49)
    with pytest.raises(BadInput, match="50 columns, and at most 49"):
        read_dataset(tmp_path / name, cache=tmp_path / "cache", domain="clustering")
    restrict(most_columns=50)
    read_dataset(tmp_path / name, cache=tmp_path / "cache", domain="clustering")


def test_names_that_are_new_in_every_row_are_limited(tmp_path: Path, restrict: Restrict) -> None:
    (tmp_path / "a.json").write_text("".join(f'{{"c{number}": 1}}\n' for number in range(40)))
    restrict(most_columns=30)
    with pytest.raises(BadInput, match="at most 30"):
        read_dataset(tmp_path / "a.json", cache=tmp_path / "cache", domain="clustering")


def test_rows_are_gathered_as_far_as_their_table_is_bearable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_files, "BLOCK_CELLS", 100)
    monkeypatch.setattr("prudent.training.data.reading.BLOCK_CELLS", 100)
    appended: list[int] = []
    before = dataset.MatrixWriter.append
    monkeypatch.setattr(
        dataset.MatrixWriter, "append", lambda self, block: (appended.append(block.size), before(self, block))
    )
    first = {f"c{number}": number for number in range(20)}
    (tmp_path / "a.json").write_text("\n".join([json.dumps(first), *['{"c1": 5}'] * 30]))
    found = read_dataset(tmp_path / "a.json", cache=tmp_path / "cache", domain="clustering")
    assert found.X.shape == (31, 20)
    assert (found.X[0, 19], found.X[30, 1], np.isnan(found.X[30]).sum()) == (19, 5, 19)
    assert max(appended) <= 100


def test_a_parquet_file_that_says_one_thing_very_often(tmp_path: Path, restrict: Restrict) -> None:
    column = pa.array(np.zeros(2_000_000))
    parquet.write_table(pa.table({"x": column, "label": column}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 50_000
    restrict(largest_table_mb=7)
    with pytest.raises(BadInput, match="may have 7 MB here"):
        read_dataset(tmp_path / "a.parquet", cache=tmp_path / "cache", domain="clustering")


def test_labels_are_kept_once_each(tmp_path: Path) -> None:
    """A long label among many rows took its length for each of them."""
    long = "x" * 100_000
    (tmp_path / "a.csv").write_text("x,label\n" + f"1,{long}\n" + "2,b\n3,a\n" * 20_000)
    found = read_dataset(tmp_path / "a.csv", cache=tmp_path / "cache", domain="classification")
    assert found.classes == ("a", "b", long)
    assert found.y is not None
    assert found.y[:3].tolist() == [2, 1, 0]
