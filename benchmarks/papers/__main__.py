"""The experiments of the papers, ours and the papers' values side by side.

    python -m benchmarks.papers                  # all of them, with as many seeds as fit an hour
    python -m benchmarks.papers lynceus --quick  # a look, with fewer seeds and depths
    make papers QUICK=yes

Each writes NAME.html, NAME.md and an SVG of each figure into build/papers. PRUDENT_DATA names the data, which
`python benchmarks/papers/data.py FOLDER` gets.
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module
from pathlib import Path

from benchmarks.papers.page import write
from benchmarks.papers.replays import Effort

PAPERS = ("obol", "lynceus", "nephele", "fabulinus", "workflowsim4rl", "zygarde")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument("--quick", action="store_true", help="fewer seeds and depths")
    parser.add_argument("--seeds", type=int, help="seeds of each cell")
    parser.add_argument(
        "--depths", type=int, nargs="*", help="steps that OBOL and Lynceus look ahead, 0 to 5"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build") / "papers")
    given = parser.parse_args()
    unknown = [name for name in given.papers if name not in PAPERS]
    if unknown:
        parser.error(f"there is no paper {unknown[0]}; name some of {', '.join(PAPERS)}")
    for name in given.papers or PAPERS:
        begun = time.monotonic()
        paper = import_module(f"benchmarks.papers.{name}")
        seeds = given.seeds or (paper.QUICK_SEEDS if given.quick else paper.SEEDS)
        depths = tuple(given.depths or ((0, 1) if given.quick else (0, 1, 2)))
        page = paper.run(Effort(seeds, given.processes, given.quick, depths, bool(given.seeds)))
        place = write(page, given.out)
        print(f"{page.title} ({time.monotonic() - begun:.0f} s, {seeds} seeds): {place}")
        for line in page.headlines:
            print(
                f"  {line.verdict:15} {line.claim}: {line.paper} in the paper, {line.ours} here", flush=True
            )


if __name__ == "__main__":
    main()
