"""REST: /v1/runs and /v1/models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse

from prudent.reports.page import with_plotly
from prudent.service.intake import admission
from prudent.service.security.authentication import user_of
from prudent.service.security.redaction import redacted
from prudent.service.settings import Settings
from prudent.service.store import claims, models, runs, trials
from prudent.service.store.models import StoredModel
from prudent.service.store.runs import RunRow
from prudent.service.store.store import Store
from prudent.service.store.users import MEMBER, User
from prudent.service.web.event_feed import EventFeed, EventStream
from prudent.service.web.model_serving import ModelPredictor, zipped
from prudent.service.web.problem import HttpProblem
from prudent.service.web.request_values import WITHOUT_ZERO, is_id
from prudent.service.web.submission import Submission, Submissions
from prudent.service.worker import artifacts

Kind = Literal["train", "tune", "schedule"]
Status = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Limit = Annotated[int, Query(ge=1, le=500)]
After = Annotated[
    str | None, Query(max_length=100, pattern=WITHOUT_ZERO, description='the "next" of the page before')
]
Owner = Annotated[str | None, Query(max_length=128, pattern=WITHOUT_ZERO)]
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
        "description": "The request document, as the command of the same name takes it.",
    }
}


def router(settings: Settings, store: Store, admission: Submissions) -> APIRouter:
    """All paths below /v1."""
    api = APIRouter(prefix="/v1")
    _add_runs(api, settings, store, admission)
    _add_run(api, settings, store)
    _add_results(api, settings, store)
    _add_models(api, store, ModelPredictor(settings.home / "cache"))
    return api


def _add_runs(api: APIRouter, settings: Settings, store: Store, admission: Submissions) -> None:
    @api.post("/runs/{kind}", status_code=202, tags=["runs"], openapi_extra=_BODY)
    async def submit(
        kind: Kind,
        request: Request,
        idempotency_key: Annotated[str | None, Header()] = None,
        priority: Annotated[int, Query(ge=-9, le=9)] = 0,
    ) -> JSONResponse:
        """Take a request; the answer says where to follow it."""
        said = request.headers.get("content-length", "0")
        await admission.expect(user_of(request).name, int(said))  # the layers around have checked the number
        order = Submission(
            settings,
            kind,
            user_of(request),
            "rest",
            await request.body(),
            key=idempotency_key,
            priority=priority,
        )
        accepted = await admission.take(order)
        answer = accepted_json(accepted.run)
        return JSONResponse(answer, 202, {"location": answer["url"]})

    @api.get("/runs", tags=["runs"])
    async def list_runs(
        limit: Limit = 50,
        after: After = None,
        user: Owner = None,
        status: Status | None = None,
        kind: Kind | None = None,
    ) -> dict[str, Any]:
        """Runs, newest first."""
        found, more = await store.read_async(
            runs.list_rows, limit, after, user=user, status=status, kind=kind
        )
        return {"runs": [summary_json(run) for run in found], "next": more}


def _add_run(api: APIRouter, settings: Settings, store: Store) -> None:
    feed = EventFeed(store, settings.followers, settings.followers_per_user)

    @api.get("/runs/{run_id}", tags=["runs"])
    async def show(run_id: str, request: Request) -> dict[str, Any]:
        """A run as it stands."""
        run = await _run(store, run_id)
        waiting = await store.read_async(claims.why_waiting, run, settings.per_user)
        return {**run_json(run, user_of(request)), "waiting": waiting}

    @api.get("/runs/{run_id}/events", tags=["runs"], response_class=StreamingResponse)
    async def follow_run(
        run_id: str, request: Request, last_event_id: Annotated[str | None, Header(max_length=20)] = None
    ) -> StreamingResponse:
        """What happens, as it happens (server-sent events); Last-Event-ID goes on after an event."""
        known = await store.read_async(runs.statuses, [run_id]) if is_id(run_id) else {}
        if not known:
            raise _no_run()
        after = int(last_event_id) if last_event_id and last_event_id.isdecimal() else 0
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return EventStream(feed, user_of(request).name, feed.follow(run_id, min(after, 2**62)), headers)

    @api.post("/runs/{run_id}/cancel", status_code=202, tags=["runs"])
    async def cancel(run_id: str, request: Request) -> dict[str, Any]:
        """End a run: at once if it waits, within a moment if it runs; what is done is kept."""
        run = await _run(store, run_id)
        if not user_of(request).owns(run.user):
            raise HttpProblem(403, f"Run {run_id} is {run.user}'s; ask them, or an admin, to cancel it.")
        ended = await store.write_async(runs.cancel, run_id)
        return accepted_json(ended or run)


def _add_results(api: APIRouter, settings: Settings, store: Store) -> None:
    @api.get("/runs/{run_id}/trials", tags=["runs"])
    async def list_trials(
        run_id: str, limit: Annotated[int, Query(ge=1, le=10_000)] = 1000
    ) -> dict[str, Any]:
        """What was tried."""
        await _run(store, run_id)
        found = await store.read_async(trials.of_run, run_id, limit)
        return {"trials": [trial.to_dict() for trial in found]}

    @api.get("/runs/{run_id}/result", tags=["runs"])
    async def result(run_id: str) -> Response:
        """What came out, as JSON."""
        run = await _run(store, run_id)
        path = await asyncio.to_thread(_file_of, settings, run, artifacts.RESULT)
        if path is None:
            raise _not_there(run, "result")
        found = json.loads(await asyncio.to_thread(path.read_text, encoding="utf-8"))
        kept = await store.read_async(models.of_run, run_id)
        return JSONResponse({**found, "models": [model_json(model) for model in kept]})

    @api.get("/runs/{run_id}/report", tags=["runs"], response_class=FileResponse)
    async def report(run_id: str, download: bool = False) -> Response:
        """The report, as a page; to `download` it is one file of some megabytes that needs no service."""
        run = await _run(store, run_id)
        path = await asyncio.to_thread(_file_of, settings, run, artifacts.REPORT)
        if path is None:
            raise _not_there(run, "report")
        if download:
            whole = await asyncio.to_thread(lambda: with_plotly(path.read_text(encoding="utf-8")))
            saved = {"content-disposition": f'attachment; filename="report-{run_id}.html"'}
            return Response(whole, media_type="text/html; charset=utf-8", headers=saved)
        return FileResponse(path, media_type="text/html; charset=utf-8")


def _add_models(api: APIRouter, store: Store, predictor: ModelPredictor) -> None:
    @api.get("/models", tags=["models"])
    async def list_models(limit: Limit = 50, after: After = None, user: Owner = None) -> dict[str, Any]:
        """Models, newest first, the best of each run before its others."""
        page = await store.read_async(models.page, limit, after, user)
        return {"models": [model_json(model) for model in page.models], "next": page.next}

    @api.get("/models/{model_id}", tags=["models"])
    async def show_model(model_id: str) -> dict[str, Any]:
        """A model, with the columns that it wants."""
        found = await _model(store, model_id)
        return {**model_json(found), "columns": await asyncio.to_thread(predictor.columns, found)}

    @api.get("/models/{model_id}/download", tags=["models"], response_class=Response)
    async def download(model_id: str, format: Literal["zip", "onnx"] = "zip") -> Response:  # noqa: A002
        """The model's folder as a zip, or its ONNX file alone."""
        found = await _model(store, model_id)
        folder = await asyncio.to_thread(artifacts.local_folder, found.path, predictor.cache)
        if folder is None or not (folder / "model.onnx").is_file():
            raise HttpProblem(410, f"The files of model {model_id} are gone; train it again.")
        if format == "onnx":
            name = f"{model_id}.onnx"
            return FileResponse(folder / "model.onnx", media_type="application/octet-stream", filename=name)
        headers = {"content-disposition": f'attachment; filename="{model_id}.zip"'}
        return StreamingResponse(zipped(folder, model_id), media_type="application/zip", headers=headers)

    @api.post("/models/{model_id}/predict", tags=["models"], openapi_extra=_BODY)
    async def predict(model_id: str, request: Request) -> dict[str, Any]:
        """Predictions for {"rows": [...], "probabilities": false}."""
        found = await _model(store, model_id)
        body = await request.body()

        def answer() -> dict[str, Any]:
            return predictor.predict(found, admission.read_json(body))

        return await asyncio.get_running_loop().run_in_executor(predictor.threads, answer)


async def _run(store: Store, run_id: str) -> RunRow:
    found = await store.read_async(runs.get, run_id) if is_id(run_id) else None
    if found is None:
        raise _no_run()
    return found


def _no_run() -> HttpProblem:
    return HttpProblem(404, "There is no such run; see /v1/runs for those there are.")


async def _model(store: Store, model_id: str) -> StoredModel:
    found = await store.read_async(models.get, model_id) if is_id(model_id) else None
    if found is None:
        raise HttpProblem(404, "There is no such model; see /v1/models for those there are.")
    return found


def _file_of(settings: Settings, run: RunRow, name: str) -> Any:
    place = run.folder or str(settings.folder_of(run.id))
    return artifacts.local(place, name, settings.home / "cache")


def _not_there(run: RunRow, what: str) -> HttpProblem:
    if run.ended:
        why = f" ({run.error})" if run.error else ""
        return HttpProblem(404, f"The run {run.status} and left no {what}{why}.", run_status=run.status)
    return HttpProblem(409, f"The run is {run.status}; its {what} comes when it ends.", run_status=run.status)


_LISTED = (
    "id", "kind", "status", "title", "user", "front", "priority", "progress", "eta_s", "spent_usd",
    "created_s", "started_s", "ended_s", "attempts", "worker", "waiting", "error",
)  # fmt: skip


def accepted_json(run: RunRow) -> dict[str, Any]:
    """The answer to a submission."""
    return {"id": run.id, "status": run.status, "url": f"/v1/runs/{run.id}"}


def summary_json(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run in a list, of its plain values."""
    return {**{name: run[name] for name in _LISTED}, "url": f"/v1/runs/{run['id']}"}


def document_for(run: RunRow, user: User) -> dict[str, Any] | None:
    """What was asked for: all of it for its owner, without secrets for others; viewers see their own only."""
    if user.owns(run.user):
        return dict(run.document)
    shown: dict[str, Any] = redacted(run.document)
    return shown if user.may(MEMBER) else None


def run_json(run: RunRow, user: User) -> dict[str, Any]:
    """A run by itself: what was asked for, and where to go on."""
    here = f"/v1/runs/{run.id}"
    return {
        **summary_json(vars(run)),
        "cancelling": run.cancel and not run.ended,
        "document": document_for(run, user),
        "links": {name: f"{here}/{name}" for name in ("events", "trials", "result", "report", "cancel")},
    }


def model_json(found: StoredModel) -> dict[str, Any]:
    """A model in a list."""
    names = ("id", "run", "user", "rank", "algorithm", "score", "metric", "value", "created_s")
    return {
        **{name: getattr(found, name) for name in names},
        "url": f"/v1/models/{found.id}",
        "download": f"/v1/models/{found.id}/download",
        "predict": f"/v1/models/{found.id}/predict",
    }
