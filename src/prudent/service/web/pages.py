"""The dashboard: pages made on the server, with a little script that keeps them fresh."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.web import api_page, model_pages, overview_pages, run_pages, sign_in, submit_pages
from prudent.service.web.admission import Admission
from prudent.service.web.desk import Desk, static


def router(settings: Settings, store: Store, admission: Admission) -> APIRouter:
    """All pages; they are no part of the API's description."""
    found, desk = APIRouter(include_in_schema=False), Desk(settings, store, admission)
    for part in (run_pages, model_pages, submit_pages, overview_pages, sign_in, api_page):
        part.add(found, desk)

    @found.get("/static/{name}")
    async def file(name: str) -> Response:
        return static(name)

    @found.get("/favicon.ico")
    async def icon() -> Response:
        return static("icon.svg")

    return found
