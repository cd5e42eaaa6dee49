"""A thousand studies, trainings and executions: what was really paid, beside the books and the budgets.

    python benchmarks/money_soak.py               # 1,000 of all kinds: about an hour
    python benchmarks/money_soak.py --plays 60    # a few of each

Each is drawn by its seed: what it does, with how much money, how many side by side, and what befalls it
(Ctrl-C, SIGTERM, kill -9, machines that are taken away or do not come, prices that change). What was used is
told by a meter that knows nothing of our books: the clocks of the processes themselves, the provider's
machines. Books and meter may differ by 1 % or by a second of all that may run at once; no bill may be above
its budget. Exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import prudent.cli.main
import prudent.cli.tune  # noqa: F401  before the first fork: what is loaded once need not be loaded again
from money.played import Played

KINDS = {"live": 25, "replayed": 25, "machines": 15, "trainings": 23, "executions": 10, "spark": 2}
"""How many of a hundred are of each kind; those that need Dask or Java take long."""
AT_ONCE = 3


def played(kind: str, seed: int, folder: Path) -> Played:
    try:
        return importlib.import_module(f"money.{kind}").play(seed, folder)
    except BaseException:  # noqa: BLE001  told with the rest
        return Played(kind, seed, 0.0, 0.0, 0.0, 0.0, failure=traceback.format_exc())


def forked(kind: str, seed: int, root: Path) -> int:
    child = os.fork()
    if child:
        return child
    folder = root / f"{kind}-{seed}"
    folder.mkdir()
    os.environ["PRUDENT_HOME"] = str(folder / "home")
    found = played(kind, seed, folder)
    (root / f"{kind}-{seed}.json").write_text(json.dumps(vars(found)))
    if not found.wrong:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def play_all(kinds: list[str], plays: int, first: int, at_once: int, root: Path) -> list[Played]:
    mixed = sorted((place / KINDS[kind], kind) for kind in kinds for place in range(KINDS[kind]))
    seeds: Counter[str] = Counter()
    todo = []
    for number in range(plays):
        kind = mixed[number % len(mixed)][1]
        todo.append((kind, first + seeds[kind]))
        seeds[kind] += 1
    running: set[int] = set()
    for done, (kind, seed) in enumerate(todo):
        if len(running) >= at_once:
            running.discard(os.wait()[0])
        running.add(forked(kind, seed, root))
        if sys.stderr.isatty():
            print(f"\r{done + 1} of {len(todo)}", end="", file=sys.stderr)
    while running:
        running.discard(os.wait()[0])
    texts = [json.loads((root / f"{kind}-{seed}.json").read_text()) for kind, seed in todo]
    return [Played(**{**text, "troubles": Counter(text["troubles"])}) for text in texts]


def table(found: list[Played]) -> None:
    print("| kind | plays | paid | in the books | most apart, seconds | above its budget | troubles |")
    print("|---|---|---|---|---|---|---|")
    for kind in sorted({one.kind for one in found}):
        some = [one for one in found if one.kind == kind]
        apart = max((one.difference_usd / one.usd_per_s for one in some if one.usd_per_s), default=0.0)
        troubles: Counter[str] = Counter()
        for one in some:
            troubles.update(one.troubles)
        told = ", ".join(f"{count} {what}" for what, count in sorted(troubles.items()) if count)
        paid, booked = sum(one.metered_usd for one in some), sum(one.booked_usd for one in some)
        over = sum(one.over_usd > 1e-6 for one in some)
        print(f"| {kind} | {len(some)} | ${paid:.4f} | ${booked:.4f} | {apart:.2f} | {over} | {told} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plays", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {args.at_once} at once\n", flush=True)
    begun_s = time.perf_counter()
    root = Path(tempfile.mkdtemp(prefix="prudent-money-"))
    found = play_all(args.kinds, args.plays, args.first, args.at_once, root)
    table(found)
    wrong = [one for one in found if one.wrong]
    print(f"\n{len(found)} in {time.perf_counter() - begun_s:.0f} s; {len(wrong)} broke a promise")
    for one in wrong:
        print(f"- {one.kind} {one.seed}: {'; '.join(one.wrong)}")
    if not wrong:
        shutil.rmtree(root, ignore_errors=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
