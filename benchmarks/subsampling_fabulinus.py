"""Best accuracy on the full data within a cost limit, learnt on parts of the data: regret by money spent.

The table is trimtuner_cnn: 288 configurations at 5 data fractions; the goal: the highest accuracy at full
data with a run at full data of at most $0.1. After every trial the strategy is asked for its recommendation,
whose regret is the optimum's accuracy less its own at full data; one that breaks the limit counts accuracy
0. The first trials are included in the money. "full data" never runs on a part.

    OMP_NUM_THREADS=1 python benchmarks/subsampling_fabulinus.py [--seeds 30] [--only fabulinus gp-eic …]
        [--options '{"overhead_usd": 0.01}'] [--processes 2] [--data FOLDER] [--table NAME] [--limit 0.1]
    OMP_NUM_THREADS=1 python benchmarks/subsampling_fabulinus.py --decisions
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import prudent
from prudent.tuning.jobs.table import TableJob
from prudent.tuning.study.study import Study
from prudent.tuning.tune import Event, TrialEnded
from tables import data_folder, suggested

PARAMETERS = ["vm_type", "n_workers", "learning_rate", "batch_size", "synchronous"]
FRACTION = "data_fraction"
SPENT = (0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0)
REGRETS = (0.01, 0.004)


@dataclass(frozen=True)
class Case:
    """A strategy with its options, and what it may spend: full data costs more until it says anything."""

    strategy: str
    options: dict[str, Any] = field(default_factory=dict)
    budget_usd: float = 2.0
    early_stop: bool = True


CASES = {
    "fabulinus": Case("fabulinus"),
    "fabulinus, ES · CEA": Case("fabulinus", {"acquisition": "es"}),
    "fabulinus, trees": Case("fabulinus", {"surrogate": "trees"}),
    "fabulinus, as published": Case(
        "fabulinus",
        {"acquisition": "es", "curves": "paper", "start_fractions": "every", "start": "random", "beta": 0.1},
    ),
    "fabolas": Case("fabolas"),
    "gp-eic, full data": Case("gp-eic", budget_usd=12.0, early_stop=False),
    "gp-eic, full data, cut at the limit": Case("gp-eic", budget_usd=12.0),
    "hyperband": Case("hyperband", budget_usd=12.0),
    "bohb": Case("bohb", budget_usd=12.0),
    "random": Case("random", budget_usd=12.0),
}
OPTUNA = "optuna TPE, full data"


@dataclass(frozen=True)
class Setting:
    """What every case shares."""

    path: str
    limit_usd: float


@dataclass(frozen=True)
class Step:
    """After a trial: money spent, regret of the recommendation, whether that breaks the limit."""

    spent_usd: float
    regret: float
    broken: bool


@dataclass(frozen=True)
class Trace:
    """One seed: its steps after the first trials, all of them, and CPU seconds a decision."""

    steps: tuple[Step, ...]
    first_trials: int
    decision_s: float

    def regret_at(self, usd: float, worst: float) -> float:
        return next((s.regret for s in reversed(self.steps) if s.spent_usd <= usd + 1e-9), worst)


@lru_cache
def job_of(path: str) -> TableJob:
    return TableJob.read_csv(path, PARAMETERS, measures=["accuracy"], fraction=FRACTION)


class Judge:
    """What a recommendation is truly worth."""

    def __init__(self, setting: Setting) -> None:
        self.job, self._limit = job_of(setting.path), setting.limit_usd
        full = [c for c in self.job.space.configurations() if float(str(c[FRACTION])) == 1.0]
        self.optimum = max(self.worth(c) for c in full)

    def worth(self, configuration: dict[str, Any]) -> float:
        run = self.job.recorded({**configuration, FRACTION: 1.0})
        return run.measures["accuracy"] if run.time_s * run.usd_per_h / 3600 <= self._limit else 0.0

    def step(self, spent_usd: float, configuration: dict[str, Any] | None) -> Step:
        worth = 0.0 if configuration is None else self.worth(configuration)
        return Step(spent_usd, self.optimum - worth, configuration is not None and worth == 0.0)


def play(name: str, case: Case, setting: Setting, seed: int) -> Trace:
    judge = Judge(setting)
    goal = f"maximise accuracy at full data subject to cost_usd <= {setting.limit_usd} at full data"
    steps: list[Step] = []
    firsts = 0
    clock, judging = time.process_time(), 0.0

    def watch(event: Event, study: Study) -> None:
        nonlocal firsts, judging
        if isinstance(event, TrialEnded):
            begun = time.process_time()
            steps.append(judge.step(study.spent_usd, study.recommended))
            firsts += event.trial.chosen.startswith("first look")
            judging += time.process_time() - begun

    prudent.tune(
        judge.job, goal, case.budget_usd, case.strategy, case.options,
        early_stop=case.early_stop, seed=seed, watch=watch,
    )  # fmt: skip
    return Trace(tuple(steps), firsts, (time.process_time() - clock) / max(len(steps), 1))


def play_optuna(name: str, case: Case, setting: Setting, seed: int) -> Trace:
    """TPE with its constraints function; runs on the full data, each paid in full."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    judge = Judge(setting)
    with open(setting.path, newline="") as file:
        rows = [row for row in csv.DictReader(file) if float(row[FRACTION]) == 1.0]
    grid = ["vm_type", "total_worker_cores", *PARAMETERS[2:]]
    by_choice = {tuple(row[column] for column in grid): row for row in rows}
    choices = {column: sorted({row[column] for row in rows}) for column in grid}
    sampler = optuna.samplers.TPESampler(seed=seed, constraints_func=lambda t: (t.user_attrs["over"],))
    study = optuna.create_study(sampler=sampler, direction="maximize")
    steps: list[Step] = []
    spent, best, seen = 0.0, (-1.0, None), set()
    clock = time.process_time()
    for _ in range(2000):
        trial = study.ask()
        choice = tuple(suggested(trial, column, values) for column, values in choices.items())
        row = by_choice[choice]
        cost, accuracy = float(row["price_usd_per_h"]) * float(row["time_s"]) / 3600, float(row["accuracy"])
        if choice not in seen:
            if spent + cost > case.budget_usd:
                break
            seen.add(choice)
            spent += cost
            if cost <= setting.limit_usd and accuracy > best[0]:
                best = accuracy, row
            configuration = None if best[1] is None else _configuration(judge.job, best[1])
            steps.append(judge.step(spent, configuration))
        trial.set_user_attr("over", cost - setting.limit_usd)
        study.tell(trial, accuracy)
    return Trace(tuple(steps), 0, (time.process_time() - clock) / max(len(steps), 1))


def _configuration(job: TableJob, row: dict[str, str]) -> dict[str, Any]:
    return job.space.check({name: row[name] for name in [*PARAMETERS, FRACTION]})


def money_for(traces: Sequence[Trace], regret: float, worst: float) -> float:
    """The least money from which on the median regret stays at or below this; inf if it never does."""
    moments = sorted({step.spent_usd for trace in traces for step in trace.steps})
    medians = [np.median([trace.regret_at(usd, worst) for trace in traces]) for usd in moments]
    above = [place for place, median in enumerate(medians) if median > regret]
    after = above[-1] + 1 if above else 0
    return moments[after] if after < len(moments) else float("inf")


def report(name: str, traces: Sequence[Trace], worst: float, budget_usd: float) -> None:
    later = [step.broken for trace in traces for step in trace.steps[trace.first_trials :]]
    cells = []
    for usd in SPENT:
        regrets = [trace.regret_at(usd, worst) for trace in traces]
        cells.append(f"{np.median(regrets):.4f} ({np.mean(regrets):.3f})" if usd <= budget_usd else "")
    first = np.mean([t.steps[t.first_trials - 1].spent_usd if t.first_trials else 0.0 for t in traces])
    money = [f"${money_for(traces, regret, worst):.2f}" for regret in REGRETS]
    decision = np.median([trace.decision_s for trace in traces])
    runs = np.mean([len(trace.steps) for trace in traces])
    row = [name, *cells, *money, f"{np.mean(later):.3f}", f"${first:.3f}", f"{runs:.0f}", f"{decision:.2f}"]
    print("| " + " | ".join(row) + " |", flush=True)


def decisions(setting: Setting) -> None:
    """CPU seconds of one decision, by the number of samples."""
    print("| surrogate | samples | decision, CPU s |\n|---|---|---|")
    goal = f"maximise accuracy at full data subject to cost_usd <= {setting.limit_usd} at full data"
    job = job_of(setting.path)
    for label, options in (
        ("gp", {}),
        ("gp, ES · CEA on all", {"acquisition": "es", "beta": 1.0}),
        ("trees", {"surrogate": "trees"}),
    ):
        study = Study(
            job.space, goal, job.price, 1e6, "fabulinus", {"start_configurations": 17, **options},
            measures=job.measures, fraction=job.fraction, seed=1,
        )  # fmt: skip
        spent: list[float] = []
        while len(spent) < 205:
            clock = time.process_time()
            ask = study.ask()
            spent.append(time.process_time() - clock)
            assert ask is not None
            run = job.recorded(ask.configuration)
            study.tell(ask.number, time_s=run.time_s, measures=run.measures)
            if len(spent) in (25, 45, 65, 105, 205):
                print(f"| {label} | {len(spent) - 5} | {np.median(spent[-5:]):.2f} |", flush=True)


def main() -> None:
    names = [*CASES, OPTUNA]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=names, choices=names)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--budget", type=float, help="dollars; else what each case needs")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--table", default="trimtuner_cnn")
    parser.add_argument("--limit", type=float, default=0.1)
    parser.add_argument("--decisions", action="store_true", help="measure the time of a decision instead")
    args = parser.parse_args()
    setting = Setting(str((args.data or data_folder() / "tuning") / f"{args.table}.csv"), args.limit)
    if args.decisions:
        decisions(setting)
        return
    worst = Judge(setting).optimum
    head = [*(f"regret at ${usd:g}" for usd in SPENT), *(f"money for {r:g}" for r in REGRETS)]
    print(f"{args.seeds} seeds; optimum {worst:.5f}; regret: median (mean)\n")
    columns = ["strategy", *head, "broken", "first trials", "runs", "CPU s a run"]
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    with ProcessPoolExecutor(args.processes) as workers:
        for name in args.only:
            case = CASES.get(name, Case("optuna", budget_usd=12.0))
            budget_usd = args.budget or case.budget_usd
            if case.strategy in ("fabulinus", "fabolas"):
                case = Case(case.strategy, {**case.options, **args.options}, budget_usd, case.early_stop)
            else:
                case = Case(case.strategy, case.options, budget_usd, case.early_stop)
            game: Callable[..., Trace] = play_optuna if name == OPTUNA else play
            seeds = range(args.first_seed, args.first_seed + args.seeds)
            tasks = [workers.submit(game, name, case, setting, seed) for seed in seeds]
            report(name, [task.result() for task in tasks], worst, budget_usd)


if __name__ == "__main__":
    main()
