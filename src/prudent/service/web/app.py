"""The web application: REST, pages, health and figures, with protection around."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response

from prudent._version import __version__
from prudent.reports.page import plotly_file
from prudent.service.security import protection
from prudent.service.settings import Settings
from prudent.service.store import workers
from prudent.service.store.store import Store, StoreUnavailable
from prudent.service.web import (
    api,
    metrics,
    model_pages,
    overview_pages,
    problem,
    run_pages,
    sign_in,
    submit_pages,
)
from prudent.service.web.page_context import PageContext, static
from prudent.service.web.submission import Submissions, check_disk
from prudent.service.web.timed_cache import TimedCache
from prudent.service.worker.artifacts import PLOTLY

_ABOUT = "Train, tune and schedule: requests are taken, worked off by workers, and survive crashes."


def create_app(settings: Settings, store: Store | None = None) -> FastAPI:
    """The application of these settings; a store of its own is closed when it ends."""
    settings.create()
    own = store is None
    kept = store or Store(settings.database)

    admission = Submissions(settings, kept)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        admission.close()
        if own:
            kept.close()

    app = FastAPI(
        title="Prudent", version=__version__, description=_ABOUT, lifespan=life, docs_url=None, redoc_url=None
    )
    app.state.store, app.state.settings = kept, settings
    problem.install(app)
    app.include_router(api.router(settings, kept, admission))
    requests = metrics.RequestMetrics()
    _add_signs(app, settings, kept, requests)
    app.state.sessions = protection.install(app, settings, kept)  # type: ignore[arg-type]
    app.add_middleware(metrics.MetricsMiddleware, requests=requests)
    app.include_router(pages_router(settings, kept, admission))
    return app


def _add_signs(app: FastAPI, settings: Settings, store: Store, requests: metrics.RequestMetrics) -> None:
    async def check(_: None) -> None:
        check_disk(settings)
        await store.check_room()

    room: TimedCache[None, None] = TimedCache(
        check, fresh_s=1.0, stale_s=1.0
    )  # strangers may ask as often as they like

    @app.get("/health", tags=["signs"])
    async def health() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok", "version": __version__}

    @app.get("/ready", tags=["signs"])
    async def ready() -> Response:
        """The database answers and the disk has room; workers are told, but requests are taken without."""
        try:
            await room(None)
            found = await store.read_async(workers.all_)
        except StoreUnavailable as error:
            return problem.answer(503, str(error))
        return JSONResponse({"status": "ready", "workers": len(found)})

    @app.get("/metrics", tags=["signs"], response_class=PlainTextResponse)
    async def figures() -> PlainTextResponse:
        """Figures for Prometheus."""
        lines = [*requests.lines(), *await store.read_async(metrics.database_gauges), *metrics.memory_gauge()]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def pages_router(settings: Settings, store: Store, admission: Submissions) -> APIRouter:
    """All pages; they are no part of the API's description."""
    found, context = APIRouter(include_in_schema=False), PageContext(settings, store, admission)
    for part in (run_pages, model_pages, submit_pages, overview_pages, sign_in):
        part.add(found, context)
    overview_pages.add_api_page(found, context)

    @found.get(PLOTLY)
    async def plotly() -> FileResponse:
        """Plotly for all reports, from the installed package; reports are sandboxed, hence cross-origin."""
        headers = {"cache-control": "public, max-age=86400", "cross-origin-resource-policy": "cross-origin"}
        return FileResponse(plotly_file(), media_type="text/javascript; charset=utf-8", headers=headers)

    @found.get("/static/{name}")
    async def file(name: str) -> Response:
        return static(name)

    @found.get("/favicon.ico")
    async def icon() -> Response:
        return static("icon.svg")

    return found
