"""Models as PMML, read by another maker's engine: the same answers to the same rows."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from prudent.training.algorithms.algorithm import domain as domain_of
from prudent.training.algorithms.registry import algorithm
from prudent.training.data.features import encode_rows
from prudent.training.data.reading import read_dataset
from prudent.training.engines.fit_task import FitTask, PreparedRows
from prudent.training.engines.fitted_transforms import apply_all
from prudent.training.engines.local.features import LocalTransformFitter
from prudent.training.engines.local.learners.registry import fit_function
from prudent.training.engines.pmml.document import document
from prudent.training.engines.pmml.fields import NotExpressible
from prudent.training.engines.scoring import Scorer
from prudent.training.request.errors import BadRequest
from prudent.training.request.request import TrainingRequest
from prudent.training.train import train

TOWNS = ("Rome", "Oslo", "Lima")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers, categories, gaps; a target of three classes, one of two, one of numbers above 0."""
    rng = np.random.default_rng(2)
    lines = ["town,size,age,many,two,value"]
    for _ in range(240):
        town, size, age = rng.choice(TOWNS), rng.normal(50, 20), rng.integers(20, 70)
        height = size / 20 + 2 * (town == "Oslo") + rng.normal(0, 0.4)
        many, two = "abc"[int(np.digitize(height, [2.2, 3.4]))], "no" if height < 3 else "yes"
        shown = [
            "" if hidden else str(value)
            for hidden, value in zip(rng.random(2) < 0.1, (town, f"{size:.3f}"), strict=True)
        ]
        lines.append(f"{','.join(shown)},{age},{many},{two},{np.exp(height / 3):.4f}")
    file = tmp_path_factory.mktemp("table") / "table.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


ROWS = [
    {"town": town, "size": size, "age": age}
    for town in (*TOWNS, None)
    for size in (11.7, 38.2, 52.9, 93.4, None)
    for age in (25.0, 61.0)
]

CASES: list[tuple[str, str | None, str, dict[str, Any]]] = [
    ("regression", "value", "linear-regression", {"regParam": 0.1}),
    ("regression", "value", "generalized-linear-regression", {"family": "gamma", "link": "log"}),
    ("regression", "value", "decision-tree-regression", {"maxDepth": 4}),
    ("regression", "value", "random-forest-regression", {"numTrees": 5}),
    ("regression", "value", "gradient-boosted-tree-regression", {"maxIter": 12}),
    ("classification", "two", "linear-support-vector-machine", {"regParam": 0.01}),
    ("classification", "many", "linear-support-vector-machine", {"regParam": 0.01}),
    ("classification", "two", "binomial-logistic-regression", {}),
    ("classification", "many", "multinomial-logistic-regression", {}),
    ("classification", "many", "naive-bayes", {"modelType": "gaussian"}),
    ("classification", "many", "naive-bayes", {"modelType": "multinomial"}),
    ("classification", "many", "decision-tree-classification", {"maxDepth": 4}),
    ("classification", "many", "random-forest-classification", {"numTrees": 5}),
    ("classification", "two", "gradient-boosted-tree-classification", {"maxIter": 12}),
    ("classification", "many", "gradient-boosted-tree-classification", {"maxIter": 12}),
    ("regression", "value", "lightgbm-regression", {"numIterations": 12, "minDataInLeaf": 5}),
    ("regression", "value", "xgboost-regression", {"numRound": 12}),
    ("classification", "many", "lightgbm-classification", {"numIterations": 12, "minDataInLeaf": 5}),
    ("classification", "two", "xgboost-classification", {"numRound": 12}),
    ("deep-learning", "many", "multilayer-perceptron-classifier", {"maxIter": 20}),
    ("clustering", None, "k-means", {"k": 3}),
    ("clustering", None, "gaussian-mixture-model", {"k": 2}),
]


def fitted(path: Path, domain: str, target: str | None, name: str, settings: Any, steps: Any = ()) -> Any:
    """A model with its preparation, as a trial makes them, and the data they came from."""
    cache = path.parent / "cache"
    data = read_dataset(str(path), "csv", target, ("town", "size", "age"), domain=domain, cache=cache)
    found = domain_of(domain)
    fitter = LocalTransformFitter(data.X, data.columns, y=data.y, classes=len(data.classes))
    for step, chosen in steps:
        fitter.add(step, chosen)
    fitter.finish(native=algorithm(name).native)
    rows = PreparedRows(fitter.X, data.y)
    scorer = Scorer(found.task, found.metric_for(len(data.classes)), len(data.classes))
    # As in a worker: several threads that wait for each other on a busy machine are slower than one.
    with threadpool_limits(1):
        task = FitTask(rows, rows, scorer, 1, categories=tuple(fitter.sizes.tolist()))
        model = fit_function(name)(task, algorithm(name).complete(settings))
    return model, fitter.transforms, data


def answers(jpmml: Any, tmp_path: Path, model: Any, steps: Any, data: Any) -> list[dict[str, Any]]:
    """What the other engine says to the rows, as users have them."""
    from jpmml_evaluator import make_evaluator

    written = document(model, steps, data.columns, data.target, data.classes)
    (tmp_path / "model.pmml").write_bytes(written)
    evaluator = make_evaluator(str(tmp_path / "model.pmml"), jpmml).verify()
    return [evaluator.evaluate(dict(row)) for row in ROWS]


@pytest.mark.parametrize(
    ("domain", "target", "name", "settings"), CASES, ids=[f"{c[2]}-{c[1]}-{i}" for i, c in enumerate(CASES)]
)
def test_another_makers_engine_answers_the_same(
    jpmml: Any, table: Path, tmp_path: Path, domain: str, target: str | None, name: str, settings: Any
) -> None:
    model, steps, data = fitted(table, domain, target, name, settings)
    X = apply_all(steps, encode_rows(ROWS, data.columns))
    expected, found = model.predict(X), answers(jpmml, tmp_path, model, steps, data)
    if domain == "regression":
        assert [row["value"] for row in found] == pytest.approx(expected.tolist(), rel=1e-5)
        return
    labels = data.classes or range(9)
    said = [str(row[target or "cluster"]) for row in found]
    assert said == [str(labels[number]) for number in expected]
    probable = [each for each in found[0] if str(each).startswith("probability(")]
    shares = model.probabilities(X)
    assert bool(probable) == (shares is not None)
    if shares is not None:
        told = [[row[f"probability({labels[n]})"] for n in range(shares.shape[1])] for row in found]
        assert np.array(told, dtype=float) == pytest.approx(shares, abs=1e-5)


def test_preparation_by_scaling_and_turning_goes_along(jpmml: Any, table: Path, tmp_path: Path) -> None:
    chosen = [("impute", {}), ("one-hot", {}), ("scale", {"method": "standard"}), ("pca", {"k": 3})]
    model, steps, data = fitted(table, "regression", "value", "linear-regression", {}, chosen)
    expected = model.predict(apply_all(steps, encode_rows(ROWS, data.columns)))
    found = answers(jpmml, tmp_path, model, steps, data)
    assert [row["value"] for row in found] == pytest.approx(expected.tolist(), rel=1e-5)


def test_categories_told_by_the_target_go_along(jpmml: Any, table: Path, tmp_path: Path) -> None:
    chosen = [("target-encode", {"smoothing": 2.0})]
    model, steps, data = fitted(table, "classification", "many", "decision-tree-classification", {}, chosen)
    expected = model.predict(apply_all(steps, encode_rows(ROWS, data.columns)))
    found = answers(jpmml, tmp_path, model, steps, data)
    assert [row["many"] for row in found] == [data.classes[number] for number in expected]


def test_what_pmml_has_no_words_for_is_said_and_gives_no_document(table: Path) -> None:
    cases: list[tuple[str, str | None, str, dict[str, Any], str]] = [
        ("clustering", None, "k-means", {"k": 2, "distanceMeasure": "cosine"}, "cosine"),
        ("classification", "two", "binomial-logistic-regression", {"threshold": 0.9}, "threshold"),
        ("regression", "value", "generalized-linear-regression", {"family": "gamma"}, "link inverse"),
    ]
    for domain, target, name, settings, why in cases:
        model, steps, data = fitted(table, domain, target, name, settings)
        with pytest.raises(NotExpressible, match=why):
            document(model, steps, data.columns, data.target, data.classes)


def test_a_request_that_asks_for_it_gets_the_file_or_a_note_beside_the_other(
    table: Path, tmp_path: Path
) -> None:
    links = {"param": "link", "values": ["log", "inverse"]}
    asked = {
        "domain": "regression",
        "dataset": {"path": str(table), "target": "value", "features": ["town", "size", "age"]},
        "methods": [
            {
                "algorithm": "generalized-linear-regression",
                "hyperparameters": [{"param": "family", "values": ["gamma"]}, links],
            }
        ],
        "parameterSearch": "grid",
        "export": ["onnx", "pmml"],
    }
    board = train(asked, "local", tmp_path / "out")
    models = {entry.hyperparameters["link"]: Path(str(entry.model_path)) for entry in board.entries}
    root = ET.parse(models["log"] / "model.pmml").getroot()
    assert root.tag == "{http://www.dmg.org/PMML-4_4}PMML"
    assert "notes" not in json.loads((models["log"] / "model.json").read_text())
    assert not (models["inverse"] / "model.pmml").exists()
    [note] = json.loads((models["inverse"] / "model.json").read_text())["notes"]
    assert note == "No PMML: it has no words for the link inverse; use the model's ONNX form."


def test_unknown_forms_are_refused() -> None:
    asked = {"domain": "regression", "dataset": {"path": "x.csv", "target": "value"}, "export": ["pmm"]}
    with pytest.raises(BadRequest, match=r"export\[0\].*pmml"):
        TrainingRequest.parse(asked)
