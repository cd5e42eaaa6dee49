"""Data sets in every format come out the same, and wrong ones say where they are wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from prudent.core.errors import BadInput
from prudent.training.data.dataset import CATEGORICAL, NUMERIC, Column, Dataset
from prudent.training.data.reading import read_dataset

Read = Callable[..., Dataset]

ROWS: list[dict[str, Any]] = [
    {"age": 31, "city": "Faro", "weight": 70.5, "ok": "yes"},
    {"age": 45, "city": "Lisboa", "weight": None, "ok": "no"},
    {"age": None, "city": "Porto", "weight": 55.25, "ok": "yes"},
    {"age": 28, "city": None, "weight": 61.0, "ok": "no"},
    {"age": 52, "city": "Faro", "weight": 90.0, "ok": "no"},
]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a file that holds this text (or bytes), with a fresh cache."""

    def read(content: str | bytes, name: str = "data.csv", **said: Any) -> Dataset:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_dataset(path, cache=tmp_path / "cache", **said)

    return read


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [",".join(rows[0])]
    lines += [",".join("" if value is None else str(value) for value in row.values()) for row in rows]
    path.write_text("\n".join(lines) + "\n")


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    parquet.write_table(pa.Table.from_pylist(rows), path)


def write_avro(path: Path, rows: list[dict[str, Any]]) -> None:
    fields = [
        {"name": "age", "type": ["null", "int"]},
        {"name": "city", "type": ["null", "string"]},
        {"name": "weight", "type": ["null", "double"]},
        {"name": "ok", "type": "string"},
    ]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)


def write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps({k: v for k, v in r.items() if v is not None}) + "\n" for r in rows))


WRITERS = {"csv": write_csv, "parquet": write_parquet, "avro": write_avro, "jsonl": write_json}


@pytest.mark.parametrize("ending", WRITERS)
def test_a_table_is_the_same_whatever_it_is_written_in(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"people.{ending}"
    WRITERS[ending](path, ROWS)
    found = read_dataset(path, target="ok", domain="classification", cache=tmp_path / "cache")
    assert found.columns == (
        Column("age", NUMERIC),
        Column("city", CATEGORICAL, ("Faro", "Lisboa", "Porto")),
        Column("weight", NUMERIC),
    )
    nan = np.nan
    np.testing.assert_array_equal(
        found.X, [[31, 0, 70.5], [45, 1, nan], [nan, 2, 55.25], [28, nan, 61], [52, 0, 90]]
    )
    assert found.X.dtype == np.float32
    assert found.classes == ("no", "yes")
    assert found.y is not None
    assert found.y.tolist() == [1, 0, 1, 0, 0]
    assert found.target == "ok"


def test_the_fingerprint_is_of_the_rows_not_of_the_file(tmp_path: Path) -> None:
    seen = set()
    for ending, write in WRITERS.items():
        path = tmp_path / f"people.{ending}"
        write(path, ROWS)
        seen.add(read_dataset(path, target="ok", domain="classification", cache=tmp_path / "c").fingerprint)
    assert len(seen) == 1
    write_csv(tmp_path / "other.csv", [*ROWS[1:], ROWS[0]])
    other = read_dataset(tmp_path / "other.csv", target="ok", domain="classification", cache=tmp_path / "c")
    assert other.fingerprint not in seen


@pytest.mark.parametrize("ending", WRITERS)
def test_a_folder_of_parts_is_one_data_set(ending: str, tmp_path: Path) -> None:
    folder = tmp_path / "people"
    folder.mkdir()
    WRITERS[ending](folder / f"part-0.{ending}", ROWS[:2])
    WRITERS[ending](folder / f"part-1.{ending}", ROWS[2:])
    (folder / "_SUCCESS").write_text("")
    (folder / ".part-0.crc").write_bytes(b"\x00\x01")
    WRITERS[ending](tmp_path / f"whole.{ending}", ROWS)
    said = {"target": "ok", "domain": "classification"}
    parts = read_dataset(folder, cache=tmp_path / "a", **said)
    whole = read_dataset(tmp_path / f"whole.{ending}", cache=tmp_path / "b", **said)
    assert len(parts) == 5
    assert parts.fingerprint == whole.fingerprint


def test_parts_may_be_empty_or_have_their_columns_in_another_order(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "part-0.csv").write_text("")
    (folder / "part-1.csv").write_text("a,b,label\n1,2,3\n")
    (folder / "part-2.csv").write_text("label,a,b\n6,4,5\n")
    (folder / "part-3.csv").write_text("a,b,label\n")
    found = read_dataset(folder, cache=tmp_path / "c")
    np.testing.assert_array_equal(found.X, [[1, 2], [4, 5]])
    assert found.y is not None
    assert found.y.tolist() == [3, 6]


def test_the_matrix_is_shared_memory_in_the_cache(read: Read, tmp_path: Path) -> None:
    found = read("a,label\n1,2\n3,4\n")
    assert isinstance(found.X, np.memmap)
    assert Path(str(found.X.filename)).parent == tmp_path / "cache"
    np.testing.assert_array_equal(np.load(str(found.X.filename), allow_pickle=False), [[1], [3]])


# CSV


def test_header_and_separator_are_seen(read: Read) -> None:
    for separator in ",;\t|":
        found = read(f"a{separator}label\n1.5{separator}2\n3{separator}4\n")
        assert [column.name for column in found.columns] == ["a"]
        assert found.y is not None
        assert found.y.tolist() == [2, 4]


def test_without_a_header_columns_have_numbers(read: Read) -> None:
    found = read("1,a,10\n2,b,20\n3,a,30\n", target="column3")
    assert found.columns == (Column("column1"), Column("column2", CATEGORICAL, ("a", "b")))
    assert found.y is not None
    assert found.y.tolist() == [10, 20, 30]


def test_a_header_of_numbers_is_one_if_the_target_is_in_it(read: Read) -> None:
    found = read("2019,2020\n1,2\n3,5\n", target="2020")
    assert [column.name for column in found.columns] == ["2019"]
    assert len(found) == 2


def test_a_first_row_with_repeated_words_is_no_header(read: Read) -> None:
    found = read("p,x,p\ne,x,q\ne,y,p\n", target="column1", domain="classification")
    assert len(found) == 3
    assert found.classes == ("e", "p")


def test_quotes_blanks_line_ends_and_marks_of_missing_values(read: Read) -> None:
    text = '\ufeffa,b,label\r\n 1 ," x, y ",1\r\n?, ?,2\r\nNA,"line\nbreak",3\r\n'
    found = read(text)
    assert found.columns == (Column("a"), Column("b", CATEGORICAL, ("line\nbreak", "x, y")))
    np.testing.assert_array_equal(found.X, [[1, 1], [np.nan, np.nan], [np.nan, 0]])


def test_compressed_files_are_read(read: Read) -> None:
    assert len(read(gzip.compress(b"a,label\n1,2\n3,4\n"), "data.csv.gz")) == 2


def test_a_column_that_turns_out_to_be_text_late_is_a_category_from_the_start(read: Read) -> None:
    rows = [f"{n % 7},{n}" for n in range(900_000)] + [f"x{n % 50},{n}" for n in range(30_000)]
    found = read("code,label\n" + "\n".join(rows) + "\n")
    assert found.columns[0].kind == CATEGORICAL
    assert found.columns[0].categories[:2] == ("0", "1")
    assert found.columns[0].categories[int(found.X[8, 0])] == "1"
    assert found.columns[0].categories[int(found.X[900_003, 0])] == "x3"


def test_rare_categories_beyond_a_thousand_count_as_missing(read: Read) -> None:
    rows = [f"often{n % 999},{n}" for n in range(2997)] + [f"once{n},{n}" for n in range(500)]
    found = read("name,label\n" + "\n".join(rows) + "\n")
    assert len(found.columns[0].categories) == 1000
    assert int(np.isnan(found.X[:, 0]).sum()) == 499


def test_features_choose_columns_and_their_order(read: Read) -> None:
    found = read("a,b,c,label\n1,2,3,4\n5,6,7,8\n", features=["c", "a"])
    np.testing.assert_array_equal(found.X, [[3, 1], [7, 5]])


def test_an_empty_column_is_left_out(read: Read) -> None:
    found = read("a,nothing,b,label\n1,,x,4\n5,NA,y,8\n")
    assert [column.name for column in found.columns] == ["a", "b"]
    np.testing.assert_array_equal(found.X, [[1, 0], [5, 1]])


# Labels


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["2", "1", "2"], (1, 2)),
        (["-1", "+1", "-1"], (-1, 1)),
        (["1.0", "2.0", "1.0"], (1.0, 2.0)),
        (["0.5", "1", "1"], (0.5, 1.0)),
        (["b", "a", "1"], ("1", "a", "b")),
        (["True", "False", "True"], ("False", "True")),
    ],
)
def test_labels_of_text_files_are_numbers_if_all_are(
    values: list[str], classes: tuple[Any, ...], read: Read
) -> None:
    found = read("x,label\n" + "".join(f"{n},{v}\n" for n, v in enumerate(values)), domain="classification")
    assert found.classes == classes
    assert [type(label) for label in found.classes] == [type(label) for label in classes]
    assert found.y is not None
    assert found.y.dtype == np.int64


@pytest.mark.parametrize("labels", [[True, False, True], [3, 7, 3], [0.5, 1.5, 0.5], ["b", "a", "b"]])
def test_labels_of_typed_files_keep_their_type(labels: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.table({"x": [1, 2, 3], "label": labels}), path)
    found = read_dataset(path, domain="classification", cache=tmp_path / "c")
    assert found.classes == tuple(sorted(set(labels)))
    assert {type(label) for label in found.classes} == {type(label) for label in labels}
    assert found.y is not None
    assert [found.classes[code] for code in found.y] == labels


def test_a_dictionary_column_of_parquet_is_a_category(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    colour = pa.array(["red", "blue", None]).dictionary_encode()
    parquet.write_table(pa.table({"colour": colour, "flag": [True, None, False], "label": [1, 2, 3]}), path)
    found = read_dataset(path, cache=tmp_path / "c")
    assert found.columns == (Column("colour", CATEGORICAL, ("blue", "red")), Column("flag"))
    np.testing.assert_array_equal(found.X, [[1, 1], [0, np.nan], [np.nan, 0]])


def test_json_fields_may_come_late_or_change_type(read: Read) -> None:
    rows = [{"a": 1, "label": 1}, {"a": "x", "label": 2}, {"a": True, "b": 2.5, "label": 3}]
    found = read("\n".join(json.dumps(row) for row in rows), "data.jsonl")
    assert found.columns == (Column("a", CATEGORICAL, ("1", "true", "x")), Column("b"))
    np.testing.assert_array_equal(found.X, [[0, np.nan], [2, np.nan], [1, 2.5]])


def test_clustering_has_no_target(read: Read) -> None:
    found = read("a,b\n1,2\n3,4\n", domain="clustering")
    assert found.y is None
    assert found.target is None
    assert found.X.shape == (2, 2)
    assert read("a,b\n1,2\n3,4\n", domain="clustering", target="b").X.shape == (2, 1)


# What is wrong, and where


@pytest.mark.parametrize(
    ("text", "said", "message"),
    [
        ("", {}, '"data.csv" has no rows'),
        ("a,label\n", {}, "has no rows"),
        ("a,label\n1,2\n3\n", {}, r'row 2 \(line 3\) of "data.csv" has 1 values where 2 are expected'),
        ("a,label\n1,2\n3,4,5\n", {}, r"row 2 \(line 3\).* has 3 values"),
        ("a,price\n1,2\n", {"target": "prise"}, 'Unknown target "prise". Did you mean "price"'),
        ("a,price\n1,2\n", {}, "No column is called label, target, class or y; .*: a, price"),
        ("a,label\n1,2\n", {"features": ["aa"]}, 'Unknown feature "aa". Did you mean "a"'),
        ("a,label\n1,2\n3,2\n", {}, 'The target "label" is 2 in every row'),
        ("a,label\n1,x\n3,x\n", {"domain": "classification"}, "is 'x' in every row"),
        ("a,label\n1,2\n3,x\n", {}, 'row 2 of "data.csv", column "label": "x" is not a number'),
        ("a,label\n1,2\n3,\n", {}, 'row 2 of "data.csv", column "label": the target has no value'),
        ("a,label\n1,2\n3,nan\n", {"domain": "classification"}, 'row 2 .*column "label": the target has no'),
        ("a,label\n1,2\n1e300,3\n", {}, 'row 2 of "data.csv", column "a": 1e.?300 is beyond'),
        ("a,label\n1,2\ninf,3\n", {}, 'row 2 of "data.csv", column "a"'),
        ("a,a,label\n1,2,3\n", {}, 'two columns called "a"'),
        ("label\n1\n2\n", {}, "has no feature with a value"),
        (
            "a,label\n1,2\n2,3\n3,4\n",
            {"domain": "binomial-classification"},
            "has 3 classes .* use the domain .multinomial",
        ),
        ("a,label\n1,2\n", {"format": "cvs"}, 'Unknown format "cvs". Did you mean "csv"'),
        ("a,label\n1,2\n", {"domain": "regresion"}, 'Unknown domain "regresion"'),
    ],
)
def test_wrong_tables_say_what_is_wrong_and_where(
    text: str, said: dict[str, Any], message: str, read: Read
) -> None:
    with pytest.raises(BadInput, match=message):
        read(text, **said)


def test_a_class_for_every_row_is_no_classification(read: Read) -> None:
    with pytest.raises(BadInput, match="30 different values in 30 rows"):
        read("a,label\n" + "".join(f"1,{n / 7}\n" for n in range(30)), domain="classification")


def test_one_word_among_numbers_is_a_slip_that_is_named(read: Read) -> None:
    rows = [f"{n},{n}" for n in range(1000)]
    rows[641] = "12a,641"
    with pytest.raises(BadInput, match=r'row 642 of "data\.csv", column "age": "12a" is not a number'):
        read("age,label\n" + "\n".join(rows) + "\n")


def test_a_ragged_row_far_down_is_found(read: Read) -> None:
    rows = ["1,2"] * 2_000_000
    rows[1_700_000] = "1,2,3"
    with pytest.raises(BadInput, match=r"row 1700001 \(line 1700002\)"):
        read("a,label\n" + "\n".join(rows) + "\n")


def test_bytes_that_are_not_utf8(read: Read) -> None:
    with pytest.raises(BadInput, match="not UTF-8"):
        read("a,label\né,1\n".encode("latin-1"))
    with pytest.raises(BadInput, match="not UTF-8"):
        read(b"a,label\n" + b"x,1\n" * 100_000 + "é,1\n".encode("latin-1"))


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"PAR1 no", "data.parquet", "cannot be read as Parquet"),
        (b"Obj\x01 no", "data.avro", "cannot be read as Avro"),
        (b'{"a": 1, "label": 2}\n{"a": \n', "data.jsonl", 'Line 2 of "data.jsonl" is not valid JSON'),
        (b"[1, 2]\n", "data.jsonl", 'Line 1 of "data.jsonl" is not a JSON object'),
        (b'{"a": [1, 2], "label": 2}\n', "data.jsonl", 'column "a" of "data.jsonl" holds list'),
        (b'{"a": 1, "label": 2}\n{"a": {"b": 1}, "label": 2}\n', "data.jsonl", 'row 2 .*column "a": a value'),
        (b'{"a": 1, "label": null}\n', "data.jsonl", 'row 1 of "data.jsonl", column "label"'),
        (b'{"a": 1, "label": 1}\n{"a": 2}\n', "data.jsonl", 'row 2 of "data.jsonl", column "label"'),
        (b"\n\n", "data.jsonl", "has no rows"),
        (b"\x00\x01\x02\x03", "data.bin", "binary"),
        (b"not gzip at all", "data.csv.gz", "Cannot read|cannot be read"),
    ],
)
def test_damaged_files_are_named(content: bytes, name: str, message: str, read: Read) -> None:
    with pytest.raises(BadInput, match=message):
        read(content, name)


def test_durations_are_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.table({"took": pa.array([1, 2], pa.duration("s")), "label": [1, 2]}), path)
    with pytest.raises(BadInput, match=r'"took" of "data.parquet" holds duration\[.*"features"'):
        read_dataset(path, cache=tmp_path / "c")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,label\n1,2\n2,3\n")
    with pytest.raises(BadInput, match=r'Did you mean "data\.csv"'):
        read_dataset(tmp_path / "dat.csv", cache=tmp_path / "c")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="has no files"):
        read_dataset(tmp_path / "empty", cache=tmp_path / "c")
    assert len(read_dataset((tmp_path / "data.csv").as_uri(), cache=tmp_path / "c")) == 2
