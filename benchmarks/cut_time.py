"""How late a run is cut while others beside it report all the time, and what the books say of it.

    python benchmarks/cut_time.py               # 10 rounds, eight chatty runs: docs/explanation/benchmarks.md
    python benchmarks/cut_time.py --rounds 3 --chatty 2

Nine commands run at once: eight report every 2 ms, the ninth never does. All must be cut after LIMIT seconds.
How long each really ran is told by the processes themselves, which note the time every few milliseconds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import prudent
from prudent.tuning.tune import Event, Started

LIMIT_S = 2.0
WORK = """
import sys, time
talks, clock = int(sys.argv[1]) <= int(sys.argv[2]), open(sys.argv[3], "w")
while True:
    if talks:
        print('PRUDENT {"progress": 0.5}', flush=True)
    clock.seek(0)
    clock.write(f"{time.time():.4f}")
    clock.flush()
    time.sleep(0.002)
"""


def play(chatty: int) -> tuple[list[float], list[float]]:
    """Seconds by which each run outlived its limit, and by which the books differ from its own clock."""
    with tempfile.TemporaryDirectory() as name:
        folder, begun_s = Path(name), {}
        (folder / "work.py").write_text(WORK)
        numbers = list(range(1, chatty + 2))
        job = prudent.CommandJob(
            f"exec {sys.executable} -S work.py {{n}} {chatty} clock.{{n}}",
            prudent.Space.parse({"n": numbers}),
            price=3.6,
            directory=folder,
        )

        def watch(event: Event, study: prudent.Study) -> None:
            if isinstance(event, Started):
                begun_s[event.ask.configuration["n"]] = time.time()

        result = prudent.tune(
            job, f"minimise cost_usd subject to time_s <= {LIMIT_S}", 1.0, "grid",
            parallel=len(numbers), watch=watch,
        )  # fmt: skip
        real_s = {n: float((folder / f"clock.{n}").read_text()) - begun_s[n] for n in numbers}
        booked_s = {trial.configuration["n"]: trial.spent_usd * 1000 for trial in result.trials}
        return [real_s[n] - LIMIT_S for n in numbers], [booked_s[n] - real_s[n] for n in numbers]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--chatty", type=int, default=8)
    args = parser.parse_args()
    rounds = [play(args.chatty) for _ in range(args.rounds)]
    quiet = sorted(late[-1] for late, _ in rounds)
    talking = sorted(one for late, _ in rounds for one in late[:-1])
    apart = sorted((one for _, differences in rounds for one in differences), key=abs)
    print("| | median | worst |\n|---|---|---|")
    told = {
        "the silent run is cut late by": quiet,
        "the chatty ones by": talking,
        "the books differ from the processes' clocks by": apart,
    }
    for what, values in told.items():
        print(f"| {what} | {values[len(values) // 2]:.3f} s | {values[-1]:.3f} s |")


if __name__ == "__main__":
    main()
