"""Nephele, figures 6.8 to 6.10 and tables 6.1 to 6.3: the cheapest run on a part of the data."""

from __future__ import annotations

import csv
import math
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.papers.nephele_tables import headline as table_headline
from benchmarks.papers.nephele_tables import tables as data_tables
from benchmarks.papers.page import BETTER, NOT, REPRODUCED, Chart, Headline, PaperPage, Table, number
from benchmarks.papers.replays import PARAMETERS, Effort

import prudent
from prudent.tuning.jobs.table import TableJob
from tables import data_folder

SEEDS, QUICK_SEEDS = 10, 2
FRACTION = "data_fraction"
GOAL = "minimise cost_usd subject to accuracy >= 0.85 and time_s <= 300"
BUDGET_USD, QUICK_USD = 30.0, 12.0
AT = (2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0)


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


def play(name: str, budget_usd: float, seed: int) -> Walk:
    entry = ENTRIES[name]
    done = prudent.tune(
        job(entry.full), GOAL, budget_usd, entry.strategy, entry.options, early_stop=False, seed=seed
    )
    best = np.minimum.accumulate([t.cost_usd if t.feasible else math.inf for t in done.trials])
    spent = np.cumsum([trial.spent_usd for trial in done.trials])
    firsts = sum(trial.chosen.startswith("first look") for trial in done.trials)
    return Walk(tuple(spent.tolist()), tuple(best.tolist()), firsts)


def run(effort: Effort) -> PaperPage:
    budget_usd = QUICK_USD if effort.quick else BUDGET_USD
    with ProcessPoolExecutor(effort.processes) as workers:
        tasks = {
            name: [workers.submit(play, name, budget_usd, seed) for seed in range(effort.seeds)]
            for name in ENTRIES
        }
        paths = {name: [task.result() for task in found] for name, found in tasks.items()}
    optimum = min(row["cost_usd"] for row in feasible())
    moments = [usd for usd in AT if usd <= budget_usd]

    def cno(name: str, usd: float, quantile: float) -> float:
        values = np.array([path.at(usd) / optimum for path in paths[name]])
        return float(np.quantile(values, quantile, method="higher"))

    grid = np.linspace(0.25, budget_usd, 100)
    sizes = sorted({row["fraction"] for row in rows()})
    return PaperPage(
        "nephele",
        "Nephele: tuning on parts of the data",
        f"{effort.seeds} seeds on trimtuner_cnn (1,440 runs), {GOAL}; initial budget $5 for each optimiser.",
        headlines(paths, cno, moments),
        [
            Table(
                "Figure 6.10: CNO by exploration cost, 50 % / 90 %",
                ("optimiser", *(f"${usd:g}" for usd in moments)),
                [
                    [
                        name,
                        *(" / ".join(number(cno(name, u, q), 2) for q in (0.5, 0.9)) for u in moments),
                    ]
                    for name in paths
                ],
            ),
            Table(
                "Figure 6.9(a): runs that keep the constraints, by fraction of the data",
                ("all", *(f"{size:g}" for size in sizes)),
                [[str(len(feasible())), *(str(len(feasible(size))) for size in sizes)]],
            ),
            *data_tables(rows()),
        ],
        [
            Chart(
                "cno", "Figure 6.10(a): CNO by exploration cost, 90 %", "exploration cost, $", "CNO",
                {name: [(float(u), cno(name, float(u), 0.9)) for u in grid] for name in paths}, log=True,
            )
        ],
    )  # fmt: skip


def headlines(paths, cno, moments):  # type: ignore[no-untyped-def]
    everything, full = (min(row["cost_usd"] for row in feasible(f)) for f in (None, 1.0))
    saved = 1 - everything / full
    at = max(usd for usd in moments if usd <= 10.0)
    cheaper = cno("Lynceus", at, 0.5) / cno("Nephele", at, 0.5)
    firsts = {name: float(np.mean([path.firsts for path in paths[name]])) for name in ("Nephele", "Lynceus")}
    always = all(
        cno("Nephele", usd, 0.9) <= min(cno(name, usd, 0.9) for name in ("Lynceus", "CherryPick"))
        for usd in moments
        if usd >= 5
    )
    return [
        Headline(
            "Runs that keep the constraints, of 1,440 and of 288 at full data", "208 and 61",
            f"{len(feasible())} and {len(feasible(1.0))}",
            REPRODUCED if (len(feasible()), len(feasible(1.0))) == (208, 61) else NOT,
        ),
        table_headline(rows()),
        Headline(
            "Cost saved in production by a part of the data", "75 %", f"{saved:.1%}",
            REPRODUCED if abs(saved - 0.75) < 0.02 else NOT,
        ),
        Headline(
            "First runs for $5, all fractions and full data", "20 and 8",
            f"{number(firsts['Nephele'], 1)} and {number(firsts['Lynceus'], 1)}",
            REPRODUCED if abs(firsts["Nephele"] - 20) < 6 and abs(firsts["Lynceus"] - 8) < 4 else NOT,
        ),
        Headline(
            f"Cost of Lynceus's answer over Nephele's after ${at:g}, median", "3", number(cheaper, 2),
            BETTER if cheaper > 3.5 else REPRODUCED if cheaper > 2 else NOT,
        ),
        Headline(
            "Nephele's answer is the cheaper one at every amount from $5 on (90 %)", "yes",
            "yes" if always else "no", REPRODUCED if always else NOT,
        ),
    ]  # fmt: skip
