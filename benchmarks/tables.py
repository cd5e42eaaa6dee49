"""The tables of measured runs that benchmarks play on, where they are present."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import prudent
from prudent.tuning.jobs.table import TableJob

if TYPE_CHECKING:
    import optuna

LYNCEUS = ("lynceus_cnn", "lynceus_rnn")
_PARAMETERS = ["vm_type", "n_workers", "learning_rate", "batch_size", "synchronous"]


SKIPPED = 77
"""The exit code of a benchmark without its data, as test programs have it: `make bench` goes on."""


def data_folder(kind: str = "tuning", given: Path | None = None) -> Path:
    """Where data of this kind are: `given`, PRUDENT_DATA, or ../shared/data beside the repository."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = given or Path(os.environ.get("PRUDENT_DATA", default))
    if not (folder / kind).is_dir():
        print(
            f"Skipped: there is no {folder / kind}; python benchmarks/papers/data.py FOLDER gets the data, "
            "PRUDENT_DATA=FOLDER names them."
        )
        raise SystemExit(SKIPPED)
    return folder


@dataclass(frozen=True)
class Run:
    """What one configuration costs; billed for a minimum, and for the boot of its machines beside it."""

    time_s: float
    usd_per_h: float
    minimum_s: float = 0.0
    boot_s: float = 0.0

    @property
    def cost_usd(self) -> float:
        return max(self.time_s, self.minimum_s) * self.usd_per_h / 3600

    @property
    def boot_usd(self) -> float:
        return self.boot_s * self.usd_per_h / 3600

    @property
    def least_usd(self) -> float:
        """What is paid however soon it ends."""
        return self.minimum_s * self.usd_per_h / 3600


@dataclass(frozen=True)
class Bench:
    """A tuning problem with a known answer; `choices` spans the same configurations as a full grid."""

    job: TableJob
    goal: prudent.Goal
    max_time_s: float
    average_usd: float
    optimum_usd: float
    choices: dict[str, list[str]]
    by_choice: dict[tuple[str, ...], Run]


def lynceus_bench(name: str, minimum_s: float = 0.0, boot_s: float = 0.0) -> Bench:
    """Minimise the cost to reach the target within T_max, the 193rd smallest time.

    With a minimum and a boot time runs are billed as clouds bill.
    """
    path = data_folder() / "tuning" / f"{name}.csv"
    job = TableJob.read_csv(
        path,
        _PARAMETERS,
        time="time_to_target_s",
        measures=["accuracy"],
        progress=path.with_name(f"{name}_progress.csv"),
        minimum_s=minimum_s,
        boot_s=boot_s,
    )
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    billing = (minimum_s, boot_s)
    runs = [Run(float(row["time_to_target_s"]), float(row["price_usd_per_h"]), *billing) for row in rows]
    max_time_s = sorted(run.time_s for run in runs)[192]
    grid = ["vm_type", "total_worker_cores", *_PARAMETERS[2:]]
    choices: dict[str, list[str]] = {column: sorted({row[column] for row in rows}) for column in grid}
    by_choice = {tuple(row[c] for c in grid): run for row, run in zip(rows, runs, strict=True)}
    goal = prudent.Goal.parse(f"minimise cost_usd subject to time_s <= {max_time_s!r}")
    average = float(np.mean([run.time_s * run.usd_per_h / 3600 for run in runs]))
    optimum = min(run.cost_usd for run in runs if run.time_s <= max_time_s)
    return Bench(job, goal, max_time_s, average, optimum, choices, by_choice)


def suggested(trial: optuna.Trial, name: str, values: list[str]) -> str:
    """Numbers keep their order for TPE, which does better so."""
    try:
        ordered = sorted(values, key=float)
    except ValueError:
        return str(trial.suggest_categorical(name, values))
    return ordered[trial.suggest_int(name, 0, len(ordered) - 1)]
