"""How late a run is cut while others beside it report all the time, and what the books say of it.

    python benchmarks/cut_time.py               # 10 rounds, eight chatty runs: docs/explanation/benchmarks.md
    python benchmarks/cut_time.py --rounds 3 --chatty 2

Nine commands run at once: eight report every 2 ms until they end, the ninth never does and must be cut after
LIMIT seconds. How long each really ran is told by the processes themselves, which note the time as they go.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import prudent
from prudent.tuning.tune import Event, TrialStarted

LIMIT_S, TALK_S = 2.0, 3.0
DEAR = 18.0  # dollars an hour of the silent one: it reaches the bound on the cost first
WORK = """
import sys, time
talks, clock = int(sys.argv[1]) <= int(sys.argv[2]), open(sys.argv[3], "w")
until = time.time() + (float(sys.argv[4]) if talks else 1e9)
while time.time() < until:
    if talks:
        print('PRUDENT {"progress": 0.5}', flush=True)
    clock.seek(0)
    clock.write(f"{time.time():.4f}")
    clock.flush()
    time.sleep(0.002)
"""


def play(chatty: int) -> tuple[float, list[float]]:
    """Seconds by which the silent run outlived its limit, and by which the books differ from each clock."""
    with tempfile.TemporaryDirectory() as name:
        folder, begun_s = Path(name), {}
        (folder / "work.py").write_text(WORK)
        numbers = list(range(1, chatty + 2))
        job = prudent.CommandJob(
            f"exec {sys.executable} -S work.py {{n}} {chatty} clock.{{n}} {TALK_S}",
            prudent.Space.parse({"n": numbers}),
            price=lambda chosen: 3.6 if chosen["n"] <= chatty else DEAR,
            directory=folder,
        )

        def watch(event: Event, study: prudent.Study) -> None:
            if isinstance(event, TrialStarted):
                begun_s[event.ask.configuration["n"]] = time.time()

        result = prudent.tune(
            job, f"minimise time_s subject to cost_usd <= {LIMIT_S * DEAR / 3600}", 1.0, "grid",
            parallel=len(numbers), watch=watch,
        )  # fmt: skip
        real_s = {n: float((folder / f"clock.{n}").read_text()) - begun_s[n] for n in numbers}
        booked = zip(result.trials, result.entries, strict=True)
        booked_s = {trial.configuration["n"]: entry.seconds for trial, entry in booked}
        return real_s[numbers[-1]] - LIMIT_S, [booked_s[n] - real_s[n] for n in numbers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--chatty", type=int, default=8)
    args = parser.parse_args()
    rounds = [play(args.chatty) for _ in range(args.rounds)]
    quiet = sorted(late for late, _ in rounds)
    apart = sorted((one for _, differences in rounds for one in differences), key=abs)
    print("| | median | worst |\n|---|---|---|")
    told = {
        "the silent run is cut late by": quiet,
        "the books differ from the processes' clocks by": apart,
    }
    for what, values in told.items():
        print(f"| {what} | {values[len(values) // 2]:.3f} s | {values[-1]:.3f} s |")


if __name__ == "__main__":
    main()
