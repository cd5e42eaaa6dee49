"""What a run's page shows: its leaderboard, its curve, its plan over time, its log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from prudent.service.settings import Settings
from prudent.service.store import charges, models, runs, trials
from prudent.service.store.charges import Charge
from prudent.service.store.models import Model
from prudent.service.store.runs import Run
from prudent.service.store.trials import Trial
from prudent.service.web import drawing
from prudent.service.web.drawing import Bar, Curve, Point
from prudent.service.worker import artifacts

_SHOWN = 500
_LANES = 60
_TAIL_BYTES = 64_000
_TAIL_LINES = 200


@dataclass(frozen=True)
class Row:
    """A line of the leaderboard."""

    place: int
    label: str
    configuration: Mapping[str, Any]
    value: float | None
    cost_usd: float | None
    time_s: float | None
    trial: int
    model: str = ""


@dataclass(frozen=True)
class Lane:
    """A machine's work over time, drawn."""

    name: str
    svg: str
    busy: float


@dataclass(frozen=True)
class Board:
    """Everything of a run at one moment."""

    run: Run
    trials: tuple[Trial, ...]
    rows: tuple[Row, ...]
    measure: str
    curve: Curve | None
    charges: tuple[Charge, ...]
    models: tuple[Model, ...]
    result: Mapping[str, Any] = field(default_factory=dict)
    lanes: tuple[Lane, ...] = ()
    log: tuple[tuple[float, str], ...] = ()

    @property
    def best(self) -> Row | None:
        return self.rows[0] if self.rows else None

    @property
    def counts(self) -> dict[str, int]:
        """Trials by status, in the order in which they should be told."""
        found = {
            status: sum(t.status == status for t in self.trials)
            for status in ("running", "finished", "cut", "failed")
        }
        return {status: count for status, count in found.items() if count}


def look(connection: Connection, run_id: str) -> tuple[Run, list[Trial], list[Charge], list[Model]] | None:
    """A run with all that is stored about it."""
    run = runs.get(connection, run_id)
    if run is None:
        return None
    found = trials.of_run(connection, run_id, 5000)
    return run, found, charges.of_run(connection, run_id, 1000), models.of_run(connection, run_id)


def board_of(
    run: Run, found: Sequence[Trial], paid: Sequence[Charge], kept: Sequence[Model], settings: Settings
) -> Board:
    """The board of a run; reads the files that its worker left, where they are at hand."""
    larger = _larger_is_better(run, found)
    result = _result(run, settings) if run.kind == "schedule" and run.ended else {}
    return Board(
        run=run,
        trials=tuple(found),
        rows=_rows(run, found, kept, larger),
        measure=_measure(run, found),
        curve=None if run.kind == "schedule" else drawing.curve(_points(found), larger),
        charges=tuple(paid),
        models=tuple(kept),
        result=result,
        lanes=_lanes(result),
        log=_log(settings.folder_of(run.id) / artifacts.LOG),
    )


def _larger_is_better(run: Run, found: Sequence[Trial]) -> bool:
    if run.kind == "tune":
        goal = run.document.get("goal")
        words = goal if isinstance(goal, str) else " ".join(goal) if isinstance(goal, Mapping) else ""
        return words.lstrip().lower().startswith("max")
    if run.kind == "schedule":
        return False
    for trial in found:
        value = trial.details.get("value")
        if trial.score is not None and value is not None:
            return bool(trial.score == value)  # scores of errors are negated
    return True


def _value(trial: Trial) -> float | None:
    value = trial.details.get("value")
    return float(value) if isinstance(value, (int, float)) else trial.score


def _good(trial: Trial) -> bool:
    return trial.status == "finished" and trial.details.get("feasible", True) is not False


def _rows(run: Run, found: Sequence[Trial], kept: Sequence[Model], larger: bool) -> tuple[Row, ...]:
    done = [trial for trial in found if _good(trial) and _value(trial) is not None]
    done.sort(key=lambda trial: -(_value(trial) or 0.0) if larger else (_value(trial) or 0.0))
    by_rank = {model.rank: model.id for model in kept}
    return tuple(
        Row(
            place,
            trial.label or f"Trial {trial.number}",
            trial.configuration,
            _value(trial),
            trial.cost_usd,
            trial.time_s,
            trial.number,
            by_rank.get(place, "") if run.kind == "train" else "",
        )
        for place, trial in enumerate(done[:_SHOWN], start=1)
    )


def _points(found: Sequence[Trial]) -> list[Point]:
    points = []
    for trial in found:
        value = _value(trial)
        if value is not None and trial.status in ("finished", "cut"):
            title = f"Trial {trial.number}: {value:.4g}" + (f" ({trial.label})" if trial.label else "")
            points.append(Point(float(trial.number), value, title, _good(trial)))
    return points[-2000:]


def _measure(run: Run, found: Sequence[Trial]) -> str:
    if run.kind == "schedule":
        return "makespan"
    for trial in found:
        if "metric" in trial.details:
            return str(trial.details["metric"])
    goal = run.document.get("goal")
    words = goal.split() if isinstance(goal, str) else []
    return words[1] if run.kind == "tune" and len(words) > 1 else "score"


def _result(run: Run, settings: Settings) -> Mapping[str, Any]:
    place = run.folder or str(settings.folder_of(run.id))
    try:
        path = artifacts.local(place, artifacts.RESULT, settings.home / "cache")
        found = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lanes(result: Mapping[str, Any]) -> tuple[Lane, ...]:
    """The plan over time, one lane for each slot of a machine; the most loaded first."""
    assignments = result.get("assignments")
    whole = float(result.get("makespan_s") or 0.0)
    if not isinstance(assignments, Mapping) or whole <= 0:
        return ()
    bars: dict[str, list[Bar]] = {}
    groups: dict[str, int] = {}
    for name, place in assignments.items():
        lane = str(place["vm"]) + (f" · {place['slot'] + 1}" if place.get("slot") else "")
        start, end = float(place["start_s"]), float(place["finish_s"])
        group = groups.setdefault(_family(str(name)), len(groups))
        bars.setdefault(lane, []).append(Bar(start, end, f"{name}: {start:.1f} s to {end:.1f} s", group))
    lanes = [
        Lane(
            name,
            drawing.lane(sorted(some, key=lambda bar: bar.start), whole),
            sum(b.end - b.start for b in some) / whole,
        )
        for name, some in bars.items()
    ]
    return tuple(sorted(lanes, key=lambda lane: (-lane.busy, lane.name))[:_LANES])


def _family(name: str) -> str:
    """What activations of the same program have in common.

    >>> _family("mProject_ID00001"), _family("ID00012")
    ('mProject', 'ID')
    """
    return name.rstrip("0123456789").removesuffix("_ID").rstrip("_-.") or name


def _log(path: Path) -> tuple[tuple[float, str], ...]:
    """The last lines of a run's log, if it was written here."""
    if not artifacts.is_plain(path):
        return ()
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        return ()
    return tuple(_line(text) for text in lines if text.startswith("{"))


def _line(text: str) -> tuple[float, str]:
    try:
        said = json.loads(text)
        words = str(said.get("message", ""))
        return float(said.get("at_s", 0.0)), words + (f"\n{said['error']}" if "error" in said else "")
    except (ValueError, AttributeError, TypeError):
        return 0.0, text
