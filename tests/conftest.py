"""A table of measured runs made on the spot, for every test that replays one."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from prudent.tuning.jobs.table import TableJob


def _write_runs(folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """72 runs of a job that gets faster with workers up to a point, and what they showed on the way."""
    rng = np.random.default_rng(seed)
    runs, progress = folder / "runs.csv", folder / "progress.csv"
    with runs.open("w", newline="") as one, progress.open("w", newline="") as other:
        table, traces = csv.writer(one), csv.writer(other)
        table.writerow(["id", "vm", "workers", "rate", "time_s", "price_usd_per_h", "accuracy"])
        traces.writerow(["id", "elapsed_s", "accuracy"])
        number = 0
        for vm, speed, usd_per_h in (("small", 1.0, 0.05), ("medium", 1.9, 0.1), ("large", 3.5, 0.2)):
            for workers in (1, 2, 4, 8, 16, 32):
                for rate in (0.001, 0.01, 0.1, 1.0):
                    work = 900 * (1 + abs(np.log10(rate) + 2))
                    time_s = work / (speed * workers**0.7) + 3 * workers
                    time_s *= float(np.exp(rng.normal(0, 0.1)))
                    accuracy = 0.9 - 0.08 * abs(np.log10(rate) + 2)
                    table.writerow(
                        [number, vm, workers, rate, f"{time_s:.3f}", usd_per_h * workers, f"{accuracy:.4f}"]
                    )
                    for check in range(1, 6):
                        seen = accuracy * (1 - 0.5**check)
                        traces.writerow([number, f"{time_s * check / 6:.3f}", f"{seen:.4f}"])
                    number += 1
    return runs, progress


@pytest.fixture
def write_runs() -> Callable[..., tuple[Path, Path]]:
    """Writes `runs.csv` and `progress.csv` into a folder."""
    return _write_runs


@pytest.fixture
def table(tmp_path: Path) -> Callable[[], TableJob]:
    """Reads the same table anew each time, as another process would."""

    def read() -> TableJob:
        runs, progress = tmp_path / "runs.csv", tmp_path / "progress.csv"
        if not runs.exists():
            _write_runs(tmp_path)
        return TableJob.read_csv(
            runs, parameters=["vm", "workers", "rate"], measures=["accuracy"], progress=progress
        )

    return read
