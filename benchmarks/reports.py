"""How long the report of a study takes, by the number of its trials: python benchmarks/reports.py"""

from __future__ import annotations

import time
from dataclasses import replace

import prudent
from prudent.reports.tuning import tuning_report
from prudent.tuning.problem import Problem

SIZES = (50, 100, 200, 340, 1000)
_SPACE = {
    "workers": {"integer": [1, 16]},
    "rate": {"log": [1e-4, 1e-1]},
    "batch": [16, 64, 256],
    "kind": ["plain", "fancy"],
}


def simulated(workers: int, rate: float, batch: int, kind: str) -> object:
    """A run that tells how far it is, so that many can be cut half-way."""
    time_s = 600.0 * (2.0 if kind == "fancy" else 1.0) / workers**0.7 + batch * rate * 40.0
    for tenth in range(1, 10):
        yield {"accuracy": 0.9 - rate, "elapsed_s": time_s * tenth / 10, "progress": tenth / 10}
    yield {"accuracy": 0.9 - rate, "time_s": time_s}


def main() -> None:
    space = prudent.Space.parse(_SPACE)
    job = prudent.FunctionJob(simulated, space, measures=["accuracy"], price="0.1 * workers", virtual=True)
    goal = prudent.Goal.parse("minimise cost_usd subject to accuracy >= 0.85")
    result = prudent.tune(job, goal, strategy="random", max_trials=max(SIZES))
    problem = Problem(job.space, goal, job.price, ("accuracy",))
    tuning_report(replace(result, trials=result.trials[:20]), problem)  # compile first
    print("| trials | cut | s on one core | MB |\n|---|---|---|---|")
    for size in SIZES:
        part = replace(result, trials=result.trials[:size], entries=result.entries[:size])
        begun = time.process_time()
        page = tuning_report(part, problem)
        seconds = time.process_time() - begun
        cut = sum(trial.status == "cut" for trial in part.trials)
        print(f"| {size} | {cut} | {seconds:.1f} | {len(page) / 1e6:.1f} |", flush=True)


if __name__ == "__main__":
    main()
