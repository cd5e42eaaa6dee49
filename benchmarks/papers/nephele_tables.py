"""What follows from the thesis's data alone: table 6.3 cell by cell, figures 6.8 and 6.9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from benchmarks.papers.page import NOT, REPRODUCED, Chart, Headline, Table

from prudent.tuning.strategies.published.stopping import iterations_to_see

LIMIT_S, LEAST_ACCURACY = 300.0, 0.85
KINDS = ("time and accuracy", "accuracy only", "time only", "neither")
SIZES = {1000: 0.016667, 6000: 0.1, 15000: 0.25, 30000: 0.5}
TABLE_6_3: dict[int, tuple[tuple[int, ...], ...]] = {
    1000: ((0, 0, 61, 0), (12, 0, 105, 0), (0, 0, 50, 0), (0, 0, 60, 0)),
    6000: ((5, 0, 56, 0), (43, 28, 40, 6), (0, 0, 50, 0), (0, 3, 27, 30)),
    15000: ((20, 0, 41, 0), (25, 73, 13, 6), (0, 0, 50, 0), (0, 6, 16, 38)),
    30000: ((35, 0, 26, 0), (7, 97, 9, 4), (0, 0, 50, 0), (0, 6, 16, 38)),
}
"""The thesis's counts: what a configuration keeps on all the data, by what it keeps on so many images."""

Run = Mapping[str, float]


def kind(run: Run) -> int:
    in_time, accurate = run["time_s"] <= LIMIT_S, run["accuracy"] >= LEAST_ACCURACY
    return (0 if accurate else 2) if in_time else (1 if accurate else 3)


def compared(runs: Sequence[Run], images: int) -> list[list[int]]:
    """Configurations by what they keep on all the data (rows) and on so many images (columns)."""
    on_part = {run["config_id"]: kind(run) for run in runs if run["fraction"] == SIZES[images]}
    counts = [[0] * len(KINDS) for _ in KINDS]
    for run in runs:
        if run["fraction"] == 1.0:
            counts[kind(run)][on_part[run["config_id"]]] += 1
    return counts


def tables(runs: Sequence[Run]) -> list[Table]:
    found = []
    for images, told in TABLE_6_3.items():
        ours = compared(runs, images)
        rows = [
            [KINDS[at], *(f"{paper} / {mine}" for paper, mine in zip(told[at], ours[at], strict=True))]
            for at in range(len(KINDS))
        ]
        title = f"Table 6.3: all images (rows) against {images:,} (columns), the thesis's counts / ours"
        found.append(Table(title, ("kept on all images", *KINDS), rows))
    return [*found, reductions(runs), counts(runs)]


def counts(runs: Sequence[Run]) -> Table:
    """Table 6.2 of this network; the files of the other two (tables 6.4 and 6.5 too) are not there."""
    told = ((208, 0.1444), (61, 0.2118))
    parts = list(runs), [run for run in runs if run["fraction"] == 1.0]
    ours = [(sum(kind(run) == 0 for run in part), len(part)) for part in parts]
    cells = [
        f"{count} ({share:.2%}) / {mine} ({mine / size:.2%})"
        for (count, share), (mine, size) in zip(told, ours, strict=True)
    ]
    columns = ("network", "all fractions", "full data")
    return Table("Table 6.2: feasible configurations, the thesis's / ours", columns, [["CNN", *cells]])


def by_time(runs: Sequence[Run]) -> Chart:
    """Figure 6.7: what is accurate enough, by how long it takes."""
    times = sorted(run["time_s"] for run in runs if run["accuracy"] >= LEAST_ACCURACY)
    series = {"CNN": list(enumerate(times, start=1))}
    title = "Figure 6.7: runs that are accurate enough, sorted by time"
    return Chart("times", title, "run", "seconds", {name: [(float(x), y) for x, y in line]
                 for name, line in series.items()})  # fmt: skip


def stopping(runs: Sequence[Run]) -> Headline:
    """Appendix A: runs end once 90 % of their images have been seen."""
    ended = [run for run in runs if not run["timed_out"]]
    expected = [iterations_to_see(int(run["images"]), int(run["batch"])) for run in ended]
    over = [run["iterations"] / least for run, least in zip(ended, expected, strict=True)]
    many = [ratio for ratio, least in zip(over, expected, strict=True) if least >= 100]
    near = float(np.mean([0.98 < ratio < 1.5 for ratio in many]))
    return Headline(
        "Iterations of runs that ended by themselves over those of appendix A's equation, median", "1",
        f"{np.median(many):.3f} ({near:.0%} of {len(many)} runs of at least 100 within 0.98 to 1.5)",
        REPRODUCED if 0.98 < np.median(many) < 1.1 else NOT,
        "machines end their batch after the last one: with few long iterations that is more",
    )  # fmt: skip


def reductions(runs: Sequence[Run]) -> Table:
    """Figure 6.8(a): what a part of the data saves in production, by both constraints."""
    accuracies, times = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95), (30, 60, 120, 300, 600)
    rows = []
    for accuracy in accuracies:
        cells = []
        for seconds in times:
            kept = [r for r in runs if r["accuracy"] >= accuracy and r["time_s"] <= seconds]
            full = [r["cost_usd"] for r in kept if r["fraction"] == 1.0]
            if not kept:
                cells.append("infeasible")
            elif not full:
                cells.append("only on parts")
            else:
                cells.append(f"{1 - min(r['cost_usd'] for r in kept) / min(full):.0%}")
        rows.append([f"{accuracy:g}", *cells])
    columns = ("accuracy at least", *(f"within {seconds} s" for seconds in times))
    return Table("Figure 6.8(a): cost saved in production by a part of the data", columns, rows)


def headline(runs: Sequence[Run]) -> Headline:
    same = sum(
        paper == mine
        for images, told in TABLE_6_3.items()
        for row, ours in zip(told, compared(runs, images), strict=True)
        for paper, mine in zip(row, ours, strict=True)
    )
    cells = sum(len(row) for told in TABLE_6_3.values() for row in told)
    verdict = REPRODUCED if same == cells else NOT
    return Headline("Table 6.3, cells that agree", f"{cells}", f"{same}", verdict)
