"""Who asks, whether they may, and whether they do not ask too often."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote

from fastapi import Request

from prudent.service.security.browser_sessions import BrowserSessions, cookie_of, set_cookie
from prudent.service.security.middleware import (
    Application,
    Message,
    Receive,
    Scope,
    Send,
    header,
    redirect,
    refuse,
)
from prudent.service.security.rate_limits import (
    ConcurrencyLimit,
    ConcurrencySlot,
    RateLimit,
    TooManyWaiting,
    retry_after,
)
from prudent.service.security.tokens import identify
from prudent.service.store.store import StoreUnavailable
from prudent.service.store.users import LOCAL, MEMBER, NOBODY, VIEWER, User

SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
_FREE = ("/health", "/ready", SIGN_IN, "/favicon.ico")
_FORWARDING = frozenset(
    {
        b"cdn-loop",
        b"client-ip",
        b"fastly-client-ip",
        b"proxy-client-ip",
        b"proxy-connection",
        b"true-client-ip",
        b"via",
        b"wl-proxy-client-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"x-host",
        b"x-real-ip",
        b"x-scheme",
    }
)
_FORWARDING_BEGINNINGS = (
    b"cf-",
    b"cloudfront-",
    b"fly-",
    b"forwarded",
    b"tailscale-",
    b"x-amz",
    b"x-appengine-",
    b"x-arr-",
    b"x-azure-",
    b"x-envoy-",
    b"x-forwarded",
    b"x-original-",
    b"x-proxy",
)
"""Headers that proxies, tunnels and clouds add to what they bring."""
_CHALLENGE = {"www-authenticate": 'Bearer realm="prudent"'}
_BAD = {"www-authenticate": 'Bearer realm="prudent", error="invalid_token"'}


@dataclass(frozen=True)
class _Caller:
    """Who asks and how they said so; `session` is the cookie's value where there is a valid one."""

    identity: User | None
    session: str = ""
    by_token: bool = False
    new: bool = False


@dataclass(frozen=True)
class AuthMiddleware:
    """Puts `user` (a `User`) and `form_token` into the request's state, or refuses.

    A token in the Authorization header is for programs; a session cookie is for browsers, and everything that
    changes something then needs the session's form token as well. While `open` says so, everybody on this
    machine is let in as `LOCAL`; it is asked for each request.
    """

    app: Application
    accounts: Callable[[], Awaitable[Sequence[User]]]
    sessions: BrowserSessions
    open: Callable[[Sequence[User]], bool] = lambda accounts: False
    rate: RateLimit | None = None
    failed_attempts: RateLimit = field(default_factory=lambda: RateLimit(per_s=0.2, burst=10))
    clock: Callable[[], float] = time.time
    concurrency: ConcurrencyLimit = field(default_factory=ConcurrencyLimit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            accounts = await self.accounts()
        except StoreUnavailable as error:
            if scope["path"] not in ("/health", "/ready"):
                await refuse(send, 503, str(error), {"retry-after": "5"})
                return
            accounts = ()
        visitor = self._visitor(scope, accounts)
        path = scope["path"]
        if visitor is None:
            await self._unknown_token(scope, send)
        elif visitor.identity is None and not is_free(path):
            await self._stranger(scope, send)
        else:
            await self._enter(visitor, scope, receive, send)

    async def _enter(self, visitor: _Caller, scope: Scope, receive: Receive, send: Send) -> None:
        who = visitor.identity
        state = scope.setdefault("state", {})
        state["user"] = who
        state["form_token"] = self.sessions.form_token(visitor.session) if visitor.session else ""
        wait_s = self._wait_s(scope, who)
        if wait_s:
            await refuse(send, 429, "Too many requests; wait a moment.", {"retry-after": retry_after(wait_s)})
        elif who is not None and not who.may(needed(scope["method"], scope["path"])):
            await refuse(
                send, 403, f"The role {who.role} may not do this; ask the operator for another role."
            )
        elif who is None:
            await self._pass_on(visitor, scope, receive, send)
        else:
            await self._in_turn(who, visitor, scope, receive, send)

    async def _in_turn(self, who: User, visitor: _Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """When the user has a turn, which ends when the answer begins: streams and downloads take none.

        Who sends much over a slow line can look at pages meanwhile: there are turns for either.
        """
        line = f"{'look' if needed(scope['method'], '') == VIEWER else 'send'}:{who.name}"
        try:
            async with self.concurrency.slot(line) as turn:
                await self._pass_on(visitor, scope, receive, _ending(turn, send))
        except TooManyWaiting:
            said = f"{self.concurrency.waiting} of your requests wait for an answer; wait for some of them."
            # Whoever comes again has to connect again, and connections are taken a few at a time.
            await refuse(send, 429, said, {"retry-after": "1", "connection": "close"})

    async def _pass_on(self, visitor: _Caller, scope: Scope, receive: Receive, send: Send) -> None:
        if self._needs_form_token(visitor, scope):
            await self._with_form_token(visitor, scope, receive, send)
        else:
            await self.app(scope, receive, self._with_cookie(visitor, scope, send))

    def _visitor(self, scope: Scope, accounts: Sequence[User]) -> _Caller | None:
        """Who it is; None where a token was given that nobody has."""
        authorization = header(scope, b"authorization")
        if authorization:
            kind, _, token = authorization.partition(" ")
            found = identify(token.strip(), accounts) if kind.lower() == "bearer" else None
            return _Caller(found, by_token=True) if found is not None else None
        value = cookie_of(header(scope, b"cookie"))
        found = self.holder(value, accounts) if value else None
        if found is not None and not (found is LOCAL and _forwarded(scope)):
            return _Caller(found, value)
        if not _forwarded(scope) and self.open(accounts):
            page = scope["method"] == "GET" and not is_api(scope["path"])
            fresh = self.sessions.begin(LOCAL.name, "", self.clock()) if page else ""
            return _Caller(LOCAL, fresh, new=bool(fresh))
        return _Caller(None)

    def holder(self, value: str, accounts: Sequence[User]) -> User | None:
        """Whose session a cookie is."""
        name = self.sessions.name(value, self.clock())
        if name == LOCAL.name:
            return LOCAL if self.sessions.valid(value, "") and self.open(accounts) else None
        for account in accounts:
            if account.name == name and self.sessions.valid(value, account.token_hash or ""):
                return account
        return None

    def _wait_s(self, scope: Scope, who: User | None) -> float:
        if self.rate is None or scope["path"] in ("/health", "/ready"):
            return 0.0
        if scope["path"] == SIGN_IN and scope["method"] == "POST":
            return 0.0  # bad tries are counted there; strangers must not keep out who has a good token
        key = f"user:{who.name}" if who is not None else f"from:{address_of(scope)}"
        return self.rate.wait_s(key, self.clock())

    async def _unknown_token(self, scope: Scope, send: Send) -> None:
        wait_s = self.failed_attempts.wait_s(address_of(scope), self.clock())
        if wait_s:
            later = {"retry-after": retry_after(wait_s)}
            await refuse(send, 429, "Too many tokens that nobody has; wait, then use yours.", later)
        else:
            await refuse(
                send, 401, "This token is not valid; use yours, as Authorization: Bearer TOKEN.", _BAD
            )

    async def _stranger(self, scope: Scope, send: Send) -> None:
        page = "text/html" in header(scope, b"accept") and not is_api(scope["path"])
        if page and scope["method"] in ("GET", "HEAD"):
            query = scope.get("query_string", b"").decode("latin-1")
            place = scope["path"] + (f"?{query}" if query else "")
            await redirect(send, f"{SIGN_IN}?next={quote(place, safe='/')}")
        else:
            await refuse(send, 401, "Say who you are, as Authorization: Bearer TOKEN.", _CHALLENGE)

    def _needs_form_token(self, visitor: _Caller, scope: Scope) -> bool:
        if scope["method"] in ("GET", "HEAD", "OPTIONS") or visitor.by_token or scope["path"] == SIGN_IN:
            return False
        # Where the service is open, programs on this machine call without a token, as scripts of other sites
        # cannot: the shell refuses those. A program that looked at a page before holds a cookie all the same.
        if is_api(scope["path"]) and visitor.identity is LOCAL:
            return False
        return bool(visitor.session) or not is_api(scope["path"])

    async def _with_form_token(self, visitor: _Caller, scope: Scope, receive: Receive, send: Send) -> None:
        token, replayed = header(scope, b"x-csrf-token"), receive
        if not token and header(scope, b"content-type").startswith("application/x-www-form-urlencoded"):
            body = await _whole(receive)
            # Only this field is decoded: to decode a whole form takes long, and others would wait.
            field = next((part for part in body.split(b"&") if part.startswith(b"csrf=")), b"")
            token = parse_qs(field.decode("utf-8", "replace")).get("csrf", [""])[0]
            replayed = _again(body, receive)
        if visitor.session and token and self.sessions.is_form_token(visitor.session, token):
            await self.app(scope, replayed, send)
        else:
            await refuse(send, 403, "This form is not of your session; reload the page and try again.")

    def _with_cookie(self, visitor: _Caller, scope: Scope, send: Send) -> Send:
        if not visitor.new:
            return send
        line = set_cookie(visitor.session, scope.get("scheme") == "https").encode()

        async def with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"set-cookie", line)]}
            await send(message)

        return with_cookie


def is_api(path: str) -> bool:
    """Whether programs call this, rather than people looking at it."""
    return path.startswith("/v1/") or path in ("/health", "/ready", "/metrics", "/openapi.json")


def is_free(path: str) -> bool:
    """What strangers may see: whether the service is well, and how to sign in."""
    return path in _FREE or path.startswith("/static/")


def needed(method: str, path: str) -> str:
    """The least role for a request; the application asks for more where it must."""
    if method in ("GET", "HEAD", "OPTIONS") or path in (SIGN_IN, SIGN_OUT):
        return VIEWER
    return MEMBER


def address_of(scope: Scope) -> str:
    """Where a request comes from; one network of IPv6 is one place."""
    client = scope.get("client")
    host = str(client[0]) if client else "unknown"
    return ":".join(host.split(":")[:4]) if host.count(":") > 1 else host


def _forwarded(scope: Scope) -> bool:
    """Whether a proxy brings it: then it comes from this machine, but not from somebody who sits at it."""
    return any(name in _FORWARDING or name.startswith(_FORWARDING_BEGINNINGS) for name, _ in scope["headers"])


def _ending(turn: ConcurrencySlot, send: Send) -> Send:
    async def ending(message: Message) -> None:
        turn.release()
        await send(message)

    return ending


async def _whole(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """The same body once more, then whatever the server says."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def user_of(request: Request) -> User:
    """Who asks."""
    found = getattr(request.state, "user", None)
    return found if isinstance(found, User) else NOBODY
