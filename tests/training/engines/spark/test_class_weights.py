"""Rows of a class that count several times train the model that as many rows would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.training.algorithms.registry import algorithm
from prudent.training.engines.onnx_export import export_pipeline
from prudent.training.engines.spark.dataset import LABEL, ROW
from prudent.training.engines.spark.engine import SparkEngine
from prudent.training.engines.spark.evaluation import collect_predictions
from prudent.training.engines.spark.pipeline import FittedPipeline, fit
from prudent.training.engines.spark.session import SparkTrainingSession
from prudent.training.engines.spark.trial import compare_export, trained_pipeline
from prudent.training.request.request import TrainingRequest

from .trials import opened, spec_for

pytestmark = pytest.mark.timeout(900)  # Java takes its time on a busy machine
RARE = 1


@pytest.fixture(scope="module")
def patients(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkTrainingSession]:
    """Two classes that overlap, one of them rare: its rows count four times."""
    rng = np.random.default_rng(8)
    y = (np.arange(400) % 10 == 0) * 1
    X = rng.normal(size=(400, 2)) + 1.2 * y[:, None] + 4
    file = tmp_path_factory.mktemp("patients") / "patients.csv"
    rows = (f"{a:.3f},{b:.3f},{'ill' if ill else 'well'}" for (a, b), ill in zip(X, y, strict=True))
    file.write_text("a,b,label\n" + "\n".join(rows) + "\n")
    with opened(file.parent / "work", file, classWeights={"well": 0.25}) as session:
        yield session


def fitted(
    session: SparkTrainingSession, name: str, often: bool, folder: Path, **settings: Any
) -> FittedPipeline:
    """A model of all rows: weighed, or of rows that are there as often as they weigh."""
    context = session._context
    dataset, rows = context.dataset, context.split.train(None, 1.0)
    if often:
        weights = dataset.class_weights
        dataset = replace(dataset, class_weights=())
        for number, weight in enumerate(weights):
            for _ in range(round(weight) - 1):
                rows = rows.union(context.split.train(None, 1.0).where(rows[LABEL] == number))
    spec, complete = spec_for(folder, name), algorithm(name).complete(settings)
    return fit(spec, complete, rows, None, dataset, context.scorer, lambda score, done: None)


def rareness(session: SparkTrainingSession, model: FittedPipeline) -> tuple[np.ndarray, float]:
    """What the model says for the rare class in every row, and how far its ONNX form is from that."""
    found = collect_predictions(
        model.predict(session._context.split.train(None, 1.0)), session._context.dataset
    )
    said = found.scores if found.probabilities is None else found.probabilities
    assert said is not None
    trained = trained_pipeline(model, session._context.dataset)
    onnx = export_pipeline(trained.transforms, trained.model.graph, len(trained.columns))
    return said[:, 0], compare_export(found, onnx).difference


def test_classes_weigh_what_was_said(patients: SparkTrainingSession) -> None:
    assert patients.description["classes"] == ["ill", "well"]
    assert patients._context.dataset.class_weights == (4.0, 1.0)


@pytest.mark.parametrize(
    ("name", "settings", "most"),
    [
        ("binomial-logistic-regression", {}, 1e-3),
        ("linear-support-vector-machine", {"regParam": 0.01, "maxIter": 5}, 1e-2),
        ("naive-bayes", {}, 1e-9),
        ("decision-tree-classification", {"maxDepth": 2}, 1e-9),
        ("random-forest-classification", {"maxDepth": 3, "numTrees": 100}, 0.1),
        ("gradient-boosted-tree-classification", {"maxDepth": 2, "maxIter": 10}, 0.05),
        ("xgboost-classification", {"maxDepth": 2, "numRound": 10}, 0.05),
        ("multilayer-perceptron-classifier", {"maxIter": 60}, 0.1),
    ],
)
def test_a_row_that_counts_four_times_is_like_four_rows(
    patients: SparkTrainingSession, tmp_path: Path, name: str, settings: dict[str, Any], most: float
) -> None:
    weighed, difference = rareness(patients, fitted(patients, name, False, tmp_path, **settings))
    often, _ = rareness(patients, fitted(patients, name, True, tmp_path, **settings))
    plain = replace(patients._context, dataset=replace(patients._context.dataset, class_weights=()))
    session = SparkTrainingSession(patients._spark, plain, False)
    alike, _ = rareness(session, fitted(session, name, False, tmp_path, **settings))
    assert difference < 1e-5
    away = np.abs(weighed - often).mean()
    assert away < most
    # Without weights a rare class is hardly ever believed in.
    assert trust(weighed) > trust(alike) + max(0.05, 2 * away)


def trust(said: np.ndarray) -> float:
    """The mean probability; of scores the share above 0."""
    return float(((said > 0) if said.min() < 0 else said).mean())


def test_shares_of_a_leaf_are_those_of_weights_by_hand(
    patients: SparkTrainingSession, tmp_path: Path
) -> None:
    """40 rows are ill and count 4 each, 360 are well: a tree of one leaf says 160 of 520."""
    model = fitted(patients, "decision-tree-classification", False, tmp_path, maxDepth=0)
    said, difference = rareness(patients, model)
    np.testing.assert_allclose(said, 160 / 520, rtol=1e-12)
    assert difference < 1e-6


def test_features_do_not_depend_on_weights(patients: SparkTrainingSession, tmp_path: Path) -> None:
    context = patients._context
    means = []
    for dataset in (context.dataset, replace(context.dataset, class_weights=())):
        spec = spec_for(tmp_path, "naive-bayes", transforms={"scale": {"method": "standard"}})
        complete = algorithm("naive-bayes").complete({"modelType": "gaussian"})
        rows = context.split.train(None, 1.0)
        found = fit(spec, complete, rows, None, dataset, context.scorer, lambda score, done: None)
        means.append(found.transforms[0].shift)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(*means)


def test_of_three_classes_each_weighs_against_all_others(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    y = np.repeat([0, 1, 2], [120, 60, 20])
    X = rng.normal(size=(200, 2)) + np.array([[0, 0], [3, 3], [0, 3]])[y]
    rows = (f"{a:.3f},{b:.3f},k{kind}" for (a, b), kind in zip(X, y, strict=True))
    (tmp_path / "rows.csv").write_text("a,b,label\n" + "\n".join(rows) + "\n")
    name = "linear-support-vector-machine"
    with opened(tmp_path / "work", tmp_path / "rows.csv", classWeights="balanced") as session:
        assert session._context.dataset.class_weights == pytest.approx((1.0, 2.0, 6.0))
        frame = session._context.split.train(None, 1.0)
        predicted = (
            fitted(session, name, False, tmp_path, maxIter=5)
            .predict(frame)
            .select(ROW, LABEL, "prediction")
            .toPandas()
        )
        often = (
            fitted(session, name, True, tmp_path, maxIter=5)
            .predict(frame)
            .select(ROW, "prediction")
            .toPandas()
        )
    assert (predicted["prediction"] == often["prediction"]).mean() > 0.97
    rare = predicted[predicted[LABEL] == 2]
    assert (rare["prediction"] == 2).mean() > 0.5


@pytest.mark.parametrize("domain", ["regression", "clustering"])
def test_what_has_no_classes_takes_no_weights_and_starts_no_machine(tmp_path: Path, domain: str) -> None:
    document = {"domain": domain, "dataset": {"path": "x.csv"}, "classWeights": "balanced"}
    with pytest.raises(BadInput, match="Only classes have"):
        SparkEngine().open(TrainingRequest.parse(document), tmp_path, 1)


def test_a_class_that_is_not_there_is_told(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,label\n1,rare\n2,usual\n3,usual\n")
    with pytest.raises(BadInput, match='Did you mean "rare"'):
        opened(tmp_path / "work", tmp_path / "rows.csv", classWeights={"rar": 2})
