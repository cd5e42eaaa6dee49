"""The page with which people submit requests, by filling in fields or writing the document."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from prudent.service.intake.refusal import Refused
from prudent.service.security.authentication import user_of
from prudent.service.security.protection import folders_for
from prudent.service.store.runs import KINDS
from prudent.service.store.users import MEMBER
from prudent.service.web import forms
from prudent.service.web.page_context import PageContext
from prudent.service.web.submission import Submission

EXAMPLES: dict[str, dict[str, Any]] = {
    "train": {
        "domain": "classification",
        "dataset": {"path": "https://example.org/flowers.csv", "target": "kind"},
        "budget": "20 trials",
    },
    "tune": {
        "table": {
            "csv": "vm_type,n_workers,time_s,price_usd_per_h\nm5.large,1,900,0.096\nm5.large,4,260,0.384\n"
        },
        "parameters": ["vm_type", "n_workers"],
        "goal": "minimise cost_usd subject to time_s <= 5 min",
        "budget": "$1",
    },
    "schedule": {"workflow": "Montage_100.xml", "fleet": "8*m3.medium,3*m3.2xlarge", "scheduler": "prudent"},
}


def add(router: APIRouter, context: PageContext) -> None:
    """Routes below /submit."""

    @router.get("/submit")
    async def choose() -> Response:
        return RedirectResponse("/submit/train", 303)

    @router.get("/submit/{kind}")
    async def form(kind: str, request: Request) -> HTMLResponse:
        if kind not in KINDS:
            return context.missing(request, "There is no such kind of run.", "/submit/train")
        return await _form(context, request, kind, {}, raw=request.query_params.get("as") == "json")

    @router.post("/submit/{kind}")
    async def submit(kind: str, request: Request) -> Response:
        """Take the request, or show the form again with every error at its field."""
        if kind not in KINDS:
            return context.missing(request, "There is no such kind of run.", "/submit/train")
        submission = Submission(context.settings, kind, user_of(request), "form", form=await request.body())
        try:
            if not submission.is_large:
                submission = submission.decoded()
            accepted = await context.admission.take(submission)
        except Refused as error:
            if (
                error.status == 429 and submission.form
            ):  # to decode it, and to show all of it, would take long
                return _later(context, request, kind, error)
            said = dict(submission.fields or error.fields)
            return await _form(context, request, kind, said, forms.RAW in said, error)
        return RedirectResponse(f"/runs/{accepted.run.id}", 303)


def _later(context: PageContext, request: Request, kind: str, error: Refused) -> HTMLResponse:
    back = f"/submit/{kind}"
    return context.page(request, "later.html.j2", 429, what=error.errors[0].message, back=back)


async def _form(
    context: PageContext,
    request: Request,
    kind: str,
    said: dict[str, list[str]],
    raw: bool,
    error: Refused | None = None,
) -> HTMLResponse:
    fields = await asyncio.to_thread(forms.fields_of, kind)
    at, rest = forms.placed(error.errors if error else (), () if raw else fields)
    text = (said.get(forms.RAW) or [json.dumps(EXAMPLES[kind], indent=2)])[0]
    folders = folders_for(context.settings, user_of(request).name)
    files = await asyncio.to_thread(forms.data_files, folders)
    return context.page(
        request,
        "submit.html.j2",
        error.status if error else 200,
        kind=kind,
        fields=fields,
        said=said,
        errors=at,
        rest=rest,
        raw=raw,
        text=text,
        key=secrets.token_hex(12),
        files=files,
        algorithms=forms.algorithms() if kind == "train" else (),
        may=user_of(request).may(MEMBER),
        opened=any(field.advanced and (field.name in at or _filled(field.name, said)) for field in fields),
    )


def _filled(name: str, said: dict[str, list[str]]) -> bool:
    return bool((said.get(name) or [""])[0].strip())
