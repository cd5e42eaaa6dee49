"""Cheapest run that is accurate enough, when a run may train on a part of the data: CNO by money spent.

The table is trimtuner_cnn: 288 configurations at 5 data fractions; the goal: least cost with accuracy of at
least 0.85 within 300 s. CNO = cost of the best feasible run so far / cost of the optimum of all 1,440 runs.
"full data" searches the 288 configurations at fraction 1 only, as Lynceus did before there was a fraction;
its CNO is against the same optimum, which it cannot reach. A study ends once it has the
optimum, from which it cannot improve; --to-the-end lets it spend its budget.

    OMP_NUM_THREADS=1 python benchmarks/subsampling_nephele.py [--seeds 30] [--budget 2.5] [--early]
        [--only nephele …] [--options '{"lookahead": 1}'] [--processes 1] [--data FOLDER] [--table NAME]
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import prudent
from prudent.tuning.study.study import Study
from prudent.tuning.tune import Event, TrialEnded, Watch
from tables import data_folder

PARAMETERS = ["vm_type", "n_workers", "learning_rate", "batch_size", "synchronous"]
FRACTION = "data_fraction"
SPENT = (0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Case:
    """What to run: a strategy with options, on all fractions or on full data only."""

    name: str
    strategy: str
    full: bool = False


CASES = (
    Case("nephele", "nephele"),
    Case("lynceus", "lynceus"),
    Case("lynceus full data", "lynceus", full=True),
    Case("bohb", "bohb"),
    Case("hyperband", "hyperband"),
    Case("random", "random"),
)


@dataclass(frozen=True)
class Setting:
    """Where the data lie and what every case shares."""

    folder: Path
    table: str
    goal: str
    budget_usd: float
    early: bool
    enough_usd: float


@dataclass(frozen=True)
class Walk:
    """One study: the best feasible cost after each trial by the money spent, and what deciding took."""

    spent_usd: tuple[float, ...]
    best_usd: tuple[float, ...]
    cpu_s: float
    slowest_s: float

    def best_at(self, usd: float) -> float:
        known = [cost for spent, cost in zip(self.spent_usd, self.best_usd, strict=True) if spent <= usd]
        return known[-1] if known else math.inf


def job_of(setting: Setting, full: bool) -> prudent.TableJob:
    path = setting.folder / f"{setting.table}.csv"
    traces = setting.folder / f"{setting.table}_progress.csv"
    progress = traces if setting.early and traces.exists() else None
    parameters = [*PARAMETERS, FRACTION]
    if not full:
        return read(path, parameters, FRACTION, progress)
    with open(path, newline="") as file, tempfile.TemporaryDirectory() as folder:
        rows = list(csv.DictReader(file))
        part = Path(folder) / path.name
        with open(part, "w", newline="") as out:
            writer = csv.DictWriter(out, rows[0])
            writer.writeheader()
            writer.writerows(row for row in rows if float(row[FRACTION]) == 1.0)
        return read(part, parameters, None, None)


def read(path: Path, parameters: list[str], fraction: str | None, progress: Path | None) -> prudent.TableJob:
    return prudent.TableJob.read_csv(
        path, parameters=parameters, measures=["accuracy"], fraction=fraction, progress=progress
    )


def walk(setting: Setting, case: Case, options: dict[str, Any], seeds: Sequence[int]) -> list[Walk]:
    """The studies of some seeds, one after another."""
    job = job_of(setting, case.full)
    paths = []
    for seed in seeds:
        clock = time.process_time()
        result = prudent.tune(
            job,
            setting.goal,
            setting.budget_usd,
            case.strategy,
            options,
            early_stop=setting.early,
            seed=seed,
            watch=until(setting.enough_usd),
        )
        spent = np.cumsum([trial.spent_usd for trial in result.trials])
        costs = [trial.cost_usd if trial.feasible else math.inf for trial in result.trials]
        slowest = max(trial.decision_s for trial in result.trials)
        best = np.minimum.accumulate(costs)
        cpu_s = (time.process_time() - clock) / len(result.trials)
        paths.append(Walk(tuple(spent.tolist()), tuple(best.tolist()), cpu_s, slowest))
    return paths


def until(enough_usd: float) -> Watch:
    """Ends a study whose best run costs no more than that."""

    def watch(event: Event, study: Study) -> None:
        if isinstance(event, TrialEnded) and study.best is not None and study.best.cost_usd <= enough_usd:
            raise KeyboardInterrupt

    return watch


def optimum_usd(path: Path, goal_text: str) -> float:
    goal = prudent.Goal.parse(goal_text)
    costs = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            usd = float(row["price_usd_per_h"]) * float(row["time_s"]) / 3600
            values = {"time_s": float(row["time_s"]), "accuracy": float(row["accuracy"]), "cost_usd": usd}
            if goal.feasible(values):
                costs.append(usd)
    return min(costs)


def report(case: Case, paths: list[Walk], optimum: float, budget: float) -> str:
    cells = []
    for usd in SPENT:
        if usd > budget + 1e-9:
            break
        cno = np.array([path.best_at(usd) for path in paths]) / optimum
        found = float(np.mean(cno <= 1 + 1e-6))
        middle, high = np.quantile(cno, [0.5, 0.9], method="inverted_cdf")
        cells.append(f"{middle:.2f} / {high:.2f} / {found:.2f}")
    runs = np.median([len(path.spent_usd) for path in paths])
    cpu = np.mean([path.cpu_s for path in paths])
    slowest = max(path.slowest_s for path in paths)
    return f"| {case.name} | {' | '.join(cells)} | {runs:.0f} | {cpu:.3f} | {slowest:.2f} |"


def main() -> None:
    given = arguments()
    folder = data_folder(given=given.data) / "tuning"
    optimum = optimum_usd(folder / f"{given.table}.csv", given.goal)
    enough = 0.0 if given.to_the_end else optimum * (1 + 1e-6)
    setting = Setting(folder, given.table, given.goal, given.budget, given.early, enough)
    budgets = [usd for usd in SPENT if usd <= given.budget + 1e-9]
    print(f"{given.table}, {given.seeds} seeds, {'early time-out' if given.early else 'runs in full'}.")
    print(f"{given.goal}; the optimum costs ${optimum:.6f}.")
    print("CNO when so much is spent: median / 90 % quantile / share of seeds with the optimum.\n")
    print(f"| strategy | {' | '.join(f'${usd:g}' for usd in budgets)} | runs | CPU s a trial | slowest s |")
    print(f"|---|{'---|' * (len(budgets) + 3)}")
    for case in CASES:
        if given.only and case.name not in given.only:
            continue
        options = json.loads(given.options) if case.name == "nephele" or given.only else {}
        parts = [list(range(start, given.seeds, given.processes)) for start in range(given.processes)]
        if given.processes == 1:
            paths = walk(setting, case, options, parts[0])
        else:
            with ProcessPoolExecutor(given.processes) as workers:
                futures = [workers.submit(walk, setting, case, options, part) for part in parts]
                paths = [path for future in futures for path in future.result()]
        print(report(case, paths, optimum, given.budget), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder that holds tuning/*.csv")
    parser.add_argument("--table", default="trimtuner_cnn")
    parser.add_argument("--goal", default="minimise cost_usd subject to accuracy >= 0.85 and time_s <= 300")
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--budget", type=float, default=2.5)
    parser.add_argument("--early", action="store_true", help="cut runs that cannot be the answer")
    parser.add_argument("--to-the-end", action="store_true", help="go on after the optimum was found")
    parser.add_argument("--only", nargs="*", help="names of cases; all without it")
    parser.add_argument("--options", default="{}", help="JSON for the strategy")
    parser.add_argument("--processes", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
