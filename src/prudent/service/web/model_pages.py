"""Pages of models: the list, and one with a form that asks it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from prudent.core.errors import BadInput, PrudentError
from prudent.service.intake.refusal import Refused
from prudent.service.store import models
from prudent.service.store.models import StoredModel
from prudent.service.web.model_serving import ModelPredictor
from prudent.service.web.page_context import PageContext
from prudent.service.web.request_values import filter_value, form_fields, is_id


def add(router: APIRouter, context: PageContext) -> None:
    """Routes below /models."""
    predictor = ModelPredictor(context.settings.home / "cache")

    @router.get("/models")
    async def list_models(request: Request) -> HTMLResponse:
        after = filter_value(request.query_params.get("after"))
        try:
            page = await context.store.read_async(models.page, 50, after)
        except BadInput:
            page = await context.store.read_async(models.page, 50)
        return context.page(request, "models.html.j2", page=page)

    @router.get("/models/{model_id}")
    async def show(model_id: str, request: Request) -> HTMLResponse:
        return await _shown(context, predictor, request, model_id, {})

    @router.post("/models/{model_id}")
    async def predict(model_id: str, request: Request) -> HTMLResponse:
        """What the model says about the row in the form."""
        return await _shown(context, predictor, request, model_id, await form_fields(request))


async def _shown(
    context: PageContext,
    predictor: ModelPredictor,
    request: Request,
    model_id: str,
    said: dict[str, list[str]],
) -> HTMLResponse:
    model = await context.store.read_async(models.get, model_id) if is_id(model_id) else None
    if model is None:
        return context.missing(request, "There is no such model.", "/models")
    values: dict[str, Any] = {"model": model, "columns": [], "said": {}, "answer": None, "error": ""}
    try:
        values["columns"] = await asyncio.to_thread(predictor.columns, model)
        if said:
            row = row_of(values["columns"], said)
            values["said"] = {name: words[0] for name, words in said.items() if words}
            values["answer"] = await asyncio.to_thread(_answer, predictor, model, row)
    except Refused as error:
        values["error"] = " ".join(each.message for each in error.errors)
    except PrudentError as error:
        values["error"] = str(error)
    values["example"] = json.dumps({"rows": [_example(values["columns"])]})
    return context.page(request, "model.html.j2", 422 if values["error"] else 200, **values)


def row_of(columns: list[dict[str, Any]], said: dict[str, list[str]]) -> dict[str, Any]:
    """The row that a filled form says; what is empty is not known.

    >>> row_of([{"name": "size", "kind": "numeric", "categories": []}], {"c0": ["3.5"]})
    {'size': 3.5}
    """
    row: dict[str, Any] = {}
    for place, column in enumerate(columns):
        text = (said.get(f"c{place}") or [""])[0].strip()
        if not text:
            row[column["name"]] = None
        elif column["kind"] == "numeric":
            try:
                row[column["name"]] = float(text)
            except ValueError:
                raise BadInput(
                    f'"{text[:40]}" is not a number for {column["name"]}; write it like 3.5.'
                ) from None
        else:
            row[column["name"]] = text
    return row


def _answer(predictor: ModelPredictor, model: StoredModel, row: dict[str, Any]) -> dict[str, Any]:
    """The prediction, and how sure the model is of each class if it can tell."""
    answer: dict[str, Any] = predictor.predict(model, {"rows": [row]})
    try:
        sure = predictor.predict(model, {"rows": [row], "probabilities": True})
    except PrudentError:
        return {"value": answer["predictions"][0], "classes": []}
    shares = sorted(zip(sure["classes"], sure["probabilities"][0], strict=False), key=lambda pair: -pair[1])
    return {"value": answer["predictions"][0], "classes": shares[:10]}


def _example(columns: list[dict[str, Any]]) -> dict[str, Any]:
    return {column["name"]: (column["categories"] or [1.5])[0] for column in columns[:8]}
