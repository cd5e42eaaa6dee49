"""The thesis's studies of Nephele: size of the ensemble (6.1), initial budget (6.4), look-ahead (6.13)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
from benchmarks.papers.nephele_replays import ENTRIES, Entry, Walk, feasible, play
from benchmarks.papers.page import NOT, REPRODUCED, Headline, Table, number
from benchmarks.papers.replays import Effort

TREES, STARTS_USD, HORIZONS = (5, 10, 20), (2.5, 5.0, 10.0), (0, 1, 2)
OPTIMISERS = ("Nephele", "Lynceus", "CherryPick")
NEAR = 1.1
"""An answer is near the optimum of its own space when it costs at most so many times as much."""
SAMPLED = {2.5: 0.0076, 5.0: 0.0139, 10.0: 0.0271}
"""The share of the 1,440 runs that the initial budgets buy, as the thesis tells it."""
SIZE = 1440
DEEP_SHARE = 0.5

Walks = Mapping[tuple[str, str], Sequence[Walk]]


def cases(effort: Effort) -> dict[tuple[str, str], tuple[Entry, float]]:
    """Entry and share of the seeds by study's setting and optimiser."""
    found: dict[tuple[str, str], tuple[Entry, float]] = {}
    for name in OPTIMISERS:
        entry = ENTRIES[name]
        for trees in TREES:
            found[f"{trees} trees", name] = with_options(entry, trees=trees), 1.0
        for usd in STARTS_USD:
            found[f"${usd:g} at first", name] = with_options(entry, start_usd=usd), 1.0
    for horizon in HORIZONS[:2] if effort.quick else HORIZONS:
        entry = with_options(ENTRIES["Nephele"], lookahead=horizon)
        found[f"horizon {horizon}", "Nephele"] = entry, DEEP_SHARE if horizon else 1.0
    return found


def with_options(entry: Entry, **options: object) -> Entry:
    return replace(entry, options={**entry.options, **options})


def studies(effort: Effort, budget_usd: float) -> tuple[list[Headline], list[Table]]:
    wanted = cases(effort)
    with ProcessPoolExecutor(effort.processes) as workers:
        tasks = {
            key: [workers.submit(play, entry, budget_usd, seed) for seed in range(effort.part(share))]
            for key, (entry, share) in wanted.items()
        }
        walks = {key: [task.result() for task in found] for key, found in tasks.items()}
    return headlines(walks), [table(walks, budget_usd), samples(walks)]


def spent_until_near(walk: Walk, full: bool) -> float:
    """Money until the answer was near the optimum of the optimiser's own space; inf if it never was."""
    optimum = min(row["cost_usd"] for row in feasible(1.0 if full else None))
    spent = zip(walk.spent_usd, walk.best_usd, strict=True)
    return next((usd for usd, best in spent if best <= NEAR * optimum), math.inf)


def medians(walks: Walks) -> dict[tuple[str, str], float]:
    return {
        (setting, name): float(
            np.quantile([spent_until_near(w, ENTRIES[name].full) for w in found], 0.5, method="higher")
        )
        for (setting, name), found in walks.items()
    }


def table(walks: Walks, budget_usd: float) -> Table:
    spent, settings = medians(walks), list(dict.fromkeys(setting for setting, _ in walks))

    def cell(setting: str, name: str) -> str:
        if (setting, name) not in walks:
            return ""
        found = walks[setting, name]
        near = sum(math.isfinite(spent_until_near(walk, ENTRIES[name].full)) for walk in found)
        usd = spent[setting, name]
        return f"{f'${usd:.2f}' if math.isfinite(usd) else 'more'} ({near} of {len(found)})"

    return Table(
        f"Studies (figures 6.1, 6.4, 6.13): median money until within {NEAR - 1:.0%} of the optimum of the "
        f"own space, and how many seeds of all got there within ${budget_usd:g}",
        ("setting", *OPTIMISERS),
        [[setting, *(cell(setting, name) for name in OPTIMISERS)] for setting in settings],
    )


def sampled(walks: Walks, usd: float, name: str) -> float:
    """First runs that an initial budget bought, mean."""
    return float(np.mean([walk.firsts for walk in walks[f"${usd:g} at first", name]]))


def samples(walks: Walks) -> Table:
    return Table(
        "Table 6.1: first runs by initial budget, and their share of the space (the thesis's / ours)",
        ("initial budget", "runs, all fractions", "share", "runs, full data"),
        [
            [
                f"${usd:g}", number(sampled(walks, usd, "Nephele"), 1),
                f"{SAMPLED[usd]:.2%} / {sampled(walks, usd, 'Nephele') / SIZE:.2%}",
                number(sampled(walks, usd, "Lynceus"), 1),
            ]
            for usd in STARTS_USD
        ],
    )  # fmt: skip


def headlines(walks: Walks) -> list[Headline]:
    spent = medians(walks)

    def ratio(one: str, other: str, name: str = "Nephele") -> float:
        if not math.isfinite(spent[other, name]):
            return math.nan
        return spent[one, name] / spent[other, name]

    shares = [sampled(walks, usd, "Nephele") / SIZE for usd in STARTS_USD]
    told = all(abs(share / SAMPLED[usd] - 1) < 0.25 for share, usd in zip(shares, STARTS_USD, strict=True))
    trees = [ratio(f"{count} trees", "5 trees") for count in TREES[1:]]
    others = [ratio("20 trees", "5 trees", name) for name in OPTIMISERS[1:]]
    ahead = ratio("horizon 1", "horizon 0")
    return [
        Headline(
            "Share of the space that is run first for $2.5, $5, $10", "0.76 %, 1.39 %, 2.71 %",
            ", ".join(f"{share:.2%}" for share in shares), REPRODUCED if told else NOT,
        ),
        Headline(
            "Nephele's money with 10 and 20 trees over that with 5", "no significant difference",
            ", ".join(number(value, 2) for value in trees),
            REPRODUCED if all(0.6 < value < 1.6 for value in trees) else NOT, "figure 6.1",
        ),
        Headline(
            "Money with 20 trees over that with 5, Lynceus and CherryPick", "about 4",
            ", ".join(number(value, 2) for value in others),
            REPRODUCED if min(others) > 2 else NOT,
            "" if min(others) > 2 else "trees of another make: more of them do no harm here",
        ),
        Headline(
            "Nephele's money with a horizon of 1 over that with 0", "about 1 (a very small gain)",
            number(ahead, 2), REPRODUCED if 0.6 < ahead < 1.6 else NOT, "figure 6.13(a)",
        ),
    ]  # fmt: skip
