"""Is the score that a training request tells the one that new rows give?

20 made data sets whose truth is known: noise, weak linear and weak curved signals, interactions; 300 to 3,000
rows; classes and numbers. Each is trained as by default, and the models are judged by 20,000 fresh rows, with
scikit-learn's metrics: the score told beside the score there, and the leader beside the best of all entries.

    python benchmarks/training_honesty.py                  # 40 trials for each, about 10 minutes
    python benchmarks/training_honesty.py --seconds 30 --seed 3
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import matthews_corrcoef, root_mean_squared_error

import prudent

FRESH, COLUMNS = 20_000, 10
NEAR = 0.02
"""The leader should be so near to the best entry, and the score told to that on fresh rows, on average."""
KINDS = ("noise", "linear", "curved", "interactions")
SETS = [
    *((kind, task, rows) for kind in KINDS for task in ("classes", "numbers") for rows in (300, 1_000)),
    *((kind, "classes", 3_000) for kind in KINDS),
]


def rows_of(kind: str, task: str, rows: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows of a kind: half of what there is to know of a row, at most, is in its columns."""
    X = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
    signal = {
        "noise": np.zeros(rows),
        "linear": 0.5 * X[:, 0] + 0.4 * X[:, 1] - 0.3 * X[:, 2] + 0.2 * X[:, 3],
        "curved": np.sin(2.0 * X[:, 0]) + 0.5 * np.abs(X[:, 1]) - 0.4,
        "interactions": X[:, 0] * X[:, 1] + 0.5 * X[:, 2] * X[:, 3],
    }[kind]
    if task == "numbers":
        y = signal + rng.normal(size=rows)
        return X, y / np.sqrt(2.0)
    return X, (signal + rng.logistic(scale=0.55, size=rows) > 0).astype(int)


def score(task: str, actual: Any, predicted: Any) -> float:
    """As the request's own: MCC, or RMSE below zero."""
    if task == "classes":
        return float(matthews_corrcoef(actual, predicted))
    return -float(root_mean_squared_error(actual, predicted))


def one(number: int, kind: str, task: str, rows: int, budget: Any, seed: int) -> dict[str, Any]:
    """Train on one data set, and judge all models by fresh rows."""
    rng = np.random.default_rng([seed, number])
    X, y = rows_of(kind, task, rows, rng)
    fresh, truth = rows_of(kind, task, FRESH, rng)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"x{place}" for place in range(COLUMNS)), "y"])
            writer.writerows([*row.tolist(), value] for row, value in zip(X, y.tolist(), strict=True))
        request = {
            "domain": "binomial-classification" if task == "classes" else "regression",
            "dataset": {"path": str(path), "target": "y"},
            "budget": budget,
            "seed": seed,
        }
        began_s = time.monotonic()
        board = prudent.train(request, out=Path(folder) / "models")
        took_s = time.monotonic() - began_s
        true = [score(task, truth, prudent.load(e.model_path).predict(fresh)) for e in board.entries]
    leader = board.entries[0]
    return {
        "leader": leader.algorithm,
        "told": leader.score,
        "fresh": true[0],
        "best": max(true),
        "by": board.entries[int(np.argmax(true))].algorithm,
        "inside": leader.interval is not None and leader.interval[0] <= true[0] <= leader.interval[1],
        "raw": max(e.validation_score or 0.0 for e in board.entries) if task == "classes" else np.nan,
        "models": len(true),
        "took_s": took_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seconds", type=float, help="instead of a number of trials")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="such as linear or numbers")
    parser.add_argument("--rows", type=int, help="only the sets with so many rows")
    asked = parser.parse_args()
    budget = f"{asked.seconds:g} s" if asked.seconds else f"{asked.trials} trials"
    print(f"{'data':32s} {'leader':38s} {'told':>7s} {'fresh':>7s} {'differ':>7s} {'best':>7s} {'lacks':>6s}")
    found = []
    for number, (kind, task, rows) in enumerate(SETS):
        if (asked.only and asked.only not in (kind, task)) or rows != (asked.rows or rows):
            continue
        got = one(number, kind, task, rows, budget, asked.seed)
        found.append(got)
        lacks = got["best"] - got["fresh"]
        print(
            f"{f'{kind}, {task}, {rows}':32s} {got['leader']:38s} {got['told']:7.3f} {got['fresh']:7.3f} "
            f"{got['told'] - got['fresh']:+7.3f} {got['best']:7.3f} {lacks:6.3f}"
            f"{'' if lacks <= NEAR else ' !'}{'' if got['inside'] else ' outside'}"
            f"  {got['by']} {got['models']} models {got['took_s']:.0f} s raw {got['raw']:.3f}",
            flush=True,
        )
    differ = np.array([got["told"] - got["fresh"] for got in found])
    near = sum(got["best"] - got["fresh"] <= NEAR for got in found)
    inside = sum(got["inside"] for got in found)
    print(
        f"told less fresh: {differ.mean():+.4f} on average (at most {NEAR} is wanted), "
        f"{np.abs(differ).mean():.4f} without sign\n"
        f"leader within {NEAR} of the best entry: {near} of {len(found)} (18 of 20 are wanted)\n"
        f"fresh score inside the 95 % interval: {inside} of {len(found)}"
    )


if __name__ == "__main__":
    main()
