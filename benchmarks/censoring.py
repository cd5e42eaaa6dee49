"""How well is the full time of a cut run estimated? Linear, truncated Gaussian, learning curve, combined.

Runs that truly reach the target are cut at shares of their time and, as in a study, at one time limit
(the median) and one bill (a tenth of the runs are cheaper) for all. Errors are |log(estimate / truth)|.
"truncated" is a Gaussian process fitted to 30 other runs, "combined" that times the curve's estimate.
A cut at 50 % of the truth flatters any rule near "twice the elapsed time"; the last two cuts do not.

    python benchmarks/censoring.py [--data FOLDER] [--target 0.85] [--seeds 5]
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prudent.core.seeds import rng_for
from prudent.tuning.goal import Constraint, Goal
from prudent.tuning.study import censoring
from prudent.tuning.study.censoring import estimate_time_s
from prudent.tuning.surrogates.gp import GaussianProcess
from prudent.tuning.trial import Progress
from tables import data_folder

TABLES = {"lynceus_cnn": "config_id", "lynceus_rnn": "config_id", "trimtuner_cnn": "run_id"}
CUTS = ("25 %", "50 %", "75 %", "T_max", "bill")
METHODS = ("linear", "truncated", "curve", "combined")
FEATURES = ("vcpus_per_vm", "n_workers", "learning_rate", "batch_size", "synchronous", "data_fraction")
SAMPLES = 30
CURVE_ERROR = 0.35
"""The error to expect of the logarithm of a curve estimate (root mean square: 0.24 to 0.41 by table)."""
SLOPES = (1.2, 1.35, 1.5, 1.65, 1.8)


@dataclass(frozen=True)
class Run:
    row: dict[str, str]
    progress: list[Progress]
    time_s: float
    reached: bool

    @property
    def bill(self) -> float:
        return float(self.row["price_usd_per_h"]) * self.time_s / 3600


@dataclass(frozen=True)
class Case:
    """A run (by its place) cut at a moment that some progress precedes."""

    run: int
    cut: str
    elapsed_s: float
    truth_s: float
    reached: bool


def read(folder: Path, table: str, target: float) -> list[Run]:
    """The runs of a table, each until the first check that shows the target (or until its end)."""
    key, seen = TABLES[table], defaultdict(list)
    with open(folder / f"{table}_progress.csv", newline="") as file:
        for row in csv.DictReader(file):
            seen[row[key]].append(Progress(float(row["elapsed_s"]), {"accuracy": float(row["accuracy"])}))
    runs = []
    with open(folder / f"{table}.csv", newline="") as file:
        for row in csv.DictReader(file):
            checks = seen[row[key]]
            hits = [place for place, check in enumerate(checks) if check.measures["accuracy"] >= target]
            checks = checks[: hits[0] + 1] if hits else checks
            runs.append(Run(row, checks, checks[-1].elapsed_s, bool(hits)))
    return runs


def cases(runs: list[Run]) -> Iterator[Case]:
    done = [run for run in runs if run.reached]
    if "time_to_target_s" in runs[0].row:  # the paper's T_max: about half of all configurations comply
        limit_s = sorted(float(run.row["time_to_target_s"]) for run in runs)[len(runs) // 2]
    else:
        limit_s = float(np.median([run.time_s for run in done]))
    bill = float(np.quantile([run.bill for run in done], 0.1))
    for place, run in enumerate(runs):
        moments = {f"{share} %": share / 100 * run.time_s for share in (25, 50, 75)} if run.reached else {}
        moments |= {"T_max": limit_s, "bill": bill / run.bill * run.time_s}
        for cut, elapsed_s in moments.items():
            if run.progress[0].elapsed_s <= elapsed_s < run.time_s * (1 - 1e-9):
                yield Case(place, cut, elapsed_s, run.time_s, run.reached)


def features(runs: list[Run]) -> np.ndarray:
    columns = [np.log(1e-9 + np.array([float(r.row[f]) for r in runs])) for f in FEATURES if f in runs[0].row]
    X = np.stack(columns, axis=1)
    return (X - X.min(axis=0)) / np.maximum(np.ptp(X, axis=0), 1e-12)


def estimates(runs: list[Run], found: list[Case], goal: Goal, method: str) -> np.ndarray:
    """log estimate per case."""
    answers = [estimate_time_s(goal, runs[c.run].progress, c.elapsed_s, method) for c in found]
    return np.log(np.array(answers, dtype=float))


def truncated_mean(mean: np.ndarray, std: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """The mean of N(mean, std²) given that the value is above `lower`; broadcasts.

    mean + std·φ(a) / Φ(-a) with a = (lower - mean) / std, written with the scaled erfc so that it also
    holds where Φ(-a) is zero in floating point.
    """
    from scipy.special import erfcx

    middle, width, bound = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (mean, std, lower)))
    safe = np.where(width > 0, width, 1.0)
    with np.errstate(over="ignore"):
        a = np.clip((bound - middle) / safe, -1e8, 1e8)
    hazard = math.sqrt(2 / math.pi) / erfcx(np.clip(a, -30.0, 30.0) / math.sqrt(2))
    far = np.where(a > 30, a, 1.0)
    beyond = np.where(a > 30, 1 / far - 2 / far**3, hazard - a)
    inside = np.where(a > 0, bound + safe * beyond, middle + safe * hazard)
    return np.where(width > 0, np.maximum(inside, bound), np.maximum(middle, bound))


def combined(mean: np.ndarray, std: np.ndarray, estimate: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """The model's Gaussian times the estimate's, each by its precision, truncated below at the cut."""
    weight = std**2 / (std**2 + CURVE_ERROR**2)
    return truncated_mean(mean + weight * (estimate - mean), np.sqrt(weight) * CURVE_ERROR, lower)


def errors(runs: list[Run], found: list[Case], goal: Goal, seeds: int) -> dict[str, np.ndarray]:
    """log(estimate / truth) by method: (seeds, cases); nan where the model had seen the run in full."""
    X, groups = features(runs), [slice(i, i + 1) for i in range(features(runs).shape[1])]
    truth, lower = (np.log([getattr(c, name) for c in found]) for name in ("truth_s", "elapsed_s"))
    place = np.array([c.run for c in found])
    linear, curve = (estimates(runs, found, goal, method) for method in ("linear", "curve"))
    known = np.array([i for i, run in enumerate(runs) if run.reached])
    out: dict[str, list[np.ndarray]] = {method: [] for method in METHODS}
    for seed in range(seeds):
        sample = rng_for(seed, "censoring benchmark").choice(known, SAMPLES, replace=False)
        y = np.log([runs[i].time_s for i in sample])
        model = GaussianProcess.fit(X[sample], y, X, groups, seed)
        mean, std = model.mean[place], model.std[place]
        unseen = np.where(np.isin(place, sample), np.nan, 0.0) - truth
        out["linear"].append(linear + unseen)
        out["curve"].append(curve + unseen)
        out["truncated"].append(truncated_mean(mean, std, lower) + unseen)
        out["combined"].append(combined(mean, std, curve, lower) + unseen)
    return {method: np.stack(rows) for method, rows in out.items()}


def summary(error: np.ndarray) -> str:
    size = np.abs(error[~np.isnan(error)])
    return f"{np.median(size):.2f} / {size.mean():.2f} / {np.mean(size <= math.log(2)):.2f}"


def compare(folder: Path, target: float, seeds: int) -> None:
    goal = Goal(constraints=(Constraint("accuracy", ">=", target),))
    print(f"Target {target}. Median / mean |log ratio| / share within 2x.\n")
    print(f"| table | cut | runs | {' | '.join(METHODS)} |\n|---|---|---|{'---|' * len(METHODS)}")
    late, spread = [], []
    for table in TABLES:
        runs = read(folder, table, target)
        found = list(cases(runs))
        by_method = errors(runs, found, goal, seeds)
        for cut in CUTS:
            pick = np.array([c.cut == cut and c.reached for c in found])
            cells = [summary(by_method[method][:, pick]) for method in METHODS]
            print(f"| {table} | {cut} | {pick.sum()} | {' | '.join(cells)} |")
        here = np.array([c.reached for c in found])
        spread.append(f"{np.sqrt(np.nanmean(by_method['curve'][:, here] ** 2)):.2f}")
        never = np.array([not c.reached for c in found])
        shares = [np.nanmean(np.where(np.isnan(e), np.nan, e > 0)[:, never]) for e in by_method.values()]
        late.append(f"| {table} | {never.sum()} | {' | '.join(f'{share:.2f}' for share in shares)} |")
    print("\nRuns that never reached the target: share of the estimates that are beyond their real end.\n")
    print(f"| table | cuts | {' | '.join(METHODS)} |\n|---|---|{'---|' * len(METHODS)}")
    print("\n".join(late))
    print(f"\nRoot mean square error of the curve's log: {', '.join(spread)}")


def slopes(folder: Path, target: float) -> None:
    """Mean error of the curve by slope: what is chosen on one table must do on the others."""
    goal = Goal(constraints=(Constraint("accuracy", ">=", target),))
    print(f"\nTarget {target}. Mean |log ratio|, average over the five cuts, linear and curve by slope.\n")
    print(f"| table | linear | {' | '.join(str(s) for s in SLOPES)} |\n|---|---|{'---|' * len(SLOPES)}")
    chosen = censoring.SLOPE
    for table in TABLES:
        runs = read(folder, table, target)
        found = [c for c in cases(runs) if c.reached]
        truth = np.log([c.truth_s for c in found])
        cells = []
        for slope in (None, *SLOPES):
            censoring.SLOPE = slope or chosen
            error = np.abs(estimates(runs, found, goal, "curve" if slope else "linear") - truth)
            by_cut = [error[[c.cut == cut for c in found]].mean() for cut in CUTS]
            cells.append(f"{np.mean(by_cut):.3f}")
        print(f"| {table} | {' | '.join(cells)} |")
    censoring.SLOPE = chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder that holds tuning/*.csv")
    parser.add_argument("--target", type=float, default=0.85)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    folder = data_folder(given=given.data) / "tuning"
    compare(folder, given.target, given.seeds)
    for target in (given.target, 0.7, 0.8):
        slopes(folder, target)
    runs = read(folder, "trimtuner_cnn", given.target)
    found = [c for c in cases(runs) if c.reached]
    clock = time.perf_counter()
    estimates(runs, found, Goal(constraints=(Constraint("accuracy", ">=", given.target),)), "curve")
    print(f"\nOne curve estimate: {(time.perf_counter() - clock) / len(found) * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
