"""How the default fares on every family of jobs, beside all contenders, by what money it had.

    python benchmarks/families.py --quick                         # minutes: a few goals, budgets and seeds
    python benchmarks/families.py --half report --seeds 5         # docs/explanation/benchmarks.md
    python benchmarks/families.py --families scout-many --contenders default gp-eic --keep /tmp/played.jsonl
    python benchmarks/families.py --families scout-many --contenders "default with readings" default

Settings are chosen on one half of each family's workloads (`--half choose`) and reported on the other; a
workload's half follows from a hash of its name. Money is counted in the average bill of a configuration
("avg"). The score of a study is its answer over the optimum (CNO), 5 where nothing keeps the goal; at full
data it is the regret of what is recommended. `--keep` remembers what was played, so that only what is new
is played again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from family_contenders import CONTENDERS, WITH_READINGS, Played, play
from family_jobs import FAMILIES, GOALS, MODES, Cell, problem_of, workloads_of

BUDGETS = (2.0, 3.0, 6.0, 9.0, 15.0)
QUICK_BUDGETS, QUICK_GOALS = (3.0, 9.0), ("cost@50", "time@50", "cost")
BEHIND, FAR_BEHIND = 0.05, 0.15
BEHIND_REGRET = 0.005
"""At full data the default may be this much accuracy behind."""


@dataclass(frozen=True)
class Task:
    """One study to play."""

    cell: Cell
    workload: str
    contender: str
    seed: int

    @property
    def key(self) -> str:
        return json.dumps([*asdict(self.cell).values(), self.workload, self.contender, self.seed])


@lru_cache(maxsize=4)
def _problem(family: str, workload: str, mode: str, readings: bool):  # type: ignore[no-untyped-def]
    return problem_of(family, workload, mode, readings)


def _run(task: Task) -> Played | None:
    told = task.contender.endswith(WITH_READINGS)
    problem = _problem(task.cell.family, task.workload, task.cell.mode, told)
    bench = problem.asked(task.cell.goal)
    if bench is None:
        return None
    return play(task.contender, bench, task.cell.budget, task.cell.mode, task.seed)


def tasks_of(args: argparse.Namespace) -> Iterator[Task]:
    """Everything to be played, workload by workload so that tables are read once."""
    for family in args.families:
        goals = [goal for goal in GOALS[family] if not args.goals or goal in args.goals]
        for workload, mode in itertools.product(workloads_of(family, args.half), MODES):
            if args.modes and mode not in args.modes:
                continue
            for goal, budget, contender in itertools.product(goals, args.budgets, args.contenders):
                for seed in range(args.seeds):
                    yield Task(Cell(family, goal, mode, budget), workload, contender, seed)


def main() -> None:
    args = _arguments()
    played: dict[str, Played | None] = {}
    if args.keep and args.keep.exists():
        for line in args.keep.read_text().splitlines():
            key, value = json.loads(line)
            played[key] = None if value is None else Played(*value)
    tasks = list(tasks_of(args))
    again = [task for task in tasks if task.key not in played or task.contender in args.again]
    clock = time.monotonic()
    with ProcessPoolExecutor(min(args.workers, 2)) as workers:
        answers = workers.map(_run, again, chunksize=max(1, min(25, len(again) // 50)))
        for task, answer in zip(again, answers, strict=True):
            played[task.key] = answer
    if args.keep and again:
        with args.keep.open("a") as file:
            for task in again:
                answer = played[task.key]
                value = None if answer is None else list(asdict(answer).values())
                file.write(json.dumps([task.key, value]) + "\n")
    print(f"{len(again)} studies played in {time.monotonic() - clock:.0f} s", file=sys.stderr)
    scores: dict[Cell, dict[str, list[Played]]] = defaultdict(lambda: defaultdict(list))
    for task in tasks:
        answer = played[task.key]
        if answer is not None:
            scores[task.cell][task.contender].append(answer)
    for family in args.families:
        report(family, {cell: found for cell, found in scores.items() if cell.family == family}, args)


def report(family: str, scores: dict[Cell, dict[str, list[Played]]], args: argparse.Namespace) -> None:
    """The family's tables, and where the first contender is behind."""
    if not scores:
        return
    is_regret = all("full" in cell.goal for cell in scores)
    unit = "mean regret" if is_regret else "geometric mean of CNO (share that found something)"
    goals = sorted({(cell.goal, cell.mode) for cell in scores})
    if not args.brief:
        for goal, mode in goals:
            print(f"\n### {family}: {goal}, {mode}: {unit}\n")
            _table(scores, [c for c in scores if (c.goal, c.mode) == (goal, mode)], args.contenders)
    print(f"\n### {family}: all goals, {unit}\n")
    print("| contender | " + " | ".join(f"{b:g} avg" for b in args.budgets) + " | all | decision, CPU ms |")
    print("|---|" + "---|" * (len(args.budgets) + 2))
    for contender in args.contenders:
        row = [_figure(_pooled(scores, contender, budget), is_regret) for budget in args.budgets]
        everything = _pooled(scores, contender, None)
        ms = 1000 * float(np.median([one.decision_s for one in everything]))
        print(f"| {contender} | {' | '.join(row)} | {_figure(everything, is_regret)} | {ms:.1f} |")
    _behind(scores, args.contenders, is_regret)
    sys.stdout.flush()


def _table(scores: dict[Cell, dict[str, list[Played]]], cells: list[Cell], contenders: list[str]) -> None:
    cells = sorted(cells, key=lambda cell: cell.budget)
    print("| contender | " + " | ".join(f"{cell.budget:g} avg" for cell in cells) + " |")
    print("|---|" + "---|" * len(cells))
    for contender in contenders:
        row = [_figure(scores[cell][contender], "full" in cell.goal) for cell in cells]
        print(f"| {contender} | {' | '.join(row)} |")


def _behind(scores: dict[Cell, dict[str, list[Played]]], contenders: list[str], is_regret: bool) -> None:
    """The cells in which the first contender is behind by more than is allowed, and by more than chance."""
    ours, others = contenders[0], contenders[1:]
    if not others:
        return
    within, worst = 0, 0.0
    for cell, found in sorted(scores.items(), key=lambda item: astuple(item[0])):
        best = min(others, key=lambda name: _centre(found[name], is_regret))
        gap, error = _difference(found[ours], found[best], is_regret)
        allowed = BEHIND_REGRET if is_regret else BEHIND
        worst = max(worst, gap)
        if gap <= max(allowed, error):
            within += 1
            continue
        print(
            f"behind: {cell.goal}, {cell.mode}, {cell.budget:g} avg: {gap:+.3f} ± {error:.3f} to {best} "
            f"({_figure(found[ours], is_regret)} to {_figure(found[best], is_regret)})"
        )
    least = min(np.mean([one.found for one in found[ours]]) for found in scores.values())
    print(
        f"{ours}: within {BEHIND_REGRET if is_regret else BEHIND} of the best, or the error, in {within} of "
        f"{len(scores)} cells ({within / len(scores):.0%}); worst {worst:+.3f}; least share found {least:.2f}"
    )


def astuple(cell: Cell) -> tuple[str, str, str, float]:
    return cell.family, cell.goal, cell.mode, cell.budget


def _pooled(
    scores: dict[Cell, dict[str, list[Played]]], contender: str, budget: float | None
) -> list[Played]:
    cells = (cell for cell in scores if budget is None or cell.budget == budget)
    return [one for cell in cells for one in scores[cell][contender]]


def _values(found: Iterable[Played], is_regret: bool) -> np.ndarray:
    scores = np.array([one.score for one in found])
    return scores if is_regret else np.log(np.maximum(scores, 1e-9))


def _centre(found: list[Played], is_regret: bool) -> float:
    mean = float(np.mean(_values(found, is_regret)))
    return mean if is_regret else float(np.exp(mean))


def _difference(ours: list[Played], other: list[Played], is_regret: bool) -> tuple[float, float]:
    """By how much ours is worse (a share, or regret), and the standard error; studies are paired."""
    gaps = _values(ours, is_regret) - _values(other, is_regret)
    mean, error = float(gaps.mean()), float(gaps.std(ddof=min(1, len(gaps) - 1)) / np.sqrt(len(gaps)))
    return (mean, error) if is_regret else (float(np.expm1(mean)), error)


def _figure(found: list[Played], is_regret: bool) -> str:
    share = np.mean([one.found for one in found])
    return f"{_centre(found, is_regret):.3f}" + ("" if is_regret else f" ({share:.2f})")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--contenders", nargs="*", default=[*CONTENDERS], help="the first is compared")
    parser.add_argument("--half", default="report", choices=["choose", "report", "all"])
    parser.add_argument("--goals", nargs="*")
    parser.add_argument("--modes", nargs="*", choices=list(MODES))
    parser.add_argument("--budgets", nargs="*", type=float)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="a file that remembers what was played")
    parser.add_argument("--again", nargs="*", default=[], help="contenders to be played again all the same")
    parser.add_argument("--brief", action="store_true", help="one table for each family")
    parser.add_argument("--quick", action="store_true", help="fewer goals, budgets and seeds")
    args = parser.parse_args()
    args.budgets = args.budgets or list(QUICK_BUDGETS if args.quick else BUDGETS)
    args.seeds = args.seeds or (2 if args.quick else 5)
    args.goals = args.goals or (list(QUICK_GOALS) if args.quick else None)
    return args


if __name__ == "__main__":
    main()
