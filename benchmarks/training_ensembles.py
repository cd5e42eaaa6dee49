"""Is an ensemble recommended where that is right, and does its told score hold on fresh rows?

Made data whose truth is known, in three kinds: noise, a line that a single model sees, and a mixture of
slopes and boxes that models see in part. Every request has the same few trials. What stands first, the best
single model and the ensemble are judged by 20,000 fresh rows; the last column is the ensemble's time to
predict a row.

    python benchmarks/training_ensembles.py [--seeds 3] [--rows 800] [--trials 25]
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np

import prudent
from prudent.training.leaderboard import ENSEMBLE, Leaderboard
from prudent.training.models.metrics import confusion, mcc

FRESH, COLUMNS = 20_000, 6
KINDS = ("noise", "line", "mixture")


def draw(kind: str, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a kind, and the class of each."""
    X = rng.normal(size=(rows, COLUMNS)).round(4)
    odds = {
        "noise": np.zeros(rows),
        "line": 1.5 * (X[:, 0] + 0.7 * X[:, 1] - 0.5 * X[:, 2]),
        "mixture": 2.0 * (X[:, 0] + X[:, 1] + 3.0 * ((np.abs(X[:, 2]) < 0.7) - 0.5) + X[:, 3] * X[:, 4]),
    }[kind]
    return X, (rng.random(rows) < 1 / (1 + np.exp(-odds))).astype(int)


def trained(kind: str, rows: int, trials: int, seed: int, folder: Path) -> Leaderboard:
    X, y = draw(kind, rows, np.random.default_rng(seed))
    with (folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{n}" for n in range(COLUMNS)), "target"])
        writer.writerows([*row, label] for row, label in zip(X.tolist(), y.tolist(), strict=True))
    request = {
        "domain": "classification",
        "dataset": {"path": str(folder / "rows.csv")},
        "budget": f"{trials} trials",
        "seed": seed,
    }
    return prudent.train(request, out=folder / "models")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=800)
    parser.add_argument("--trials", type=int, default=25)
    said = parser.parse_args()
    print("kind      seed  first is             told   fresh  best single  ensemble  µs a row")
    for kind in KINDS:
        X, y = draw(kind, FRESH, np.random.default_rng(10**6))
        for seed in range(said.seeds):
            with tempfile.TemporaryDirectory() as folder:
                board = trained(kind, said.rows, said.trials, seed, Path(folder))
                fresh = {}
                for entry in (*board.entries[:1], *(e for e in board.entries if e.algorithm == ENSEMBLE)):
                    labels = prudent.load(entry.model_path).predict(X)
                    fresh[entry.algorithm] = mcc(confusion(y, labels.astype(int), 2))
                singles = [entry for entry in board.entries if entry.algorithm != ENSEMBLE]
                single = prudent.load(singles[0].model_path).predict(X).astype(int)
            first = board.entries[0]
            both = next((e for e in board.entries if e.algorithm == ENSEMBLE), None)
            scores = f"{first.score:6.3f} {fresh[first.algorithm]:7.3f} {mcc(confusion(y, single, 2)):12.3f}"
            cost = f"{1000 * both.predict_ms:9.2f}" if both else "        –"
            together = f"{fresh[ENSEMBLE]:9.3f}" if both else "        –"
            print(f"{kind:9} {seed:4}  {first.algorithm[:20]:20} {scores} {together} {cost}", flush=True)


if __name__ == "__main__":
    main()
