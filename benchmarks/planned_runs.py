"""What it is worth to end a study in time, when it is known how often its answer will run.

    python benchmarks/planned_runs.py                       # docs/explanation/benchmarks.md
    python benchmarks/planned_runs.py --families scout-many --seeds 1

Recorded jobs are replayed with money for 15 average runs. The bill of a study is what it spent and what the
planned runs of its answer then cost; a study that found nothing pays the dearest configuration that keeps the
limit. Three ways: all money is spent; the goal says how often its answer runs; and the best end that could be
known afterwards (the trial of the first study after which its bill is least). Geometric means, in bills of
the planned runs at the optimum.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np

import prudent
from family_jobs import Bench, problem_of, workloads_of
from prudent.tuning.result import Result

FAMILIES = ("scout-many", "multicloud", "lynceus")
PLANNED = (1, 10, 100, 1000)
BUDGET = 15.0


@dataclass(frozen=True)
class Bills:
    """What one study came to, over the bill of the planned runs at the optimum; and what it had spent."""

    whole: float
    spent: float


def bill(bench: Bench, result: Result, runs: int) -> Bills:
    best_usd = result.best.cost_usd if result.best else dearest(bench)
    return _bills(bench, result.spent_usd, best_usd, runs)


def known_afterwards(bench: Bench, result: Result, runs: int) -> Bills:
    """The end that would have been best, had one known."""
    found = [_bills(bench, 0.0, dearest(bench), runs)]
    spent_usd, best_usd = 0.0, dearest(bench)
    for trial in result.trials:
        spent_usd += trial.spent_usd
        if trial.feasible:
            best_usd = min(best_usd, trial.cost_usd)
            found.append(_bills(bench, spent_usd, best_usd, runs))
    return min(found[1:] or found, key=lambda one: one.whole)


def dearest(bench: Bench) -> float:
    able = [c for c in bench.choices if not c.fails and bench.goal.feasible(c.values)]
    return max(choice.cost_usd for choice in able)


def _bills(bench: Bench, spent_usd: float, best_usd: float, runs: int) -> Bills:
    return Bills((spent_usd + runs * best_usd) / (runs * bench.optimum), spent_usd / bench.average_usd)


def play(bench: Bench, seed: int) -> dict[tuple[str, int], Bills]:
    """One seed: a study that spends all, and one for each number of planned runs."""
    budget_usd = BUDGET * bench.average_usd
    whole = prudent.tune(bench.job, bench.goal, budget_usd, "prudent", early_stop=False, seed=seed)
    found = {}
    for runs in PLANNED:
        goal = replace(bench.goal, runs_planned=runs)
        ended = prudent.tune(bench.job, goal, budget_usd, "prudent", early_stop=False, seed=seed)
        found["all money", runs] = bill(bench, whole, runs)
        found["in time", runs] = bill(bench, ended, runs)
        found["known afterwards", runs] = known_afterwards(bench, whole, runs)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--workloads", type=int, default=8, help="of each family, at the most")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    print("| family | planned runs | all money: bill, avg spent | in time | known afterwards |")
    print("|---|---|---|---|---|")
    for family in args.families:
        played = []
        for workload in workloads_of(family, args.half)[: args.workloads]:
            bench = problem_of(family, workload, "full").asked("cost@50")
            if bench is not None:
                played += [play(bench, seed) for seed in range(args.seeds)]
        for runs in PLANNED:
            cells = []
            for way in ("all money", "in time", "known afterwards"):
                some = [one[way, runs] for one in played]
                whole = float(np.exp(np.mean([np.log(one.whole) for one in some])))
                cells.append(f"{whole:.2f}, {np.mean([one.spent for one in some]):.1f}")
            print(f"| `{family}` | {runs:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
