"""Forms for requests: their fields, the document of a filled form, and the field of each error."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from prudent.core.documents import read_yaml
from prudent.core.errors import BadInput
from prudent.service.intake.refusal import MALFORMED, refusal
from prudent.service.store.runs import KINDS
from prudent.training.request.errors import RequestError

RAW = "document"
_MOST_FILES, _MOST_FIELDS = 500, 2000


@dataclass(frozen=True)
class FormField:
    """One input. `path` is its place in the document, by which errors find it."""

    name: str
    path: str
    label: str
    help: str = ""
    kind: str = "text"
    placeholder: str = ""
    required: bool = False
    options: tuple[str, ...] = ()
    advanced: bool = False
    wide: bool = False


def fields_of(kind: str) -> tuple[FormField, ...]:
    """The fields of a kind of request."""
    if kind not in KINDS:
        raise refusal(f'There is no kind "{kind[:40]}"; use one of: {", ".join(KINDS)}.', "kind", 404)
    return {"train": _train, "tune": _tune, "schedule": _schedule}[kind]()


def _train() -> tuple[FormField, ...]:
    domains = ("regression", "classification", "clustering")
    return (
        FormField("path", "dataset.path", "Data", "A file of the data folder, or an https or s3 address.",
              "file",
              "https://example.org/cars.csv", required=True, wide=True),
        FormField("domain", "domain", "What to find out",
              "A number (regression), a class (classification), or groups (clustering).", "select",
              required=True, options=domains),
        FormField("target", "dataset.target", "Column to predict", "Left empty: label, target, class or y.",
              placeholder="price"),
        FormField("budget", "budget", "Budget", "Money, time or trials.",
              placeholder="$2, 10 min or 20 trials"),
        FormField("name", "name", "Name", "By which you will find it.", placeholder="prices of cars"),
        FormField("methods", "methods", "Algorithms", "None chosen: those that suit the question.",
              "algorithms",
              advanced=True, wide=True),
        FormField("metric", "metric", "Rank by", "Left empty: the usual one.", placeholder="rmse",
              advanced=True),
        FormField("email", "emailAddress", "Mail the report to", "", "email", "you@example.org",
              advanced=True),
        FormField("seed", "seed", "Seed", "The same seed gives the same models.", "number", "0",
              advanced=True),
    )  # fmt: skip


def _tune() -> tuple[FormField, ...]:
    from prudent.tuning.strategies.registry import strategies

    return (
        FormField("goal", "goal", "Goal", "What to minimise or maximise, and what must hold.", "text",
              "minimise cost_usd subject to time_s <= 5 min", required=True, wide=True),
        FormField("table", "table", "Measured runs",
              "Rows of a CSV, or the name of a file in the data folder.",
              "area", "vm_type,n_workers,time_s,price_usd_per_h\nm5.large,1,900,0.096", required=True,
              wide=True),
        FormField("parameters", "parameters", "Columns to choose", "Separated by commas.",
              placeholder="vm_type, n_workers", required=True),
        FormField("measures", "measures", "Columns that are measured", "Besides time and cost.",
              placeholder="accuracy"),
        FormField("budget", "budget", "Budget", "What the search may cost.", placeholder="$2"),
        FormField("name", "name", "Name", "By which you will find it.", placeholder="spark job"),
        FormField("strategy", "strategy", "Strategy", "Left empty: the best one for the goal.", "select",
              options=("", *strategies()), advanced=True),
        FormField("max_trials", "max_trials", "Most trials", "", "number", "20", advanced=True),
        FormField("seed", "seed", "Seed", "The same seed decides the same.", "number", "0", advanced=True),
    )  # fmt: skip


def _schedule() -> tuple[FormField, ...]:
    from prudent.workflows.schedulers.registry import schedulers

    return (
        FormField("workflow", "workflow", "Workflow",
              "DAX or WfFormat, pasted; or the name of a file in the data folder.", "area",
              "Montage_100.xml", required=True, wide=True),
        FormField("fleet", "fleet", "Machines", "Types of the price list, with how many of each.",
              placeholder="8*m3.medium,3*m3.2xlarge", required=True),
        FormField("scheduler", "scheduler", "Scheduler", "", "select", options=("prudent", *(
            name for name in schedulers() if name != "prudent"))),
        FormField("name", "name", "Name", "By which you will find it.", placeholder="montage"),
        FormField("slots", "slots", "One activation per", "", "select", options=("vm", "vcpu"),
              advanced=True),
        FormField("seed", "seed", "Seed", "The same seed gives the same plan.", "number", "0", advanced=True),
    )  # fmt: skip


def algorithms() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The algorithms to choose from, by domain."""
    from prudent.training.algorithms.registry import algorithms_of

    domains = ("regression", "classification", "clustering")
    return tuple((domain, tuple(found.name for found in algorithms_of(domain))) for domain in domains)


def document_of(kind: str, said: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The request document of a filled form; empty fields are left out."""
    first = {name: values[0].strip() for name, values in said.items() if values and values[0].strip()}
    if kind == "train":
        return _train_document(first, said)
    document: dict[str, Any] = {
        name: first[name]
        for name in ("name", "goal", "budget", "strategy", "fleet", "scheduler", "slots")
        if name in first
    }
    for name in ("seed", "max_trials"):
        if name in first:
            document[name] = _whole(first[name])
    if kind == "tune":
        for name in ("parameters", "measures"):
            if name in first:
                document[name] = _listed(first[name])
        if "table" in first:
            pasted = "\n" in first["table"] or "," in first["table"]
            document["table"] = {"csv": first["table"] + "\n"} if pasted else first["table"]
    elif "workflow" in first:
        document["workflow"] = _workflow(first["workflow"])
    return document


def _train_document(first: Mapping[str, str], said: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    dataset = {name: first[name] for name in ("path", "target") if name in first}
    document: dict[str, Any] = {"domain": first.get("domain", ""), "dataset": dataset}
    for name, key in (
        ("budget", "budget"),
        ("name", "name"),
        ("metric", "metric"),
        ("email", "emailAddress"),
    ):
        if name in first:
            document[key] = first[name]
    if "seed" in first:
        document["seed"] = _whole(first["seed"])
    chosen = [name for name in said.get("methods", ()) if name]
    if chosen:
        document["methods"] = [{"algorithm": name} for name in chosen]
    return document


def decoded(body: bytes) -> dict[str, list[str]]:
    """Names and values; empty ones too. The form token is left out: it was checked by `AuthMiddleware`.

    >>> decoded(b"csrf=x&name=a+b&name=%26&key=")
    {'name': ['a b', '&'], 'key': ['']}
    """
    try:
        found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise refusal("The form cannot be read; reload the page and try again.", status=MALFORMED) from None
    found.pop("csrf", None)
    return found


def read_raw(text: str) -> Any:
    """A document written by hand, JSON or YAML."""
    try:
        found = read_yaml(text)
        json.dumps(found, allow_nan=False)
    except (BadInput, TypeError, ValueError, RecursionError) as error:
        raise refusal(f"It is neither JSON nor YAML ({error}).", status=MALFORMED) from None
    return found


def placed(
    errors: Iterable[RequestError], fields: Sequence[FormField]
) -> tuple[dict[str, list[str]], list[RequestError]]:
    """Errors by the field they belong to, and those that belong to none.

    >>> placed([RequestError("dataset.path", "It is missing."), RequestError("x", "?")], fields_of("train"))
    ({'path': ['It is missing.']}, [RequestError(path='x', message='?')])
    """
    at: dict[str, list[str]] = {}
    rest: list[RequestError] = []
    for error in errors:
        fitting = [field for field in fields if _is_at(error.path, field.path)]
        if fitting:
            best = max(fitting, key=lambda field: len(field.path))
            at.setdefault(best.name, []).append(error.message)
        else:
            rest.append(error)
    if any(error.path == "dataset" for error in rest) and any(field.name == "path" for field in fields):
        at.setdefault("path", []).extend(error.message for error in rest if error.path == "dataset")
        rest = [error for error in rest if error.path != "dataset"]
    return at, rest


def data_files(folders: Sequence[Path]) -> list[str]:
    """The names of files that a request may name, for suggestions; those right in the folders."""
    names: dict[str, None] = {}
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            names.update(
                dict.fromkeys(sorted(one.name for one in entries if one.name[0] != "." and one.is_file()))
            )
    return list(names)[:_MOST_FILES]


def _is_at(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}.", f"{place}["))


def _whole(text: str) -> Any:
    """A number, or the text as it is: admission says what is wrong with it."""
    return int(text) if text.lstrip("-").isdecimal() and text.isascii() else text


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _workflow(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
