"""The thesis's replays of optimisers on trimtuner_cnn, and the table itself."""

from __future__ import annotations

import csv
import math
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.papers.replays import PARAMETERS

import prudent
from prudent.tuning.jobs.table import TableJob
from tables import data_folder

FRACTION = "data_fraction"
GOAL = "minimise cost_usd subject to accuracy >= 0.85 and time_s <= 300"


@dataclass(frozen=True)
class Entry:
    """An optimiser of the figure; on all fractions or on the full data only."""

    strategy: str
    full: bool = True
    options: dict[str, Any] = field(default_factory=dict)


START = {"as": "published", "trees": 5, "start": "latin", "start_usd": 5.0}
ENTRIES = {
    "Nephele": Entry("nephele", False, {"as": "published"}),
    "Lynceus": Entry("lynceus", True, {**START, "lookahead": 0}),
    "CherryPick": Entry("cherrypick", True, {**START, "surrogate": "trees", "stop_below": 0}),
    "Random": Entry("random", False),
    "ours (nephele)": Entry("nephele", False, {}),
}


@lru_cache
def job(full: bool) -> TableJob:
    path = data_folder() / "tuning" / "trimtuner_cnn.csv"
    with path.open(newline="") as file, tempfile.TemporaryDirectory() as folder:
        rows = [row for row in csv.DictReader(file) if not full or float(row[FRACTION]) == 1.0]
        part = Path(folder) / path.name
        with part.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        parameters = PARAMETERS if full else [*PARAMETERS, FRACTION]
        return TableJob.read_csv(part, parameters, measures=["accuracy"], fraction=None if full else FRACTION)


@lru_cache
def rows() -> tuple[dict[str, float], ...]:
    """Time, cost, accuracy and fraction of every run in the table."""
    with (data_folder() / "tuning" / "trimtuner_cnn.csv").open(newline="") as file:
        return tuple(
            {
                "time_s": float(row["time_s"]), "accuracy": float(row["accuracy"]),
                "cost_usd": float(row["price_usd_per_h"]) * float(row["time_s"]) / 3600,
                "fraction": float(row[FRACTION]), "config_id": float(row["config_id"]),
                "images": float(row["training_set_size"]), "batch": float(row["batch_size"]),
                "iterations": float(row["total_iterations"]), "timed_out": float(row["timed_out"]),
            }
            for row in csv.DictReader(file)
        )  # fmt: skip


def feasible(fraction: float | None = None) -> list[dict[str, float]]:
    goal = prudent.Goal.parse(GOAL)
    return [row for row in rows() if goal.feasible(row) and fraction in (None, row["fraction"])]


@dataclass(frozen=True)
class Walk:
    """One seed: money spent and best cost so far after each run; and how many first runs there were."""

    spent_usd: tuple[float, ...]
    best_usd: tuple[float, ...]
    firsts: int

    def at(self, usd: float) -> float:
        known = [best for spent, best in zip(self.spent_usd, self.best_usd, strict=True) if spent <= usd]
        return known[-1] if known else math.inf


def play(entry: Entry, budget_usd: float, seed: int) -> Walk:
    done = prudent.tune(
        job(entry.full), GOAL, budget_usd, entry.strategy, entry.options, early_stop=False, seed=seed
    )
    best = np.minimum.accumulate([t.cost_usd if t.feasible else math.inf for t in done.trials])
    spent = np.cumsum([trial.spent_usd for trial in done.trials])
    firsts = sum(trial.chosen.startswith("first look") for trial in done.trials)
    return Walk(tuple(spent.tolist()), tuple(best.tolist()), firsts)
