"""OBOL, figures 1 and 2: explorations and distance from the optimum by budget and depth."""

from __future__ import annotations

from benchmarks.papers.page import NOT, REPRODUCED, Chart, Headline, PaperPage, Table, number
from benchmarks.papers.replays import Contest, Effort, Summary, lynceus_problem, play_all

SEEDS, QUICK_SEEDS = 20, 6
BUDGETS = (8, 10, 15, 20)
CHERRYPICK = {"as": "published", "surrogate": "trees", "start_trials": 5, "stop_below": 0}


def run(effort: Effort) -> PaperPage:
    contests = [
        *(
            Contest(f"OBOL, depth {depth}", "obol", {"as": "published", "lookahead": depth}, budget)
            for depth in effort.depths
            for budget in BUDGETS
        ),
        *(Contest("CherryPick", "cherrypick", CHERRYPICK, budget) for budget in BUDGETS),
    ]
    told = {contest: Summary.of(scores) for contest, scores in play_all(contests, effort).items()}
    cells = {(contest.label, contest.budget): summary for contest, summary in told.items()}
    labels = list(dict.fromkeys(contest.label for contest in contests))
    plateau = lynceus_problem().distances
    return PaperPage(
        "obol",
        "OBOL: budget-limited Bayesian optimisation",
        f"{effort.seeds} seeds, 288 configurations of lynceus_cnn, {effort.depths} steps ahead, 5 first "
        "runs, budgets in average runs. Medians, as in the paper.",
        headlines(cells, labels),
        [
            figure(cells, labels, "Figure 1: explorations (NEX), median", lambda s: number(s.runs_p50, 1)),
            figure(
                cells, labels, "Figure 2: distance from the optimum (DOPT), median", lambda s: number(s.p50)
            ),
            figure(cells, labels, "DOPT, 90 % quantile", lambda s: number(s.p90)),
            figure(cells, labels, "Share of seeds with an answer", lambda s: number(s.answered, 2)),
            Table(
                "The cheapest configurations that keep the deadline, cost over the optimum's less one",
                ("rank", "distance"),
                [[str(rank), number(distance, 4)] for rank, distance in enumerate(plateau[:10], start=1)],
            ),
        ],
        [
            chart(cells, labels, "nex", "Figure 1: explorations, median", "NEX", lambda s: s.runs_p50),
            chart(
                cells, labels, "dopt", "Figure 2: distance from the optimum, median", "DOPT", lambda s: s.p50
            ),
        ],
    )


def figure(cells, labels, title, cell):  # type: ignore[no-untyped-def]

    columns = ("strategy", *(f"budget {budget}" for budget in BUDGETS))
    rows = [[label, *(cell(cells[label, budget]) for budget in BUDGETS)] for label in labels]
    return Table(title, columns, rows)


def chart(cells, labels, name, title, y, value):  # type: ignore[no-untyped-def]
    series = {label: [(budget, value(cells[label, budget])) for budget in BUDGETS] for label in labels}
    return Chart(name, title, "budget, average runs", y, series)


def headlines(cells, labels):  # type: ignore[no-untyped-def]
    depths = [label for label in labels if label.startswith("OBOL")]
    cherry = {budget: cells["CherryPick", budget] for budget in BUDGETS}
    more = [cells[label, 20].runs_p50 / cherry[20].runs_p50 - 1 for label in depths]
    near = {budget: min(cells[label, budget].p50 for label in depths) for budget in BUDGETS}
    stays = cherry[15].p50, cherry[20].p50
    better = sum(cells[label, b].p50 <= cherry[b].p50 for label in depths for b in BUDGETS)
    cells_all = len(depths) * len(BUDGETS)
    return [
        Headline(
            "Explorations more than CherryPick's at budget 20, worst and best depth", "35 % to 100 %",
            f"{min(more):.0%} to {max(more):.0%}", REPRODUCED if min(more) > 0.2 else NOT,
        ),
        Headline(
            "CherryPick stays at this distance from the optimum (15 and 20)", "0.18",
            f"{number(stays[0])} and {number(stays[1])}", REPRODUCED if abs(stays[1] - 0.18) < 0.02 else NOT,
            "a plateau of the data: six configurations cost 17.8 % more than the optimum",
        ),
        Headline(
            "OBOL's distance at budget 20, best depth", "0 (depth 2); 0.03 for other depths",
            number(near[20]), REPRODUCED if near[20] < 0.03 else NOT, "0.027 is the second best", ),
        Headline(
            "OBOL's distance at budget 15, best depth", "0.03", number(near[15]),
            REPRODUCED if near[15] <= 0.03 else NOT,
            "" if near[15] <= 0.03 else "trees of another make", ),
        Headline(
            "Cells in which OBOL is no farther than CherryPick", "all but some at low budgets",
            f"{better} of {cells_all}", REPRODUCED if better >= 0.75 * cells_all else NOT,
        ),
    ]  # fmt: skip
