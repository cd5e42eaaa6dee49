"""What a person sees while a study runs: a calm live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import termios
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rich.live import Live
from rich.table import Table
from rich.text import Text

from prudent.cli.board import Board, Money, Running
from prudent.cli.console import configuration_text, measure_text
from prudent.cli.trials import trials_table, varying
from prudent.core.units import format_duration, format_money
from prudent.tuning.limits import OUT_OF_MONEY
from prudent.tuning.study import Study
from prudent.tuning.trial import Configuration, Trial
from prudent.tuning.tune import Ended, Event, Started

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LEAST_BAR = 10


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
        page.add_row(trials_table(board.trials, board.best, board.goal, width))
    if board.best is not None and not over:
        page.add_row("")
        page.add_row(_best(board, board.best))
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
    words = _money_words(money, width - len("Budget  ") - LEAST_BAR)
    room = max(width - len("Budget  ") - len(words), LEAST_BAR)
    spent = min(round(room * money.spent_usd / money.budget_usd), room)
    reserved = min(round(room * money.reserved_usd / money.budget_usd), room - spent)
    return Text.assemble(
        ("Budget  ", "bold"),
        ("━" * spent, "cyan"),
        ("━" * reserved, "yellow"),
        ("─" * (room - spent - reserved), "bright_black"),
        (words, ""),
    )


def _money_words(money: Money, room: int) -> str:
    """As much about the money as there is room for."""
    spent, budget = format_money(money.spent_usd), format_money(money.budget_usd or 0.0)
    reserved = f" · {format_money(money.reserved_usd)} reserved" if money.reserved_usd else ""
    left = f" · {format_money(max(money.left_usd or 0.0, 0.0))} left of {budget}"
    said = [f"  {spent} spent{reserved}{left}", f"  {spent} spent{left}", f"  {spent} of {budget}"]
    return next((words for words in said if len(words) <= room), said[-1])


def _running(board: Board, running: Running, width: int) -> Table:
    """Two lines: what runs, for how long and what money; why it was chosen, and how far it is."""
    lasted_s = board.lasted_s(running)
    limit_s = running.limit.seconds
    known = math.isfinite(limit_s) and running.limit.why != OUT_OF_MONEY
    length = f"{format_duration(lasted_s)}{f' of {format_duration(limit_s)}' if known else ''}"
    bill = format_money(running.ask.price.cost_usd(lasted_s))
    told = [name for name in running.measures if name in board.goal.measures] or list(running.measures)
    seen = [f"{name} {measure_text(name, running.measures[name])}" for name in told]
    done = [f"{running.done:.0%}"] if running.done is not None else []
    lines = Table.grid()
    lines.width = width
    lines.add_column(no_wrap=True, min_width=len(number := f"  #{running.ask.number}  "))
    lines.add_column(ratio=1)
    what = configuration_text(_chosen(board, running.ask.configuration))
    lines.add_row(Text(number, style="cyan"), _apart(Text(what), Text(f"{length}  {bill}")))
    lines.add_row(
        "", _apart(Text(running.ask.why, style="dim"), Text("  ".join([*done, *seen]), style="dim"))
    )
    return lines


def _apart(left: Text, right: Text) -> Table:
    """One line with something at both ends; the left one is shortened if they meet."""
    line = Table.grid(expand=True)
    line.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    line.add_column(justify="right", no_wrap=True)
    line.add_row(left, Text("  ") + right if right.plain else right)
    return line


def _best(board: Board, trial: Trial) -> Table:
    """What it costs and how it is run; a long configuration goes on below itself, in full."""
    measures = "".join(f", {name} {measure_text(name, value)}" for name, value in trial.measures.items())
    best = Table.grid(padding=(0, 2, 0, 0))
    best.add_column(no_wrap=True)
    best.add_column(overflow="fold")
    told = Text.assemble(
        (f"{format_money(trial.cost_usd)} a run", "bold green"),
        f", {format_duration(trial.time_s)}{measures}  ",
        (configuration_text(_chosen(board, trial.configuration)), "dim"),
    )
    best.add_row(Text("Best", style="bold"), told)
    return best


def _chosen(board: Board, configuration: Configuration) -> Configuration:
    """A configuration without what never varies."""
    running = (running.ask.configuration for running in board.running.values())
    names = varying([*(trial.configuration for trial in board.trials), *running])
    return {name: configuration[name] for name in names}


def format_clock(seconds: float) -> str:
    """
    >>> format_clock(75), format_clock(3700)
    ('1:15', '1:01:40')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
