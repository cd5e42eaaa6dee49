"""The end of a study, in a few lines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from prudent.cli.display.tables import fact, fact_table, headed_table, short_path
from prudent.core.units import format_duration, format_money
from prudent.reports import formatting
from prudent.tuning.dry_run import DryRun
from prudent.tuning.goal import COST, TIME, Constraint
from prudent.tuning.result import PredictedMeasure, Recommendation, Result, untested_recommendation
from prudent.tuning.study.settlement import INTERRUPTED
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Trial

if TYPE_CHECKING:
    from rich.console import RenderableType

_LABEL = 15
WORTH_TELLING = 1.1
"""A saving by a smaller factor than this is within what runs differ by anyway."""


def answer_lines(result: Result, confirming: bool = False) -> list[RenderableType]:
    """What was found, what it cost, and how it compares; what came nearest if nothing was found.

    A recommendation that was never run comes first, with what is predicted of it; `confirming` says that it
    was run since, or is about to be.
    """
    result = formatting.counted_trials(result)
    lines: list[RenderableType] = []
    if result.interrupted:
        lines.append(
            Text(
                "Interrupted. What was running has been stopped; its time was paid and is charged. It starts "
                "again from its beginning when you continue with --resume.",
                style="yellow",
            )
        )
    recommended = untested_recommendation(result)
    if recommended is not None and recommended.likely:
        lines.append(_recommended(result, recommended, confirming))
    if result.best is not None:
        lines.append(_found(result, result.best))
    elif recommended is not None and not recommended.likely:
        lines += [Text(sentence, style="yellow") for sentence in hopeless(result, recommended)]
        lines.append(_settings(recommended.configuration))
    elif recommended is None:
        lines += [Text(sentence, style="yellow") for sentence in shortfall(result)]
    lines.append(row("Spent", _spent(result)))
    lines += [row("", Text(sentence, style="yellow")) for sentence in money_notes(result)]
    return lines


def file_lines(journal: Path, report: Path | None, logs: Path | None) -> list[RenderableType]:
    """Where the rest is."""
    rows = [("Report", report), ("Journal", journal), ("Logs", logs)]
    return [row(label, short_path(path), "dim") for label, path in rows if path is not None]


def has_answer(result: Result) -> bool:
    """Whether a study has an answer: measured, or recommended and more likely than not to keep the goal."""
    recommended = untested_recommendation(result)
    return result.best is not None or (recommended is not None and recommended.likely)


def _recommended(result: Result, recommended: Recommendation, confirming: bool) -> Table:
    table = fact_table(_LABEL)
    first, *others = recommended.expected
    at = "on the full data"
    head = f"{first.measure} {formatting.amount(first.measure, first.value)} predicted {at}, {_range(first)}"
    table.add_row(Text("Recommended", style="bold"), Text(head, style="bold green"))
    for expected in others:
        shown = formatting.amount(expected.measure, expected.value)
        table.add_row("", Text(f"{expected.measure} {shown} predicted, {_range(expected)}"))
    if result.goal.constraints:
        table.add_row(
            "", Text(f"keeps every constraint with a chance of {formatting.share(recommended.chance)}")
        )
    _add_settings(table, recommended.configuration)
    if not confirming:
        cost = recommended.of(COST)
        price = f" for about {format_money(cost.value)}" if cost else ""
        table.add_row(
            "",
            Text(
                f"It has not been run; --resume --confirm runs it once{price}, beside the budget.", "yellow"
            ),
        )
    return table


def _range(expected: PredictedMeasure) -> str:
    low, high = (formatting.amount(expected.measure, end) for end in (expected.low, expected.high))
    return f"{low} to {high} (95 % sure)"


def _settings(configuration: Configuration) -> Table:
    table = fact_table(_LABEL)
    _add_settings(table, configuration)
    return table


def _add_settings(table: Table, configuration: Configuration) -> None:
    for name, value in configuration.items():
        table.add_row(Text(f"  {name}", style="dim"), Text(formatting.value(value)))


def _found(result: Result, best: Trial) -> Table:
    table = fact_table(_LABEL)
    head = f"{format_money(best.cost_usd)} a run, {format_duration(best.time_s)}"
    table.add_row(Text("Best", style="bold"), Text(head, style="bold green"))
    for name, value in best.measures.items():
        table.add_row("", Text(f"{name} {formatting.amount(name, value)}"))
    _add_settings(table, best.configuration)
    comparison = comparison_with_others(result, best)
    if comparison:
        table.add_row(Text("Compared", style="bold"), Text(comparison))
    return table


def comparison_with_others(result: Result, best: Trial) -> str:
    """The best against the average of the other runs that keep the goal; nothing where it is no better.

    Runs that were cut, failed or break a constraint are no alternative, whatever they cost.
    """
    goal = result.goal
    others = [t for t in (*result.known, *result.trials) if t.feasible and t.number != best.number]
    if not others:
        return ""
    mean, value = fmean(trial.values[goal.measure] for trial in others), best.values[goal.measure]
    among = f"{len(others)} other runs that keep" if len(others) > 1 else "only other run that keeps"
    average = f"{'the average of ' if len(others) > 1 else ''}the {among} the goal"
    shown = formatting.amount(goal.measure, mean)
    if goal.measure in (COST, TIME) and goal.minimise:
        times = mean / value if value > 0 else 0.0
        return f"{times:.1f} times less than {average}, {shown}" if times >= WORTH_TELLING else ""
    here = formatting.amount(goal.measure, value)
    return f"{goal.measure} {here} against {shown}, {average}" if here != shown else ""


def shortfall(result: Result) -> Iterator[str]:
    """Why there is no answer, and what came nearest."""
    counts = {status: sum(t.status == status for t in result.trials) for status in (FINISHED, CUT, FAILED)}
    nearest = result.nearest
    if not result.trials:
        yield "Nothing was tried: the budget pays for no further run; raise it with --budget."
    elif nearest is not None:
        yield from _nearest(result, nearest)
    elif counts[FAILED] == len(result.trials):
        first = result.trials[0]
        yield f"All {counts[FAILED]} trials failed; the first said: {first.why}"
    else:
        yield (
            f"No run ended by itself: {counts[CUT]} were cut and {counts[FAILED]} failed, "
            "so none can be called the answer; raise the budget or loosen the goal."
        )


def _nearest(result: Result, nearest: Trial) -> Iterator[str]:
    misses = list(_misses(result, nearest))
    if not misses:  # it keeps every bound, but on a part of the data
        yield "No run on the full data came to its end, and the goal speaks of the full data."
        yield (
            f"Nearest was trial #{nearest.number}, on a part of the data; raise the budget with --resume "
            "--budget, or take a strategy that predicts the full data, such as fabulinus."
        )
        return
    yield "No configuration that was tried keeps every constraint."
    yield f"Nearest was trial #{nearest.number}: " + "; ".join(misses) + "."
    yield f"Loosen {_these(misses)} with another goal, widen the space, or continue with --resume --budget."


def hopeless(result: Result, recommended: Recommendation) -> Iterator[str]:
    """Why no configuration is expected to keep the goal on the full data, and what comes nearest."""
    missed = recommended.missed(result.goal.constraints)
    if not missed:
        yield (
            "No configuration is likely to come to its end on the full data: too many runs failed; "
            "read why in the report, and fix the job."
        )
        return
    yield "No configuration is expected to keep every constraint on the full data."
    told = [
        f"{e.measure} {formatting.amount(e.measure, e.value)} is predicted, {_range(e)}, "
        f"but {bound} is wanted"
        for bound, e in missed
    ]
    yield f"Nearest, with a chance of {formatting.share(recommended.chance)}: " + "; ".join(told) + "."
    yield f"Loosen {_these(told)} with another goal, widen the space, or continue with --resume --budget."


def _these(misses: list[str]) -> str:
    return "that constraint" if len(misses) == 1 else "those constraints"


def _misses(result: Result, trial: Trial) -> Iterator[str]:
    for constraint in result.goal.constraints:
        value = trial.values.get(constraint.measure)
        if not constraint.holds(value):
            yield f"{_shown_value(constraint, value)}, but {constraint} is wanted"


def _shown_value(constraint: Constraint, value: float | None) -> str:
    if value is None:
        return f"{constraint.measure} was not measured"
    shown = f"{constraint.measure} was {formatting.amount(constraint.measure, value)}"
    return f"{shown} (off by {constraint.excess(value):.1%})"


def _spent(result: Result) -> Text:
    of = f" of {format_money(result.budget_usd)}" if result.budget_usd is not None else ""
    counts = {status: sum(t.status == status for t in result.trials) for status in (FINISHED, CUT, FAILED)}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    trials = f"{len(result.trials)} trial{'s' if len(result.trials) != 1 else ''}"
    known = f", {len(result.known)} known before" if result.known else ""
    return Text(f"{format_money(result.spent_usd)}{of} on {trials}{f' ({told})' if told else ''}{known}")


def money_notes(result: Result) -> Iterator[str]:
    """What the reader must know about the money beside the sum."""
    if result.interrupted_usd:
        count = sum(entry.note == INTERRUPTED for entry in result.entries)
        runs = f"{count} runs that were" if count > 1 else "a run that was"
        yield f"{format_money(result.interrupted_usd)} of it for {runs} interrupted"
    if result.stopped:
        left = "" if result.left_usd is None else f"{format_money(result.left_usd)} of the budget is left: "
        yield f"{left}{result.stopped}"
    if result.over_usd:
        yield (
            f"{format_money(result.over_usd)} more than the budget: something did not end in time, or cost "
            "more than its price said; the journal lists every charge"
        )


def row(label: str, text: Text | str, style: str = "") -> Table:
    """One line of an answer, under its label."""
    return fact(label, text, _LABEL, style)


def dry_run_lines(name: str, dry: DryRun) -> Iterator[RenderableType]:
    """The lines of a dry run."""
    yield Text.assemble((name, "bold"), "  ", (dry.goal, "dim"))
    yield ""
    yield _parameters(dry)
    yield ""
    yield _prices(dry)
    if dry.first:
        yield ""
        yield _first(dry)
    for warning in dry.warnings:
        yield ""
        yield Text.assemble(("! ", "bold yellow"), (warning, "yellow"))
    yield ""
    yield Text("Nothing was run. Leave out --dry-run to begin.", style="dim")


def _parameters(dry: DryRun) -> Table:
    table = fact_table(0)
    size = "too many to count" if dry.size is None else f"{dry.size:,}"
    table.add_row(Text("Configurations", style="bold"), Text(size))
    for line in dry.parameters:
        parameter, _, values = line.partition(": ")
        table.add_row(Text(f"  {parameter}", style="dim"), Text(values))
    return table


def _prices(dry: DryRun) -> Table:
    """Prices, and what the budget buys at each."""
    table = headed_table("Prices (of a sample)" if dry.sampled else "Prices", "$/h")
    if dry.budget_usd is not None:
        table.add_column(f"{format_money(dry.budget_usd)} buys", justify="right", no_wrap=True)
    bounded = math.isfinite(dry.bound_s) and dry.budget_usd is not None
    if bounded:
        table.add_column(f"runs of {format_duration(dry.bound_s)}", justify="right", no_wrap=True)
    table.add_column("configuration", overflow="ellipsis", no_wrap=True, style="dim")
    for point in dry.prices:
        cells = [f"  {point.which}", f"{point.usd_per_h:.4g}"]
        if dry.budget_usd is not None:
            cells.append(_hours(point.hours))
        if bounded:
            cells.append(f"{point.runs:,.1f}" if math.isfinite(point.runs) else "any number")
        table.add_row(*cells, Text(formatting.settings(point.configuration)))
    return table


def _first(dry: DryRun) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="ellipsis", no_wrap=True)
    table.add_row(
        Text("First trials", style="bold"), Text("$/h", style="dim"), Text(dry.strategy, style="dim")
    )
    for place, (configuration, usd_per_h) in enumerate(dry.first, start=1):
        table.add_row(Text(f"  {place}", style="dim"), f"{usd_per_h:.4g}", formatting.settings(configuration))
    return table


def _hours(hours: float) -> str:
    return format_duration(hours * 3600.0) if math.isfinite(hours) else "for ever"
