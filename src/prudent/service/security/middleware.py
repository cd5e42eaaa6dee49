"""Answers that need no application: problem+json, or a way to the sign-in page."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
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


async def redirect(send: Send, place: str) -> None:
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


_SMALL = 1 << 16
_PER_USER, _IN_ALL = 4, 16


class _Stopped(Exception):
    """Reading went on after the limit."""


@dataclass
class _BodyState:
    size: int = 0
    whole: bool = False
    status: int = 0
    answered: bool = False
    user: str = ""
    in_flight: int = 0
    begun_s: float | None = None

    def deadline_s(self, longest_s: float) -> float:
        """When it must be here. The time runs from the first read: who waits for a turn is not slow."""
        if self.begun_s is None:
            self.begun_s = asyncio.get_running_loop().time()
        return self.begun_s + longest_s


class BytesInFlight:
    """Bytes of large bodies that are held at this moment, of each user and in all."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()

    def add(self, user: str, size: int) -> None:
        self._bytes[user] += size
        if not self._bytes[user]:
            del self._bytes[user]

    def exceeds(self, user: str, most_of_user: int, most: int) -> bool:
        return self._bytes[user] > most_of_user or self._bytes.total() > most


@dataclass(frozen=True)
class BodyLimitMiddleware:
    """Refuses bodies over `most_bytes` (413) and those not here `longest_s` after they are first read (408).

    Forms are for people, and to read one takes long: they may have `most_form_bytes`. Of large bodies a few
    are held at a time; a user who sends more at once is asked to wait (429).

    What a request says of its length is checked first, and what comes is counted: a chunked body says
    nothing. The application cannot swallow it: its own answer, made of half a body, is replaced.
    """

    app: Application
    most_bytes: int
    longest_s: float = 60.0
    most_form_bytes: int = 1_000_000
    in_flight: BytesInFlight = field(default_factory=BytesInFlight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        said = header(scope, b"content-length")
        if said and not (said.isascii() and said.isdecimal()):
            await refuse(send, 400, "The Content-Length is not a number; leave it to your client.")
        elif said and int(said) > self._most(scope):
            await self._too_large(scope, send)
        else:
            await self._counted(scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        count, most = _BodyState(), self._most(scope)
        said = int(header(scope, b"content-length") or 0)

        async def counted() -> Message:
            if count.status:
                raise _Stopped
            if count.whole:
                return await receive()
            self._hold(scope, count, max(count.size, said))
            try:
                async with asyncio.timeout_at(count.deadline_s(self.longest_s)):
                    message = await receive()
            except TimeoutError as error:
                count.status = 408
                raise _Stopped from error
            count.size += len(message.get("body", b""))
            count.whole = message["type"] != "http.request" or not message.get("more_body", False)
            if count.size > most:
                count.status = 413
                raise _Stopped
            self._hold(scope, count, max(count.size, said))
            return message

        async def answered(message: Message) -> None:
            if not count.status or count.answered:
                count.answered = True
                await send(message)

        try:
            await self.app(scope, counted, answered)
        except _Stopped:
            pass
        except Exception:
            if not count.status:
                raise
        finally:
            self.in_flight.add(count.user, -count.in_flight)
        if count.status and not count.answered:
            await self._stop(count.status, scope, send)

    def _most(self, scope: Scope) -> int:
        is_form = header(scope, b"content-type").startswith("application/x-www-form-urlencoded")
        return min(self.most_bytes, self.most_form_bytes) if is_form else self.most_bytes

    def _hold(self, scope: Scope, count: _BodyState, size: int) -> None:
        """Count what is held of a large body, or will be; by now it is known whose it is."""
        if size <= max(_SMALL, count.in_flight):
            return
        if not count.in_flight:
            count.user = str(getattr(scope.get("state", {}).get("user"), "name", ""))
        self.in_flight.add(count.user, size - count.in_flight)
        count.in_flight = size
        if self.in_flight.exceeds(count.user, _PER_USER * self.most_bytes, _IN_ALL * self.most_bytes):
            count.status = 429
            raise _Stopped

    async def _stop(self, status: int, scope: Scope, send: Send) -> None:
        if status == 413:
            await self._too_large(scope, send)
        elif status == 429:
            later = {"retry-after": "2", "connection": "close"}
            await refuse(send, 429, "Too much is being sent at a time; send large bodies one by one.", later)
        else:
            await refuse(send, 408, f"The body was not here after {self.longest_s:g} s; send it faster.")

    async def _too_large(self, scope: Scope, send: Send) -> None:
        most = f"{self._most(scope) / 1e6:g} MB"
        closing = {"connection": "close"}  # what is still on its way is not read
        await refuse(send, 413, f"The body is larger than {most}; send less or name a file.", closing)


PAGES = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""For our own pages: nothing from elsewhere, no script or style inside the page."""

REPORTS = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'self' 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""A report has its scripts inside, all but Plotly, so it is shown as a stranger: without our cookie."""

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"cache-control", b"no-store"),
)
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]{1,253})(:\d{1,5})?")
_ALLOWED = "authorization, content-type, idempotency-key, last-event-id"


@dataclass(frozen=True)
class OriginMiddleware:
    """Checks Host and Origin, and adds headers to every answer, also to refusals.

    `hosts` are the names under which the service is known; none is any, for a service behind tokens that
    listens on all addresses. `origins` are other sites whose scripts may call, with a token of their own.
    """

    app: Application
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        origin = header(scope, b"origin")
        allowed = origin if origin in self.origins else ""
        dressed = _with_headers(send, scope, allowed)
        if not self._known(header(scope, b"host")):
            await refuse(dressed, 421, "This service has another name; use that, or have this one added.")
        elif scope["method"] == "OPTIONS" and header(scope, b"access-control-request-method"):
            await self._preflight(dressed, allowed)
        elif foreign(scope) and not allowed:
            await refuse(dressed, 403, "Another site may not send this; use a program or the dashboard.")
        else:
            await self.app(scope, receive, dressed)

    def _known(self, host: str) -> bool:
        match = _HOST.fullmatch(host.lower())
        return match is not None and (not self.hosts or match[1].rstrip(".") in self.hosts)

    async def _preflight(self, send: Send, allowed: str) -> None:
        if not allowed:
            await refuse(send, 403, "Scripts of this site may not call; let the operator allow its origin.")
            return
        headers = [
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", _ALLOWED.encode()),
            (b"access-control-max-age", b"600"),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def foreign(scope: Scope) -> bool:
    """Whether a browser sends this for another site, and it would change something."""
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return False
    origin = header(scope, b"origin")
    if origin:
        return origin.lower().partition("://")[2] != header(scope, b"host").lower()
    return header(scope, b"sec-fetch-site") in ("cross-site", "same-site")


def _with_headers(send: Send, scope: Scope, allowed: str) -> Send:
    path = scope["path"]
    csp = REPORTS if path.endswith("/report") else PAGES
    extra = [*_HEADERS, (b"content-security-policy", csp.encode())]
    if scope.get("scheme") == "https":
        extra.append((b"strict-transport-security", b"max-age=31536000"))
    if allowed:
        extra += [(b"access-control-allow-origin", allowed.encode("latin-1")), (b"vary", b"Origin")]

    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            lines = list(message.get("headers", ()))
            said = {bytes(name).lower() for name, _ in lines}
            lines += [(name, value) for name, value in extra if name not in said]
            message = {**message, "headers": lines}
        await send(message)

    return dressed
