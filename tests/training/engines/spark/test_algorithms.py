"""Every algorithm on Spark, with the data files that come with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.training.engine import Engine, Session, TrialSpec
from prudent.training.engines.local.engine import LocalEngine
from prudent.training.engines.spark.engine import SparkEngine
from prudent.training.model import load
from prudent.training.request import TrainingRequest
from prudent.training.train import train
from prudent.tuning.trial import FINISHED, Outcome, Progress

REGRESSION, BINARY = "sample_linear_regression_data.txt", "sample_libsvm_data.txt"
MULTI, CLUSTERS = "sample_multiclass_classification_data.txt", "sample_kmeans_data.txt"

pytestmark = pytest.mark.timeout(900)  # Java takes its time on a busy machine


@pytest.fixture(scope="module")
def sessions(spark: Any, examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Sessions by engine, domain and file, each opened once."""
    made: dict[tuple[str, str, str], Session] = {}

    def session(engine: Engine, domain: str, file: str) -> Session:
        key = (engine.name, domain, file)
        if key not in made:
            document = {
                "domain": domain,
                "dataset": {"path": str(examples / file), "format": "libsvm"},
                "export": ["onnx", "pmml"],
            }
            request = TrainingRequest.parse(document)
            made[key] = engine.open(request, tmp_path_factory.mktemp("work"), 1)
        return made[key]

    yield session
    for each in made.values():
        each.__exit__(None, None, None)


def run(session: Session, spec: TrialSpec) -> tuple[Outcome, list[Progress]]:
    trial, seen = session.start(spec), []
    while True:
        event = trial.next(800)
        assert event is not None, "the trial hangs"
        if isinstance(event, Outcome):
            return event, seen
        seen.append(event)


def spec_for(folder: Path, algorithm: str, settings: Mapping[str, Any], **more: Any) -> TrialSpec:
    wanted = {"number": 1, "transforms": {}, "fraction": 1.0, "seed": 7, "folder": folder / algorithm, **more}
    return TrialSpec(algorithm=algorithm, hyperparameters=settings, **wanted)


CASES: list[tuple[str, str, str, dict[str, Any], float]] = [
    ("regression", REGRESSION, "linear-regression", {"regParam": 0.3, "elasticNetParam": 0.8}, -11.5),
    ("regression", REGRESSION, "generalized-linear-regression", {"family": "gaussian"}, -11.5),
    ("regression", REGRESSION, "decision-tree-regression", {"maxDepth": 3}, -14),
    ("regression", REGRESSION, "random-forest-regression", {"numTrees": 5}, -12),
    ("regression", REGRESSION, "gradient-boosted-tree-regression", {"maxIter": 3, "maxDepth": 3}, -14),
    ("binomial-classification", BINARY, "linear-support-vector-machine", {"maxIter": 10}, 0.9),
    (
        "binomial-classification",
        BINARY,
        "binomial-logistic-regression",
        {"maxIter": 10, "regParam": 0.3},
        0.9,
    ),
    ("multinomial-classification", MULTI, "multinomial-logistic-regression", {"maxIter": 20}, 0.85),
    ("binomial-classification", BINARY, "naive-bayes", {}, 0.9),
    ("multinomial-classification", MULTI, "decision-tree-classification", {"maxDepth": 3}, 0.8),
    ("multinomial-classification", MULTI, "random-forest-classification", {"numTrees": 5}, 0.85),
    ("binomial-classification", BINARY, "gradient-boosted-tree-classification", {"maxIter": 3}, 0.7),
    ("multinomial-classification", MULTI, "gradient-boosted-tree-classification", {"maxIter": 2}, 0.8),
    ("multinomial-classification", MULTI, "linear-support-vector-machine", {"maxIter": 10}, 0.7),
    ("clustering", MULTI, "k-means", {"k": 3}, 0.6),
    ("clustering", MULTI, "gaussian-mixture-model", {"k": 2}, 0.55),
    (
        "deep-learning",
        MULTI,
        "multilayer-perceptron-classifier",
        {
            "hiddenLayersWidth": 8,
            "inputLayerWidth": 4,
            "outputLayerWidth": 3,
            "maxIter": 100,
            "stepSize": 0.05,
        },
        0.85,
    ),
]


def compare_forms(folder: Path, data: Mapping[str, Any], file: Path, jpmml: Any) -> None:
    """The same rows of the data to the model's ONNX form and, through another maker's engine, to its PMML."""
    import onnxruntime
    from jpmml_evaluator import make_evaluator

    names = [column["name"] for column in data["columns"]]
    X = np.zeros((12, len(names)), dtype=np.float32)
    for row, line in zip(X, file.read_text().splitlines()[::8], strict=False):
        for number, value in (pair.split(":") for pair in line.split()[1:]):
            row[int(number) - 1] = float(value)
    onnx = onnxruntime.InferenceSession((folder / "model.onnx").read_bytes())
    expected = onnx.run(None, {onnx.get_inputs()[0].name: X})[0]
    evaluator = make_evaluator(str(folder / "model.pmml"), jpmml).verify()
    said = [evaluator.evaluate(dict(zip(names, row, strict=True))) for row in X.tolist()]
    if expected.dtype.kind == "f":
        assert [row[data["target"]] for row in said] == pytest.approx(expected.tolist(), rel=1e-5)
        return
    labels = data["classes"] or range(9)
    answers = [str(row[data["target"] or "cluster"]) for row in said]
    assert answers == [str(labels[number]) for number in expected]


UNLIKE = {
    # A mixture depends on where it begins, which each engine draws in its own way, and two components do not
    # fit three classes: it ends in one of several optima. With as many as there are clusters, see below.
    ("gaussian-mixture-model", "clustering"),
    # Of 30 held-out rows one is more than the difference allowed. With more rows, see below.
    ("linear-support-vector-machine", "binomial-classification"),
    ("gradient-boosted-tree-classification", "binomial-classification"),
}


@pytest.mark.parametrize(
    ("domain", "file", "algorithm", "settings", "least"), CASES, ids=[f"{c[2]}-{c[0]}" for c in CASES]
)
def test_every_algorithm_trains_and_its_other_forms_say_the_same(
    sessions: Any,
    jpmml: Any,
    examples: Path,
    tmp_path: Path,
    domain: str,
    file: str,
    algorithm: str,
    settings: Any,
    least: float,
) -> None:
    spec = spec_for(tmp_path, algorithm, settings)
    session = sessions(SparkEngine(), domain, file)
    outcome, _ = run(session, spec)
    assert outcome.status == FINISHED, outcome.why
    assert outcome.measures["score"] >= least
    assert set(outcome.measures) == {"score", "value", "train_s", "predict_ms"}
    facts = json.loads((spec.folder / "facts.json").read_text())
    assert facts["export_difference"] < 1e-5
    assert facts["extra_files"] == ["model.pmml", "spark"]
    compare_forms(spec.folder, session.description, examples / file, jpmml)
    assert (spec.folder / "spark" / "metadata").is_dir()
    assert (spec.folder / "model.onnx").stat().st_size > 0
    if (algorithm, domain) not in UNLIKE:
        here = spec_for(tmp_path / "local", algorithm, settings)
        local, _ = run(sessions(LocalEngine(), domain, file), here)
        far = abs(local.measures["score"] - outcome.measures["score"])
        assert far <= 0.05 * max(1.0, abs(outcome.measures["score"]))


def table(kind: str) -> tuple[Any, list[str]]:
    """Rows with something to find in them, and what the columns are called."""
    from sklearn.datasets import load_breast_cancer, make_blobs, make_friedman1

    if kind == "regression":
        X, y = make_friedman1(500, noise=1.0, random_state=1)
    elif kind == "clustering":
        X, y = make_blobs(300, centers=3, n_features=4, random_state=3)
        return X, [f"x{number}" for number in range(X.shape[1])]
    else:
        X, y = load_breast_cancer(return_X_y=True)
    return np.column_stack([X, y]), [*(f"x{number}" for number in range(X.shape[1])), "y"]


LARGER: list[tuple[str, str, dict[str, Any]]] = [
    ("binomial-classification", "linear-support-vector-machine", {"regParam": 0.01}),
    ("binomial-classification", "gradient-boosted-tree-classification", {"maxIter": 8}),
    ("regression", "gradient-boosted-tree-regression", {"maxIter": 12, "stepSize": 0.3, "maxDepth": 3}),
    ("clustering", "gaussian-mixture-model", {"k": 3}),
]


@pytest.mark.parametrize(("domain", "algorithm", "settings"), LARGER, ids=[case[1] for case in LARGER])
def test_engines_agree_where_rows_are_enough_and_there_is_something_to_learn(
    spark: Any, tmp_path: Path, domain: str, algorithm: str, settings: Any
) -> None:
    values, names = table(domain)
    path = tmp_path / "rows.csv"
    np.savetxt(path, values, delimiter=",", header=",".join(names), comments="")
    source = {"path": str(path), **({} if domain == "clustering" else {"target": "y"})}
    request, scores = TrainingRequest.parse({"domain": domain, "dataset": source}), []
    engines: list[Engine] = [LocalEngine(), SparkEngine()]
    for engine in engines:
        with engine.open(request, tmp_path / engine.name, 1) as session:
            outcome, _ = run(session, spec_for(tmp_path / engine.name, algorithm, settings))
        assert outcome.status == FINISHED, outcome.why
        scores.append(outcome.measures["score"])
    assert scores[0] == pytest.approx(scores[1], abs=0.05 * max(1.0, abs(scores[0])))


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table in which a quarter of the categories and of the numbers are missing."""
    rng = np.random.default_rng(5)
    lines = ["town,size,age,grade"]
    for _ in range(400):
        town, size, age = rng.choice(["Rome", "Oslo", "Lima"]), rng.normal(50, 20), rng.integers(20, 70)
        grade = "abc"[int(np.digitize(size / 20 + 2 * (town == "Oslo") + rng.normal(0, 0.4), [2.2, 3.4]))]
        shown = [
            "" if hidden else str(value)
            for hidden, value in zip(rng.random(3) < 0.25, (town, f"{size:.3f}", age), strict=True)
        ]
        lines.append(",".join([*shown, grade]))
    file = tmp_path_factory.mktemp("gaps") / "gaps.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("multinomial-logistic-regression", {"maxIter": 100}),
        ("decision-tree-classification", {"maxDepth": 4}),
        ("multilayer-perceptron-classifier", {"maxIter": 60, "stepSize": 0.05, "blockSize": 64}),
    ],
)
def test_engines_agree_on_missing_categories_and_numbers(
    spark: Any, gaps: Path, tmp_path: Path, algorithm: str, settings: Any
) -> None:
    domain = "deep-learning" if "perceptron" in algorithm else "classification"
    document = {"domain": domain, "dataset": {"path": str(gaps), "target": "grade"}, "parallelism": 1}
    document |= {
        "methods": [
            {
                "algorithm": algorithm,
                "hyperparameters": [{"param": name, "values": [value]} for name, value in settings.items()],
            }
        ]
    }
    models, scores = [], []
    for engine in ("local", "spark"):
        board = train(document, engine, tmp_path / engine)
        assert board.best is not None, board.failures
        scores.append(board.best.score)
        models.append(load(board.best.model_path))
    assert scores[0] == pytest.approx(scores[1], abs=0.05)
    shown = [
        {"town": town, "size": size, "age": age}
        for town in ("Rome", "Oslo", "Lima", None)
        for size in (10.0, 35.0, 60.0, 90.0, None)
        for age in (30, None)
    ]
    first, second = (list(model.predict(shown)) for model in models)
    same = np.mean([one == other for one, other in zip(first, second, strict=True)])
    # A network begins at random weights, which are others on Spark; its rows near a border may differ.
    assert same >= (0.75 if "perceptron" in algorithm else 1.0)
    # What is missing is taken for what is usual, on both: the mean, or the most frequent town.
    assert len(set(first)) > 1
