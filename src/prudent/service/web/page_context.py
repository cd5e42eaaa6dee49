"""What all pages share: settings, store, templates and files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from prudent._version import __version__
from prudent.reports import formatting
from prudent.reports.drawing import palette_css
from prudent.service.security.authentication import user_of
from prudent.service.settings import Settings
from prudent.service.store.store import Store
from prudent.service.web import display
from prudent.service.web.submission import Submissions

if TYPE_CHECKING:
    from jinja2 import Environment

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_NAV = (("/runs", "Runs"), ("/models", "Models"), ("/machines", "Machines"), ("/money", "Money"))


@dataclass(frozen=True)
class PageContext:
    """What every page is rendered with: settings, store, and the way to submit requests."""

    settings: Settings
    store: Store
    admission: Submissions

    def page(self, request: Request, name: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A template, with what every page needs."""
        user = user_of(request)
        said = {
            "user": user,
            "nav": _NAV,
            "here": "/" + request.url.path.strip("/").split("/")[0],
            "theme": _theme(request),
            "form_token": getattr(request.state, "form_token", ""),
            "version": __version__,
            "asset": asset,
            "site": str(request.base_url).rstrip("/"),
            **values,
        }
        return HTMLResponse(templates().get_template(name).render(said), status)

    def missing(self, request: Request, what: str, back: str) -> HTMLResponse:
        """The page for something that is not there."""
        return self.page(request, "missing.html.j2", 404, what=what, back=back)


def static(name: str) -> Response:
    """A file of ours; its address changes with its content, so browsers may keep it."""
    found = _files().get(name)
    if found is None:
        return Response("There is no such file.", 404)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(found, media_type=_TYPES[name.rsplit(".", 1)[1]], headers=headers)


def asset(name: str) -> str:
    """The address of a file of ours."""
    return f"/static/{name}?v={hashlib.sha256(_files()[name]).hexdigest()[:12]}"


@cache
def _files() -> dict[str, bytes]:
    folder = files("prudent.service.web") / "static"
    found = {
        each.name: each.read_bytes()
        for each in folder.iterdir()
        if each.name.endswith((".css", ".js", ".svg"))
    }
    return {**found, "app.css": palette_css(switched=True).encode() + found["app.css"]}


@cache
def templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("prudent.service.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in (
        "length",
        "ago",
        "stamp",
        "settings_text",
        "percent",
        "measured",
        "column_money",
        "rough_money",
    ):
        found.filters[name] = getattr(display, name)
    found.filters |= {
        "amount": lambda number, measure: formatting.amount(measure, number),
        "value": formatting.value,
    }
    found.globals.update(states=display.STATES, kinds=display.KINDS, fronts=display.FRONTS)
    return found


def _theme(request: Request) -> str:
    said = request.cookies.get("theme", "")
    return said if said in ("light", "dark") else ""
