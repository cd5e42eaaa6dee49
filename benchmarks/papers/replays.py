"""Strategies replayed on the papers' tables, many seeds in several processes."""

from __future__ import annotations

import csv
import math
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import prudent
from prudent.tuning.jobs.table import TableJob
from prudent.tuning.trial import CUT
from tables import data_folder

PARAMETERS = ["vm_type", "total_worker_cores", "learning_rate", "batch_size", "synchronous"]
NUMBERED = ["vm_size", "n_workers", *PARAMETERS[2:]]
SIZES = ("t2.small", "t2.medium", "t2.xlarge", "t2.2xlarge")
TARGET, LEAST_CORES, DONE_STEPS = 0.85, 32, 60


@dataclass(frozen=True)
class Effort:
    """How much is measured. chosen: somebody named the seeds, and all cells have so many."""

    seeds: int
    processes: int
    quick: bool
    depths: tuple[int, ...] = (0, 1, 2)
    chosen: bool = False

    def part(self, share: float) -> int:
        """The seeds of a cell that takes long: this share of all, unless somebody named them."""
        return self.seeds if self.chosen else max(2, round(share * self.seeds))


@dataclass(frozen=True)
class Problem:
    """A table with its constraint, its optimum, and the unit of budgets."""

    job: TableJob
    goal: str
    max_time_s: float
    optimum_usd: float
    average_usd: float
    distances: tuple[float, ...]
    """The cost over the optimum's, less one, of every configuration that keeps the limit, ascending."""
    whole_s: Mapping[str, float] = field(default_factory=dict)


@lru_cache
def lynceus_problem(
    table: str = "lynceus_cnn", least_cores: int = LEAST_CORES, ideal: bool = False, numbered: bool = False
) -> Problem:
    """The table with at least so many cores; T_max is kept by half of it. `ideal`: runs tell how far they
    are. `numbered`: machines are numbers from 0 and counted, as in the authors' code.

    The papers' data sets of the convolutional network have 288 configurations, those from 32 cores on: the
    plateau of costs 18 % above the optimum, where their CherryPick stays, is only there.
    """
    path = data_folder() / "tuning" / f"{table}.csv"
    with path.open(newline="") as file:
        rows = [
            {**row, "vm_size": str(SIZES.index(row["vm_type"]))}
            for row in csv.DictReader(file)
            if int(row["total_worker_cores"]) >= least_cores
        ]
    times = sorted(float(row["time_to_target_s"]) for row in rows)
    limit = times[len(times) // 2]
    with tempfile.TemporaryDirectory() as folder:
        part, traces = Path(folder) / path.name, path.with_name(f"{table}_progress.csv")
        _write(part, rows)
        if ideal:
            traces = Path(folder) / "done.csv"
            _write(traces, [each for row in rows for each in _done(row)])
        parameters = NUMBERED if numbered else PARAMETERS
        job = TableJob.read_csv(
            part, parameters, time="time_to_target_s", measures=["accuracy"], progress=traces
        )
    costs = sorted(
        float(row["time_to_target_s"]) * float(row["price_usd_per_h"]) / 3600
        for row in rows
        if float(row["time_to_target_s"]) <= limit
    )
    everything = [float(r["time_to_target_s"]) * float(r["price_usd_per_h"]) / 3600 for r in rows]
    goal = f"minimise cost_usd subject to time_s <= {limit!r}"
    distances = tuple(cost / costs[0] - 1 for cost in costs)
    return Problem(job, goal, limit, costs[0], float(np.mean(everything)), distances)


def _done(row: dict[str, str]) -> list[dict[str, object]]:
    """Reports of how far a run is, from which its whole length follows at any moment."""
    time_s = float(row["time_to_target_s"])
    return [
        {
            "config_id": row["config_id"],
            "elapsed_s": time_s * step / DONE_STEPS,
            "progress": step / DONE_STEPS,
        }
        for step in range(1, DONE_STEPS + 1)
    ]


def _write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@dataclass(frozen=True, eq=False)
class Contest:
    """A strategy with options on a problem: `budget` in average runs.

    As in the papers the limit is one of time. With time-outs the goal names the accuracy, too, which a line
    is drawn to; whoever is in time has reached it. share: of the seeds, where a cell takes long.
    """

    label: str
    strategy: str
    options: Mapping[str, Any]
    budget: float
    early: bool = False
    ideal: bool = False
    table: str = "lynceus_cnn"
    least_cores: int = LEAST_CORES
    numbered: bool = False
    share: float = 1.0


@dataclass(frozen=True)
class Score:
    """How a seed ended: distance from the optimum (inf without an answer), runs, seconds a decision.

    firsts: what the first runs cost, in average runs.
    error: the mean of |estimate - truth| / truth of the costs of runs that were cut, by a straight line.
    """

    distance: float
    runs: int
    decision_s: float
    error: float
    firsts: float = math.nan


def play(contest: Contest, seed: int) -> Score:
    problem = lynceus_problem(contest.table, contest.least_cores, contest.ideal, contest.numbered)
    goal = f"{problem.goal} and accuracy >= {TARGET}" if contest.early else problem.goal
    result = prudent.tune(
        problem.job, goal, contest.budget * problem.average_usd, contest.strategy,
        dict(contest.options), early_stop=contest.early, seed=seed,
    )  # fmt: skip
    distance = result.best.cost_usd / problem.optimum_usd - 1 if result.best else math.inf
    errors = []
    for trial in result.trials:
        reached = trial.measures.get("accuracy", 0.0)
        if trial.status == CUT and reached > 0 and "budget" not in trial.why:
            truth = problem.job.recorded(trial.configuration).time_s
            errors.append(abs(trial.time_s * max(TARGET / reached, 1.0) / truth - 1))
    decisions = [trial.decision_s for trial in result.trials]
    error = float(np.mean(errors)) if errors else math.nan
    firsts = sum(trial.spent_usd for trial in result.trials if trial.chosen.startswith("first look"))
    return Score(
        distance, len(result.trials), float(np.mean(decisions or [0.0])), error, firsts / problem.average_usd
    )


def play_all(contests: Sequence[Contest], effort: Effort) -> dict[Contest, list[Score]]:
    """Every seed of every contest."""
    with ProcessPoolExecutor(effort.processes) as workers:
        tasks = {
            contest: [workers.submit(play, contest, seed) for seed in range(effort.part(contest.share))]
            for contest in contests
        }
        return {contest: [task.result() for task in found] for contest, found in tasks.items()}


@dataclass(frozen=True)
class Summary:
    """Distances of all seeds: the mean of those with an answer, quantiles of all, the share with one."""

    mean: float
    p50: float
    p90: float
    p99: float
    answered: float
    runs_mean: float
    runs_p50: float
    decision_s: float
    error: float

    @classmethod
    def of(cls, scores: Sequence[Score]) -> Summary:
        distances = np.array([score.distance for score in scores])
        known = distances[np.isfinite(distances)]
        p50, p90, p99 = (float(np.quantile(distances, q, method="higher")) for q in (0.5, 0.9, 0.99))
        runs = [score.runs for score in scores]
        errors = [score.error for score in scores if math.isfinite(score.error)]
        return cls(
            float(known.mean()) if len(known) else math.inf, p50, p90, p99, len(known) / len(distances),
            float(np.mean(runs)), float(np.median(runs)),
            float(np.mean([score.decision_s for score in scores])),
            float(np.mean(errors)) if errors else math.nan,
        )  # fmt: skip
