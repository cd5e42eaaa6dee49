"""What a person sees while a study runs: a calm live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from prudent.cli.display.live import LiveView, format_clock, live_view
from prudent.cli.display.tables import fact_table
from prudent.cli.display.trials_table import trials_table, varying
from prudent.core.units import format_duration, format_money
from prudent.reports import formatting
from prudent.tuning.goal import Goal
from prudent.tuning.study.limits import OUT_OF_MONEY, Limit
from prudent.tuning.study.study import Study
from prudent.tuning.trial import Configuration, PendingTrial, Trial
from prudent.tuning.tune import Event, TrialEnded, TrialExtended, TrialReported, TrialStarted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LEAST_BAR = 10


@dataclass
class RunningTrial:
    """A trial under way, as far as it has been heard of."""

    ask: PendingTrial
    begun_s: float
    limit: Limit
    seen_s: float = 0.0
    done: float | None = None
    measures: dict[str, float] = field(default_factory=dict)


@dataclass
class BudgetState:
    """Where the budget is."""

    budget_usd: float | None = None
    spent_usd: float = 0.0
    reserved_usd: float = 0.0

    @property
    def left_usd(self) -> float | None:
        return None if self.budget_usd is None else self.budget_usd - self.spent_usd - self.reserved_usd


class StudyProgress:
    """One thread runs the study and writes here, another draws and reads: collections are replaced whole.

    `virtual` jobs have a clock of their own, live ones that of the wall.
    """

    def __init__(
        self,
        name: str,
        goal: Goal,
        budget_usd: float | None,
        virtual: bool,
        setup_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.goal, self.virtual, self.setup_s = name, goal, virtual, setup_s
        self.strategy = ""
        self.seed = 0
        self.running: dict[int, RunningTrial] = {}
        self.trials: tuple[Trial, ...] = ()
        self.best: Trial | None = None
        self.money = BudgetState(budget_usd)
        self.clock = clock
        self.begun_s = clock()

    def watch(self, event: Event, study: Study) -> None:
        """Fold one event in."""
        self.strategy, self.seed = study.strategy_name, study.seed
        running = dict(self.running)
        if isinstance(event, TrialStarted):
            running[event.ask.number] = RunningTrial(event.ask, self.clock(), study.limit(event.ask.number))
        elif isinstance(event, TrialReported):
            seen = running[event.number]
            seen.seen_s = event.progress.elapsed_s
            seen.done = seen.done if event.progress.done is None else event.progress.done
            seen.measures = {**seen.measures, **event.progress.measures}
        elif isinstance(event, TrialEnded):
            running.pop(event.trial.number, None)
        if isinstance(event, (TrialEnded, TrialExtended)):
            for number, member in running.items():
                member.limit = study.limit(number)
        self.running, self.trials, self.best = running, study.trials, study.best
        ledger = study.ledger
        self.money = BudgetState(ledger.budget_usd, ledger.spent_usd, ledger.reserved_usd)

    def count(self, number: int) -> int:
        """What people call a trial: its place among those that ran or run, by its number in the journal."""
        return 1 + sum(other < number for other in (*(t.number for t in self.trials), *self.running))

    def elapsed_s(self) -> float:
        return self.clock() - self.begun_s

    def lasted_s(self, running: RunningTrial) -> float:
        """How long a trial has run, by the clock it is billed by."""
        if self.virtual:
            return running.seen_s
        return max(running.seen_s, self.clock() - running.begun_s + self.setup_s)


def study_view(progress: StudyProgress, console: Console | None) -> LiveView[Event, Study]:
    """The view of a study."""
    return live_view(
        console,
        lambda event, study: event_lines(progress, event, study),
        progress.watch,
        lambda over: draw(progress, console.width if console else 0, over),
    )


def event_lines(progress: StudyProgress, event: Event, study: Study) -> Iterator[str]:
    """One line a trial, for logs and pipes; a live job also says what it begins."""
    before = progress.best
    progress.watch(event, study)
    if isinstance(event, TrialStarted) and not progress.virtual:
        ask = event.ask
        count = progress.count(ask.number)
        yield f"#{count} begins  {formatting.settings(ask.configuration)}  ({ask.why})"
    elif isinstance(event, TrialEnded):
        better = "  best so far" if progress.best is not before else ""
        yield f"{trial_text(event.trial, progress.count(event.trial.number))}{better}"


def trial_text(trial: Trial, count: int) -> str:
    """A trial in one line, under its count."""
    measures = "  ".join(f"{name} {formatting.amount(name, value)}" for name, value in trial.measures.items())
    why = f"  ({trial.why})" if trial.why else ""
    return (
        f"#{count} {trial.status}  {format_duration(trial.time_s)}  {format_money(trial.spent_usd)}"
        f"{'  ' + measures if measures else ''}  {formatting.settings(trial.configuration)}{why}"
    )


def draw(board: StudyProgress, width: int, over: bool = False) -> RenderableType:
    """The whole view, `width` characters wide."""
    page = Table.grid(padding=0)
    page.add_row(_head(board, width))
    page.add_row("")
    money = BudgetState(board.money.budget_usd, board.money.spent_usd) if over else board.money
    page.add_row(money_bar(money, width))
    if board.running and not over:
        page.add_row("")
        page.add_row(Text("Running", style="bold"))
        for running in board.running.values():
            page.add_row(_running(board, running, width))
    if board.trials:
        page.add_row("")
        page.add_row(trials_table(board.trials, board.best, board.goal, width, board.count))
    if board.best is not None and not over:
        page.add_row("")
        page.add_row(_best(board, board.best))
    return page


def _head(board: StudyProgress, width: int) -> Table:
    head = Table.grid(expand=False)
    head.width = width
    head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    name = Text.assemble((board.name, "bold"), ("  ", ""), (str(board.goal), "dim"))
    by = f"{board.strategy}, seed {board.seed}  {format_clock(board.elapsed_s())}" if board.strategy else ""
    head.add_row(name, Text(f"  {by}", style="dim"))
    return head


def money_bar(money: BudgetState, width: int) -> Text:
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


def _money_words(money: BudgetState, room: int) -> str:
    """As much about the money as there is room for."""
    spent, budget = format_money(money.spent_usd), format_money(money.budget_usd or 0.0)
    reserved = f" · {format_money(money.reserved_usd)} reserved" if money.reserved_usd else ""
    left = f" · {format_money(max(money.left_usd or 0.0, 0.0))} left of {budget}"
    said = [f"  {spent} spent{reserved}{left}", f"  {spent} spent{left}", f"  {spent} of {budget}"]
    return next((words for words in said if len(words) <= room), said[-1])


def _running(board: StudyProgress, running: RunningTrial, width: int) -> Table:
    """Two lines: what runs, for how long and what money; why it was chosen, and how far it is."""
    lasted_s = board.lasted_s(running)
    limit_s = running.limit.seconds
    known = math.isfinite(limit_s) and running.limit.why != OUT_OF_MONEY
    length = f"{format_duration(lasted_s)}{f' of {format_duration(limit_s)}' if known else ''}"
    bill = format_money(running.ask.price.cost_usd(lasted_s))
    told = [name for name in running.measures if name in board.goal.measures] or list(running.measures)
    seen = [f"{name} {formatting.amount(name, running.measures[name])}" for name in told]
    done = [f"{running.done:.0%}"] if running.done is not None else []
    lines = Table.grid()
    lines.width = width
    lines.add_column(no_wrap=True, min_width=len(number := f"  #{board.count(running.ask.number)}  "))
    lines.add_column(ratio=1)
    what = formatting.settings(_chosen(board, running.ask.configuration))
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


def _best(board: StudyProgress, trial: Trial) -> Table:
    """What it costs and how it is run; a long configuration goes on below itself, in full."""
    measures = "".join(f", {name} {formatting.amount(name, value)}" for name, value in trial.measures.items())
    best = fact_table(0)
    told = Text.assemble(
        (f"{format_money(trial.cost_usd)} a run", "bold green"),
        f", {format_duration(trial.time_s)}{measures}  ",
        (formatting.settings(_chosen(board, trial.configuration)), "dim"),
    )
    best.add_row(Text("Best", style="bold"), told)
    return best


def _chosen(board: StudyProgress, configuration: Configuration) -> Configuration:
    """A configuration without what never varies."""
    running = (running.ask.configuration for running in board.running.values())
    names = varying([*(trial.configuration for trial in board.trials), *running])
    return {name: configuration[name] for name in names}
