"""libsvm files, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from prudent.core.errors import BadInput
from prudent.training.data import libsvm_files
from prudent.training.data.dataset import Dataset
from prudent.training.data.reading import read_dataset


def read(folder: Path, text: str, **said: Any) -> Dataset:
    path = folder / "data.txt"
    path.write_text(text)
    return read_dataset(path, cache=folder / "cache", **said)


def test_what_is_not_there_is_zero(tmp_path: Path) -> None:
    found = read(tmp_path, "1.5 1:2 3:-4e1\n# a comment\n\n-2 2:0.5 # another\n0\n")
    np.testing.assert_array_equal(found.X, [[2, 0, -40], [0, 0.5, 0], [0, 0, 0]])
    assert found.y is not None
    assert found.y.tolist() == [1.5, -2, 0]
    assert [column.name for column in found.columns] == ["f1", "f2", "f3"]
    assert found.target == "label"


def test_labels_are_classes_clusters_have_none(tmp_path: Path) -> None:
    text = "-1 1:1\n+1 1:2\n-1.0 2:3\n"
    found = read(tmp_path, text, domain="binomial-classification")
    assert found.classes == (-1, 1)
    assert found.y is not None
    assert found.y.tolist() == [0, 1, 0]
    assert read(tmp_path, text, domain="clustering").y is None


def test_features_by_number(tmp_path: Path) -> None:
    found = read(tmp_path, "1 1:1 2:2 3:3\n2 1:4 2:5 3:6\n", features=["f3", "f1"])
    np.testing.assert_array_equal(found.X, [[3, 1], [6, 4]])


def test_a_later_block_may_be_wider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libsvm_files, "_BLOCK", 16)
    found = read(tmp_path, "1 1:1\n2 1:2\n3 2:3\n4 1:1 7:9\n5 1:5\n")
    assert found.X.shape == (5, 7)
    assert found.X[3].tolist() == [1, 0, 0, 0, 0, 0, 9]


@given(
    st.lists(
        st.tuples(
            st.integers(-5, 5), st.dictionaries(st.integers(0, 8), st.floats(-1e6, 1e6, width=32), max_size=5)
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(8, 64),
)
def test_it_reads_what_scikit_learn_reads(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, dict[int, float]]], block: int
) -> None:
    path = tmp_path_factory.mktemp("svm") / "data.svm"
    matrix = np.zeros((len(rows), 9))
    for number, (_, values) in enumerate(rows):
        for place, value in values.items():
            matrix[number, place] = value
    dump_svmlight_file(matrix, np.array([label for label, _ in rows]), str(path), zero_based=False)
    whole, labels = load_svmlight_file(str(path), n_features=9, zero_based=False)
    before, libsvm_files._BLOCK = libsvm_files._BLOCK, block
    try:
        blocks = list(libsvm_files.libsvm_blocks(path))
    finally:
        libsvm_files._BLOCK = before
    np.testing.assert_array_equal(np.concatenate([b.dense(9) for b in blocks]), whole.toarray().astype("f4"))
    np.testing.assert_array_equal(np.concatenate([b.labels for b in blocks]), labels)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2:3 1:4", "the index 1 comes after 2"),
        ("1 2:3 2:4", "the index 2 comes after 2"),
        ("1 0:3 1:4", "indices begin at 1"),
        ("1 1:x", 'the value of "1:x" is not a finite number'),
        ("1 1:inf", 'the value of "1:inf" is not a finite'),
        ("1 1:1e300", 'the value of "1:1e300" is not a finite'),
        ("1 a:3", '"a:3" is not written as index:value'),
        ("1 3", '"3" is not written as index:value'),
        ("1 1 2:3:4", '"1" is not written as index:value'),
        ("1 1:", 'the value of "1:" is not a finite number'),
        ("yes 1:3", 'the label "yes" is not a number'),
        ("nan 1:3", 'the label "nan" is not a number'),
        ("1:2 2:3", 'the label "1:2" is not a number'),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f'Line 4 of "data.txt": .*{message}'):
        read(tmp_path, f"1 1:1\n\n2 1:2\n{line}\n3 1:1\n", format="libsvm")


def test_no_rows_no_features_wrong_names(tmp_path: Path) -> None:
    for text, message in (("# nothing\n\n", "has no rows"), ("1\n2\n", "no feature")):
        with pytest.raises(BadInput, match=message):
            read(tmp_path, text, format="libsvm")
    with pytest.raises(BadInput, match='Unknown target "y"'):
        read(tmp_path, "1 1:1\n", target="y")
    with pytest.raises(BadInput, match='Unknown feature "f9"'):
        read(tmp_path, "1 1:1\n2 1:3\n", features=["f9"])
