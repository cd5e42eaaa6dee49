"""Studies that replay measured runs, billed as a cloud bills; metered by a reader of the same table."""

from __future__ import annotations

import csv
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import prudent
from money.played import Played

GOALS = ("minimise cost_usd", "minimise time_s subject to accuracy >= 0.7", "maximise accuracy")
STRATEGIES = ("random", "grid", "lynceus", "obol", "gp-ei", "prudent")


class Watched(prudent.TableJob):
    """Notes how long every run was there: until it ended, or until somebody cut it."""

    there_s: dict[int, float]

    def start(self, configuration: Any, number: int) -> Any:
        run = super().start(configuration, number)
        self.there_s[number] = 0.0
        cut, following = run.cut, run.next

        def next_(until_s: float) -> Any:
            event = following(until_s)
            self.there_s[number] = max(self.there_s[number], getattr(event, "time_s", 0.0))
            return event

        def cut_(at_s: float, why: str) -> Any:
            self.there_s[number] = at_s
            return cut(at_s, why)

        run.next, run.cut = next_, cut_
        return run


def play(seed: int, folder: Path) -> Played:
    """Every trial of the answer is billed again from the table alone."""
    chance = random.Random(f"replayed {seed}")
    minimum_s, boot_s = chance.choice([0.0, 60.0]), chance.choice([0.0, 30.0, 90.0])
    times_s, prices = write_table(folder / "runs.csv", chance)
    there_s: dict[int, float] = {}
    job = Watched.read_csv(
        folder / "runs.csv", ["vm", "workers"], measures=["accuracy"], minimum_s=minimum_s, boot_s=boot_s
    )
    job.there_s = there_s
    mean_usd = sum(prices[key] * times_s[key] / 3600 for key in times_s) / len(times_s)
    budget_usd = mean_usd * chance.uniform(0.5, 12.0)
    parallel = chance.randint(1, 4)
    known = [name for name in STRATEGIES if name in prudent.strategies()]
    result = prudent.tune(
        job,
        chance.choice(
            ["minimise cost_usd", "minimise time_s subject to accuracy >= 0.7", "maximise accuracy"]
        ),
        budget_usd,
        chance.choice(known),
        seed=seed,
        parallel=parallel,
    )
    metered_usd = 0.0
    for trial in result.trials:
        key = (str(trial.configuration["vm"]), str(trial.configuration["workers"]))
        seen_s = there_s.get(trial.number, 0.0)  # one that could not be the answer is not begun
        assert seen_s <= boot_s + times_s[key] + 1e-9, "it was cut after it had ended"
        lasted_s = boot_s + times_s[key] if trial.finished else seen_s
        metered_usd += prices[key] * (max(lasted_s, minimum_s) if lasted_s else 0.0) / 3600
    return Played(
        "tune, replayed",
        seed,
        budget_usd,
        metered_usd,
        result.spent_usd,
        0.0,
        max(result.spent_usd - budget_usd, 0.0),
        troubles=Counter(cut=sum(not trial.finished for trial in result.trials)),
    )


def write_table(
    path: Path, chance: random.Random
) -> tuple[dict[tuple[str, str], float], dict[tuple[str, str], float]]:
    """A job that gets faster with machines up to a point; answers its times and prices by configuration."""
    times_s, prices = {}, {}
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["vm", "workers", "time_s", "price_usd_per_h", "accuracy"])
        for vm, speed, usd_per_h in (("small", 1.0, 0.05), ("medium", 1.9, 0.1), ("large", 3.5, 0.2)):
            for workers in (1, 2, 4, 8, 16):
                time_s = 900 / (speed * workers**0.7) * math.exp(chance.gauss(0.0, 0.4))
                key = (vm, str(workers))
                times_s[key], prices[key] = round(time_s, 3), usd_per_h * workers
                table.writerow([vm, workers, times_s[key], prices[key], round(chance.uniform(0.5, 0.95), 3)])
    return times_s, prices
