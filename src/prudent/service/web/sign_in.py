"""Signing in with a token, which begins a session, and out again."""

from __future__ import annotations

import time
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


def add(router: APIRouter, context: PageContext) -> None:
    """Routes for sessions."""
    accounts = Accounts(context.store, context.settings.tokens, context.settings.home)
    misses = RateLimit(per_s=0.2, burst=10)
    by_https = urlsplit(context.settings.public_url or "").scheme == "https"

    def secure(request: Request) -> bool:
        """Whether people come by https, also where the proxy in front does not say so."""
        return by_https or request.url.scheme == "https"

    @router.get(SIGN_IN)
    async def ask(request: Request) -> Response:
        """The form. A link that has the token in it signs in at once, unless another site leads here."""
        place, token = local(request.query_params.get("next", "")), request.query_params.get("token", "")
        if token and request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return await signed_in(request, token, place)
        return context.page(request, "sign_in.html.j2", next=place, error="")

    @router.post(SIGN_IN)
    async def begin(request: Request) -> Response:
        """A session for whoever has the token."""
        try:
            said = await form_fields(request)
        except Refused:
            said = {}
        place = local((said.get("next") or [""])[0])
        return await signed_in(request, (said.get("token") or [""])[0].strip(), place)

    async def signed_in(request: Request, token: str, place: str) -> Response:
        """A good token is never kept waiting, however many bad ones came from the same address."""
        user = identify(token, await accounts())
        if user is None:
            wait_s = misses.wait_s(address_of(request.scope), time.time())
            if wait_s:
                error = "Too many tries; wait a moment."
                answer = context.page(request, "sign_in.html.j2", 429, next=place, error=error)
                answer.headers["retry-after"] = retry_after(wait_s)
                return answer
            accounts.forget()  # somebody who was added just now
            user = identify(token, await accounts())
        if user is None:
            error = "This token is not valid; check that you copied all of it."
            return context.page(request, "sign_in.html.j2", 401, next=place, error=error)
        sessions: BrowserSessions = request.app.state.sessions
        response = RedirectResponse(place, 303)
        value = sessions.begin(user.name, user.token_hash or "", time.time())
        response.headers["set-cookie"] = set_cookie(value, secure(request))
        return response

    @router.post(SIGN_OUT)
    async def end(request: Request) -> Response:
        """End the session here, and for whoever has a copy of its cookie."""
        sessions: BrowserSessions = request.app.state.sessions
        sessions.end(cookie_of(request.headers.get("cookie", "")), time.time())
        response = RedirectResponse(SIGN_IN, 303)
        response.headers["set-cookie"] = set_cookie("", secure(request))
        return response

    @router.get("/session")
    async def session() -> Response:
        """Whether there is one: nobody else gets here."""
        return Response(status_code=204)


def local(place: str) -> str:
    """A place of this site, or its start: signing in leads nowhere else.

    >>> local("/runs?status=failed"), local("//evil.example"), local("https://evil.example"), local("/a\\\\b")
    ('/runs?status=failed', '/runs', '/runs', '/runs')
    """
    odd = "\\" in place or any(ord(letter) < 33 or ord(letter) > 126 for letter in place)
    fine = place.startswith("/") and not place.startswith("//") and not odd and not place.startswith(SIGN_IN)
    return place if fine else "/runs"
