"""`prudent compare RUNS.csv`: several strategies on a table of measured runs, many seeds each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prudent.cli.console import out, say, say_json, write_or_complain
from prudent.cli.options import AsJson, Seed
from prudent.core.errors import BadInput


def compare(
    runs: Annotated[Path, typer.Argument(metavar="RUNS.csv", help="A table with one row per measured run.")],
    goal: Annotated[
        str, typer.Option(help='What to reach, such as "minimise cost_usd subject to time_s <= 300".')
    ],
    budget: Annotated[
        str, typer.Option(help='What each may spend: an amount such as $2, or "10 avg" (average runs).')
    ],
    parameters: Annotated[
        str, typer.Option(help="The columns that can be chosen, such as vm_type,n_workers.")
    ],
    strategies: Annotated[
        str,
        typer.Option(
            help="Strategies with commas between; options as in lynceus:lookahead=1; all takes every one. "
            "\\[default: the default strategy, gp-eic and random]",
        ),
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many times each strategy is replayed.")] = 20,
    time: Annotated[str, typer.Option(help="The column with the run time in seconds.")] = "time_s",
    price: Annotated[
        str, typer.Option(help="The column with the price of the whole cluster per hour.")
    ] = "price_usd_per_h",
    measures: Annotated[
        str, typer.Option(help="Further columns with measures, beside those that the goal speaks of.")
    ] = "",
    fraction: Annotated[
        str | None, typer.Option(help="The column with the share of the data that was used.")
    ] = None,
    progress: Annotated[
        Path | None,
        typer.Option(help="A table of what the runs showed on the way (id, elapsed_s, measures)."),
    ] = None,
    early: Annotated[bool, typer.Option("--early", help="Cut runs that cannot be the answer.")] = False,
    processes: Annotated[int, typer.Option(min=1, help="How many replays run at a time.")] = 1,
    seed: Seed = 0,
    report: Annotated[
        Path | None, typer.Option(help="Where to write an HTML page that draws CNO, regret and money.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a table of measured runs with several strategies: how near each comes, for which money."""
    from prudent.cli.display.comparison import comparison_lines
    from prudent.tuning.comparison import compare as replay
    from prudent.tuning.goal import COST, TIME, Goal
    from prudent.tuning.jobs.table import TableJob

    wanted = Goal.parse(goal)
    spoken = [measure for measure in wanted.measures if measure not in (COST, TIME)]
    measured = list(dict.fromkeys([*spoken, *_words(measures)]))
    job = TableJob.read_csv(runs, _words(parameters), time, price, measured, fraction, progress)
    made = replay(job, wanted, budget, _words(strategies), seeds, early, processes=processes, first_seed=seed)
    page = None
    if report is not None:
        from prudent.reports.comparison import write_comparison_report

        page = write_or_complain(lambda: write_comparison_report(made, report))
    if as_json:
        say_json({**made.to_dict(), "report": str(page) if page else None})
        return
    say(out(), *comparison_lines(made, page))


def _words(text: str) -> list[str]:
    """The words between commas."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if not all(words):
        raise BadInput(f'"{text}" has an empty place between commas; write it like vm_type,n_workers.')
    return words
