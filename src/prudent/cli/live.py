"""What a person sees while a study runs: a calm live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from prudent.cli.board import Board, Money, Running
from prudent.cli.console import configuration_text, measure_text, value_text
from prudent.core.units import format_duration, format_money
from prudent.tuning.limits import OUT_OF_MONEY
from prudent.tuning.study import Study
from prudent.tuning.trial import CUT, FAILED, FINISHED, Trial
from prudent.tuning.tune import Ended, Event, Started

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

SIGNS = {FINISHED: ("✓", "green"), CUT: ("✂", "yellow"), FAILED: ("✗", "red")}
LAST = 8
"""So many of the last trials are shown."""
MOST_COLUMNS = 6


class View(Protocol):
    """Shows a study; `with view:` around it, `watch` for its events."""

    def __enter__(self) -> View: ...

    def __exit__(self, *_: object) -> None: ...

    def watch(self, event: Event, study: Study) -> None: ...


class Silent:
    """Nothing to see, for `--json`."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def watch(self, event: Event, study: Study) -> None:
        del event, study


class Lines:
    """One line a trial, for logs and pipes; a live job also says what it begins."""

    def __init__(self, board: Board, console: Console) -> None:
        self._board, self._console = board, console

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def watch(self, event: Event, study: Study) -> None:
        before = self._board.best
        self._board.watch(event, study)
        if isinstance(event, Started) and not self._board.virtual:
            ask = event.ask
            self._say(f"#{ask.number} begins  {configuration_text(ask.configuration)}  ({ask.why})")
        elif isinstance(event, Ended):
            better = "  best so far" if self._board.best is not before else ""
            self._say(f"{trial_text(event.trial)}{better}")

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False, style="")


class Screen:
    """The live view; redrawn four times a second, left standing when the study ends."""

    def __init__(self, board: Board, console: Console) -> None:
        self._board, self._console = board, console
        self._over = False
        self._echo: Callable[[], None] = lambda: None
        self._live = Live(
            get_renderable=self._draw, console=console, refresh_per_second=4, vertical_overflow="crop"
        )

    def __enter__(self) -> Screen:
        self._echo = _hush(self._console)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._live.stop()
        self._echo()

    def watch(self, event: Event, study: Study) -> None:
        self._board.watch(event, study)

    def _draw(self) -> RenderableType:
        return draw(self._board, self._console.width, over=self._over)


def _hush(console: Console) -> Callable[[], None]:
    """Keep the terminal from writing ^C into the view; answers how to undo that."""
    try:
        terminal = console.file.fileno()
        before = termios.tcgetattr(terminal)
        quiet = [*before]
        quiet[3] = before[3] & ~termios.ECHOCTL
        termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    except (OSError, ValueError, termios.error):
        return lambda: None
    return lambda: termios.tcsetattr(terminal, termios.TCSANOW, before)


def trial_text(trial: Trial) -> str:
    """A trial in one line."""
    measures = "  ".join(f"{name} {measure_text(name, value)}" for name, value in trial.measures.items())
    why = f"  ({trial.why})" if trial.why else ""
    return (
        f"#{trial.number} {trial.status}  {format_duration(trial.time_s)}  {format_money(trial.spent_usd)}"
        f"{'  ' + measures if measures else ''}  {configuration_text(trial.configuration)}{why}"
    )


def draw(board: Board, width: int, over: bool = False) -> RenderableType:
    """The whole view, `width` characters wide."""
    page = Table.grid(padding=0)
    page.add_row(_head(board, width))
    page.add_row("")
    money = Money(board.money.budget_usd, board.money.spent_usd) if over else board.money
    page.add_row(money_bar(money, width))
    if board.running and not over:
        page.add_row("")
        page.add_row(Text("Running", style="bold"))
        for running in board.running.values():
            page.add_row(_running(board, running, width))
    if board.trials:
        page.add_row("")
        page.add_row(trials_table(board, width))
    if board.best is not None and not over:
        page.add_row("")
        page.add_row(_best(board.best))
    return page


def _head(board: Board, width: int) -> Table:
    head = Table.grid(expand=False)
    head.width = width
    head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    name = Text.assemble((board.name, "bold"), ("  ", ""), (str(board.goal), "dim"))
    by = f"{board.strategy}, seed {board.seed}  {format_clock(board.elapsed_s())}" if board.strategy else ""
    head.add_row(name, Text(f"  {by}", style="dim"))
    return head


def money_bar(money: Money, width: int) -> Text:
    """The budget as a bar: spent, put aside for what runs, left."""
    if money.budget_usd is None:
        return Text.assemble(
            ("Spent  ", "bold"), f"{format_money(money.spent_usd)}", ("  (no budget)", "dim")
        )
    reserved_words = f"{format_money(money.reserved_usd)} reserved · " if money.reserved_usd else ""
    words = (
        f"  {format_money(money.spent_usd)} spent · {reserved_words}"
        f"{format_money(max(money.left_usd or 0.0, 0.0))} left of {format_money(money.budget_usd)}"
    )
    room = max(width - len("Budget  ") - len(words), 10)
    spent = min(round(room * money.spent_usd / money.budget_usd), room)
    reserved = min(round(room * money.reserved_usd / money.budget_usd), room - spent)
    return Text.assemble(
        ("Budget  ", "bold"),
        ("━" * spent, "cyan"),
        ("━" * reserved, "yellow"),
        ("─" * (room - spent - reserved), "bright_black"),
        (words, ""),
    )


def _running(board: Board, running: Running, width: int) -> Table:
    """Two lines: what runs and how far it is, and why it was chosen."""
    lasted_s = board.lasted_s(running)
    limit_s = running.limit.seconds
    known = math.isfinite(limit_s) and running.limit.why != OUT_OF_MONEY
    length = f"{format_duration(lasted_s)}{f' of {format_duration(limit_s)}' if known else ''}"
    done = f"{running.done:.0%}" if running.done is not None else ""
    seen = [f"{name} {measure_text(name, value)}" for name, value in running.measures.items()]
    bill = format_money(running.ask.price.cost_usd(lasted_s))
    number = f"  #{running.ask.number}  "
    line = Table.grid()
    line.width = width
    line.add_column(no_wrap=True)
    line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    line.add_column(justify="right", no_wrap=True)
    now = "  ".join(part for part in (done, *seen, length, bill) if part)
    line.add_row(
        Text(number, style="cyan"), Text(configuration_text(running.ask.configuration)), Text(f"  {now}")
    )
    both = Table.grid()
    both.add_column(no_wrap=True, overflow="ellipsis", max_width=width)
    both.add_row(line)
    both.add_row(Text(f"{' ' * len(number)}{running.ask.why}", style="dim"))
    return both


def trials_table(board: Board, width: int) -> Table:
    """The last trials; a column for each parameter that varies, if there is room."""
    shown = board.trials[-LAST:]
    names = _varying(board.trials)
    measures = list(dict.fromkeys(name for trial in board.trials for name in trial.measures))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", title=None)
    table.add_column("Trials", no_wrap=True, header_style="bold")
    apart = len(names) <= MOST_COLUMNS and _width(names, shown) + 14 * len(measures) + 40 <= width
    for name in names if apart else ["configuration"]:
        table.add_column(escape(name), no_wrap=True, overflow="ellipsis")
    for name in ("time", "cost", *(escape(name) for name in measures)):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", style="dim", ratio=1 if not apart else None)
    for trial in shown:
        table.add_row(*_cells(trial, names, measures, apart, is_best=trial is board.best))
    return table


def _cells(trial: Trial, names: list[str], measures: list[str], apart: bool, is_best: bool) -> list[Text]:
    sign, colour = SIGNS[trial.status]
    style = "bold" if is_best else "" if trial.status == FINISHED else "dim"
    chosen = {name: trial.configuration[name] for name in names}
    where = [value_text(value) for value in chosen.values()] if apart else [configuration_text(chosen)]
    at_least = ">" if trial.status == CUT else ""
    values = [
        measure_text(name, trial.measures[name]) if name in trial.measures else "–" for name in measures
    ]
    note = "best so far" if is_best else trial.why
    return [
        Text.assemble((f"  {sign} ", colour), (f"#{trial.number}", style)),
        *(Text(text, style=style) for text in where),
        Text(f"{at_least}{format_duration(trial.time_s)}", style=style),
        Text(f"{at_least}{format_money(trial.cost_usd)}", style=style),
        *(Text(text, style=style) for text in values),
        Text(note, style="bold green" if is_best else "dim"),
    ]


def _varying(trials: tuple[Trial, ...]) -> list[str]:
    """Parameters with more than one value so far; all of them while there is but one trial."""
    names = list(trials[0].configuration)
    varying = [name for name in names if len({value_text(t.configuration[name]) for t in trials}) > 1]
    return varying or names


def _width(names: list[str], trials: tuple[Trial, ...]) -> int:
    columns = ([name, *(value_text(trial.configuration[name]) for trial in trials)] for name in names)
    return sum(max(len(text) for text in column) + 2 for column in columns)


def _best(trial: Trial) -> Text:
    measures = "".join(f", {name} {measure_text(name, value)}" for name, value in trial.measures.items())
    return Text.assemble(
        ("Best  ", "bold"),
        (f"{format_money(trial.cost_usd)} a run", "bold green"),
        f", {format_duration(trial.time_s)}{measures}  ",
        (configuration_text(trial.configuration), "dim"),
    )


def format_clock(seconds: float) -> str:
    """
    >>> format_clock(75), format_clock(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
