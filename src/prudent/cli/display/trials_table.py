"""The last trials of a study as a table that fits its window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from prudent.core.units import format_duration, format_money
from prudent.reports import formatting
from prudent.tuning.goal import Goal
from prudent.tuning.trial import CUT, FAILED, FINISHED, Configuration, Trial

SIGNS = {FINISHED: ("✓", "green"), CUT: ("✂", "yellow"), FAILED: ("✗", "red")}
BEST_SIGN = ("★", "bold green")
LAST = 8
"""So many of the last trials are shown."""
GAP = 2
SHORT_NAME = 5
"""A parameter's heading is cut to this before its column is given up."""
LEAST_CONFIGURATION = 12
LEAST_NOTE = 18
"""Fewer characters than this do not tell why a run ended; its sign does."""
DIGITS = 3


@dataclass(frozen=True)
class TableLayout:
    """Which columns there are and how wide; numbers keep their full width, what tells less gives way.

    `names` have a column for each parameter; where they do not fit, all share one of `shared` characters.
    """

    names: tuple[str, ...]
    widths: tuple[int, ...]
    shared: int
    measures: tuple[str, ...]
    note: int


def trials_table(
    trials: Sequence[Trial], best: Trial | None, goal: Goal, width: int, count: Callable[[int], int]
) -> Table:
    """The last trials, `width` characters wide at most; `count` tells what people call a trial's number."""
    names = varying(trial.configuration for trial in trials)
    layout = lay_out(trials, names, goal, width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    table.add_column("Trials", no_wrap=True, header_style="bold")
    for name, room in zip(layout.names, layout.widths, strict=True):
        table.add_column(Text(_clipped(name, room)), no_wrap=True, width=room)
    if layout.shared:
        heading = Text(_clipped("configuration", layout.shared))
        table.add_column(heading, no_wrap=True, overflow="ellipsis", width=layout.shared)
    for name in ("time", "cost", *map(escape, layout.measures)):
        table.add_column(name, justify="right", no_wrap=True)
    if layout.note:
        table.add_column("", no_wrap=True, overflow="ellipsis", max_width=layout.note)
    for trial in trials[-LAST:]:
        table.add_row(*_cells(trial, names, layout, count(trial.number), is_best=trial is best))
    return table


def lay_out(trials: Sequence[Trial], names: Sequence[str], goal: Goal, width: int) -> TableLayout:
    """Columns for a window; widths are those of all trials, lest the table jump while it scrolls.

    First come number, time and cost, then the measures of the goal, the configuration, other measures,
    and last why a run ended.
    """
    seen = list(dict.fromkeys(name for trial in trials for name in trial.measures))
    left = width - sum(
        _widest(title, (tell(trial) for trial in trials)) + GAP
        for title, tell in (("Trials", _number), ("time", _time), ("cost", _cost))
    )
    wanted, others = [n for n in seen if n in goal.measures], [n for n in seen if n not in goal.measures]
    measures, left = _that_fit(trials, wanted, left)
    columns = _columns(trials, names, left)
    shared = 0
    if columns is None:
        text = _widest("configuration", (_shared(trial, names) for trial in trials))
        shared = min(text, left - GAP) if left - GAP >= LEAST_CONFIGURATION else 0
    taken = sum(width + GAP for width in columns or ()) + (shared + GAP if shared else 0)
    more, left = _that_fit(trials, others, left - taken)
    note = left if left >= LEAST_NOTE else 0
    apart = tuple(names) if columns is not None else ()
    return TableLayout(apart, tuple(columns or ()), shared, (*measures, *more), note)


def _that_fit(trials: Sequence[Trial], measures: Sequence[str], left: int) -> tuple[list[str], int]:
    """As many measures as there is room for, in order, and the room that is left."""
    fit = []
    for name in measures:
        needed = _widest(name, (_measure(trial, name) for trial in trials)) + GAP
        if needed <= left:
            fit.append(name)
            left -= needed
    return fit, left


def _columns(trials: Sequence[Trial], names: Sequence[str], left: int) -> list[int] | None:
    """The widths of one column for each parameter, with shorter headings if need be; None without room."""
    for longest in range(max(SHORT_NAME, *map(len, names)), SHORT_NAME - 1, -1):
        widths = [_widest(name[:longest], (_value(trial, name) for trial in trials)) for name in names]
        if sum(widths) + GAP * len(widths) <= left:
            return widths
    return None


def _widest(title: str, texts: Iterable[str]) -> int:
    return max(len(title), *map(len, texts))


def varying(configurations: Iterable[Configuration]) -> list[str]:
    """Parameters with more than one value so far; all of them while there is but one configuration.

    >>> varying([{"workers": 1, "epochs": 20}, {"workers": 2, "epochs": 20}])
    ['workers']
    """
    seen: dict[str, set[str]] = {}
    for configuration in configurations:
        for name, value in configuration.items():
            seen.setdefault(name, set()).add(formatting.value(value))
    return [name for name, values in seen.items() if len(values) > 1] or list(seen)


def _number(trial: Trial) -> str:
    return f"  ✓ #{trial.number}"


def _time(trial: Trial) -> str:
    return f"{_at_least(trial)}{format_duration(trial.time_s)}"


def _cost(trial: Trial) -> str:
    return f"{_at_least(trial)}{format_money(trial.cost_usd)}"


def _at_least(trial: Trial) -> str:
    return ">" if trial.status == CUT else ""


def _measure(trial: Trial, name: str) -> str:
    return formatting.amount(name, trial.measures[name]) if name in trial.measures else "–"


def _value(trial: Trial, name: str) -> str:
    value = trial.configuration[name]
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else formatting.value(value)


def _shared(trial: Trial, names: Sequence[str]) -> str:
    return " ".join(f"{name}={_value(trial, name)}" for name in names)


def _cells(trial: Trial, names: Sequence[str], layout: TableLayout, count: int, is_best: bool) -> list[Text]:
    sign, colour = BEST_SIGN if is_best else SIGNS[trial.status]
    style = "bold" if is_best else "" if trial.status == FINISHED else "dim"
    where = [_value(trial, name) for name in layout.names]
    if layout.shared:
        where.append(_shared(trial, names))
    numbers = [_time(trial), _cost(trial), *(_measure(trial, name) for name in layout.measures)]
    note = Text("best so far", style="bold green") if is_best else Text(trial.why, style="dim")
    return [
        Text.assemble((f"  {sign} ", colour), (f"#{count}", style)),
        *(Text(text, style=style) for text in (*where, *numbers)),
        *((note,) if layout.note else ()),
    ]


def _clipped(name: str, room: int) -> str:
    return name if len(name) <= room else f"{name[: room - 1]}…"
