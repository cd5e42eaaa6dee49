"""The outermost layer: the Host that was asked for, other sites' scripts, and headers that browsers heed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prudent.service.security.refusal import Application, Message, Receive, Scope, Send, header, refuse

PAGES = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""For our own pages: nothing from elsewhere, no script or style inside the page."""

REPORTS = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""A report is one file with its scripts inside, so it is shown as a stranger: without our cookie or data."""

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
class Shell:
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
        dressed = _dressed(send, scope, allowed)
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


def _dressed(send: Send, scope: Scope, allowed: str) -> Send:
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
