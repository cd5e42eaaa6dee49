"""Every algorithm on Spark: it learns, says the same in each of its forms, and as the local engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prudent.training.engines import fit_task
from prudent.training.engines.spark import boosting, perceptron
from prudent.training.models.metrics import f1, r2
from prudent.training.models.model import load
from prudent.training.train import train

from ....running.listening import Watch
from .trials import Bench, bench, spec_for, write_libsvm

pytestmark = pytest.mark.timeout(900)  # Java takes its time on a busy machine


@pytest.fixture(scope="module")
def benches(spark: Any, examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bench]:
    """Small data by kind, with something to find in them, each opened once."""
    from sklearn.datasets import load_breast_cancer, make_blobs, make_friedman1

    made: dict[str, Bench] = {}

    def opened(kind: str) -> Bench:
        if kind not in made:
            work = tmp_path_factory.mktemp("work")
            if kind == "regression":
                file = write_libsvm(work / "rows", *make_friedman1(300, 6, noise=1.0, random_state=1))
            elif kind == "clustering":
                file = write_libsvm(work / "rows", *make_blobs(300, 4, centers=3, random_state=3))
            elif kind == "binomial-classification":
                X, y = load_breast_cancer(return_X_y=True)
                file = write_libsvm(work / "rows", X[:, :8], y)
            else:
                file = examples / "sample_multiclass_classification_data.txt"
            made[kind] = bench(work, kind, file)
        return made[kind]

    return opened


VALUES, TWO, CLASSES = "regression", "binomial-classification", "multinomial-classification"
CLUSTERS = "clustering"
CASES: list[tuple[str, str, dict[str, Any], float]] = [
    (VALUES, "linear-regression", {"maxIter": 10, "regParam": 0.1, "elasticNetParam": 0.8}, -3.0),
    (VALUES, "generalized-linear-regression", {"family": "gaussian"}, -3.0),
    (VALUES, "decision-tree-regression", {"maxDepth": 4}, -3.5),
    (VALUES, "random-forest-regression", {"numTrees": 5}, -3.5),
    (TWO, "linear-support-vector-machine", {"maxIter": 10, "regParam": 0.01}, 0.8),
    (TWO, "binomial-logistic-regression", {"maxIter": 10, "regParam": 0.1}, 0.8),
    (TWO, "naive-bayes", {}, 0.5),
    (TWO, "gradient-boosted-tree-classification", {"maxIter": 3}, 0.7),
    (CLASSES, "multinomial-logistic-regression", {"maxIter": 10}, 0.85),
    (CLASSES, "decision-tree-classification", {"maxDepth": 3}, 0.8),
    (CLASSES, "random-forest-classification", {"numTrees": 5}, 0.85),
    (CLASSES, "gradient-boosted-tree-classification", {"maxIter": 1}, 0.8),
    (CLASSES, "linear-support-vector-machine", {"maxIter": 10}, 0.7),
    (CLUSTERS, "k-means", {"k": 3, "maxIter": 5}, 0.6),
    (CLUSTERS, "gaussian-mixture-model", {"k": 3}, 0.6),
]


def compare_forms(folder: Path, bench: Bench, jpmml: Any) -> None:
    """The same rows of the data to the model's ONNX form and, through another maker's engine, to its PMML."""
    import onnxruntime
    from jpmml_evaluator import make_evaluator

    names = [column["name"] for column in bench.description["columns"]]
    lines = bench.file.read_text().splitlines()
    X = np.zeros((12, len(names)), dtype=np.float32)
    for row, line in zip(X, lines[:: len(lines) // 12], strict=False):
        for number, value in (pair.split(":") for pair in line.split()[1:]):
            row[int(number) - 1] = float(value)
    onnx = onnxruntime.InferenceSession((folder / "model.onnx").read_bytes())
    expected = onnx.run(None, {onnx.get_inputs()[0].name: X})[0]
    evaluator = make_evaluator(str(folder / "model.pmml"), jpmml).verify()
    said = [evaluator.evaluate(dict(zip(names, row, strict=True))) for row in X.tolist()]
    target, classes = bench.description["target"], bench.description["classes"]
    if expected.dtype.kind == "f":
        assert [row[target] for row in said] == pytest.approx(expected.tolist(), rel=1e-5)
        return
    answers = [str(row[target or "cluster"]) for row in said]
    assert answers == [str((classes or range(9))[number]) for number in expected]
    assert len(set(answers)) > 1


def near(score: float) -> Any:
    """A score that is as good as this one."""
    return pytest.approx(score, abs=0.05 * max(1.0, abs(score)))


ALIKE = {
    (CLASSES, "gradient-boosted-tree-classification"): "as support vectors: one against all",
    (TWO, "gradient-boosted-tree-classification"): "as values are boosted, below",
    (TWO, "linear-support-vector-machine"): "each of several against all is one of these",
    (VALUES, "decision-tree-regression"): "a forest has many of them",
    (CLASSES, "random-forest-classification"): "many trees, as for values",
}
"""What goes the way of another case: those are for the soak."""


def case(domain: str, algorithm: str, settings: Mapping[str, Any], least: float) -> Any:
    marks = [pytest.mark.soak] if (domain, algorithm) in ALIKE else []
    return pytest.param(domain, algorithm, settings, least, id=f"{algorithm}-{domain}", marks=marks)


@pytest.mark.parametrize(("domain", "algorithm", "settings", "least"), [case(*each) for each in CASES])
def test_every_algorithm_trains_and_its_other_forms_say_the_same(
    benches: Callable[[str], Bench],
    jpmml: Any,
    tmp_path: Path,
    domain: str,
    algorithm: str,
    settings: Mapping[str, Any],
    least: float,
) -> None:
    data, spec = benches(domain), spec_for(tmp_path, algorithm, hyperparameters=settings)
    there, here, _ = data.train(spec)
    assert there.score >= least
    assert there.score == near(here.score)
    assert there.export_difference < 1e-5
    assert there.extra_files == ("model.pmml",)
    compare_forms(spec.folder, data, jpmml)


def test_boosting_ends_where_inner_rows_say_and_others_rank_it(
    benches: Callable[[str], Bench],
    jpmml: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    only_loopback: Watch,
) -> None:
    """Whole steps of deep trees learn by heart at once, and more of them do not help.

    Two processes learn together; XGBoost would have both listen at all addresses.
    """
    from pyspark.ml import PipelineModel

    monkeypatch.setattr(boosting, "_ROWS_EACH", 100)
    monkeypatch.setattr(fit_task, "_LEAST_PATIENCE", 2)
    settings = {"maxIter": 15, "maxDepth": 5, "stepSize": 0.9}
    data = benches(VALUES)
    spec = spec_for(tmp_path, "gradient-boosted-tree-regression", hyperparameters=settings)
    there, _, seen = data.train(spec, own_form=True)
    curve, stopped = there.picture["curve"], there.picture["stopped"]
    assert stopped["of"] == 15
    assert stopped["best"] < len(curve["step"]) < 15
    assert stopped["why"] == "no better for 2 steps"
    assert curve["validation"][stopped["best"] - 1] == max(curve["validation"])
    assert curve["train"][-1] > curve["train"][0]
    # The rows of the curve are training rows: the score is of rows that nothing was chosen by.
    assert there.score != pytest.approx(max(curve["validation"]), abs=1e-6)
    assert (there.rows_trained, there.rows_validated) == (210, 90)
    assert seen[0] == (pytest.approx(curve["validation"][0]), pytest.approx(1 / 15))
    assert there.score > -3.5
    assert there.export_difference < 1e-5
    compare_forms(spec.folder, data, jpmml)
    kept = PipelineModel.load((spec.folder / "spark").as_uri()).stages[-1]
    assert kept.get_booster().num_boosted_rounds() == stopped["best"]


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("gradient-boosted-tree-regression", {"maxIter": 60, "maxDepth": 4}),
        pytest.param("xgboost-regression", {"numRound": 60, "maxDepth": 4}, marks=pytest.mark.soak),
    ],
)
def test_boosted_trees_of_both_engines_are_worth_the_same_on_fresh_rows(
    spark: Any, tmp_path: Path, algorithm: str, settings: dict[str, Any]
) -> None:
    """All other algorithms: `python benchmarks/training_spark.py agree`."""
    import onnxruntime
    from sklearn.datasets import make_friedman1

    X, y = make_friedman1(7000, 6, noise=1.0, random_state=1)
    data = bench(tmp_path, VALUES, write_libsvm(tmp_path / "rows", X[:2000], y[:2000]))
    spec = spec_for(tmp_path, algorithm, hyperparameters=settings)
    there, here, _ = data.train(spec)
    assert there.rows_trained == here.rows_trained == 1400
    worth = []
    for folder in (spec.folder, spec.folder / "local"):
        model = onnxruntime.InferenceSession((folder / "model.onnx").read_bytes())
        said = model.run(["prediction"], {model.get_inputs()[0].name: X[2000:].astype(np.float32)})[0]
        worth.append(r2(y[2000:], said))
    assert worth[0] == pytest.approx(worth[1], abs=0.03)
    assert min(worth) > 0.8
    # What is told of both is true of fresh rows.
    for facts, true in zip((there, here), worth, strict=True):
        assert 1 - facts.value**2 / np.var(y) == pytest.approx(true, abs=0.04)


def test_boosting_ends_by_itself_when_its_time_is_up_on_both_engines(
    benches: Callable[[str], Bench], tmp_path: Path
) -> None:
    settings = {"maxIter": 15, "maxDepth": 2}
    spec = spec_for(tmp_path, "gradient-boosted-tree-regression", hyperparameters=settings, soft_s=1e-6)
    there, here, _ = benches(VALUES).train(spec)
    for facts in (there, here):
        assert facts.picture["curve"]["step"] == [1]
        assert facts.picture["stopped"] == {"best": 1, "of": 15, "why": "the time was up"}
    assert there.score == near(here.score)


def test_a_network_learns_in_two_processes(
    benches: Callable[[str], Bench],
    jpmml: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    only_loopback: Watch,
) -> None:
    """Gradients are averaged over both halves of the data, and nobody else is let in."""
    from pyspark.ml import PipelineModel

    learn, seen_at = perceptron.train_worker, str(tmp_path)

    def witnessed(*args: Any) -> Any:
        """Learn as always, and leave a note of which process this is and of its rows."""
        import sys
        import tempfile

        import psutil
        import pyarrow

        begin = learn.__globals__["_train"]

        def noted(*said: Any) -> Any:
            open_at = [c.laddr for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
            with open(f"{seen_at}/ports-{os.environ['RANK']}", "w") as note:
                note.write(" ".join(f"{ip}:{port}" for ip, port in open_at))
            return begin(*said)

        learn.__globals__["_train"] = noted
        with pyarrow.OSFile(os.environ["SPARK_PARTITION_ARROW_DATA_FILE"]) as part:
            rows = pyarrow.ipc.open_stream(part).read_all().num_rows
        weights = learn(*args)
        with open(f"{seen_at}/process-{os.environ['RANK']}", "w") as note:
            compiler = "torch._dynamo" in sys.modules
            words = [os.environ["RANK"], os.environ["WORLD_SIZE"], rows, tempfile.gettempdir(), compiler]
            note.write(" ".join(map(str, words)))
        return weights

    monkeypatch.setattr(perceptron, "train_worker", witnessed)
    monkeypatch.setattr(perceptron, "_ROWS_EACH", 50)
    settings = {"hiddenLayersWidth": 8, "inputLayerWidth": 4, "outputLayerWidth": 3}
    settings |= {"maxIter": 60, "stepSize": 0.05}
    data = benches(CLASSES)
    spec = spec_for(tmp_path, "multilayer-perceptron-classifier", hyperparameters=settings)
    there, here, seen = data.train(spec, own_form=True)
    notes = sorted(path.read_text().split() for path in tmp_path.glob("process-*"))
    assert [note[:2] for note in notes] == [["0", "2"], ["1", "2"]]
    ports = [(tmp_path / f"ports-{rank}").read_text().split() for rank in (0, 1)]
    assert [len(found) for found in ports] == [2, 1]  # gloo in each, and where they meet
    assert all(port.startswith("127.") for found in ports for port in found), ports
    assert sum(int(note[2]) for note in notes) == there.rows_trained
    assert min(int(note[2]) for note in notes) > there.rows_trained // 3
    assert [note[4] for note in notes] == ["False"] * 2, "torch's compiler takes longer to load than torch"
    # What torch leaves in its folder for temporary files goes with that folder.
    assert not any(Path(note[3]).exists() for note in notes)
    assert there.score >= 0.85
    assert there.score == near(here.score)
    assert seen[-1] == (pytest.approx(there.score, abs=0.1), 1.0)
    assert f1(np.array(there.picture["confusion"]["counts"])) == there.value
    assert there.export_difference < 1e-5
    compare_forms(spec.folder, data, jpmml)
    kept = PipelineModel.load((spec.folder / "spark").as_uri()).stages[-1]
    assert list(kept.getLayers()) == [4, 8, 3]


def rows_with_gaps(file: Path) -> Path:
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
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.soak
def test_a_request_with_missing_categories_and_numbers_is_answered_alike_by_both_engines(
    spark: Any, tmp_path: Path
) -> None:
    """From the document to models that are loaded and used; the model alone is in `test_session.py`."""
    file = rows_with_gaps(tmp_path / "gaps.csv")
    asked = {
        "multinomial-logistic-regression": {"maxIter": 30, "regParam": 0.01},
        "decision-tree-classification": {"maxDepth": 4},
    }
    document = {
        "domain": "classification",
        "dataset": {"path": str(file), "target": "grade"},
        "parallelism": 1,
        "methods": [
            {
                "algorithm": algorithm,
                "hyperparameters": [{"param": name, "values": [value]} for name, value in settings.items()],
            }
            for algorithm, settings in asked.items()
        ],
    }
    shown = [
        {"town": town, "size": size, "age": age}
        for town in ("Rome", "Oslo", "Lima", None)
        for size in (10.0, 35.0, 60.0, 90.0, None)
        for age in (30, None)
    ]
    scores: list[dict[str, float]] = []
    answers: list[dict[str, list[Any]]] = []
    for engine in ("local", "spark"):
        board = train(document, engine, tmp_path / engine)
        assert len(board.entries) == 2, board.failures
        scores.append({entry.algorithm: entry.score for entry in board.entries})
        answers.append(
            {entry.algorithm: list(load(entry.model_path).predict(shown)) for entry in board.entries}
        )
    assert set(scores[0]) == set(asked)
    assert scores[1] == {name: pytest.approx(score, abs=0.05) for name, score in scores[0].items()}
    # What is missing is taken for what is usual, on both: the mean, or the most frequent town.
    assert answers[0] == answers[1]
    assert all(len(set(said)) > 1 for said in answers[0].values())
