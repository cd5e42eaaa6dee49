"""Signing in with a token, which begins a session, and out again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from prudent.service.intake.refusal import Refused
from prudent.service.security.accounts import Accounts
from prudent.service.security.authentication import SIGN_IN, SIGN_OUT, address_of
from prudent.service.security.browser_sessions import BrowserSessions, cookie_of, set_cookie
from prudent.service.security.rate_limits import RateLimit, retry_after
from prudent.service.security.tokens import identify
from prudent.service.web.page_context import PageContext
from prudent.service.web.request_values import form_fields


@dataclass
class SignIn:
    """Begins sessions for those who have a token, and ends them."""

    context: PageContext
    accounts: Accounts
    misses: RateLimit = field(default_factory=lambda: RateLimit(per_s=0.2, burst=10))

    async def begin(self, request: Request, token: str, place: str) -> Response:
        """Begin a session. A good token never waits, however many bad ones came from the same address."""
        user = identify(token, await self.accounts())
        if user is None:
            wait_s = self.misses.wait_s(address_of(request.scope), time.time())
            if wait_s:
                answer = self.form(request, place, "Too many tries; wait a moment.", 429)
                answer.headers["retry-after"] = retry_after(wait_s)
                return answer
            self.accounts.forget()  # somebody who was added just now
            user = identify(token, await self.accounts())
        if user is None:
            return self.form(request, place, "This token is not valid; check that you copied all of it.", 401)
        sessions: BrowserSessions = request.app.state.sessions
        return self._leads(request, place, sessions.begin(user.name, user.token_hash or "", time.time()))

    def end(self, request: Request) -> Response:
        """End the session here, and for whoever has a copy of its cookie."""
        sessions: BrowserSessions = request.app.state.sessions
        sessions.end(cookie_of(request.headers.get("cookie", "")), time.time())
        return self._leads(request, SIGN_IN, "")

    def form(self, request: Request, place: str, error: str = "", status: int = 200) -> Response:
        return self.context.page(request, "sign_in.html.j2", status, next=place, error=error)

    def _leads(self, request: Request, place: str, session: str) -> Response:
        """Redirect to a place of this site, and set the session cookie."""
        # People may come by https also where the proxy in front does not say so.
        by_https = urlsplit(self.context.settings.public_url or "").scheme == "https"
        response = RedirectResponse(place, 303)
        response.headers["set-cookie"] = set_cookie(session, by_https or request.url.scheme == "https")
        return response


def add(router: APIRouter, context: PageContext) -> None:
    """Routes for sessions."""
    settings = context.settings
    sign_in = SignIn(context, Accounts(context.store, settings.tokens, settings.home))

    @router.get(SIGN_IN)
    async def ask(request: Request) -> Response:
        """The form. A link that has the token in it signs in at once, unless another site leads here."""
        place, token = local(request.query_params.get("next", "")), request.query_params.get("token", "")
        if token and request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return await sign_in.begin(request, token, place)
        return sign_in.form(request, place)

    @router.post(SIGN_IN)
    async def begin(request: Request) -> Response:
        """A session for whoever has the token."""
        try:
            said = await form_fields(request)
        except Refused:
            said = {}
        place = local((said.get("next") or [""])[0])
        return await sign_in.begin(request, (said.get("token") or [""])[0].strip(), place)

    @router.post(SIGN_OUT)
    async def end(request: Request) -> Response:
        """End the session here, and for whoever has a copy of its cookie."""
        return sign_in.end(request)

    @router.get("/session")
    async def session() -> Response:
        """204 if the browser has a session; without one, the middleware has refused."""
        return Response(status_code=204)


def local(place: str) -> str:
    """A place of this site, or its start: signing in leads nowhere else.

    >>> local("/runs?status=failed"), local("//evil.example"), local("https://evil.example"), local("/a\\\\b")
    ('/runs?status=failed', '/runs', '/runs', '/runs')
    """
    odd = "\\" in place or any(ord(letter) < 33 or ord(letter) > 126 for letter in place)
    fine = place.startswith("/") and not place.startswith("//") and not odd and not place.startswith(SIGN_IN)
    return place if fine else "/runs"
