"""What threads do to the small matrices of a decision: python benchmarks/threads.py

On an idle machine a second thread may win a little; on a busy one the threads wait for each other.
"""

from __future__ import annotations

import contextlib
import os
import time

import numpy as np
from scipy.linalg import solve_triangular

from prudent.core.processes import one_thread

REPEATS = 20


def seconds(size: int, single: bool) -> tuple[float, float]:
    """Wall and CPU seconds of a Cholesky factor and a triangular solve, as a Gaussian process needs them."""
    draws = np.random.default_rng(0).random((size, size))
    matrix = draws @ draws.T + size * np.eye(size)
    with one_thread() if single else contextlib.nullcontext():
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(REPEATS):
            solve_triangular(np.linalg.cholesky(matrix), matrix, lower=True)
        return (time.perf_counter() - wall_s) / REPEATS, (time.process_time() - cpu_s) / REPEATS


def main() -> None:
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print("| rows | threads | ms | CPU ms |\n|---|---|---|---|")
    for size in (30, 100, 350):
        for single in (True, False):
            seconds(size, single)
            wall_s, cpu_s = seconds(size, single)
            print(f"| {size} | {'one' if single else 'all'} | {wall_s * 1e3:.2f} | {cpu_s * 1e3:.2f} |")


if __name__ == "__main__":
    main()
