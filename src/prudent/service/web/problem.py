"""Errors as problem+json (RFC 9457): what is wrong, where, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from prudent.core.errors import BadInput, PrudentError
from prudent.service.intake.refusal import Refused
from prudent.service.security.rate_limits import retry_after
from prudent.service.store.store import StoreUnavailable

MEDIA_TYPE = "application/problem+json"
_log = logging.getLogger("prudent.web")


class HttpProblem(Exception):
    """Ends a request with a problem.

    >>> HttpProblem(404, "There is no such run.").status
    404
    """

    def __init__(
        self,
        status: int,
        detail: str,
        title: str = "",
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.title, self.more = status, detail, title, more
        self.headers = headers


def answer(
    status: int, detail: str, title: str = "", headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    """A problem as a response."""
    if headers is None and status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INSUFFICIENT_STORAGE):
        headers = {"retry-after": "5"}
    content = {
        "type": "about:blank",
        "title": title or HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **more,
    }
    return JSONResponse(content, status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Every error of the application leaves as a problem."""
    app.add_exception_handler(HttpProblem, _problem)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(PrudentError, _ours)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(Exception, _unexpected)


async def _problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HttpProblem)
    return answer(error.status, error.detail, error.title, error.headers, **error.more)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    said = error.to_dict()
    later = None if error.retry_s is None else {"retry-after": retry_after(error.retry_s)}
    return answer(error.status, said["detail"], said["title"], later, errors=said["errors"])


async def _ours(request: Request, error: Exception) -> JSONResponse:
    if isinstance(error, StoreUnavailable):
        return answer(error.status, str(error))
    return answer(422 if isinstance(error, BadInput) else 500, str(error))


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    details = {404: "There is nothing here; see /docs for what there is.", 405: "Use another method here."}
    response = answer(error.status_code, details.get(error.status_code, str(error.detail)))
    response.headers.update(error.headers or {})
    return response


async def _validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = [
        {"path": ".".join(str(part) for part in each["loc"][1:]), "message": f"{each['msg']}."}
        for each in error.errors()
    ]
    return answer(
        422, "The request is wrong: " + "; ".join(f"{e['path']}: {e['message']}" for e in found), errors=found
    )


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return answer(500, "Something went wrong that should not; the operator's log says what.")
