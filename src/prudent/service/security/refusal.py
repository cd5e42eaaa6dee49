"""Answers that need no application: problem+json, or a way to the sign-in page."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


async def refuse(send: Send, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
    """A whole problem+json answer (RFC 9457)."""
    title = HTTPStatus(status).phrase
    body = json.dumps({"type": "about:blank", "title": title, "status": status, "detail": detail}).encode()
    await _answer(send, status, body, {"content-type": "application/problem+json", **(headers or {})})


async def send_to(send: Send, place: str) -> None:
    """See other: the browser goes to `place`."""
    await _answer(send, 303, b"", {"location": place})


async def _answer(send: Send, status: int, body: bytes, headers: Mapping[str, str]) -> None:
    lines = [(b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
    lines += [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


def header(scope: Scope, name: bytes) -> str:
    """One header of a request, or nothing."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
