"""Data as people have them, and what happens to trials: refused, cut, late, side by side."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.cloud.clusters.autoscaling import ClusterRequest
from prudent.cloud.clusters.spark_cluster import SparkCluster
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.core.errors import BadInput, RunFailed
from prudent.training.algorithms.registry import algorithm
from prudent.training.engines.engine import TrialSpec
from prudent.training.engines.onnx_export import export_pipeline
from prudent.training.engines.partition import Partition, inner_split
from prudent.training.engines.predictions import Predictions
from prudent.training.engines.spark import splits as splitting
from prudent.training.engines.spark.dataset import FEATURES, LABEL, ROW
from prudent.training.engines.spark.engine import SparkEngine
from prudent.training.engines.spark.evaluation import (
    PREDICTION,
    CollectedPredictions,
    SparkScorer,
    collect_predictions,
)
from prudent.training.engines.spark.pipeline import fit
from prudent.training.engines.spark.reading import DatasetQuery, read_dataset_into_spark
from prudent.training.engines.spark.session import SparkTrainingSession
from prudent.training.engines.spark.trial import compare_export, trained_pipeline
from prudent.training.models.metrics import confusion, f1
from prudent.training.request.limits import ValidationMethod
from prudent.training.request.request import TrainingRequest
from prudent.tuning.trial import CUT, FAILED, FINISHED, Progress

from .trials import bench, finish, opened, spec_for, write_libsvm

pytestmark = pytest.mark.timeout(900)  # Java takes its time on a busy machine


@pytest.fixture(scope="module")
def people(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkTrainingSession]:
    """A table with categories, missing values, text labels: whether somebody buys."""
    rng = np.random.default_rng(3)
    lines = ["age,town,income,buys"]
    for number in range(240):
        age, town = rng.integers(18, 80), ["Rome", "Oslo", "Lima"][number % 3]
        income = rng.normal(30 + 20 * (town == "Oslo"), 5)
        buys = "yes" if income + 0.2 * age > 45 else "no"
        shown = "" if number % 17 == 0 else f"{income:.2f}"
        lines.append(f"{age},{'?' if number % 23 == 0 else town},{shown},{buys}")
    file = tmp_path_factory.mktemp("people") / "people.csv"
    file.write_text("\n".join(lines) + "\n")
    with opened(file.parent / "work", file, dataset={"target": "buys"}) as session:
        yield session


@pytest.fixture(scope="module")
def noise(
    spark: Any, examples: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkTrainingSession]:
    """Numbers to predict from ten others."""
    file = examples / "sample_linear_regression_data.txt"
    with opened(
        tmp_path_factory.mktemp("noise"), file, "regression", dataset={"format": "libsvm"}
    ) as session:
        yield session


@pytest.fixture(scope="module")
def flowers(
    spark: Any, examples: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkTrainingSession]:
    """150 rows of three classes and four numbers, some of them negative, each row judged once."""
    file = examples / "sample_multiclass_classification_data.txt"
    with opened(
        tmp_path_factory.mktemp("flowers"), file, dataset={"format": "libsvm"}, validation={"folds": 2}
    ) as session:
        yield session


def facts_of(spec: TrialSpec) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((spec.folder / "facts.json").read_text())
    return found


# Tables


def test_a_table_with_categories_and_missing_values_goes_into_one_onnx_file(
    people: SparkTrainingSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    monkeypatch.setattr(people, "_context", replace(people._context, own_form=True))
    columns = people.description["columns"]
    assert [(c["name"], c["kind"]) for c in columns] == [
        ("age", "numeric"),
        ("town", "categorical"),
        ("income", "numeric"),
    ]
    assert list(columns[1]["categories"]) == ["Lima", "Oslo", "Rome"]
    assert people.description["classes"] == ["no", "yes"]
    assert (people.shape.rows, people.shape.columns, people.shape.classes) == (240, 3, 2)
    spec = spec_for(
        tmp_path,
        "binomial-logistic-regression",
        transforms={"impute": {"strategy": "median"}, "scale": {"method": "standard"}},
    )
    outcome, _ = finish(people.start(spec))
    assert outcome.status == FINISHED, outcome.why
    assert set(outcome.measures) == {"score", "value", "train_s", "predict_ms"}
    facts = facts_of(spec)
    assert facts["metric"] == "mcc"
    assert facts["value"] == outcome.measures["value"] > 0.8
    assert facts["export_difference"] < 1e-5
    assert facts["extra_files"] == ["spark"]
    assert (spec.folder / "spark" / "metadata").is_dir()
    assert (facts["rows_trained"], facts["rows_validated"]) == (168, 72)
    assert set(facts["picture"]["importance"]["feature"]) == {"age", "income", "town=0", "town=1", "town=2"}
    model = onnxruntime.InferenceSession(str(spec.folder / "model.onnx"))
    rows = np.array([[30, 1, 60], [30, 2, 10], [np.nan, np.nan, np.nan]], dtype=np.float32)
    predicted, shares = model.run(["prediction", "probabilities"], {"features": rows})
    assert predicted.tolist()[:2] == [1, 0]
    assert np.isfinite(shares).all()


def test_trees_ask_for_categories_and_for_principal_components(
    people: SparkTrainingSession, tmp_path: Path
) -> None:
    by_category = spec_for(
        tmp_path,
        "random-forest-classification",
        1,
        hyperparameters={"maxCategories": 70, "maxBins": 100, "numTrees": 3, "maxDepth": 3},
        fraction=0.5,
    )
    again = replace(by_category, number=2, folder=tmp_path / "again")
    cosine = spec_for(
        tmp_path,
        "decision-tree-classification",
        3,
        transforms={"scale": {"method": "minmax"}, "pca": {"k": 2}},
    )
    specs = (by_category, again, cosine)
    for spec, run in [(spec, people.start(spec)) for spec in specs]:  # side by side
        outcome, _ = finish(run)
        assert outcome.status == FINISHED, outcome.why
        assert facts_of(spec)["export_difference"] < 1e-5
    assert {"pc1", "pc2"} == set(facts_of(cosine)["picture"]["importance"]["feature"])
    assert facts_of(by_category)["rows_trained"] == 84
    # The same seed draws the same rows and the same trees.
    assert facts_of(again)["picture"] == facts_of(by_category)["picture"]


@pytest.mark.parametrize("kind", ["parquet", "json", "avro"])
def test_other_formats_hold_the_same_rows(spark: Any, tmp_path: Path, kind: str) -> None:
    import fastavro
    import pyarrow as pa
    from pyarrow import parquet

    rows = [{"a": float(n), "b": "xy"[n % 2], "c": n % 3 == 0, "label": n % 2} for n in range(30)]
    rows[4]["a"] = None
    file = tmp_path / f"data.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), file)
    elif kind == "json":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        fields = [("a", ["null", "double"]), ("b", "string"), ("c", "boolean"), ("label", "int")]
        schema = {"type": "record", "name": "row", "fields": [{"name": n, "type": t} for n, t in fields]}
        with file.open("wb") as out:
            fastavro.writer(out, schema, rows)
    dataset = read_dataset_into_spark(
        spark, DatasetQuery(str(file), None, None, None, "classification"), tmp_path / "work"
    )
    kinds = {column.name: (column.kind, column.categories) for column in dataset.columns}
    assert kinds == {"a": ("numeric", ()), "b": ("categorical", ("x", "y")), "c": ("numeric", ())}
    assert dataset.classes == (0, 1)
    assert dataset.rows == 30
    assert dataset.missing == (True, False, False)
    dataset.frame.unpersist()


WRONG = [
    ("a,label\n1,x\n2,y\n", {"target": "lable"}, "classification", 'Did you mean "label"'),
    ("a,label\n1,x\n2,x\n", {}, "classification", "is 'x' in every row"),
    ("a,label\n1,3\n2,3\n", {}, "regression", "is 3 in every row"),
    ("a,label\n1,x\n2,y,z\n", {}, "classification", "has 3 values where 2 are expected"),
    ("a,label\n1,5\n2,six\n", {}, "regression", '"six" is not a number'),
    ("a,label\n", {}, "classification", "no rows"),
    ("a,label\ninf,1\n2,2\n", {}, "regression", "beyond what a model can compute with"),
]


@pytest.mark.parametrize(("text", "source", "domain", "said"), WRONG, ids=[w[3][:20] for w in WRONG])
def test_wrong_data_are_refused_with_the_place(
    spark: Any, tmp_path: Path, text: str, source: dict[str, Any], domain: str, said: str
) -> None:
    file = tmp_path / "data.csv"
    file.write_text(text)
    with pytest.raises(BadInput) as error:
        opened(tmp_path / "work", file, domain, dataset=source)
    assert said in str(error.value)


def test_a_bad_libsvm_line_is_named(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "data.libsvm"
    file.write_text("1 1:2 2:3\n0 1:x\n")
    with pytest.raises(BadInput, match="Line 2"):
        opened(tmp_path / "work", file)


def test_a_line_break_inside_quotes_is_read(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text('note,a,label\n"one\ntwo",1,x\nplain,2,y\n')
    with opened(tmp_path / "work", file) as session:
        assert session.shape.rows == 2
        assert list(session.description["columns"][0]["categories"]) == ["one\ntwo", "plain"]


# Trials


def test_refused_combinations_fail_with_one_sentence(
    flowers: SparkTrainingSession, noise: SparkTrainingSession, tmp_path: Path
) -> None:
    refused: list[tuple[SparkTrainingSession, str, dict[str, Any], str]] = [
        (flowers, "naive-bayes", {"modelType": "multinomial"}, "Negative"),
        (flowers, "binomial-logistic-regression", {}, "1 or 2 outcome classes"),
        (flowers, "multilayer-perceptron-classifier", {"inputLayerWidth": 9}, "the data have 4 features"),
        (noise, "generalized-linear-regression", {"family": "gamma", "link": "logit"}, "gamma"),
    ]
    for number, (session, name, settings, said) in enumerate(refused):
        outcome, _ = finish(session.start(spec_for(tmp_path, name, number, hyperparameters=settings)))
        assert outcome.status == FAILED
        assert said in outcome.why
        assert "\n" not in outcome.why
        assert len(outcome.why) < 400
        assert not (tmp_path / f"trial-{number}" / "facts.json").exists()


def test_cut_and_late_trials_stop_on_the_cluster_while_others_go_on(
    spark: Any, noise: SparkTrainingSession, tmp_path: Path
) -> None:
    long = {"maxIter": 3000, "maxDepth": 5}
    boosting = "gradient-boosted-tree-regression"
    cut = noise.start(spec_for(tmp_path, boosting, 1, hyperparameters=long))
    late = noise.start(spec_for(tmp_path, boosting, 2, hyperparameters=long, limit_s=0.5))
    assert isinstance(cut.next(600), Progress)  # it is in the middle of it
    other = noise.start(spec_for(tmp_path, "linear-regression", 3))
    outcome = cut.cut(2.0, "enough")
    assert (outcome.status, outcome.why) == (CUT, "enough")
    assert finish(other)[0].status == FINISHED
    outcome, _ = finish(late)
    assert outcome.status == FAILED
    assert "limit of 0.5 s" in outcome.why
    assert outcome.time_s <= 0.5
    for number in (1, 2):
        assert not (tmp_path / f"trial-{number}" / "facts.json").exists()
    deadline_s = time.monotonic() + 60
    tracker = spark.sparkContext.statusTracker()
    while tracker.getActiveJobsIds():
        assert time.monotonic() < deadline_s, "jobs of trials that ended still run"
        time.sleep(0.1)


def test_folds_report_progress_and_keep_what_was_said_of_every_row(
    flowers: SparkTrainingSession, tmp_path: Path
) -> None:
    spec = spec_for(tmp_path, "decision-tree-classification", fraction=0.5)
    outcome, seen = finish(flowers.start(spec))
    assert outcome.status == FINISHED, outcome.why
    assert [event.done for event in seen] == [0.5]
    facts = facts_of(spec)
    assert (facts["rows_trained"], facts["rows_validated"]) == (38, 150)
    kept = Predictions.read(spec.folder)
    assert kept is not None
    assert kept.actual is not None
    assert kept.probabilities is not None
    assert sorted(kept.rows.tolist()) == list(range(150))
    labels = flowers._context.dataset.frame.select(ROW, LABEL).orderBy(ROW).collect()
    assert kept.actual.tolist() == [labels[row][LABEL] for row in kept.rows]
    scores = [
        f1(confusion(kept.actual[kept.split == part], kept.predicted[kept.split == part], 3))
        for part in (0, 1)
    ]
    assert facts["split_scores"] == pytest.approx(scores)
    assert facts["value"] == pytest.approx(np.mean(scores))
    counts = confusion(kept.actual, kept.predicted, 3)  # of both folds, not of the last one
    assert (facts["picture"]["confusion"]["counts"], facts["picture"]["of"]) == (counts.tolist(), "folds")
    assert (kept.probabilities.argmax(axis=1) == kept.predicted).mean() > 0.95
    # What is delivered at the end has seen all rows.
    whole = replace(spec, refit=True, fraction=1.0, folder=tmp_path / "whole")
    outcome, _ = finish(flowers.start(whole))
    assert outcome.status == FINISHED, outcome.why
    facts = facts_of(whole)
    assert (facts["rows_trained"], facts["refitted"], facts["export_difference"] < 1e-5) == (150, True, True)
    assert not (whole.folder / "predictions.npz").exists()
    # One that is clearly behind in the first split is not judged in the second.
    behind = replace(spec, number=3, bar=(0.999, 0.998), fraction=0.1, folder=tmp_path / "behind")
    assert finish(flowers.start(behind))[0].status == FINISHED
    assert len(facts_of(behind)["split_scores"]) == 1


def test_a_test_part_is_in_no_trial_and_the_final_model_is_judged_by_it(
    spark: Any, examples: Path, tmp_path: Path
) -> None:
    import onnxruntime

    data = examples / "sample_multiclass_classification_data.txt"
    with opened(tmp_path, data, dataset={"format": "libsvm"}, test=0.2) as session:
        unseen = session.test_rows()
        assert unseen is not None
        spec = spec_for(tmp_path, "decision-tree-classification")
        assert finish(session.start(spec))[0].status == FINISHED
        facts, kept = facts_of(spec), Predictions.read(spec.folder)
        assert kept is not None
        looked_at = session.rows_of(kept.rows[::-3])
    assert len(unseen.rows) == 30
    assert facts["rows_trained"] + facts["rows_validated"] == 120
    assert not set(unseen.rows.tolist()) & set(kept.rows.tolist())
    model = onnxruntime.InferenceSession((spec.folder / "model.onnx").read_bytes())
    said = model.run(["prediction"], {model.get_inputs()[0].name: unseen.X})[0]
    assert (said == unseen.y).mean() > 0.8
    assert looked_at is not None
    np.testing.assert_array_equal(looked_at.rows, kept.rows[::-3])
    np.testing.assert_array_equal(looked_at.y, kept.actual[::-3])
    again = model.run(["prediction"], {model.get_inputs()[0].name: looked_at.X})[0]
    np.testing.assert_array_equal(again, kept.predicted[::-3])


def test_rows_are_not_waited_for_once_the_machines_are_given_back(
    spark: Any, people: SparkTrainingSession, tmp_path: Path
) -> None:
    register = LeaseRegister(tmp_path)
    machines = ClusterRequest.exactly(1, "m3.medium")
    cluster = SparkCluster(
        LocalProvider(tmp_path), machines, run="test", register=register, logs=tmp_path / "logs"
    )
    session = SparkTrainingSession(spark, people._context, False, cluster)
    rows = np.arange(5)
    assert session.rows_of(rows) is not None
    session.close()
    with pytest.raises(RunFailed, match=r"The rows could not be fetched \(The machines were given back"):
        session.rows_of(rows)
    assert people.rows_of(rows) is not None  # Spark itself is still there


def test_xgboost_takes_categories_and_gaps_as_they_are(people: SparkTrainingSession, tmp_path: Path) -> None:
    import onnxruntime

    spec = spec_for(tmp_path, "xgboost-classification", hyperparameters={"numRound": 12, "maxDepth": 3})
    outcome, _ = finish(people.start(spec))
    assert outcome.status == FINISHED, outcome.why
    facts = facts_of(spec)
    assert facts["value"] > 0.75
    assert facts["export_difference"] < 1e-5
    assert facts["picture"]["importance"]["feature"][0] in ("income", "town")
    assert set(facts["picture"]["importance"]["feature"]) == {"age", "town", "income"}
    assert 1 <= facts["iterations"] <= 12
    model = onnxruntime.InferenceSession((spec.folder / "model.onnx").read_bytes())
    # Who lives in Oslo (1) buys; so does one of an unknown town with such an income, not one without.
    rows = np.array([[30, 1, np.nan], [30, 2, np.nan], [30, np.nan, 55], [30, np.nan, 20]], dtype=np.float32)
    assert model.run(["prediction"], {"features": rows})[0].tolist() == [1, 0, 1, 0]


def test_many_rows_are_split_by_hash(flowers: SparkTrainingSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way that large data take, on little data."""
    monkeypatch.setattr(splitting, "MOST_ON_DRIVER", 10)
    dataset = flowers._context.dataset

    def numbers(frame: Any) -> set[int]:
        return {row[ROW] for row in frame.select(ROW).collect()}

    every = numbers(dataset.frame)
    rows = splitting.split(None, dataset, ValidationMethod(holdout=0.3), 5, 0.2)
    train, held_out, test = numbers(rows.train(0, 1.0)), numbers(rows.held_out(0)), numbers(rows.test())
    assert train | held_out | test == every == numbers(rows.train(None, 1.0))
    assert len(train) + len(held_out) + len(test) == len(every)
    assert 15 < len(test) < 50
    assert 20 < len(held_out) < 60
    learned, watched = map(numbers, rows.inner(0, 1.0))
    assert learned | watched == train
    assert not learned & watched
    assert 5 < len(watched) < 40
    half = rows.train(0, 0.5)
    assert numbers(half) < train
    assert 0.3 < rows.size(0, 0.5) / len(train) < 0.7
    # One row of every class is in every sample, however small.
    assert rows.train(0, 0.001).select(LABEL).distinct().count() == 3
    other = splitting.split(None, dataset, ValidationMethod(holdout=0.3), 6)
    assert numbers(other.held_out(0)) != held_out
    assert other.test() is None
    folds = splitting.split(None, dataset, ValidationMethod(folds=2), 5)
    parts = [numbers(folds.held_out(fold)) for fold in range(folds.splits)]
    assert parts[0] | parts[1] == every
    assert not parts[0] & parts[1]
    assert numbers(folds.train(0, 1.0)) == parts[1]


def test_the_parts_are_those_of_the_local_engine(spark: Any, flowers: SparkTrainingSession) -> None:
    """The test part first; then folds, of which each row judges in one."""
    dataset = flowers._context.dataset
    y = np.array([row[LABEL] for row in dataset.frame.select(ROW, LABEL).orderBy(ROW).collect()]).astype(int)
    found = Partition.of(y, 150, 4, ValidationMethod(folds=2), 5, 0.2)
    rows = splitting.split(spark, dataset, ValidationMethod(folds=2), 5, 0.2)

    def places(frame: Any) -> list[int]:
        return sorted(rows.numbers(np.array([row[ROW] for row in frame.select(ROW).collect()])).tolist())

    assert places(rows.test()) == found.test.tolist()
    for number, apart in enumerate(found.splits):
        assert places(rows.held_out(number)) == apart.validation.tolist()
        assert places(rows.train(number, 1.0)) == apart.train.tolist()
        inner = inner_split(apart.train, y, 5)
        assert inner is not None
        assert [places(part) for part in rows.inner(number, 1.0)] == [
            inner.train.tolist(),
            inner.validation.tolist(),
        ]
    rows.release()


def test_what_spark_judges_itself_is_judged_as_what_is_collected(spark: Any) -> None:
    from pyspark.ml.linalg import Vectors

    rng = np.random.default_rng(4)
    X = np.concatenate([rng.normal(place, 0.4, size=(20, 2)) for place in (0, 3, 6)])
    actual = np.repeat([0, 1, 2], 20)
    predicted = np.where(rng.random(60) < 0.2, (actual + 1) % 3, actual)
    rows = [
        (number, float(label), float(said), Vectors.dense(x))
        for number, (label, said, x) in enumerate(zip(actual, predicted, X, strict=True))
    ]
    frame = spark.createDataFrame(rows, [ROW, LABEL, PREDICTION, FEATURES]).persist()
    answers = CollectedPredictions(np.arange(60), X.astype(np.float32), predicted, None, actual)
    for domain, metric in (("classification", "mcc"), ("regression", "r2"), ("regression", "mae")):
        scorer = SparkScorer.of(domain, metric, 3)
        there, here = scorer.of_frame(frame, FEATURES), scorer.of_collected(answers)
        assert (there.value, there.rows) == (pytest.approx(here.value), 60)
        assert set(there.figures) == set(here.figures)
    scorer = SparkScorer.of("clustering", None, 0)
    there = scorer.of_frame(frame.withColumn(PREDICTION, frame[LABEL]), FEATURES)
    here = scorer.of_collected(replace(answers, predicted=actual), X)
    # Spark's silhouette takes squared distances, which parts clusters more sharply.
    assert here.value - 0.01 <= there.value <= 1
    assert set(there.figures) == set(here.figures)
    with pytest.raises(BadInput, match="one cluster"):
        scorer.of_frame(frame.withColumn(PREDICTION, frame[LABEL] * 0), FEATURES)
    frame.unpersist()


def test_a_trial_on_many_rows_is_judged_inside_spark(
    spark: Any, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "MOST_ON_DRIVER", 10)
    monkeypatch.setattr("prudent.training.engines.spark.evaluation.MOST_CELLS", 200)
    data = examples / "sample_multiclass_classification_data.txt"
    with opened(tmp_path, data, dataset={"format": "libsvm"}) as session:
        spec = spec_for(tmp_path, "multinomial-logistic-regression", hyperparameters={"maxIter": 10})
        outcome, _ = finish(session.start(spec))
    assert outcome.status == FINISHED, outcome.why
    facts = facts_of(spec)
    assert facts["rows_trained"] + facts["rows_validated"] == 150
    assert facts["export_difference"] < 1e-5
    counts = np.array(facts["picture"]["confusion"]["counts"])
    assert facts["value"] == pytest.approx(f1(counts))
    assert counts.sum() == facts["rows_validated"]


def test_many_rows_are_clustered_and_judged_inside_spark_as_here(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.datasets import make_blobs

    monkeypatch.setattr("prudent.training.engines.spark.evaluation.MOST_CELLS", 200)
    X, y = make_blobs(320, 3, centers=3, cluster_std=0.5, random_state=3)
    data = bench(tmp_path, "clustering", write_libsvm(tmp_path / "rows", X * [1, 50, 1], y))
    for transforms in ({}, {"scale": {"method": "minmax"}, "pca": {"k": 2}}):
        spec = spec_for(tmp_path, "k-means", hyperparameters={"k": 3, "maxIter": 10}, transforms=transforms)
        there, here, _ = data.train(spec)
        assert there.rows_validated == here.rows_validated == 96
        assert there.value == pytest.approx(here.value, abs=1e-4)
        # The same clusters, so the same silhouette, whatever they were found by.
        assert there.value == pytest.approx(0.97, abs=0.03)


# Exported models


def difference(session: SparkTrainingSession, name: str, settings: dict[str, Any], folder: Path) -> float:
    """How far the ONNX form of a model of these data is from what Spark says."""
    shop, spec = session._context, spec_for(folder, name, hyperparameters=settings)
    complete = algorithm(name).complete(settings)
    rows = shop.split.train(None, 1.0)
    fitted = fit(spec, complete, rows, None, shop.dataset, shop.scorer, lambda score, done: None)
    trained = trained_pipeline(fitted, shop.dataset)
    onnx = export_pipeline(trained.transforms, trained.model.graph, len(trained.columns))
    return compare_export(collect_predictions(fitted.predict(rows), shop.dataset), onnx).difference


LINKS: dict[str, list[dict[str, Any]]] = {
    "rate": [
        {"family": "poisson", "link": "log"},
        {"family": "poisson", "link": "sqrt"},
        {"family": "gamma", "link": "inverse"},
        {"family": "tweedie", "variancePower": 1.5, "linkPower": 0.5},
    ],
    "share": [{"family": "binomial", "link": "probit"}, {"family": "binomial", "link": "cloglog"}],
}


def test_every_family_and_link_predicts_the_same_in_onnx(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(0.1, 1.0, size=60)
    targets = {"rate": np.round(1 + 3 * x + rng.uniform(size=60)), "share": (x > 0.5) ^ (x > 0.9)}
    for name, y in targets.items():
        file = tmp_path / f"{name}.libsvm"
        file.write_text("\n".join(f"{float(b)} 1:{a:.4f}" for a, b in zip(x, y, strict=True)) + "\n")
        with opened(tmp_path / name, file, "regression", dataset={"format": "libsvm"}) as session:
            for settings in LINKS[name]:
                chosen = {**settings, "maxIter": 2}
                far = difference(session, "generalized-linear-regression", chosen, tmp_path)
                assert far < 1e-5, settings


def test_bayes_predicts_the_same_in_onnx(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X = rng.integers(0, 2, size=(80, 3))
    lines = [f"{a + b} 1:{a} 2:{b} 3:{c}" for a, b, c in X]
    (tmp_path / "data.libsvm").write_text("\n".join(lines) + "\n")
    with opened(tmp_path / "work", tmp_path / "data.libsvm", dataset={"format": "libsvm"}) as session:
        for kind in ("bernoulli", "complement", "gaussian"):
            assert difference(session, "naive-bayes", {"modelType": kind}, tmp_path) < 1e-5, kind


def test_branin_needs_no_spark(tmp_path: Path) -> None:
    request = TrainingRequest.parse({"domain": "misc-functions"})
    with SparkEngine().open(request, tmp_path, 1) as session:
        spec = spec_for(tmp_path, "branin", hyperparameters={"x1": np.pi, "x2": 2.275})
        outcome, _ = finish(session.start(spec))
    assert outcome.measures["value"] == pytest.approx(0.397887, abs=1e-6)
