"""Lynceus, figures 1 to 7: budgets and look-ahead without time-outs, then ideal and discrete time-outs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec

from benchmarks.papers.obol import CHERRYPICK
from benchmarks.papers.page import BETTER, NOT, REPRODUCED, Chart, Headline, PaperPage, Table, number
from benchmarks.papers.replays import Contest, Effort, Score, Summary, lynceus_problem, play_all

from tables import lynceus_bench

SEEDS, QUICK_SEEDS = 6, 2
BUDGETS, SMALL = (8, 10, 15, 20), (2, 4, 6, 8)
WIDE = (1, 2, 4, 8, 15, 30)
PAPER_ERRORS = {
    "CherryPick": (0.37, 0.43, 0.43, 0.47), "Lynceus, depth 0": (0.37, 0.41, 0.42, 0.45),
    "Lynceus, depth 1": (0.34, 0.39, 0.40, 0.43), "Lynceus, depth 2": (0.34, 0.38, 0.40, 0.43),
}  # fmt: skip
"""Figure 7: the error of the straight line, by budget."""
TIMEOUTS: dict[str, tuple[bool, bool, dict[str, object]]] = {
    "no time-out": (False, False, {}),
    "ideal": (True, True, {"extrapolation": "curve"}),
    "discrete": (True, False, {"extrapolation": "linear", "monitor_s": 30}),
}
"""Early time-outs or not, whether a run tells how far it is, options."""

Cells = Mapping[tuple[str, float], Summary]


def lynceus(depth: int, **options: object) -> dict[str, object]:
    return {"as": "published", "lookahead": depth, **options}


def plain(effort: Effort) -> list[Contest]:
    """Figures 2 to 4."""
    return [
        *(
            Contest(f"Lynceus, depth {depth}", "lynceus", lynceus(depth), budget)
            for depth in effort.depths
            for budget in BUDGETS
        ),
        *(Contest("CherryPick", "cherrypick", CHERRYPICK, budget) for budget in BUDGETS),
        *(Contest("Random", "random", {}, budget) for budget in BUDGETS),
    ]


def timed(effort: Effort) -> list[Contest]:
    """Figures 5 to 7: one first run."""
    depth = max(effort.depths) if effort.quick else 2
    found = []
    for kind, (early, ideal, options) in TIMEOUTS.items():
        for budget in SMALL:
            ours = lynceus(depth, start_trials=1, **options)
            cherry = {**CHERRYPICK, "start_trials": 1, **options}
            found += [
                Contest(f"Lynceus, depth {depth}, {kind}", "lynceus", ours, budget, early, ideal),
                Contest(f"CherryPick, {kind}", "cherrypick", cherry, budget, early, ideal),
            ]
    return found


def beside(effort: Effort) -> list[Contest]:
    """Ours and as published at budgets of 1 to 30 average runs, with early time-outs, on all 384 rows."""
    entries: dict[str, tuple[str, dict[str, object]]] = {
        "ours (lynceus)": ("lynceus", {}),
        "Lynceus, as published": ("lynceus", lynceus(0, monitor_s=30)),
        "OBOL, as published": ("obol", lynceus(0)),
        "CherryPick, the papers' protocol": ("cherrypick", CHERRYPICK),
        "CherryPick, its own rule": ("cherrypick", {"as": "published"}),
        "random": ("random", {}),
    }
    return [
        Contest(label, strategy, options, budget, not label.startswith("OBOL"), least_cores=8)
        for label, (strategy, options) in entries.items()
        for budget in (WIDE[1:4] if effort.quick else WIDE)
    ]


def optuna_beside(effort: Effort) -> dict[tuple[str, float], Summary]:
    """Optuna's TPE with its constraints function in the same game, where it is installed."""
    if find_spec("optuna") is None:
        return {}
    from tuning import optuna_tpe

    bench, found = lynceus_bench("lynceus_cnn"), {}
    for budget in WIDE[1:4] if effort.quick else WIDE:
        scores = [optuna_tpe(bench, budget * bench.average_usd, True, seed) for seed in range(effort.seeds)]
        told = [Score(score.cno - 1, score.runs, score.decision_s, math.nan) for score in scores]
        found["Optuna TPE", float(budget)] = Summary.of(told)
    return found


def run(effort: Effort) -> PaperPage:
    groups = plain(effort), timed(effort), beside(effort)
    played = play_all([contest for group in groups for contest in group], effort)
    one, two, three = (
        {(contest.label, contest.budget): Summary.of(played[contest]) for contest in group}
        for group in groups
    )
    three = {**three, **optuna_beside(effort)}
    return PaperPage(
        "lynceus",
        "Lynceus: budget-aware tuning with early time-outs",
        f"{effort.seeds} seeds, 288 configurations of lynceus_cnn; means and quantiles over all seeds, "
        "budgets in average runs. A seed without an answer counts in the quantiles and not in the means.",
        [*headlines(one, two), best_of(three)],
        [
            grid(one, "Figure 2: explorations (NEX), mean", lambda s: number(s.runs_mean, 1)),
            grid(one, "Figure 3: distance from the optimum (DFO), mean", lambda s: number(s.mean)),
            grid(one, "DFO, 50 %, 90 % and 99 %", quantiles),
            grid(one, "Figure 4: seconds a decision", lambda s: number(s.decision_s)),
            grid(two, "Figures 5 and 6: DFO with time-outs, mean", lambda s: number(s.mean)),
            grid(two, "Explorations with time-outs, mean", lambda s: number(s.runs_mean, 1)),
            grid(two, "Figure 7: error of the straight line", lambda s: number(s.error, 2)),
            grid(three, "Ours and as published, all 384 rows: DFO 50 %, 90 % and 99 %", quantiles),
        ],
        [
            Chart(
                "complexity", "Figure 1: distance of every configuration", "configuration", "DFO + 1",
                {"lynceus_cnn": list(enumerate((d + 1 for d in lynceus_problem().distances), start=1))},
                log=True,
            ),
            lines(one, "nex", "Figure 2: explorations, mean", "NEX", lambda s: s.runs_mean),
            lines(one, "dfo", "Figure 3: distance from the optimum, mean", "DFO", lambda s: s.mean),
            lines(two, "timeouts", "Figures 5 and 6: with early time-outs", "DFO, mean", lambda s: s.mean),
            lines(three, "beside", "Ours and as published", "DFO, median", lambda s: s.p50),
        ], )  # fmt: skip


def best_of(three: Cells) -> Headline:
    """Ours beside everything else, budget by budget: no budget is left out."""
    ours = "ours (lynceus)"
    first = [
        b for b in budgets(three) if all(three[ours, b].p50 <= three[name, b].p50 for name in labels(three))
    ]
    behind = ", ".join(f"{b:g}" for b in budgets(three) if b not in first)
    return Headline(
        "Budgets at which ours is the nearest to the optimum (median, ties count)", "not told",
        f"{len(first)} of {len(budgets(three))}", BETTER if len(first) == len(budgets(three)) else NOT,
        f"not at {behind}: see the table" if behind else "",
    )  # fmt: skip


def quantiles(summary: Summary) -> str:
    return " / ".join(number(value) for value in (summary.p50, summary.p90, summary.p99))


def labels(cells: Cells) -> list[str]:

    return list(dict.fromkeys(label for label, _ in cells))


def budgets(cells: Cells) -> list[float]:
    return sorted({budget for _, budget in cells})


def grid(cells: Cells, title: str, cell: Callable[[Summary], str]) -> Table:
    columns = ("strategy", *(f"budget {budget:g}" for budget in budgets(cells)))
    rows = [[label, *(cell(cells[label, b]) for b in budgets(cells))] for label in labels(cells)]
    return Table(title, columns, rows)


def lines(cells: Cells, name: str, title: str, y: str, value: Callable[[Summary], float]) -> Chart:
    series = {label: [(b, value(cells[label, b])) for b in budgets(cells)] for label in labels(cells)}
    return Chart(name, title, "budget, average runs", y, series)


def headlines(one: Cells, two: Cells) -> list[Headline]:
    depths = [label for label in labels(one) if label.startswith("Lynceus")]
    top = depths[-1]
    ratio = max(one[label, 20].runs_mean / one["CherryPick", 20].runs_mean for label in depths)
    nearer = sum(one[d, b].p50 <= one["CherryPick", b].p50 for d in depths for b in BUDGETS)
    ours = next(label for label in labels(two) if label.startswith("Lynceus")).rsplit(", ", 1)[0]
    gains = [two[f"{who}, no time-out", b].mean - two[f"{who}, {kind}", b].mean
             for who in (ours, "CherryPick") for kind in ("ideal", "discrete") for b in SMALL]  # fmt: skip
    explored = {kind: two[f"{ours}, {kind}", 8].runs_mean / 288 for kind in ("ideal", "discrete")}
    error = two[f"{ours}, discrete", 8].error
    return [
        Headline(
            f"Explorations of {top} at budgets 8 and 15", "20 and 41",
            f"{number(one[top, 8].runs_mean, 1)} and {number(one[top, 15].runs_mean, 1)}",
            REPRODUCED if abs(one[top, 15].runs_mean / 41 - 1) < 0.25 else NOT,
            "" if abs(one[top, 15].runs_mean / 41 - 1) < 0.25 else "first runs are drawn otherwise",
        ),
        Headline(
            "Explorations over CherryPick's, best case", "almost 2", number(ratio, 2),
            REPRODUCED if ratio > 1.3 else NOT,
        ),
        Headline(
            "Lynceus is nearer to the optimum than CherryPick, cells", "all",
            f"{nearer} of {len(depths) * len(BUDGETS)} (medians, ties count)",
            REPRODUCED if nearer == len(depths) * len(BUDGETS) else NOT,
        ),
        Headline(
            "Time-outs bring answers nearer to the optimum", "both kinds, both strategies",
            f"{sum(gain > 0 for gain in gains)} of {len(gains)} cells",
            REPRODUCED if sum(gain > 0 for gain in gains) > 0.8 * len(gains) else NOT,
        ),
        Headline(
            "Share of the space explored at budget 8, ideal and discrete", "66 % and 40 %",
            f"{explored['ideal']:.0%} and {explored['discrete']:.0%}",
            REPRODUCED if explored["ideal"] > explored["discrete"] > 0.3 else NOT,
        ),
        Headline(
            "Error of the straight line at budget 8", "0.43 to 0.47", number(error, 2),
            BETTER if error < 0.4 else REPRODUCED if error < 0.55 else NOT,
        ),
    ]  # fmt: skip
