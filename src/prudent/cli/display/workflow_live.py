"""What a person sees while a workflow runs: each machine's lane in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from prudent.cli.display.live import LiveView, format_clock, live_view
from prudent.core.units import format_duration, format_money
from prudent.workflows.execute.forecast import Forecast

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from prudent.workflows.plan import Plan
    from prudent.workflows.workflow import Workflow

Fact = dict[str, Any]
MOST_ROWS = 24
"""So many machines are shown; the busiest first."""


class WorkflowProgress:
    """The state of a run, folded from its facts; drawn by another thread than the one that writes."""

    def __init__(self, plan: Plan, workflow: Workflow, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan, self.total = plan, len(workflow)
        self.lanes = [(vm.name, slot) for vm in plan.fleet.vms for slot in range(vm.slots)]
        self.planned = {(a.vm, a.slot) for a in plan.assignments.values()}
        self.done = self.skipped = self.failed = self.lost = 0
        self.running: dict[str, tuple[tuple[str, int], float]] = {}
        self.bars: dict[tuple[str, int], list[tuple[float, float, str]]] = {}
        self.last: tuple[str, ...] = ()
        self.dead: set[str] = set()
        self.gone: set[str] = set()
        self.forecast: Forecast | None = None
        self.scale = 1.0
        self._clock, self._zero_s = clock, clock()
        self._lock = threading.Lock()

    def watch(self, fact: Fact) -> None:
        """Fold one fact in."""
        with self._lock:
            getattr(self, f"_{fact['fact']}", lambda fact: None)(fact)

    def drawn(self, width: int) -> RenderableType:
        """The view as of now."""
        with self._lock:
            return draw(self, width)

    @property
    def forecast_text(self) -> str:
        """What the run is expected to cost and to take, as soon as that is known."""
        ahead = self.forecast
        return "" if ahead is None else f"forecast: {ahead.cost_text}, {ahead.makespan_text}"

    def clock_s(self) -> float:
        """Seconds of the run, in those of the plan."""
        return (self._clock() - self._zero_s) / self.scale

    def _run(self, fact: Fact) -> None:
        self.scale = float(fact.get("replay") or 1.0)

    def _session(self, fact: Fact) -> None:
        self.skipped = self.done = int(fact["skipped"])
        if "forecast" in fact:
            self.forecast = Forecast.from_dict(fact["forecast"])
        self._zero_s = self._clock() - float(fact["at_s"]) * self.scale

    def _started(self, fact: Fact) -> None:
        # Until the first start, workers were being started: that is not part of the run.
        if not self.running and not self.bars:
            self._zero_s = self._clock() - float(fact["at_s"]) * self.scale
        self.running[fact["activation"]] = (fact["vm"], fact["slot"]), float(fact["at_s"])

    def _ended(self, fact: Fact) -> None:
        self.running.pop(fact["activation"], None)
        lane = fact["vm"], fact["slot"]
        bar = float(fact["start_s"]), float(fact["finish_s"]), fact["outcome"]
        self.bars[lane] = [*self.bars.get(lane, ()), bar]
        self.done += fact["outcome"] == "done"
        self.failed += bool(fact["outcome"] != "done" and fact.get("final"))
        if fact["outcome"] != "done":
            self.last = (*self.last, sentence(fact))[-4:]

    def _lost(self, fact: Fact) -> None:
        self.dead.add(fact["vm"])
        self.lost += 1
        self.last = (*self.last, sentence(fact))[-4:]

    def _replanned(self, fact: Fact) -> None:
        self.last = (*self.last, sentence(fact))[-4:]

    def _returned(self, fact: Fact) -> None:
        self.gone.add(fact["vm"])
        self.last = (*self.last, sentence(fact))[-4:]

    _stopped = _replanned


def sentence(fact: Fact) -> str:
    """A fact in one line, or nothing for those that need none.

    >>> sentence({"fact": "lost", "vm": "m5.large-2", "at_s": 75.0})
    '1:15  VM m5.large-2 was lost'
    """
    say = _SENTENCES.get(fact["fact"])
    at = format_clock(float(fact.get("finish_s") or fact.get("at_s") or 0.0))
    return "" if say is None else f"{at}  {say(fact)}"


def _ended(fact: Fact) -> str:
    if fact["outcome"] == "done":
        return f"{fact['activation']} done on {fact['vm']} in {format_duration(fact['took_s'])}"
    again = "" if fact.get("final") else "; it is tried again"
    return f"{fact['activation']} {fact['outcome']} on {fact['vm']}: {fact['error']}{again}"


def _replanned(fact: Fact) -> str:
    return f"{len(fact['moved'])} activations planned anew {_WHY.get(fact.get('why', ''), '')}"


def _rented(fact: Fact) -> str:
    return f"{fact['vm']} is rented, a {fact['machine']} at {format_money(fact['usd_per_h'])} an hour"


_SENTENCES: dict[str, Callable[[Fact], str]] = {
    "started": lambda fact: f"{fact['activation']} begins on {fact['vm']}",
    "ended": _ended,
    "lost": lambda fact: f"VM {fact['vm']} was lost",
    "replanned": _replanned,
    "rented": _rented,
    "returned": lambda fact: f"VM {fact['vm']} is given back: {fact['why']}",
    "stopped": lambda fact: f"stopped: the {fact['why']} leaves no room for more",
}
_WHY = {
    "lost": "after the loss",
    "surprise": "because times differ from the plan",
    "budget": "because money runs short",
    "deadline": "because time runs short",
}


def workflow_view(progress: WorkflowProgress, console: Console | None) -> LiveView[Fact]:
    """The view of a run."""
    return live_view(
        console,
        lambda fact: fact_lines(progress, fact),
        progress.watch,
        lambda over: progress.drawn(console.width if console else 0),
    )


def fact_lines(progress: WorkflowProgress, fact: Fact) -> Iterator[str]:
    """One line a fact, for logs and pipes; what begins is not told."""
    progress.watch(fact)
    said: list[str] = []
    if fact["fact"] == "session":
        said.append(progress.forecast_text)
        said += [
            f"{name} runs again: {why}" for name, why in fact.get("again", {}).items() if why != "not run yet"
        ]
        if fact["skipped"]:
            said.append(f"{fact['skipped']} activations are done and skipped")
    elif fact["fact"] != "started":
        said.append(sentence(fact))
    yield from filter(None, said)


def draw(progress: WorkflowProgress, width: int) -> RenderableType:
    """The whole view, `width` characters wide."""
    page = Table.grid(padding=0)
    page.add_row(_head(progress, width))
    page.add_row(Text(progress.forecast_text, style="dim", no_wrap=True, overflow="ellipsis"))
    lanes = [lane for lane in progress.lanes if lane in progress.planned or lane in progress.bars]
    room = max(len(_label(progress, lane)) for lane in lanes)
    end_s = max(progress.plan.makespan_s, progress.clock_s())
    for lane in lanes[:MOST_ROWS]:
        page.add_row(_lane(progress, lane, room, width, end_s))
    if len(lanes) > MOST_ROWS:
        page.add_row(Text(f"… and {len(lanes) - MOST_ROWS} more", style="dim"))
    for line in progress.last:
        page.add_row(Text(line, style="yellow", no_wrap=True, overflow="ellipsis"))
    return page


def _head(progress: WorkflowProgress, width: int) -> Text:
    plan, room = progress.plan, 24
    share = progress.done / max(progress.total, 1)
    full = round(room * share)
    words = f"  {progress.done}/{progress.total} done"
    words += f", {progress.failed} failed" if progress.failed else ""
    words += f", {len(progress.running)} running"
    clock = f"{format_clock(progress.clock_s())} of {format_duration(plan.makespan_s)} planned"
    expected_usd = plan.cost_usd if progress.forecast is None else progress.forecast.cost_usd.expected
    money = f", {format_money(expected_usd)}" if expected_usd else ""
    head = Text.assemble(
        (plan.workflow, "bold"), "  ", ("━" * full, "green"), ("─" * (room - full), "bright_black"), words
    )
    gap = width - len(head) - len(clock) - len(money)
    return head.append(" " * max(gap, 2)).append(clock + money, style="dim")


def _label(progress: WorkflowProgress, lane: tuple[str, int]) -> str:
    slots = next(vm.slots for vm in progress.plan.fleet.vms if vm.name == lane[0])
    return f"{lane[0]}/{lane[1] + 1}" if slots > 1 else lane[0]


def _lane(progress: WorkflowProgress, lane: tuple[str, int], room: int, width: int, end_s: float) -> Text:
    """A lane over time: what ended, what runs; behind the clock nothing is known yet."""
    name = _label(progress, lane)
    now_s = progress.clock_s()
    running = [(each, at) for each, (where, at) in progress.running.items() if where == lane]
    ended = "lost" if lane[0] in progress.dead else "given back" if lane[0] in progress.gone else ""
    note = running[0][0] if running else ended
    cells = max(width - room - 26, 10)
    line = Text(f"{name:<{room}} ", style="dim" if lane[0] in progress.dead else "")
    bars = [*progress.bars.get(lane, ()), *((at, now_s, "running") for _, at in running)]
    for cell in range(cells):
        middle_s = (cell + 0.5) * end_s / cells
        here = next((how for start, stop, how in bars if start <= middle_s < stop), None)
        line.append(*_CELLS[here if here or middle_s > now_s else "idle"])
    return line.append(f" {note[:24]}", style="cyan")


_CELLS: dict[str | None, tuple[str, str]] = {
    "done": ("━", "green"),
    "running": ("━", "cyan"),
    "failed": ("━", "red"),
    "lost": ("━", "yellow"),
    "idle": ("·", "bright_black"),
    None: (" ", ""),
}
