"""How long the first study takes after an install, and how quickly the command answers.

    python benchmarks/first_call.py

The first study compiles what is fast later and keeps it; the second one shows what is left. CPU seconds count
(imports, compiling, eight decisions): on a busy machine the wall says little.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

STUDY = """
import prudent
from prudent.core.ranges import Integer, Real
from prudent.core.space import Space

space = Space([Integer("n", 1, 8), Real("x", 0.0, 1.0)])
study = prudent.Study(space, "minimise cost_usd subject to accuracy >= 0.5", lambda c: 3.6 * c["n"],
                      budget_usd=5, measures=["accuracy"])
for seconds in range(10, 18):
    study.tell(study.ask().number, time_s=seconds, measures={"accuracy": 0.8})
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        for name in ("first study after an install", "every later one"):
            cpu_s, wall_s = _run([sys.executable, "-c", STUDY], NUMBA_CACHE_DIR=cache)
            print(f"{name}: {cpu_s:.2f} s CPU, {wall_s:.2f} s wall")
    runs = [_run([sys.executable, "-m", "prudent.cli.main", "--version"]) for _ in range(5)]
    cpu_s, wall_s = min(runs, key=lambda run: run[1])
    print(f"prudent --version: {cpu_s:.2f} s CPU, {wall_s:.2f} s wall, the quickest of {len(runs)}")


def _run(command: list[str], **environment: str) -> tuple[float, float]:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return cpu_s, time.perf_counter() - begun


if __name__ == "__main__":
    main()
