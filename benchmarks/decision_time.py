"""How long a decision takes, on one core, and how that grows with configurations and samples.

python benchmarks/decision_time.py
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from prudent.core.parameters import Categorical, Ordinal
from prudent.core.ranges import Integer
from prudent.core.seeds import rng_for
from prudent.core.space import Space
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Trial

MACHINES = {"small": 0.023, "medium": 0.046, "xlarge": 0.186, "2xlarge": 0.371}


def space_of(size: int) -> Space:
    """A space of about `size` configurations, shaped like a distributed training job."""
    counts = max(size // (4 * 3 * 2 * 2), 1)
    return Space(
        [
            Categorical("machine", tuple(MACHINES)),
            Integer("count", 1, counts),
            Ordinal("learning_rate", (1e-5, 1e-4, 1e-3), log=True),
            Ordinal("batch", (16, 256), log=True),
            Ordinal("synchronous", (0, 1)),
        ]
    )


def price(configuration: dict[str, object]) -> float:
    return MACHINES[str(configuration["machine"])] * (int(str(configuration["count"])) + 2)


def run_time_s(configuration: dict[str, object], noise: float) -> float:
    """A made-up but plausible run time: work shared out, overhead per machine, a learning rate that suits."""
    count, rate = int(str(configuration["count"])), float(str(configuration["learning_rate"]))
    speed = MACHINES[str(configuration["machine"])] ** 0.8 * count**0.7
    return 20.0 / speed * (1 + abs(np.log10(rate) + 4)) * float(np.exp(noise)) + 0.2 * count


def decision_s(size: int, samples: int, repeats: int = 5, **options: object) -> float:
    """Median CPU seconds of one decision with so many trials known."""
    spent = []
    for seed in range(repeats + 1):
        rng = rng_for(seed, "benchmark", size, samples)
        space = space_of(size)
        trials = [
            Trial(0, configuration, "finished", seconds, 0.0, 0.0, {}, True)
            for configuration in space.sample(samples, rng)
            for seconds in [run_time_s(configuration, rng.normal(0, 0.1))]
        ]
        trials = [_with_cost(trial) for trial in trials]
        study = Study(
            space,
            "minimise cost_usd subject to time_s <= 1000",
            price,
            1e6,
            "lynceus",
            options,
            warm_start=trials,
        )
        _ = study.problem.everything
        clock = time.process_time()
        study.ask()
        spent.append(time.process_time() - clock)
    return statistics.median(spent[1:])


def _with_cost(trial: Trial) -> Trial:
    return Trial.from_dict({**trial.to_dict(), "cost_usd": price(trial.configuration) * trial.time_s / 3600})


def main() -> None:
    print("| surrogate | look-ahead | configurations | samples | decision, CPU ms |")
    print("|---|---|---|---|---|")
    for surrogate in ("gp", "trees"):
        for lookahead in (0, 1, 2):
            _row(surrogate, lookahead, 384, 30)
        for size, samples in ((10_000, 30), (100_000, 30), (384, 100), (384, 300), (1_536, 1_000)):
            _row(surrogate, 0, size, samples, repeats=2)
        for size in (10_000, 100_000):
            _row(surrogate, 1, size, 30, repeats=2)


def _row(surrogate: str, lookahead: int, size: int, samples: int, repeats: int = 5) -> None:
    cpu_s = decision_s(size, samples, repeats, surrogate=surrogate, lookahead=lookahead)
    print(f"| {surrogate} | {lookahead} | {size:,} | {samples:,} | {1000 * cpu_s:.0f} |", flush=True)


if __name__ == "__main__":
    main()
