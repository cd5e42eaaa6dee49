"""How often, how near and how quickly strategies find the cheapest configuration, by money spent.

    python benchmarks/tuning.py                     # everything, 50 seeds: docs/explanation/benchmarks.md
    python benchmarks/tuning.py --seeds 10 --contenders lynceus "optuna TPE" --modes full
    python benchmarks/tuning.py --minimum 60 --boot 90 --contenders lynceus random   # billed as clouds bill

Money is counted in the average cost of a configuration ("avg"). A run that the rest cannot pay is cut there.
The tables of measured runs are looked for in PRUDENT_DATA or ../shared/data, see `tables.py`.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

import prudent
from tables import LYNCEUS, Bench, lynceus_bench, suggested

BUDGETS = {"full": (1, 2, 4, 8, 15), "early": (0.5, 1, 2, 4)}


@dataclass(frozen=True)
class Score:
    """How one seed ended: cost over optimum, runs made, mean decision CPU seconds."""

    cno: float
    runs: int
    decision_s: float


def ours(strategy: str, **options: object) -> Callable[[Bench, float, bool, int], Score]:
    def play(bench: Bench, budget_usd: float, early: bool, seed: int) -> Score:
        clock = time.process_time()
        result = prudent.tune(
            bench.job, bench.goal, budget_usd, strategy, options, early_stop=early, seed=seed
        )
        spent_s = time.process_time() - clock
        assert result.spent_usd <= budget_usd + 1e-9, "the budget was overrun"
        cost = result.best.cost_usd if result.best else np.inf
        return Score(cost / bench.optimum_usd, len(result.trials), spent_s / max(len(result.trials), 1))

    return play


def optuna_tpe(bench: Bench, budget_usd: float, early: bool, seed: int) -> Score:
    """Optuna's TPE with its constraints function, in the same game: same prices, same cuts, same budget."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(
        seed=seed, constraints_func=lambda trial: (trial.user_attrs["violation"],)
    )
    study = optuna.create_study(sampler=sampler)
    left, best, seen, clock = budget_usd, np.inf, {}, time.process_time()
    for _ in range(2000):
        if left <= 1e-9 or len(seen) == len(bench.by_choice):
            break
        trial = study.ask()
        choice = tuple(suggested(trial, name, values) for name, values in bench.choices.items())
        if choice not in seen:
            run = bench.by_choice[choice]
            cap = min(bench.max_time_s * run.usd_per_h / 3600, best) if early else np.inf
            paid = max(min(max(min(run.cost_usd, cap), run.least_usd), left - run.boot_usd), 0.0)
            left -= run.boot_usd + paid
            whole = paid >= run.cost_usd
            if whole and run.time_s <= bench.max_time_s:
                best = min(best, paid)
            over = (run.time_s if whole else bench.max_time_s * 1.01) - bench.max_time_s
            seen[choice] = (paid, over if whole or not np.isfinite(best) else 0.0)
        trial.set_user_attr("violation", seen[choice][1])
        study.tell(trial, seen[choice][0])
    spent_s = time.process_time() - clock
    return Score(best / bench.optimum_usd, len(seen), spent_s / max(len(seen), 1))


CONTENDERS: dict[str, Callable[[Bench, float, bool, int], Score]] = {
    "lynceus": ours("lynceus"),
    "prudent": ours("prudent"),
    "lynceus, look-ahead 1": ours("lynceus", lookahead=1),
    "lynceus, look-ahead 2": ours("lynceus", lookahead=2),
    "lynceus, trees": ours("lynceus", surrogate="trees"),
    "lynceus, Latin start": ours("lynceus", start="latin"),
    "obol (as published)": ours("obol"),
    "gp-eic": ours("gp-eic"),
    "cherrypick": ours("cherrypick"),
    "optuna TPE": optuna_tpe,
    "random": ours("random"),
}


@lru_cache
def _bench(name: str, minimum_s: float, boot_s: float) -> Bench:
    return lynceus_bench(name, minimum_s, boot_s)


def _play(task: tuple[str, str, str, float, int, tuple[float, float]]) -> Score:
    contender, table, mode, budget, seed, billing = task
    bench = _bench(table, *billing)
    return CONTENDERS[contender](bench, budget * bench.average_usd, mode == "early", seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--modes", nargs="*", default=["full", "early"], choices=["full", "early"])
    parser.add_argument("--tables", nargs="*", default=list(LYNCEUS), choices=list(LYNCEUS))
    parser.add_argument("--budgets", nargs="*", type=float)
    parser.add_argument("--minimum", type=float, default=0.0, help="seconds that are billed at least")
    parser.add_argument("--boot", type=float, default=0.0, help="seconds of boot that are billed, too")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with ProcessPoolExecutor(args.workers) as workers:
        for mode, table in itertools.product(args.modes, args.tables):
            rules = "runs in full" if mode == "full" else "with early time-out"
            print(f"\n### {table}, {rules}, {args.seeds} seeds\n")
            print("| strategy | budget (avg) | found | CNO median | CNO p90 | runs | decision, CPU ms |")
            print("|---|---|---|---|---|---|---|")
            for contender, budget in itertools.product(args.contenders, args.budgets or BUDGETS[mode]):
                billing = (args.minimum, args.boot)
                tasks = [(contender, table, mode, budget, seed, billing) for seed in range(args.seeds)]
                _row(contender, budget, list(workers.map(_play, tasks)))


def _row(contender: str, budget: float, scores: list[Score]) -> None:
    cno = np.array([score.cno for score in scores])
    runs = np.mean([score.runs for score in scores])
    decision_ms = 1000 * np.median([score.decision_s for score in scores])
    found, worst = np.mean(cno < 1 + 1e-9), np.quantile(cno, 0.9, method="higher")
    print(
        f"| {contender} | {budget:g} | {found:.2f} | {np.median(cno):.2f} | {worst:.2f} "
        f"| {runs:.0f} | {decision_ms:.0f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
