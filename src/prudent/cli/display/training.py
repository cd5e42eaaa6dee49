"""A training request in the terminal: what it would do, how far it is, and what it came to."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Group
from rich.table import Table
from rich.text import Text

from prudent.cli.display.live import LiveView, live_view
from prudent.cli.display.tables import fact, fact_table
from prudent.core.units import format_duration, format_money
from prudent.reports import formatting
from prudent.training.leaderboard import (
    LeaderboardEntry,
    SpendingUpdated,
    TrainingEvent,
    TrainingTrialEnded,
    TrainingTrialReported,
    TrainingTrialStarted,
    rank_key,
)
from prudent.training.request.request import TrainingRequest
from prudent.tuning.trial import Progress

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from prudent.training.joint.train import JointPreview
    from prudent.training.leaderboard import Leaderboard, TrialFailure
    from prudent.training.search.preview import RequestPreview

TOP = 10
BEST_SHOWN = 8
"""Of the leaderboard, while a request runs."""
REASONS = 5
_LABEL = 13


def ranking(entries: Sequence[LeaderboardEntry]) -> Table:
    """Models as a table, in the order given."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=True)
    widest = max((len(entry.algorithm) for entry in entries), default=0)
    columns: list[tuple[str, Literal["left", "right"], int]] = [
        ("", "right", 3),
        ("algorithm", "left", max(widest, 9)),
        ("score", "right", 8),
        ("trains in", "right", 9),
    ]
    for name, justify, width in columns:
        # A table that is too wide takes from these first, and the score is what people look for.
        table.add_column(name, justify=justify, no_wrap=True, min_width=width)
    table.add_column("settings", overflow="ellipsis", no_wrap=True, ratio=1)
    for place, entry in enumerate(entries, start=1):
        style = "bold green" if place == 1 else ""
        table.add_row(
            Text(str(place), style="dim"),
            Text(entry.algorithm, style=style),
            Text(f"{entry.score:.4g}", style=style),
            format_duration(entry.train_s),
            Text(formatting.settings({**entry.hyperparameters, **_flat(entry.transforms), **_where(entry)})),
        )
    return table


def _where(entry: LeaderboardEntry) -> dict[str, object]:
    return {"machines": entry.machines} if entry.machines else {}


def _flat(transforms: object) -> dict[str, object]:
    said = transforms if isinstance(transforms, dict) else {}
    return {f"{name}.{key}": value for name, kept in said.items() for key, value in dict(kept).items()}


def answer_lines(board: Leaderboard, report: Path | None) -> list[RenderableType]:
    """The best model, those after it, what failed and why, and where everything is."""
    from prudent.reports.training import expectation, guessing_note

    lines: list[RenderableType] = []
    best = board.best
    if best is None:
        lines.append(Text(f"No model: {board.ended}, and no trial gave one.", style="yellow"))
    else:
        lines += [_best(best, board), ""]
        lines += [
            Text(note) for note in (expectation(board), board.no_clear_leader, board.unfinished) if note
        ]
        lines += [""] if best.interval is not None else []
        guessing = guessing_note(board)
        if guessing:
            lines += [Text(f"{guessing} Give data with other features, or more rows.", style="yellow"), ""]
        if len(board.entries) > 1:
            lines += [ranking(board.entries[:TOP]), ""]
    for warning in board.warnings:
        lines += [Text(warning, style="yellow"), ""]
    lines += _failed(board.failures)
    models = len(board.entries)
    said = f"{models} model{'s' if models != 1 else ''} in {format_duration(board.time_s)} for "
    lines.append(_row("Spent", f"{said}{format_money(board.spent_usd)}; it ended because {board.ended}"))
    lines += [_row("", note) for note in _money_notes(board)]
    if board.recommended:
        lines.append(_row("Recommended", f"train {_recommended(board.recommended)}"))
    lines.append(_row("Models", board.out))
    if report is not None:
        lines.append(_row("Report", str(report)))
    return lines


def _money_notes(board: Leaderboard) -> Iterator[str]:
    """What the reader must know about the money beside the sum."""
    if board.interrupted_usd:
        yield f"{format_money(board.interrupted_usd)} of it for trials that were interrupted"
    if board.over_usd:
        yield (
            f"{format_money(board.over_usd)} more than the budget: something did not end in time, or cost "
            "more than its price said"
        )


def _recommended(said: Mapping[str, Any]) -> str:
    settings = {**said["hyperparameters"], **_flat(said["transforms"])}
    return f"{said['algorithm']} ({formatting.settings(settings)}) on {said['machines']}"


def _best(best: LeaderboardEntry, board: Leaderboard) -> Table:
    table = fact_table(_LABEL)
    table.add_row(
        Text("Best", style="bold"),
        Text(f"{best.algorithm}, {board.metric} {best.value:.6g}", style="bold green"),
    )
    for name, value in {**best.hyperparameters, **_flat(best.transforms)}.items():
        table.add_row(Text(f"  {name}", style="dim"), Text(formatting.value(value)))
    if best.machines:
        table.add_row(
            Text("  trained on", style="dim"),
            Text(f"{best.machines}, {100 * best.fraction:.3g} % of the rows"),
        )
    table.add_row(
        Text("  predicts", style="dim"), Text(f"a row in {format_duration(best.predict_ms / 1000)}")
    )
    table.add_row(Text("  saved in", style="dim"), Text(best.model_path))
    return table


def _failed(failures: Sequence[TrialFailure]) -> list[RenderableType]:
    if not failures:
        return []
    reasons = Counter(f"{failure.algorithm}: {failure.why}" for failure in failures)
    lines: list[RenderableType] = [
        Text(f"{len(failures)} trial{'s' if len(failures) != 1 else ''} gave no model:", style="yellow")
    ]
    for reason, count in reasons.most_common(REASONS):
        lines.append(Text(f"  {count} × {reason}"))
    if len(reasons) > REASONS:
        lines.append(Text(f"  and {len(reasons) - REASONS} other reasons; leaderboard.json has them all."))
    return [*lines, ""]


def _row(label: str, text: str) -> Table:
    return fact(label, text, _LABEL, label_style="dim")


def plan_lines(seen: RequestPreview) -> list[RenderableType]:
    """What would be tried."""
    limits = ", ".join(seen.limits) or "each method's own number of trials"
    lines: list[RenderableType] = [
        _row("Domain", f"{seen.domain}, on the {seen.engine} engine"),
        _row("Search", f"{seen.search}, {seen.parallelism} at once"),
        _row("Ends after", limits),
        _row("Price", f"{format_money(seen.usd_per_h)} an hour ({seen.priced_by})"),
    ]
    for method in seen.methods:
        size = (
            "no end of combinations"
            if method.combinations is None
            else f"{method.combinations:,} combinations"
        )
        trials = "" if method.trials is None else f", {method.trials} trials"
        lines += ["", Text(f"{method.algorithm}: {size}{trials}", style="bold")]
        lines += [Text(f"  {parameter}") for parameter in method.parameters]
    return lines


def joint_lines(seen: JointPreview) -> list[RenderableType]:
    """What would be tried, where the machines are left open too."""
    size = "no end of" if seen.combinations is None else f"{seen.combinations:,}"
    lines: list[RenderableType] = [
        _row("Domain", f"{seen.domain}, on the spark engine"),
        _row("Goal", seen.goal),
        _row("Search", f"{seen.search}, {size} combinations"),
        _row("Ends after", ", ".join(seen.limits)),
    ]
    lines += [_row(name, f"{format_money(rate)} an hour") for name, rate in seen.usd_per_h.items()]
    lines += ["", *(Text(f"  {parameter}") for parameter in seen.parameters)]
    lines += [Text(complaint, style="yellow") for complaint in seen.complaints]
    return lines


# While it runs


class TrainingProgress:
    """The request so far, folded from its events; only the best models are kept."""

    def __init__(self, asked: TrainingRequest) -> None:
        self.asked = asked
        self.began_s = time.monotonic()
        self.best: list[LeaderboardEntry] = []
        self.models = self.failed = 0
        self.spent_usd = 0.0
        self.running: dict[int, tuple[str, Progress | None]] = {}
        self._ended: list[int] = []

    def watch(self, event: TrainingEvent) -> bool:
        """Fold one event in; True if it is a new best model."""
        if isinstance(event, TrainingTrialStarted):
            self.running[event.number] = (event.algorithm, None)
        elif isinstance(event, TrainingTrialReported):
            self.running[event.number] = (event.algorithm, event.progress)
        elif isinstance(event, TrainingTrialEnded):
            self.running.pop(event.result.trial, None)
            bisect.insort(self._ended, event.result.trial)
            if isinstance(event.result, LeaderboardEntry):
                return self._ranked(event.result)
            self.failed += 1
        elif isinstance(event, SpendingUpdated):
            self.spent_usd = event.total_usd
        return False

    def _ranked(self, entry: LeaderboardEntry) -> bool:
        self.models += 1
        best = list(self.best)
        bisect.insort(best, entry, key=rank_key)
        self.best = best[:BEST_SHOWN]
        return self.best[0] is entry

    def count(self, number: int) -> int:
        """What people call a trial: its place among those that ran or run, by its number."""
        return (
            1 + bisect.bisect_left(self._ended, number) + sum(other < number for other in list(self.running))
        )

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began_s


def training_view(progress: TrainingProgress, console: Console | None) -> LiveView[TrainingEvent]:
    """The view of a request; its answer tells all that it showed."""
    lines = partial(event_lines, progress)
    return live_view(console, lines, progress.watch, lambda over: draw(progress), transient=True)


def event_lines(progress: TrainingProgress, event: TrainingEvent) -> Iterator[str]:
    """One line a trial, for logs and pipes."""
    best = progress.watch(event)
    if not isinstance(event, TrainingTrialEnded) or event.earlier:
        return
    result = event.result
    settings = formatting.settings(result.hyperparameters)
    if isinstance(result, LeaderboardEntry):
        said = f"score {result.score:.6g}{'  best so far' if best else ''}"
    else:
        said = f"{'cut' if result.cut else 'failed'}: {result.why}"
    yield f"#{progress.count(result.trial)} {result.algorithm} {settings}  {said}"


def draw(progress: TrainingProgress) -> Group:
    """The view: how far it is, the best models, what runs."""
    head = (
        f"{progress.asked.domain}  {format_duration(progress.elapsed_s)}  {progress.models} models"
        f"  {progress.failed} failed  {format_money(progress.spent_usd)}"
    )
    lines: list[RenderableType] = [Text(head, style="bold"), ranking(progress.best)]
    for number, (algorithm, told) in sorted(progress.running.items()):
        lines.append(Text(f"#{progress.count(number)} {algorithm}{_how_far(told)}", style="dim"))
    return Group(*lines)


def _how_far(progress: Progress | None) -> str:
    if progress is None:
        return ""
    done = "" if progress.done is None else f" {progress.done:.0%}"
    score = progress.measures.get("score")
    return done + ("" if score is None else f", score {score:.4g}")
