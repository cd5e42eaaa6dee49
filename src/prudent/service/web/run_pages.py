"""Pages of runs: the list, one run, and the parts of them that change while one looks."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlalchemy import Connection

from prudent.core.errors import BadInput
from prudent.service.store import claims, runs, workers
from prudent.service.web import board
from prudent.service.web.desk import Desk, user_of
from prudent.service.web.kept import Kept
from prudent.service.web.names import asked, is_id
from prudent.service.web.views import document_for
from prudent.service.web.words import KINDS, STATES

_FILTERS = ("status", "kind", "user", "after")
Tally: TypeAlias = Kept[str | None, dict[str, int]]
"""How many runs are in each state, of one user or of all."""


def add(router: APIRouter, desk: Desk) -> None:
    """Routes below /runs."""
    tally: Tally = Kept(lambda user: desk.store.read_soon(runs.counts, user))

    @router.get("/")
    async def start() -> Response:
        return RedirectResponse("/runs", 303)

    @router.get("/runs")
    async def list_runs(request: Request) -> HTMLResponse:
        """Runs, newest first, with filters."""
        return desk.page(request, "runs.html.j2", **await _listing(desk, tally, request))

    @router.get("/runs/live")
    async def live_runs(request: Request) -> HTMLResponse:
        """The changing part of the list."""
        return desk.page(request, "_runs.html.j2", **await _listing(desk, tally, request))

    @router.get("/runs/{run_id}")
    async def show(run_id: str, request: Request) -> HTMLResponse:
        return await _run(desk, request, run_id, "run.html.j2")

    @router.get("/runs/{run_id}/live")
    async def live(run_id: str, request: Request) -> HTMLResponse:
        """The changing parts of a run's page."""
        return await _run(desk, request, run_id, "_run.html.j2")

    @router.post("/runs/{run_id}/cancel")
    async def cancel(run_id: str, request: Request) -> Response:
        """End a run, by its owner or an admin."""
        run = await desk.store.read_soon(runs.get, run_id) if is_id(run_id) else None
        if run is None:
            return desk.missing(request, "There is no such run.", "/runs")
        if not user_of(request).owns(run.user):
            return desk.page(
                request, "refused.html.j2", 403, why=f"This run is {run.user}'s.", back=f"/runs/{run.id}"
            )
        await desk.store.write_soon(runs.cancel, run.id)
        return RedirectResponse(f"/runs/{run.id}", 303)


async def _listing(desk: Desk, tally: Tally, request: Request) -> dict[str, Any]:
    said = {name: asked(request.query_params.get(name)) for name in _FILTERS}
    if said["status"] not in (None, *runs.STATUSES):
        said["status"] = None
    if said["kind"] not in (None, *runs.KINDS):
        said["kind"] = None
    try:
        page, idle = await desk.store.read_soon(_page, said)
    except BadInput:  # a cursor that is none
        said["after"] = None
        page, idle = await desk.store.read_soon(_page, said)
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
        "state_words": STATES,
        "kind_words": KINDS,
    }


def _page(connection: Connection, said: dict[str, str | None]) -> tuple[runs.Page, str]:
    """The runs, and why all that wait do, if there is one reason for all."""
    page = runs.page(connection, 50, said["after"], said["user"], said["status"], said["kind"])
    if not any(run.status == runs.QUEUED for run in page.runs) or workers.all_(connection):
        return page, ""
    return page, "No worker is there; start one with prudent worker."


async def _run(desk: Desk, request: Request, run_id: str, template: str) -> HTMLResponse:
    found = await desk.store.read_soon(board.look, run_id) if is_id(run_id) else None
    if found is None:
        return desk.missing(request, "There is no such run.", "/runs")
    shown = await asyncio.to_thread(board.board_of, *found, desk.settings)
    waiting = await desk.store.read_soon(claims.why_waiting, shown.run, desk.settings.per_user)
    may_cancel = user_of(request).owns(shown.run.user) and not shown.run.ended
    return desk.page(
        request,
        template,
        board=shown,
        run=shown.run,
        document=document_for(shown.run, user_of(request)),
        may_cancel=may_cancel,
        waiting=waiting,
    )
