"""Training on Spark: the paper's example from a cold start, and a million rows with little memory.

python benchmarks/training_spark.py            # both
python benchmarks/training_spark.py example    # linear regression, random search, 4 trials
python benchmarks/training_spark.py million    # 1,000,000 x 50 CSV, executors of 1 GiB

The example goes through the command line, start of Python and of Java included. The million rows go to a
standalone cluster on this machine, with one executor of 1 GiB for each core, and a driver of 1 GiB.
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
    "gradient-boosted-tree-classification": {"maxIter": 10, "maxDepth": 4, "stepSize": 0.3},
}


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

    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "training" / "engines" / "spark"))
    from cluster import cluster  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "data.csv"
        write_million(data, rows, columns)
        print(f"{rows:,} rows x {columns} columns, {data.stat().st_size / 2**20:.0f} MiB of CSV")
        request = TrainingRequest.parse(
            {"domain": "binomial-classification", "dataset": {"path": str(data), "target": "label"}}
        )
        memory = {"spark.driver.memory": "1g", "spark.executor.memory": "1g"}
        machines = cluster(folder, workers=os.cpu_count() or 1)
        with machines as found:
            master = "local[*]" if local else found.master
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
                    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=("example", "million", "all"), default="all")
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
