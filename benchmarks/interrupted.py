"""Studies that are interrupted at random: what they really cost, beside their books and their budget.

    python benchmarks/interrupted.py            # 10 studies, four rounds each: docs/explanation/benchmarks.md
    python benchmarks/interrupted.py --kill     # also by kill -9, which lets commands live on until --resume

Each study has $2 for commands of $0.20 a second, two at a time. In each round it is stopped by Ctrl-C or
SIGTERM and taken up again; the last round runs until the money is gone. What was used is told by the
processes themselves: the kernel knows when each began, and each notes the time as it goes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

USD_PER_S, BUDGET_USD = 0.2, 2.0
JOB = f"""
command: exec {sys.executable} -S work.py {{n}} LEAST_S
parameters: {{n: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}}
measures: [error]
price: {USD_PER_S * 3600}
goal: minimise error
budget: ${BUDGET_USD}
strategy: grid
parallel: 2
"""
WORK = """
import os, sys, time
ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
age = float(open("/proc/uptime").read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
begun, n = time.time() - age, int(sys.argv[1])
clock = open(f"clock.{os.getpid()}.{begun}", "w")
while time.time() < begun + float(sys.argv[2]) + 0.3 * n:
    clock.seek(0)
    clock.write(f"{begun:.4f} {time.time():.4f}")
    clock.flush()
    time.sleep(0.005)
print('PRUDENT {"error": %d}' % n)
"""


def used_usd(folder: Path) -> float:
    lives = [path.read_text().split() for path in folder.glob("clock.*")]
    return USD_PER_S * sum(float(life[1]) - float(life[0]) for life in lives if len(life) == 2)


def tune(folder: Path, stop: signal.Signals | None, after_s: float) -> dict[str, float] | None:
    """One session; its answer where nobody killed it."""
    words = [sys.executable, "-m", "prudent.cli.main", "tune", "job.yaml", "--json", "--resume"]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    begun = len(list(folder.glob("clock.*")))
    while stop is not None and process.poll() is None and len(list(folder.glob("clock.*"))) == begun:
        time.sleep(0.01)  # a round counts from its first command on
    if stop is not None:
        time.sleep(after_s)
        process.send_signal(stop)
    out, _ = process.communicate()
    return json.loads(out) if out.strip() else None


def play(seed: int, rounds: int, kill: bool) -> tuple[float, float, float]:
    """What was used, what the books say, and what they say was too much."""
    signals = [signal.SIGINT, signal.SIGTERM, *([signal.SIGKILL] if kill else [])]
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Nobody notes when a command ends by itself whose study was killed: these do not.
        (folder / "job.yaml").write_text(JOB.replace("LEAST_S", "60" if kill else "0.5"))
        (folder / "work.py").write_text(WORK)
        os.environ["PRUDENT_HOME"] = str(folder / "home")
        for _ in range(rounds):
            tune(folder, chance.choice(signals), chance.uniform(0.0, 1.5))
        result = tune(folder, None, 0.0)
        assert result is not None, "the last round has no answer"
        return used_usd(folder), result["spent_usd"], result["over_usd"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--kill", action="store_true", help="kill -9 among the ways to stop a study")
    args = parser.parse_args()
    print("| study | used, by the processes | in the books | of $2.00, told as too much |\n|---|---|---|---|")
    for seed in range(args.studies):
        used, booked, over = play(seed, args.rounds, args.kill)
        print(f"| {seed} | ${used:.3f} | ${booked:.3f} | ${over:.3f} |", flush=True)


if __name__ == "__main__":
    main()
