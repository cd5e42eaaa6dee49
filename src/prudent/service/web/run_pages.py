"""Pages of runs: the list, one run, and the parts of them that change while one looks."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlalchemy import Connection

from prudent.core.errors import BadInput
from prudent.reports.drawing import program_colours
from prudent.service.security.authentication import user_of
from prudent.service.settings import Settings
from prudent.service.store import charges, claims, models, runs, trials, workers
from prudent.service.store.charges import Charge
from prudent.service.store.models import StoredModel
from prudent.service.store.runs import RunRow
from prudent.service.store.trials import TrialRow
from prudent.service.web import display
from prudent.service.web.api import document_for
from prudent.service.web.display import CurvePoint, Drawing, TimelineBar
from prudent.service.web.page_context import PageContext
from prudent.service.web.request_values import filter_value, is_id
from prudent.service.web.timed_cache import TimedCache
from prudent.service.worker import artifacts

_FILTERS = ("status", "kind", "user", "after")
Tally: TypeAlias = TimedCache[str | None, dict[str, int]]
"""How many runs are in each state, of one user or of all."""


def add(router: APIRouter, context: PageContext) -> None:
    """Routes below /runs."""
    tally: Tally = TimedCache(lambda user: context.store.read_async(runs.counts, user))

    @router.get("/")
    async def start() -> Response:
        return RedirectResponse("/runs", 303)

    @router.get("/runs")
    async def list_runs(request: Request) -> HTMLResponse:
        """Runs, newest first, with filters."""
        return context.page(request, "runs.html.j2", **await _listing(context, tally, request))

    @router.get("/runs/live")
    async def live_runs(request: Request) -> HTMLResponse:
        """The changing part of the list."""
        return context.page(request, "_runs.html.j2", **await _listing(context, tally, request))

    @router.get("/runs/{run_id}")
    async def show(run_id: str, request: Request) -> HTMLResponse:
        return await _run(context, request, run_id, "run.html.j2")

    @router.get("/runs/{run_id}/live")
    async def live(run_id: str, request: Request) -> HTMLResponse:
        """The changing parts of a run's page."""
        return await _run(context, request, run_id, "_run.html.j2")

    @router.post("/runs/{run_id}/cancel")
    async def cancel(run_id: str, request: Request) -> Response:
        """End a run, by its owner or an admin."""
        run = await context.store.read_async(runs.get, run_id) if is_id(run_id) else None
        if run is None:
            return context.missing(request, "There is no such run.", "/runs")
        if not user_of(request).owns(run.user):
            return context.page(
                request, "refused.html.j2", 403, why=f"This run is {run.user}'s.", back=f"/runs/{run.id}"
            )
        await context.store.write_async(runs.cancel, run.id)
        return RedirectResponse(f"/runs/{run.id}", 303)


async def _listing(context: PageContext, tally: Tally, request: Request) -> dict[str, Any]:
    said = {name: filter_value(request.query_params.get(name)) for name in _FILTERS}
    if said["status"] not in (None, *runs.STATUSES):
        said["status"] = None
    if said["kind"] not in (None, *runs.KINDS):
        said["kind"] = None
    try:
        page, idle = await context.store.read_async(_page, said)
    except BadInput:  # a cursor that is none
        said["after"] = None
        page, idle = await context.store.read_async(_page, said)
    counts = await tally(said["user"])
    kept = {name: value for name, value in said.items() if value and name != "after"}

    def link(**changes: str | None) -> str:
        query = {name: value for name, value in {**kept, **changes}.items() if value}
        return "/runs" + (f"?{urlencode(query)}" if query else "")

    return {
        "page": page,
        "idle": idle,
        "counts": counts,
        "said": said,
        "link": link,
        "live": "/runs/live?" + urlencode({name: value for name, value in said.items() if value}),
    }


def _page(connection: Connection, said: dict[str, str | None]) -> tuple[runs.RunPage, str]:
    """The runs, and why all that wait do, if there is one reason for all."""
    page = runs.page(connection, 50, said["after"], said["user"], said["status"], said["kind"])
    if not any(run.status == runs.QUEUED for run in page.runs) or workers.all_(connection):
        return page, ""
    return page, "No worker is there; start one with prudent worker."


async def _run(context: PageContext, request: Request, run_id: str, template: str) -> HTMLResponse:
    found = await context.store.read_async(read_run, run_id) if is_id(run_id) else None
    if found is None:
        return context.missing(request, "There is no such run.", "/runs")
    shown = await asyncio.to_thread(run_view, *found, context.settings)
    waiting = await context.store.read_async(claims.why_waiting, shown.run, context.settings.per_user)
    may_cancel = user_of(request).owns(shown.run.user) and not shown.run.ended
    return context.page(
        request,
        template,
        board=shown,
        run=shown.run,
        document=document_for(shown.run, user_of(request)),
        may_cancel=may_cancel,
        waiting=waiting,
    )


_SHOWN = 500
_LANES = 60
_TAIL_BYTES = 64_000
_TAIL_LINES = 200


@dataclass(frozen=True)
class LeaderboardRow:
    """A line of the leaderboard."""

    place: int
    label: str
    configuration: Mapping[str, Any]
    value: float | None
    cost_usd: float | None
    time_s: float | None
    model: str = ""


@dataclass(frozen=True)
class TimelineLane:
    """A machine's work over time, drawn."""

    name: str
    svg: str
    busy: float


@dataclass(frozen=True)
class RunView:
    """Everything of a run at one moment."""

    run: RunRow
    trials: tuple[TrialRow, ...]
    rows: tuple[LeaderboardRow, ...]
    measure: str
    curve: Drawing | None
    charges: tuple[Charge, ...]
    models: tuple[StoredModel, ...]
    result: Mapping[str, Any] = field(default_factory=dict)
    lanes: tuple[TimelineLane, ...] = ()
    log: tuple[tuple[float, str], ...] = ()

    @property
    def best(self) -> LeaderboardRow | None:
        return self.rows[0] if self.rows else None

    @property
    def counts(self) -> dict[str, int]:
        """Trials by status, in the order in which they should be told."""
        found = {
            status: sum(t.status == status for t in self.trials)
            for status in ("running", "finished", "cut", "failed")
        }
        return {status: count for status, count in found.items() if count}


def read_run(
    connection: Connection, run_id: str
) -> tuple[RunRow, list[TrialRow], list[Charge], list[StoredModel]] | None:
    """A run with all that is stored about it."""
    run = runs.get(connection, run_id)
    if run is None:
        return None
    found = trials.of_run(connection, run_id, 5000)
    return run, found, charges.of_run(connection, run_id, 1000), models.of_run(connection, run_id)


def run_view(
    run: RunRow,
    found: Sequence[TrialRow],
    paid: Sequence[Charge],
    kept: Sequence[StoredModel],
    settings: Settings,
) -> RunView:
    """The board of a run; reads the files that its worker left, where they are at hand."""
    larger = _larger_is_better(run, found)
    result = _result(run, settings) if run.kind == "schedule" and run.ended else {}
    return RunView(
        run=run,
        trials=tuple(found),
        rows=_rows(run, found, kept, larger),
        measure=_measure(run, found),
        curve=None if run.kind == "schedule" else display.curve(_points(found), larger),
        charges=tuple(paid),
        models=tuple(kept),
        result=result,
        lanes=_lanes(result),
        log=_log(settings.folder_of(run.id) / artifacts.LOG),
    )


def _larger_is_better(run: RunRow, found: Sequence[TrialRow]) -> bool:
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


def _value(trial: TrialRow) -> float | None:
    value = trial.details.get("value")
    return float(value) if isinstance(value, (int, float)) else trial.score


def _good(trial: TrialRow) -> bool:
    return trial.status == "finished" and trial.details.get("feasible", True) is not False


def _rows(
    run: RunRow, found: Sequence[TrialRow], kept: Sequence[StoredModel], larger: bool
) -> tuple[LeaderboardRow, ...]:
    done = [trial for trial in found if _good(trial) and _value(trial) is not None]
    done.sort(key=lambda trial: -(_value(trial) or 0.0) if larger else (_value(trial) or 0.0))
    by_rank = {model.rank: model.id for model in kept}
    return tuple(
        LeaderboardRow(
            place,
            trial.label or f"Trial {trial.number}",
            trial.configuration,
            _value(trial),
            trial.cost_usd,
            trial.time_s,
            by_rank.get(place, "") if run.kind == "train" else "",
        )
        for place, trial in enumerate(done[:_SHOWN], start=1)
    )


def _points(found: Sequence[TrialRow]) -> list[CurvePoint]:
    points = []
    for trial in found:
        value = _value(trial)
        if value is not None and trial.status in ("finished", "cut"):
            title = f"Trial {trial.number}: {value:.4g}" + (f" ({trial.label})" if trial.label else "")
            points.append(CurvePoint(float(trial.number), value, title, _good(trial)))
    return points[-2000:]


def _measure(run: RunRow, found: Sequence[TrialRow]) -> str:
    if run.kind == "schedule":
        return "makespan"
    for trial in found:
        if "metric" in trial.details:
            return str(trial.details["metric"])
    goal = run.document.get("goal")
    words = goal.split() if isinstance(goal, str) else []
    return words[1] if run.kind == "tune" and len(words) > 1 else "score"


def _result(run: RunRow, settings: Settings) -> Mapping[str, Any]:
    place = run.folder or str(settings.folder_of(run.id))
    try:
        path = artifacts.local(place, artifacts.RESULT, settings.home / "cache")
        found = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lanes(result: Mapping[str, Any]) -> tuple[TimelineLane, ...]:
    """The plan over time, one lane for each slot of a machine; the most loaded first."""
    assignments = result.get("assignments")
    whole = float(result.get("makespan_s") or 0.0)
    if not isinstance(assignments, Mapping) or whole <= 0:
        return ()
    work: dict[str, float] = defaultdict(float)
    for name, place in assignments.items():
        work[_family(str(name))] += float(place["finish_s"]) - float(place["start_s"])
    colours = program_colours(work)
    bars: dict[str, list[TimelineBar]] = defaultdict(list)
    for name, place in assignments.items():
        lane = str(place["vm"]) + (f" · {place['slot'] + 1}" if place.get("slot") else "")
        start, end = float(place["start_s"]), float(place["finish_s"])
        title = f"{name}: {start:.1f} s to {end:.1f} s"
        bars[lane].append(TimelineBar(start, end, title, colours[_family(str(name))]))
    lanes = [
        TimelineLane(
            name,
            display.lane(sorted(some, key=lambda bar: bar.start), whole),
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
