"""Families of tuning jobs from tables of measured runs: their workloads, goals and known answers."""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from prudent.core.money import Price
from prudent.tuning.goal import Goal
from prudent.tuning.jobs.table import MeasuredRun, ReplayedRun, TableJob
from prudent.tuning.trial import FAILED, FINISHED, Configuration, Outcome, Progress
from tables import data_folder

MODES = {"full": (0.0, 0.0), "early": (0.0, 0.0), "billed": (60.0, 40.0)}
"""Seconds billed at least, and of boot, by mode; runs are cut in all but the first."""

_LIMITS = tuple(f"{what}@{share}" for what in ("cost", "time") for share in (25, 50, 75))
CLUSTERS = (*_LIMITS, "cost")
GOALS = {
    "lynceus": CLUSTERS,
    "scout-many": CLUSTERS,
    "scout-one": CLUSTERS,
    "multicloud": CLUSTERS,
    "trimtuner": ("nephele", "full"),
    "yahpo-rpart": ("full",),
    "yahpo-lcbench": ("full",),
}
FAMILIES = tuple(GOALS)
_TABLES = {
    "lynceus": ("lynceus_cnn", "lynceus_rnn"),
    "scout-many": ("scout_multi_node",),
    "scout-one": ("scout_single_node",),
    "multicloud": ("multicloud",),
    "trimtuner": ("trimtuner_cnn",),
    "yahpo-rpart": ("yahpo_rpart",),
    "yahpo-lcbench": ("yahpo_lcbench",),
}
_TRAINING = ["vm_type", "n_workers", "learning_rate", "batch_size", "synchronous"]
_MOST_WORKLOADS = 20
"""Of a family with more of them, so many are played for each half."""


@dataclass(frozen=True)
class Cell:
    """What is compared: contenders at one goal, mode and budget of a family."""

    family: str
    goal: str
    mode: str
    budget: float


class FailingRun(ReplayedRun):
    """A recorded run that fails at its end."""

    def next(self, until_s: float) -> Progress | Outcome | None:
        event = super().next(until_s)
        if isinstance(event, Outcome) and event.status == FINISHED:
            return replace(event, status=FAILED, measures={}, why="failed when it was measured")
        return event


class MeasuredJob(TableJob):
    """A table of runs, some of which failed: their time is paid for, and they tell that they fail."""

    failing: frozenset[str] = frozenset()

    def start(self, configuration: Configuration, number: int) -> ReplayedRun:
        if self.space.key(configuration) in self.failing:
            return FailingRun(self.recorded(configuration), self.price(configuration))
        return super().start(configuration, number)

    def fails(self, configuration: Configuration) -> bool:
        return self.space.key(configuration) in self.failing


@dataclass(frozen=True)
class Choice:
    """What one configuration does."""

    configuration: Configuration
    run: MeasuredRun
    price: Price
    fails: bool

    @property
    def cost_usd(self) -> float:
        return self.price.cost_usd(self.run.time_s)

    @property
    def bill_usd(self) -> float:
        return self.price.bill_usd(self.run.time_s)

    @property
    def values(self) -> dict[str, float]:
        return {**self.run.measures, "time_s": self.run.time_s, "cost_usd": self.cost_usd}


@dataclass(frozen=True)
class Bench:
    """A job with a goal and the answer to it; `average_usd` is the unit of money."""

    job: MeasuredJob
    goal: Goal
    choices: tuple[Choice, ...]
    average_usd: float
    optimum: float


@dataclass(frozen=True)
class MeasuredProblem:
    """A job of which every run is known."""

    job: MeasuredJob
    choices: tuple[Choice, ...]
    full: tuple[Choice, ...]

    def asked(self, name: str) -> Bench | None:
        """With a goal; None where no configuration can answer it."""
        goal = Goal.parse(self._sentence(name))
        able = self.full if goal.speaks_of_full_data else self.choices
        answers = [c.values[goal.measure] for c in able if not c.fails and goal.feasible(c.values)]
        if not answers:
            return None
        average = float(np.mean([choice.bill_usd for choice in self.full]))
        best = min(answers) if goal.minimise else max(answers)
        return Bench(self.job, goal, self.choices, average, best)

    def _sentence(self, name: str) -> str:
        working = [choice for choice in self.full if not choice.fails]
        if name == "full":
            bound = float(np.quantile([choice.cost_usd for choice in working], 0.5))
            return f"maximise accuracy at full data subject to cost_usd <= {bound!r} at full data"
        if name == "nephele":
            return "minimise cost_usd subject to accuracy >= 0.85 and time_s <= 300"
        what, _, share = name.partition("@")
        if not share:
            return "minimise cost_usd"
        measure, other = ("cost_usd", "time_s") if what == "cost" else ("time_s", "cost_usd")
        limits = sorted(choice.values[other] for choice in working)
        place = min(max(round(len(limits) * int(share) / 100) - 1, 0), len(limits) - 1)
        return f"minimise {measure} subject to {other} <= {limits[place]!r}"


def half_of(workload: str) -> int:
    """0 or 1, by the name alone."""
    return hashlib.sha256(workload.encode()).digest()[0] % 2


def workloads_of(family: str, half: str) -> list[str]:
    """The workloads of a half; the only one of a family is in both."""
    names = sorted(_rows(family), key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    if half == "all" or len(names) == 1:
        return names
    # Every second one by hash: halves of equal size, whatever the names.
    return names[0 if half == "choose" else 1 :: 2][:_MOST_WORKLOADS]


@lru_cache(maxsize=2)
def _rows(family: str) -> dict[str, list[dict[str, str]]]:
    """The rows of each workload; those without a time told nothing."""
    out: dict[str, list[dict[str, str]]] = {}
    for table in _TABLES[family]:
        with (data_folder() / "tuning" / f"{table}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                parts = [row[c] for c in ("workload", "framework", "datasize") if c in row]
                if row["time_s"]:
                    out.setdefault(" ".join(parts) or table, []).append(row)
    return {name: rows for name, rows in out.items() if len(rows) >= 10}


def problem_of(family: str, workload: str, mode: str, readings: bool = False) -> MeasuredProblem:
    """A workload as a job; its runs tell what they did to their machines, if that is asked for and known."""
    minimum_s, boot_s = MODES[mode]
    rows = _rows(family)[workload]
    table = workload if family in ("lynceus", "trimtuner") else _TABLES[family][0]
    path = data_folder() / "tuning" / f"{table}.csv"
    fraction = {"trimtuner": "data_fraction"}.get(family, "fraction" if family.startswith("yahpo") else None)
    measures = ["accuracy"] if "accuracy" in rows[0] else []
    time, progress = "time_s", None
    if family in ("lynceus", "trimtuner"):
        parameters = _TRAINING
        progress = path.with_name(f"{table}_progress.csv")
        time = "time_to_target_s" if family == "lynceus" else "time_s"
    elif family.startswith("yahpo"):
        parameters = list(rows[0])[1 : list(rows[0]).index("fraction")]
    else:
        parameters = ["vm_type", "n_vms"] if family != "scout-one" else ["vm_type"]
    job = _read(
        path, workload, family, parameters, time, measures, fraction, progress, minimum_s, boot_s, readings
    )
    job.failing = frozenset(
        job.space.key({name: _value(row[name]) for name in parameters})
        for row in rows
        if row.get("completed") == "0"
    )
    known = (Choice(c, job.recorded(c), job.price(c), job.fails(c)) for c in job.space.configurations())
    choices = tuple(known)
    full = tuple(c for c in choices if fraction is None or float(str(c.configuration[fraction])) == 1.0)
    return MeasuredProblem(job, choices, full)


def _read(
    path: Path,
    workload: str,
    family: str,
    parameters: list[str],
    time: str,
    measures: list[str],
    fraction: str | None,
    progress: Path | None,
    minimum_s: float,
    boot_s: float,
    readings: bool,
) -> MeasuredJob:
    """Read the rows of one workload as `prudent tune` reads a table."""
    import tempfile

    rows, beside = _rows(family)[workload], path.with_name(f"{path.stem}_readings.csv")
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / path.name
        with part.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return MeasuredJob.read_csv(  # type: ignore[return-value]
            part, parameters, time=time, measures=measures, fraction=fraction, progress=progress,
            minimum_s=minimum_s, boot_s=boot_s, readings=beside if readings and beside.exists() else (),
        )  # fmt: skip


def _value(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text
