"""Nephele, figures 6.1 to 6.13 and tables 6.1 to 6.3 for the CNN: the cheapest run on a part of the data."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import numpy as np
from benchmarks.papers.nephele_replays import ENTRIES, GOAL, feasible, play, rows
from benchmarks.papers.nephele_studies import studies
from benchmarks.papers.nephele_tables import by_time, stopping
from benchmarks.papers.nephele_tables import headline as table_headline
from benchmarks.papers.nephele_tables import tables as data_tables
from benchmarks.papers.page import BETTER, NOT, REPRODUCED, Chart, Headline, PaperPage, Table, number
from benchmarks.papers.replays import Effort

SEEDS, QUICK_SEEDS = 20, 4
BUDGET_USD, QUICK_USD = 30.0, 12.0
AT = (2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0)


def run(effort: Effort) -> PaperPage:
    budget_usd = QUICK_USD if effort.quick else BUDGET_USD
    with ProcessPoolExecutor(effort.processes) as workers:
        tasks = {
            name: [workers.submit(play, entry, budget_usd, seed) for seed in range(effort.seeds)]
            for name, entry in ENTRIES.items()
        }
        paths = {name: [task.result() for task in found] for name, found in tasks.items()}
    study_lines, study_tables = studies(effort, budget_usd)
    optimum = min(row["cost_usd"] for row in feasible())
    moments = [usd for usd in AT if usd <= budget_usd]

    def cno(name: str, usd: float, quantile: float) -> float:
        values = np.array([path.at(usd) / optimum for path in paths[name]])
        return float(np.quantile(values, quantile, method="higher"))

    grid = np.linspace(0.25, budget_usd, 100)
    sizes = sorted({row["fraction"] for row in rows()})
    return PaperPage(
        "nephele",
        "Nephele: tuning on parts of the data",
        f"{effort.seeds} seeds on trimtuner_cnn (1,440 runs), {GOAL}; initial budget $5 for each optimiser.",
        [*headlines(paths, cno, moments), stopping(rows()), *study_lines],
        [
            Table(
                "Figure 6.10: CNO by exploration cost, 50 % / 90 %",
                ("optimiser", *(f"${usd:g}" for usd in moments)),
                [
                    [
                        name,
                        *(" / ".join(number(cno(name, u, q), 2) for q in (0.5, 0.9)) for u in moments),
                    ]
                    for name in paths
                ],
            ),
            Table(
                "Figure 6.9(a): runs that keep the constraints, by fraction of the data",
                ("all", *(f"{size:g}" for size in sizes)),
                [[str(len(feasible())), *(str(len(feasible(size))) for size in sizes)]],
            ),
            *study_tables,
            *data_tables(rows()),
        ],
        [
            Chart(
                "cno", "Figure 6.10(a): CNO by exploration cost, 90 %", "exploration cost, $", "CNO",
                {name: [(float(u), cno(name, float(u), 0.9)) for u in grid] for name in paths}, log=True,
            ),
            by_time(rows()),
        ],
    )  # fmt: skip


def headlines(paths, cno, moments):  # type: ignore[no-untyped-def]
    everything, full = (min(row["cost_usd"] for row in feasible(f)) for f in (None, 1.0))
    saved = 1 - everything / full
    at = max(usd for usd in moments if usd <= 10.0)
    cheaper = cno("Lynceus", at, 0.5) / cno("Nephele", at, 0.5)
    firsts = {name: float(np.mean([path.firsts for path in paths[name]])) for name in ("Nephele", "Lynceus")}
    always = all(
        cno("Nephele", usd, 0.9) <= min(cno(name, usd, 0.9) for name in ("Lynceus", "CherryPick"))
        for usd in moments
        if usd >= 5
    )
    return [
        Headline(
            "Runs that keep the constraints, of 1,440 and of 288 at full data", "208 and 61",
            f"{len(feasible())} and {len(feasible(1.0))}",
            REPRODUCED if (len(feasible()), len(feasible(1.0))) == (208, 61) else NOT,
        ),
        table_headline(rows()),
        Headline(
            "Cost saved in production by a part of the data", "75 %", f"{saved:.1%}",
            REPRODUCED if abs(saved - 0.75) < 0.02 else NOT,
        ),
        Headline(
            "First runs for $5, all fractions and full data", "20 and 8",
            f"{number(firsts['Nephele'], 1)} and {number(firsts['Lynceus'], 1)}",
            REPRODUCED if abs(firsts["Nephele"] - 20) < 6 and abs(firsts["Lynceus"] - 8) < 4 else NOT,
        ),
        Headline(
            f"Cost of Lynceus's answer over Nephele's after ${at:g}, median", "3", number(cheaper, 2),
            BETTER if cheaper > 3.5 else REPRODUCED if cheaper > 2 else NOT,
        ),
        Headline(
            "Nephele's answer is the cheaper one at every amount from $5 on (90 %)", "yes",
            "yes" if always else "no", REPRODUCED if always else NOT,
        ),
    ]  # fmt: skip
