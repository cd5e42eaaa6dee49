"""A model folder predicts from rows of any kind; a damaged or foreign one says so in a sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest

from prudent.core.errors import BadInput
from prudent.training.data.features import feature_blocks
from prudent.training.models.description import read_description, read_facts
from prudent.training.models.model import load

Make = Callable[..., Path]

DICTS: list[dict[str, Any]] = [
    {"age": 31, "colour": "red", "weight": 1.5},
    {"age": None, "colour": "green", "weight": 80},
    {"age": 20, "colour": "violet", "weight": None, "name": "not a feature"},
    {"age": "50", "colour": " red ", "weight": True},
]
ANSWERS = ["yes", "yes", "no", "yes"]


def test_rows_of_every_kind_are_the_same_rows(make_model: Make) -> None:
    model = load(make_model())
    lists = [[row["age"], row["colour"], row["weight"]] for row in DICTS]
    assert model.columns == ("age", "colour", "weight")
    for rows in (DICTS, lists, np.array(lists, object), pd.DataFrame(DICTS), [tuple(row) for row in lists]):
        assert model.predict(rows).tolist() == ANSWERS
    assert model.predict([]).tolist() == []


def test_frames_with_their_own_kinds_of_missing_values(make_model: Make) -> None:
    frame = pd.DataFrame(
        {
            "weight": pd.array([1, None, 3], "Int64"),
            "colour": pd.Categorical(["red", None, "blue"]),
            "age": [np.nan, 101.0, 5.0],
        }
    )
    assert load(make_model()).predict(frame).tolist() == ["yes", "yes", "no"]


def test_probabilities_are_in_the_order_of_the_classes(make_model: Make) -> None:
    model = load(make_model())
    found = model.predict_proba(DICTS)
    assert found.shape == (4, 2)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    assert [model.description.classes[place] for place in found.argmax(1)] == ANSWERS


@pytest.mark.parametrize("classes", [("a", "b"), (0, 1), (-1, 1), (0.5, 1.5), (False, True)])
def test_labels_are_as_the_user_has_them(classes: tuple[Any, ...], make_model: Make) -> None:
    found = load(make_model(classes)).predict(DICTS).tolist()
    assert found == [classes[1], classes[1], classes[0], classes[1]]
    assert type(found[0]) is type(classes[0])


def test_a_regression_answers_values_and_tells_no_probabilities(make_model: Make) -> None:
    model = load(make_model(()))
    assert model.predict(DICTS).tolist() == [132.5, 120.0, 20.0, 151.0]
    with pytest.raises(BadInput, match="linear-regression gives no probabilities"):
        model.predict_proba(DICTS)


def test_many_rows_go_through_in_batches(make_model: Make) -> None:
    rows = np.tile(np.array([[1, np.nan, 2], [200, np.nan, 2]], np.float32), (100_000, 1))
    found = load(make_model()).predict(rows)
    assert found.shape == (200_000,)
    assert found[:3].tolist() == ["no", "yes", "no"]
    assert found[-1] == "yes"


def test_files_are_encoded_as_rows_are(make_model: Make, tmp_path: Path) -> None:
    model = load(make_model())
    (tmp_path / "a.csv").write_text(
        "weight,name,colour,age\n1.5,x,red,31\n80,x,green,\n,x,violet,20\n1,x, red ,50\n"
    )
    (tmp_path / "b.csv").write_text("31,red,1.5\n,green,80\n20,violet,\n50,red,1\n")
    (tmp_path / "c.jsonl").write_text(
        "\n".join(json.dumps({**r, "age": r["age"] and int(r["age"])}) for r in DICTS)
    )
    for name in ("a.csv", "b.csv", "c.jsonl"):
        blocks = list(feature_blocks(tmp_path / name, model.description.columns, cache=tmp_path / "c"))
        assert model.predict_matrix(np.concatenate(blocks)).tolist() == ANSWERS


def test_description_and_facts_come_back(make_model: Make) -> None:
    folder = make_model(picture={"confusion": {"labels": [0, 1], "counts": [[1, 0], [0, 1]]}})
    said, facts = read_description(folder), read_facts(folder)
    assert (said.algorithm, said.seed, said.trial, said.fingerprint) == (
        "binomial-logistic-regression",
        7,
        3,
        "abc",
    )
    assert said.hyperparameters == {"regParam": 0.1}
    assert said.request == {"path": "people.csv"}
    assert facts.picture["confusion"]["counts"] == [[1, 0], [0, 1]]
    assert said.rows_trained == facts.rows_trained == 70


def test_the_folder_of_a_request_is_its_best_model(make_model: Make, tmp_path: Path) -> None:
    make_model(name="out/1-logistic-0.9")
    board = {"entries": [{"model_path": "/elsewhere/out/1-logistic-0.9"}]}
    (tmp_path / "out" / "leaderboard.json").write_text(json.dumps(board))
    assert load(tmp_path / "out").predict(DICTS).tolist() == ANSWERS
    assert load(tmp_path / "out" / "1-logistic-0.9" / "model.onnx").predict(DICTS).tolist() == ANSWERS


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"age": "old", "colour": "red", "weight": 1}], "Row 1, \"age\": 'old' is not a finite number"),
        ([{"age": 1e300, "colour": "red", "weight": 1}], 'Row 1, "age": 1e.300 is not a finite'),
        ([{"Age": 1, "colour": "red", "weight": 1}], 'No row has "age".* Did you mean "Age"'),
        ([[1, "red"]], "Row 1 has 2 values, but the model takes 3: age, colour, weight"),
        ([{"age": 1, "colour": "red", "weight": 1}, [1, 2, 3]], "Row 2 is not a dict"),
        ([1, 2, 3], "Row 1 is int, not a list"),
        (np.zeros((2, 5)), "The array has 5 values"),
        (np.zeros(3), "The array has"),
        ({"age": 1}, "Rows are a list of dicts"),
        ("data.csv", "Rows are a list of dicts"),
    ],
)
def test_wrong_rows(rows: Any, message: str, make_model: Make) -> None:
    with pytest.raises(BadInput, match=message):
        load(make_model()).predict(rows)


def test_folders_that_are_no_models(make_model: Make, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="There is no model folder"):
        load(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"has no model\.json"):
        load(tmp_path / "empty")
    (tmp_path / "empty" / "leaderboard.json").write_text("{}")
    with pytest.raises(BadInput, match="has no model in its leaderboard"):
        load(tmp_path / "empty")
    folder = make_model()
    (folder / "model.onnx").unlink()
    with pytest.raises(BadInput, match=r"has no model\.onnx"):
        load(folder)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1}', '{"format": 1, "columns": 3, "classes": []}'])
def test_a_damaged_description(text: str, make_model: Make) -> None:
    folder = make_model()
    (folder / "model.json").write_text(text)
    with pytest.raises(BadInput, match="is damaged"):
        load(folder)


def test_another_versions_description(make_model: Make) -> None:
    folder = make_model()
    (folder / "model.json").write_text('{"format": 99}')
    with pytest.raises(BadInput, match="another version"):
        load(folder)


def test_a_damaged_or_foreign_graph(make_model: Make) -> None:
    folder = make_model()
    whole = (folder / "model.onnx").read_bytes()
    for content in (b"", b"\x80\x04\x95 pickle", whole[: len(whole) // 2]):
        (folder / "model.onnx").write_bytes(content)
        with pytest.raises(BadInput, match=r"damaged or no ONNX|do not belong"):
            load(folder)
    (folder / "model.onnx").write_bytes(whole)
    said = json.loads((folder / "model.json").read_text())
    said["columns"].pop()
    (folder / "model.json").write_text(json.dumps(said))
    with pytest.raises(BadInput, match="do not belong together"):
        load(folder)


def test_nothing_is_read_from_outside_the_folder(make_model: Make, tmp_path: Path) -> None:
    outside = make_model(name="outside")
    folder = make_model(name="inside")
    graph = onnx.load(str(outside / "model.onnx"))
    (folder / "model.onnx").unlink()
    (folder / "model.onnx").symlink_to(outside / "model.onnx")
    with pytest.raises(BadInput, match="leads out of its folder"):
        load(folder)
    (folder / "model.onnx").unlink()
    (tmp_path / "weights.bin").write_bytes(np.ones(3, np.float32).tobytes())
    weights = next(each for each in graph.graph.initializer if each.name == "weights")
    weights.ClearField("raw_data")
    weights.data_location = onnx.TensorProto.EXTERNAL
    place = weights.external_data.add()
    place.key, place.value = "location", "../weights.bin"
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    with pytest.raises(BadInput, match="damaged or no ONNX"):
        load(folder)


def test_prediction_needs_no_training_packages(make_model: Make) -> None:
    folder = make_model()
    code = (
        "import sys, importlib.abc\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in "
        "('sklearn', 'pyspark', 'torch', 'pandas', 'pyarrow', 'onnx', 'fastavro', 'numba'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from prudent.training.models.model import load\n"
        f"print(load({str(folder)!r}).predict([{{'age': 31, 'colour': 'red', 'weight': 1.5}}])[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "yes"), done.stderr
