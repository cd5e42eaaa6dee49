"""The training part of `prudent demo`: from a CSV file to ranked models, a report and a prediction."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from prudent.cli.console import say
from prudent.cli.exits import ended_by_signals
from prudent.core.seeds import rng_for
from prudent.core.units import format_duration, format_money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from prudent.cli.display.live import LiveView
    from prudent.cli.display.training import TrainingProgress
    from prudent.training.leaderboard import Leaderboard, TrainingEvent
    from prudent.training.request.request import TrainingRequest

BUDGET = "10 s"
PARALLELISM = 2
KEPT_OUT = 5
"""Rows that no model sees before it predicts them."""
TOP = 5
DATA_FILE, TARGET = "tumours.csv", "diagnosis"

Row = dict[str, Any]


@dataclass(frozen=True)
class DemoPrediction:
    """What the best model says of a row that it has never seen, next to the truth."""

    truth: str
    said: str
    probability: float | None
    """How sure it is; None for models that do not tell."""


@dataclass(frozen=True)
class TrainingDemo:
    """What the demo did: the ranking, what the best model predicted, and the report."""

    board: Leaderboard
    predictions: tuple[DemoPrediction, ...]
    report: Path | None

    @property
    def interrupted(self) -> bool:
        from prudent.training.search.search import INTERRUPTED

        return self.board.ended == INTERRUPTED

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            **self.board.to_dict(),
            "predictions": [asdict(prediction) for prediction in self.predictions],
            "report": str(self.report) if self.report else None,
        }


def training_demo(console: Console | None, folder: Path, seed: int = 0, budget: str = BUDGET) -> TrainingDemo:
    """Train on the tumours that scikit-learn brings, with no algorithm named; about 12 s.

    A few rows are kept out of the data, and the best model predicts them in the end, as a user's program
    would. `console` is None for a silent demo.
    """
    from prudent.cli.train import write_report
    from prudent.training.request.request import TrainingRequest
    from prudent.training.train import train

    folder.mkdir(parents=True, exist_ok=True)
    seen, unseen = tumours(seed)
    data, models = folder / DATA_FILE, folder / "models"
    _write(seen, data)
    _clear(models)
    asked = TrainingRequest.parse(
        {
            "domain": "classification",
            "dataset": {"path": str(data), "target": TARGET},
            "budget": budget,
            "parallelism": PARALLELISM,
            "seed": seed,
        }
    )
    say(console, *_introduction(seen, budget))
    view = _view(asked, console)
    with ended_by_signals(), view:
        board = train(asked, out=models, watch=view.watch)
    done = TrainingDemo(board, _predictions(board, unseen), write_report(board))
    say(console, *_conclusion(done))
    return done


def tumours(seed: int) -> tuple[list[Row], list[Row]]:
    """Breast tumours by what a microscope shows: the rows to train on, and the few that are kept out."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    columns = [str(name).replace(" ", "_") for name in found.feature_names]
    rows: list[Row] = [
        {**dict(zip(columns, values, strict=True)), TARGET: str(found.target_names[label])}
        for values, label in zip(found.data.tolist(), found.target.tolist(), strict=True)
    ]
    out = set(rng_for(seed, "demo", "kept out").choice(len(rows), KEPT_OUT, replace=False).tolist())
    return [row for n, row in enumerate(rows) if n not in out], [rows[n] for n in sorted(out)]


def _write(rows: list[Row], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _clear(models: Path) -> None:
    """Remove what an earlier demo left; models of somebody else stay, and `train` then asks for a folder."""
    from prudent.training.models.output import WORK

    try:
        before = json.loads((models / WORK / "request.json").read_text(encoding="utf-8"))
        ours = Path(before["request"]["dataset"]["path"]).name == DATA_FILE
    except (OSError, ValueError, LookupError, TypeError):
        return
    if ours:
        shutil.rmtree(models)


def _view(asked: TrainingRequest, console: Console | None) -> LiveView[TrainingEvent]:
    from prudent.cli.display.live import LineView
    from prudent.cli.display.training import TrainingProgress, training_view

    progress = TrainingProgress(asked)
    if console is None or console.is_terminal:
        return training_view(progress, console)
    return LineView(lambda event: _best_models(progress, event), console, style="dim")


def _best_models(progress: TrainingProgress, event: TrainingEvent) -> Iterator[str]:
    """A line for each model that is better than all before it, for logs and pipes."""
    if progress.watch(event):
        best, after = progress.best[0], format_duration(progress.elapsed_s)
        yield f"  best after {after}: {best.score:.4f} by {best.algorithm}, model {progress.models}"


def _predictions(board: Leaderboard, unseen: list[Row]) -> tuple[DemoPrediction, ...]:
    """The best model, loaded from its folder as any program would."""
    from prudent.training.models.model import load

    if board.best is None:
        return ()
    model = load(board.best.model_path)
    questions = [{name: value for name, value in row.items() if name != TARGET} for row in unseen]
    said = model.predict(questions).tolist()
    sure = (
        model.predict_proba(questions).max(axis=1).tolist()
        if model.has_probabilities
        else [None] * len(questions)
    )
    return tuple(
        DemoPrediction(row[TARGET], str(label), None if chance is None else round(chance, 6))
        for row, label, chance in zip(unseen, said, sure, strict=True)
    )


def _introduction(rows: list[Row], budget: str) -> list[RenderableType]:
    question = f"{len(rows)} tumours, {len(rows[0]) - 1} measurements each: which are malignant?"
    limits = f"  no algorithm named, {budget} to find one, {PARALLELISM} trials at once; training …"
    return [Text.assemble(("Models  ", "bold"), question), Text(limits, style="dim")]


def _conclusion(done: TrainingDemo) -> list[RenderableType]:
    from prudent.cli.display.training import ranking

    board = done.board
    if board.best is None:
        return [Text(f"No model: {board.ended}, and no trial gave one.", style="yellow")]
    reasons = Counter(failure.why for failure in board.failures).most_common(1)
    failed = f", {len(board.failures)} more trials gave none ({reasons[0][0]})" if reasons else ""
    spent = f"{format_duration(board.time_s)} for {format_money(board.spent_usd)}"
    lines: list[RenderableType] = []
    if done.interrupted:
        lines.append(Text("Interrupted; this is what was known by then.", style="yellow"))
    lines += [
        Text(f"  {len(board.entries)} models in {spent}{failed}; scores are {board.metric}", style="dim"),
        ranking(board.entries[:TOP]),
        "",
        Text(f"  {len(done.predictions)} tumours that no model has seen, by the best one:", style="dim"),
        _answers(done.predictions),
        Text(f"  Models  {board.out}", style="dim"),
    ]
    return [*lines, Text(f"  Report  {done.report}", style="dim")] if done.report else lines


def _answers(predictions: tuple[DemoPrediction, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("  it says", "how sure", "the truth"):
        table.add_column(heading, justify="right" if heading == "how sure" else "left", no_wrap=True)
    for found in predictions:
        sure = "" if found.probability is None else f"{found.probability:.1%}"
        style = "" if found.said == found.truth else "yellow"
        table.add_row(Text(f"  {found.said}", style=style), sure, found.truth)
    return table
