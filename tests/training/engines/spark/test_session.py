"""Data as people have them, and what happens to trials: refused, cut, late, side by side."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.core.errors import BadInput
from prudent.training.engine import Session, TrialSpec
from prudent.training.engines.spark import split as splitting
from prudent.training.engines.spark.engine import SparkEngine
from prudent.training.metrics import f1
from prudent.training.request import TrainingRequest
from prudent.tuning.jobs.job import Run
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Progress

pytestmark = pytest.mark.timeout(900)  # Java takes its time on a busy machine


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    return file


def opened(work: Path, path: Path, domain: str = "classification", **more: Any) -> Session:
    source = {"path": str(path), **more.pop("dataset", {})}
    request = TrainingRequest.parse({"domain": domain, "dataset": source, **more})
    return SparkEngine().open(request, work, 2)


def spec_for(folder: Path, algorithm: str, number: int = 1, **more: Any) -> TrialSpec:
    wanted = {"hyperparameters": {}, "transforms": {}, "fraction": 1.0, "seed": 7, **more}
    return TrialSpec(number=number, algorithm=algorithm, folder=folder / f"trial-{number}", **wanted)


def finish(run: Run) -> tuple[Outcome, list[Progress]]:
    seen: list[Progress] = []
    while not isinstance(event := run.next(800), Outcome):
        assert event is not None, "it hangs"
        seen.append(event)
    return event, seen


# Tables


def test_a_table_with_categories_and_missing_values_goes_into_one_onnx_file(
    spark: Any, people: Path, tmp_path: Path
) -> None:
    import onnxruntime

    with opened(tmp_path, people, dataset={"target": "buys"}) as session:
        columns = session.description["columns"]
        assert [(c["name"], c["kind"]) for c in columns] == [
            ("age", "numeric"),
            ("town", "categorical"),
            ("income", "numeric"),
        ]
        assert list(columns[1]["categories"]) == ["Lima", "Oslo", "Rome"]
        assert session.description["classes"] == ["no", "yes"]
        assert (session.shape.rows, session.shape.columns, session.shape.classes) == (240, 3, 2)
        spec = spec_for(
            tmp_path,
            "binomial-logistic-regression",
            transforms={"impute": {"strategy": "median"}, "scale": {"method": "standard"}},
        )
        outcome, _ = finish(session.start(spec))
    assert outcome.status == FINISHED, outcome.why
    facts = json.loads((spec.folder / "facts.json").read_text())
    assert facts["metric"] == "mcc"
    assert facts["value"] > 0.8
    assert facts["export_difference"] < 1e-5
    assert (facts["rows_trained"], facts["rows_validated"]) == (168, 72)
    assert set(facts["picture"]["importance"]["feature"]) == {"age", "income", "town=0", "town=1", "town=2"}
    model = onnxruntime.InferenceSession(str(spec.folder / "model.onnx"))
    rows = np.array([[30, 1, 60], [30, 2, 10], [np.nan, np.nan, np.nan]], dtype=np.float32)
    predicted, shares = model.run(["prediction", "probabilities"], {"features": rows})
    assert predicted.tolist()[:2] == [1, 0]
    assert np.isfinite(shares).all()


def test_trees_ask_for_categories_and_for_principal_components(
    spark: Any, people: Path, tmp_path: Path
) -> None:
    with opened(tmp_path, people, dataset={"target": "buys"}, validation={"holdout": 0.2}) as session:
        by_category = spec_for(
            tmp_path, "random-forest-classification", 1, hyperparameters={"maxCategories": 70, "maxBins": 100}
        )
        turned = spec_for(
            tmp_path,
            "decision-tree-classification",
            2,
            transforms={"scale": {"method": "minmax"}, "pca": {"k": 2}},
        )
        outcomes = [finish(run)[0] for run in (session.start(by_category), session.start(turned))]
    for spec, outcome in zip((by_category, turned), outcomes, strict=True):
        assert outcome.status == FINISHED, outcome.why
        facts = json.loads((spec.folder / "facts.json").read_text())
        assert facts["rows_validated"] == 48
        assert facts["export_difference"] < 1e-5
    assert {"pc1", "pc2"} == set(facts["picture"]["importance"]["feature"])


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
    with opened(tmp_path / "work", file) as session:
        kinds = {c["name"]: (c["kind"], tuple(c["categories"])) for c in session.description["columns"]}
        assert kinds == {"a": ("numeric", ()), "b": ("categorical", ("x", "y")), "c": ("numeric", ())}
        assert session.description["classes"] == [0, 1]
        assert session.shape.rows == 30


WRONG = [
    ("a,label\n1,x\n2,y\n", {"target": "lable"}, "classification", 'Did you mean "label"'),
    ("a,label\n1,x\n2,x\n", {}, "classification", "is 'x' in every row"),
    ("a,label\n1,3\n2,3\n", {}, "regression", "is 3 in every row"),
    ("a,label\n1,x\n2,y,z\n", {}, "classification", "has 3 values where 2 are expected"),
    ("a,label\n1,x\n2,\n", {}, "classification", 'row 2 of "data.csv", column "label"'),
    ("a,label\n1,5\n2,six\n", {}, "regression", '"six" is no number'),
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
    file.write_text('note,a,label\n"one\ntwo",1,x\nplain,2,y\n' * 1)
    with opened(tmp_path / "work", file) as session:
        assert session.shape.rows == 2
        assert list(session.description["columns"][0]["categories"]) == ["one\ntwo", "plain"]


# Trials


def test_refused_combinations_fail_with_one_sentence(spark: Any, examples: Path, tmp_path: Path) -> None:
    negative = examples / "sample_multiclass_classification_data.txt"
    with opened(tmp_path, negative, dataset={"format": "libsvm"}) as session:
        refused = [
            ("naive-bayes", {"modelType": "multinomial"}, "Negative"),
            ("binomial-logistic-regression", {}, "1 or 2 outcome classes"),
            ("multilayer-perceptron-classifier", {"inputLayerWidth": 9}, "the data have 4 features"),
        ]
        for number, (name, settings, said) in enumerate(refused):
            outcome, _ = finish(session.start(spec_for(tmp_path, name, number, hyperparameters=settings)))
            assert outcome.status == FAILED
            assert said in outcome.why
            assert "\n" not in outcome.why
            assert len(outcome.why) < 400
            assert not (tmp_path / f"trial-{number}" / "facts.json").exists()


def test_a_family_refuses_a_link(spark: Any, examples: Path, tmp_path: Path) -> None:
    data = examples / "sample_linear_regression_data.txt"
    with opened(tmp_path, data, "regression", dataset={"format": "libsvm"}) as session:
        settings = {"family": "gamma", "link": "logit"}
        spec = spec_for(tmp_path, "generalized-linear-regression", hyperparameters=settings)
        outcome, _ = finish(session.start(spec))
    assert outcome.status == FAILED
    assert "gamma" in outcome.why


def test_cut_and_late_trials_stop_on_the_cluster_while_others_go_on(
    spark: Any, examples: Path, tmp_path: Path
) -> None:
    data = examples / "sample_linear_regression_data.txt"
    with opened(tmp_path, data, "regression", dataset={"format": "libsvm"}) as session:
        long = {"maxIter": 3000, "maxDepth": 5}
        cut = session.start(spec_for(tmp_path, "gradient-boosted-tree-regression", 1, hyperparameters=long))
        late = session.start(
            spec_for(tmp_path, "gradient-boosted-tree-regression", 2, hyperparameters=long, limit_s=4.0)
        )
        other = session.start(spec_for(tmp_path, "linear-regression", 3))
        time.sleep(2)
        outcome = cut.cut(2.0, "enough")
        assert (outcome.status, outcome.why) == (CUT, "enough")
        assert finish(other)[0].status == FINISHED
        outcome, _ = finish(late)
        assert outcome.status == FAILED
        assert "limit of 4 s" in outcome.why
        assert outcome.time_s <= 4.0
        assert not (tmp_path / "trial-1" / "facts.json").exists()
        deadline = time.monotonic() + 20
        tracker = spark.sparkContext.statusTracker()
        while tracker.getActiveJobsIds() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not tracker.getActiveJobsIds()


def test_folds_report_progress_and_the_same_seed_gives_the_same_score(
    spark: Any, examples: Path, tmp_path: Path
) -> None:
    data = examples / "sample_multiclass_classification_data.txt"
    with opened(tmp_path, data, dataset={"format": "libsvm"}, validation={"folds": 3}, seed=5) as session:
        specs = [spec_for(tmp_path, "decision-tree-classification", n, fraction=0.5) for n in (1, 2)]
        (one, seen), (two, _) = (finish(session.start(spec)) for spec in specs)
    assert one.measures["score"] == two.measures["score"]
    assert [event.done for event in seen] == [pytest.approx(1 / 3), pytest.approx(2 / 3)]
    facts = json.loads((tmp_path / "trial-1" / "facts.json").read_text())
    assert (facts["rows_trained"], facts["rows_validated"]) == (75, 150)


def test_many_rows_are_split_by_hash_and_judged_inside_spark(
    spark: Any, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ways that large data take, on little data."""
    monkeypatch.setattr(splitting, "MOST_ON_DRIVER", 10)
    monkeypatch.setattr("prudent.training.engines.spark.answers.MOST_CELLS", 200)
    data = examples / "sample_multiclass_classification_data.txt"
    for domain, name in (("classification", "multinomial-logistic-regression"), ("clustering", "k-means")):
        with opened(tmp_path / domain, data, domain, dataset={"format": "libsvm"}) as session:
            outcome, _ = finish(
                session.start(spec_for(tmp_path / domain, name, hyperparameters={"maxIter": 20}))
            )
            half = finish(session.start(spec_for(tmp_path / domain, name, 2, fraction=0.5)))[0]
        assert outcome.status == half.status == FINISHED, outcome.why + half.why
        facts, few = (
            json.loads((tmp_path / domain / f"trial-{n}" / "facts.json").read_text()) for n in (1, 2)
        )
        assert facts["rows_trained"] + facts["rows_validated"] == 150
        assert 25 < facts["rows_validated"] < 65
        assert 0.3 < few["rows_trained"] / facts["rows_trained"] < 0.7
        assert facts["export_difference"] < 1e-5
        if domain == "classification":
            counts = np.array(facts["picture"]["confusion"]["counts"])
            assert facts["value"] == pytest.approx(f1(counts))
            assert counts.sum() == facts["rows_validated"]


def test_a_network_learns_in_two_processes(spark: Any, tmp_path: Path) -> None:
    """Enough rows for two: gradients are averaged over both halves of the data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2))
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    lines = [f"{a:.4f},{b:.4f},{'in' if label else 'out'}" for (a, b), label in zip(X, y, strict=True)]
    (tmp_path / "data.csv").write_text("a,b,label\n" + "\n".join(lines) + "\n")
    settings = {"hiddenLayersWidth": 4, "maxIter": 10, "stepSize": 0.05, "blockSize": 256}
    with opened(
        tmp_path / "work", tmp_path / "data.csv", "deep-learning", validation={"holdout": 0.2}
    ) as session:
        spec = spec_for(tmp_path, "multilayer-perceptron-classifier", hyperparameters=settings)
        outcome, seen = finish(session.start(spec))
    assert outcome.status == FINISHED, outcome.why
    assert outcome.measures["score"] > 0.9
    assert seen
    assert seen[-1].measures["score"] == pytest.approx(outcome.measures["score"], abs=0.05)
    facts = json.loads((spec.folder / "facts.json").read_text())
    assert facts["export_difference"] < 1e-5
    counts = np.array(facts["picture"]["confusion"]["counts"])
    assert f1(counts) == facts["value"]


def test_boosting_ends_where_it_was_best(spark: Any, examples: Path, tmp_path: Path) -> None:
    """The file is mostly noise, which more trees only learn by heart."""
    data = examples / "sample_linear_regression_data.txt"
    settings = {"maxIter": 40, "maxDepth": 3}
    with opened(tmp_path, data, "regression", dataset={"format": "libsvm"}) as session:
        spec = spec_for(tmp_path, "gradient-boosted-tree-regression", hyperparameters=settings)
        outcome, seen = finish(session.start(spec))
    assert outcome.status == FINISHED, outcome.why
    picture = json.loads((spec.folder / "facts.json").read_text())["picture"]
    curve, stopped = picture["curve"], picture["stopped"]
    assert stopped["of"] == 40
    assert stopped["best"] < len(curve["step"]) < 40
    assert stopped["why"] == "no better for 10 steps"
    assert outcome.measures["score"] == pytest.approx(max(curve["validation"]), abs=1e-6)
    assert curve["validation"][stopped["best"] - 1] == max(curve["validation"])
    assert curve["train"][-1] > curve["train"][0]
    assert [each.measures["score"] for each in seen] == sorted(each.measures["score"] for each in seen)
    assert 0 < seen[0].done <= seen[-1].done <= 1


LINKS = [
    {"family": "poisson", "link": "log"},
    {"family": "poisson", "link": "sqrt"},
    {"family": "gamma", "link": "inverse"},
    {"family": "tweedie", "variancePower": 1.5, "linkPower": 0.5},
    {"family": "binomial", "link": "probit"},
    {"family": "binomial", "link": "cloglog"},
]


def test_every_family_and_link_predicts_the_same_in_onnx(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(0.1, 1.0, size=60)
    for name, y in (("rate", np.round(1 + 3 * x + rng.uniform(size=60))), ("share", (x > 0.5) ^ (x > 0.9))):
        lines = [f"{a:.4f},{float(b)}" for a, b in zip(x, y, strict=True)]
        (tmp_path / f"{name}.csv").write_text("x,label\n" + "\n".join(lines) + "\n")
    for name, binomial in (("rate", False), ("share", True)):
        with opened(tmp_path / name, tmp_path / f"{name}.csv", "regression") as session:
            for number, settings in enumerate(LINKS):
                if (settings["family"] == "binomial") != binomial:
                    continue
                spec = spec_for(
                    tmp_path,
                    "generalized-linear-regression",
                    number,
                    hyperparameters={**settings, "maxIter": 5},
                )
                outcome, _ = finish(session.start(spec))
                assert outcome.status == FINISHED, (settings, outcome.why)
                facts = json.loads((spec.folder / "facts.json").read_text())
                assert facts["export_difference"] < 1e-5, settings


def test_bayes_predicts_the_same_in_onnx(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X = rng.integers(0, 2, size=(80, 3))
    lines = [",".join(map(str, row)) + f",{row[0] + row[1]}" for row in X]
    (tmp_path / "data.csv").write_text("a,b,c,label\n" + "\n".join(lines) + "\n")
    with opened(tmp_path / "work", tmp_path / "data.csv") as session:
        for number, kind in enumerate(("bernoulli", "complement", "gaussian")):
            spec = spec_for(tmp_path, "naive-bayes", number, hyperparameters={"modelType": kind})
            outcome, _ = finish(session.start(spec))
            assert outcome.status == FINISHED, outcome.why
            facts = json.loads((spec.folder / "facts.json").read_text())
            assert facts["export_difference"] < 1e-5, kind


def test_branin_needs_no_spark(tmp_path: Path) -> None:
    request = TrainingRequest.parse({"domain": "misc-functions"})
    with SparkEngine().open(request, tmp_path, 1) as session:
        spec = spec_for(tmp_path, "branin", hyperparameters={"x1": np.pi, "x2": 2.275})
        outcome, _ = finish(session.start(spec))
    assert outcome.measures["value"] == pytest.approx(0.397887, abs=1e-6)
