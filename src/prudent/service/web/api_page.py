"""The description of the API as a page of our own: it needs nothing from elsewhere, so it works offline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from prudent.service.web.desk import Desk

_METHODS = ("get", "post", "put", "delete")


@dataclass(frozen=True)
class Call:
    """One thing that programs can ask for."""

    method: str
    path: str
    about: str
    group: str
    parameters: tuple[tuple[str, str, str], ...]
    body: str


def add(router: APIRouter, desk: Desk) -> None:
    """The route /docs."""

    @router.get("/docs")
    async def page(request: Request) -> HTMLResponse:
        found = tuple(calls(request.app.openapi()))
        groups = {call.group: [each for each in found if each.group == call.group] for call in found}
        return desk.page(request, "api.html.j2", groups=groups)


def calls(described: dict[str, Any]) -> Iterator[Call]:
    """Every call of an OpenAPI description, in its order."""
    for path, methods in described.get("paths", {}).items():
        for method in _METHODS:
            said = methods.get(method)
            if said is None:
                continue
            parameters = tuple(
                (str(each["name"]), str(each["in"]), _kind(each.get("schema", {})))
                for each in said.get("parameters", ())
            )
            body = str(said.get("requestBody", {}).get("description", ""))
            about = str(said.get("description") or said.get("summary", ""))
            yield Call(method.upper(), path, about, str((said.get("tags") or ["other"])[0]), parameters, body)


def _kind(schema: dict[str, Any]) -> str:
    """What a parameter may be, in a few words.

    >>> _kind({"type": "integer", "minimum": 1, "maximum": 500}), _kind({"enum": ["a", "b"]})
    ('integer, 1 to 500', 'a | b')
    >>> _kind({"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}]})
    'string'
    """
    for part in schema.get("anyOf", ()):
        if part.get("type") != "null":
            return _kind(part)
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    word = str(schema.get("type", ""))
    if "minimum" in schema and "maximum" in schema:
        return f"{word}, {schema['minimum']} to {schema['maximum']}"
    return word
