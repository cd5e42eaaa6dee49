"""What a person sees while models are trained: the leaderboard so far, or a line for each trial."""

from __future__ import annotations

import bisect
import time
from typing import TYPE_CHECKING, Protocol

from rich.console import Group
from rich.live import Live
from rich.text import Text

from prudent.cli.console import configuration_text, out
from prudent.cli.train_answer import ranking
from prudent.core.units import format_duration, format_money
from prudent.training.events import Ended, Event, Paid, Shown, Started
from prudent.training.leaderboard import Entry, standing
from prudent.training.request import TrainingRequest
from prudent.tuning.trial import Progress

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

SHOWN = 8


class View(Protocol):
    """Shows a request; `with view:` around it, `watch` for its events."""

    def __enter__(self) -> View: ...

    def __exit__(self, *_: object) -> None: ...

    def watch(self, event: Event) -> None: ...


class State:
    """The request so far, folded from its events; only the best models are kept."""

    def __init__(self, asked: TrainingRequest) -> None:
        self.asked = asked
        self.began_s = time.monotonic()
        self.best: list[Entry] = []
        self.models = self.failed = 0
        self.spent_usd = 0.0
        self.running: dict[int, tuple[str, Progress | None]] = {}

    def watch(self, event: Event) -> bool:
        """Fold one event in; True if it is a new best model."""
        if isinstance(event, Started):
            self.running[event.number] = (event.algorithm, None)
        elif isinstance(event, Shown):
            self.running[event.number] = (event.algorithm, event.progress)
        elif isinstance(event, Ended):
            self.running.pop(event.result.trial, None)
            if isinstance(event.result, Entry):
                return self._ranked(event.result)
            self.failed += 1
        elif isinstance(event, Paid):
            self.spent_usd = event.total_usd
        return False

    def _ranked(self, entry: Entry) -> bool:
        self.models += 1
        best = list(self.best)
        bisect.insort(best, entry, key=standing)
        self.best = best[:SHOWN]
        return self.best[0] is entry

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began_s


class Silent:
    """Nothing to see, for `--json`."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def watch(self, event: Event) -> None:
        del event


class Lines:
    """One line a trial, for logs and pipes."""

    def __init__(self, state: State, console: Console) -> None:
        self._state, self._console = state, console

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def watch(self, event: Event) -> None:
        best = self._state.watch(event)
        if not isinstance(event, Ended) or event.earlier:
            return
        result = event.result
        settings = configuration_text(result.hyperparameters)
        if isinstance(result, Entry):
            said = f"score {result.score:.6g}{'  best so far' if best else ''}"
        else:
            said = f"{'cut' if result.cut else 'failed'}: {result.why}"
        text = f"#{result.trial} {result.algorithm} {settings}  {said}"
        self._console.print(text, soft_wrap=True, markup=False, style="")


class Screen:
    """The leaderboard so far; redrawn four times a second."""

    def __init__(self, state: State, console: Console) -> None:
        self._state = state
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def watch(self, event: Event) -> None:
        self._state.watch(event)

    def _draw(self) -> RenderableType:
        return draw(self._state)


def draw(state: State) -> Group:
    """The view: how far it is, the best models, what runs."""
    head = (
        f"{state.asked.domain}  {format_duration(state.elapsed_s)}  {state.models} models"
        f"  {state.failed} failed  {format_money(state.spent_usd)}"
    )
    lines: list[RenderableType] = [Text(head, style="bold"), ranking(state.best)]
    for number, (algorithm, progress) in sorted(state.running.items()):
        lines.append(Text(f"#{number} {algorithm}{_progress(progress)}", style="dim"))
    return Group(*lines)


def _progress(progress: Progress | None) -> str:
    if progress is None:
        return ""
    done = "" if progress.done is None else f" {progress.done:.0%}"
    score = progress.measures.get("score")
    return done + ("" if score is None else f", score {score:.4g}")


def view_of(asked: TrainingRequest, as_json: bool) -> View:
    """The view for where the output goes."""
    if as_json:
        return Silent()
    console, state = out(), State(asked)
    return Screen(state, console) if console.is_terminal else Lines(state, console)
