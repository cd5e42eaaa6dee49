"""Training on Spark: the paper's example from a cold start, a million rows with little memory, and whether
its models are as good as the local engine's.

python benchmarks/training_spark.py            # all
python benchmarks/training_spark.py example    # linear regression, random search, 4 trials
python benchmarks/training_spark.py million    # 1,000,000 x 50 CSV, executors of 1 GiB
python benchmarks/training_spark.py agree      # every algorithm on both engines, 3,000 rows

The example goes through the command line, start of Python and of Java included. The million rows go to a
standalone cluster on this machine, with one executor of 1 GiB for each core, and a driver of 1 GiB. Of both
engines' models what is compared is the score that they were given and, through their ONNX form, what they
are worth on 20,000 fresh rows (R² of values, MCC of two classes, F1 of more, silhouette of clusters).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

LIMIT_S = 60.0
PAPER_S = 268.0
METHODS: dict[str, dict[str, Any]] = {
    "binomial-logistic-regression": {"maxIter": 20, "regParam": 0.001},
    "xgboost-classification": {"numRound": 100, "maxDepth": 6},
    "gradient-boosted-tree-classification": {"maxIter": 100, "maxDepth": 5},
}
BOOSTING_S = 90.0
DIFFERENCE = 0.03
VALUES, TWO, CLASSES, CLUSTERS = "regression", "binomial", "multinomial", "clustering"
_BOOSTED: dict[str, Any] = {"maxIter": 100, "maxDepth": 5}
COMPARED: list[tuple[str, str, dict[str, Any]]] = [
    (VALUES, "linear-regression", {}),
    (VALUES, "generalized-linear-regression", {}),
    (VALUES, "decision-tree-regression", {"maxDepth": 6, "minInstancesPerNode": 10}),
    (VALUES, "random-forest-regression", {"numTrees": 60, "maxDepth": 10}),
    (VALUES, "gradient-boosted-tree-regression", _BOOSTED),
    (VALUES, "xgboost-regression", {}),
    (TWO, "linear-support-vector-machine", {}),
    (TWO, "binomial-logistic-regression", {}),
    (TWO, "naive-bayes", {"modelType": "gaussian"}),
    (TWO, "decision-tree-classification", {"maxDepth": 5, "minInstancesPerNode": 10}),
    (TWO, "gradient-boosted-tree-classification", _BOOSTED),
    (TWO, "xgboost-classification", {}),
    (CLASSES, "multinomial-logistic-regression", {}),
    (CLASSES, "random-forest-classification", {"numTrees": 60, "maxDepth": 10}),
    (CLASSES, "gradient-boosted-tree-classification", _BOOSTED),
    (CLASSES, "xgboost-classification", {}),
    (CLASSES, "multilayer-perceptron-classifier", {"hiddenLayersWidth": 16, "maxIter": 200}),
    (CLUSTERS, "k-means", {"k": 4}),
    (CLUSTERS, "gaussian-mixture-model", {"k": 4}),
]


def example() -> None:
    """The paper took 4 min 28 s from message to mail on its cluster."""
    print("paper's example")
    import pyspark

    data = Path(pyspark.__file__).parent / "data" / "mllib" / "sample_linear_regression_data.txt"
    searched = {"maxIter": [5, 10, 20], "regParam": [0.01, 0.1, 0.3], "elasticNetParam": [0.0, 0.5, 0.8]}
    request = {
        "domain": "regression",
        "methods": [
            {
                "algorithm": "linear-regression",
                "hyperparameters": [{"param": name, "values": values} for name, values in searched.items()],
            }
        ],
        "dataset": {"path": str(data), "format": "libsvm"},
        "parameterSearch": "random",
        "budget": "4 trials",
        "parallelism": 2,
        "emailAddress": "somebody@example.org",
    }
    for words, switch in (("cold start, local[2]", "off"), ("with Spark's classes kept", "")):
        took_s, board = _timed(request, switch)
        print(f"  {words}: {took_s:.1f} s (at most {LIMIT_S:g}; the paper took {PAPER_S:g} s)")
    print(f"  {len(board['entries'])} models, best RMSE {board['entries'][0]['value']:.4f}")


def _timed(request: dict[str, Any], switch: str) -> tuple[float, dict[str, Any]]:
    """How long the command took, and what it wrote."""
    if switch != "off":
        subprocess.run([sys.executable, "-m", "prudent.training.engines.spark.warming"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "request.json"
        file.write_text(json.dumps(request))
        program = [sys.executable, "-c", "from prudent.cli.main import main; main()", "train", str(file)]
        began_s = time.perf_counter()
        subprocess.run(
            [*program, "--engine", "spark", "--master", "local[2]", "--out", f"{folder}/out", "--json"],
            check=True,
            capture_output=True,
            env={**os.environ, "PRUDENT_SPARK_CLASSES": switch},
        )
        took_s = time.perf_counter() - began_s
        board: dict[str, Any] = json.loads((Path(folder) / "out" / "leaderboard.json").read_text())
    return took_s, board


def write_million(path: Path, rows: int, columns: int, seed: int = 7) -> None:
    """A table of numbers with a label that depends on some of them, not only in straight lines."""
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(seed)
    weights = rng.normal(size=columns)
    names = [*(f"x{number}" for number in range(columns)), "label"]
    schema = pa.schema([*((name, pa.float32()) for name in names[:-1]), ("label", pa.int8())])
    with csv.CSVWriter(str(path), schema) as writer:
        for start in range(0, rows, 50_000):
            count = min(50_000, rows - start)
            X = rng.normal(size=(count, columns)).round(4).astype(np.float32)
            raw = X @ weights / 4 + 2 * X[:, 0] * X[:, 1]
            label = (raw + rng.logistic(size=count) > 0).astype(np.int8)
            writer.write_table(pa.table([*X.T.copy(), label], schema=schema))


def million(rows: int, columns: int, local: bool) -> None:
    from prudent.training.engines.engine import TrialSpec
    from prudent.training.engines.spark.engine import SparkEngine
    from prudent.training.request.request import TrainingRequest
    from prudent.tuning.trial import Outcome
    from spark_here import spark_cluster  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "data.csv"
        write_million(data, rows, columns)
        print(f"{rows:,} rows x {columns} columns, {data.stat().st_size / 2**20:.0f} MiB of CSV")
        request = TrainingRequest.parse(
            {
                "domain": "binomial-classification",
                "dataset": {"path": str(data), "target": "label"},
                "test": False,
            }
        )
        memory = {"spark.driver.memory": "1g", "spark.executor.memory": "1g"}
        with spark_cluster(folder, workers=os.cpu_count() or 1) as there:
            master = "local[*]" if local else there
            began_s = time.perf_counter()
            with SparkEngine(master, memory).open(request, folder / "work", 2) as session:
                print(f"  read, split and cached at {master}: {time.perf_counter() - began_s:.1f} s")
                for number, (algorithm, settings) in enumerate(METHODS.items()):
                    spec = TrialSpec(number, algorithm, settings, {}, 1.0, 7, folder / f"trial{number}")
                    run = session.start(spec)
                    while not isinstance(event := run.next(3600), Outcome):
                        pass
                    facts: dict[str, Any] = {}
                    if event.status == "finished":
                        facts = json.loads((spec.folder / "facts.json").read_text())
                    print(
                        f"  {algorithm}: {event.status} {event.why} in {event.time_s:.1f} s, "
                        f"MCC {facts.get('value', float('nan')):.4f}, "
                        f"ONNX differs by {facts.get('export_difference')}, "
                        f"{facts.get('rows_trained', 0):,} rows to train, "
                        f"{facts.get('rows_validated', 0):,} to judge"
                        + (f" (at most {BOOSTING_S:g} s)" if "xgboost" in algorithm else "")
                    )


def agree(rows: int) -> None:
    from prudent.training.engines.local.engine import LocalEngine
    from prudent.training.engines.spark.engine import SparkEngine

    print(f"both engines, {rows:,} rows: score told, and on 20,000 fresh rows")
    furthest = 0.0
    for kind in (VALUES, TWO, CLASSES, CLUSTERS):
        X, y = _made(kind, rows + 20_000)
        methods = [(name, settings) for of, name, settings in COMPARED if of == kind]
        with tempfile.TemporaryDirectory() as name:
            told, fresh = {}, {}
            for engine in (LocalEngine(), SparkEngine("local[*]", {"spark.driver.memory": "2g"})):
                told[engine.name], fresh[engine.name] = _scored(engine, Path(name), kind, X, y, rows, methods)
        for number, (algorithm, _) in enumerate(methods):
            here, there = fresh["local"][number], fresh["spark"][number]
            furthest = max(furthest, abs(here - there))
            print(
                f"  {algorithm:38} {kind:12} told {told['local'][number]:.3f} {told['spark'][number]:.3f}"
                f"   fresh {here:.3f} {there:.3f}   apart {there - here:+.3f}"
                + ("" if abs(here - there) <= DIFFERENCE else "   TOO FAR")
            )
    print(f"  furthest apart: {furthest:.3f} (at most {DIFFERENCE:g})")


def _made(kind: str, rows: int) -> tuple[Any, Any]:
    from sklearn.datasets import make_blobs, make_classification, make_friedman1

    if kind == VALUES:
        return make_friedman1(rows, 10, noise=1.0, random_state=1)
    if kind == CLUSTERS:
        return make_blobs(rows, 4, centers=4, cluster_std=2.0, random_state=3)
    classes = 2 if kind == TWO else 4
    return make_classification(
        rows, 12, n_informative=8, n_redundant=0, n_classes=classes, flip_y=0.05, random_state=2
    )


def _scored(
    engine: Any, folder: Path, kind: str, X: Any, y: Any, rows: int, methods: list[tuple[str, dict[str, Any]]]
) -> tuple[list[float], list[float]]:
    """What an engine says of its models, and what they are worth on the rows after the first ones."""
    import onnxruntime

    from prudent.training.engines.engine import TrialSpec
    from prudent.training.engines.scoring import Scorer
    from prudent.training.request.request import TrainingRequest
    from prudent.tuning.trial import Outcome

    domain = kind if kind in (VALUES, CLUSTERS) else f"{kind}-classification"
    data, target = folder / f"{engine.name}.csv", ["label"] if kind != CLUSTERS else []
    shown = X if kind == CLUSTERS else np.column_stack([X, y])
    heading = ",".join([*(f"x{place}" for place in range(X.shape[1])), *target])
    np.savetxt(data, shown[:rows], fmt="%.7g", delimiter=",", header=heading, comments="")
    said = {"path": str(data), **({"target": "label"} if target else {})}
    metric = {"metric": "r2"} if kind == VALUES else {}
    parts = {"validation": {"holdout": 0.3}, "test": False}
    request = TrainingRequest.parse({"domain": domain, "dataset": said, **parts, **metric})
    told, fresh = [], []
    with engine.open(request, folder / engine.name, 1) as session:
        scorer = Scorer.of(domain, metric.get("metric"), session.shape.classes)
        for number, (algorithm, settings) in enumerate(methods):
            place = folder / f"{engine.name}-{number}"
            run = session.start(TrialSpec(number, algorithm, settings, {}, 1.0, 7, place))
            while not isinstance(event := run.next(3600), Outcome):
                pass
            if event.status != "finished":
                raise SystemExit(f"{algorithm} on {engine.name}: {event.why}")
            told.append(float(json.loads((place / "facts.json").read_text())["value"]))
            model = onnxruntime.InferenceSession((place / "model.onnx").read_bytes())
            new = X[rows:].astype(np.float32)
            predicted = model.run(["prediction"], {model.get_inputs()[0].name: new})[0]
            some = slice(0, 4000) if kind == CLUSTERS else slice(None)
            fresh.append(scorer.value(y[rows:][some], predicted[some], new[some]))
    return told, fresh


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=("example", "million", "agree", "all"), default="all")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument(
        "--local", action="store_true", help="in one Java process of 1 GiB, without a cluster"
    )
    chosen = parser.parse_args()
    if chosen.part in ("example", "all"):
        example()
    if chosen.part in ("million", "all"):
        million(chosen.rows, chosen.columns, chosen.local)
    if chosen.part in ("agree", "all"):
        agree(min(chosen.rows, 3000))
