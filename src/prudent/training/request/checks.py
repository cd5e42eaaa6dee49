"""Checks of a request's meaning: names that exist, values that they take, parts that fit together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prudent.cloud.catalog import Catalog
from prudent.core.errors import BadInput, did_you_mean, unknown
from prudent.core.parameters import as_number, is_number
from prudent.training.algorithms.algorithm import FUNCTION, Algorithm, domain, domains, metric_name
from prudent.training.algorithms.hyperparameter import INTEGER, Hyperparameter
from prudent.training.algorithms.registry import algorithm, algorithms, algorithms_of, transform_settings
from prudent.training.algorithms.registry import transforms as known_transforms
from prudent.training.request.errors import RequestError, json_path
from prudent.training.request.request import (
    FORMATS,
    FRUGAL,
    ONNX,
    PMML,
    DataSource,
    HyperparameterSearch,
    Instances,
    MachineOptions,
    Method,
    Resources,
    TrainingRequest,
)
from prudent.training.request.request import searches as known_searches
from prudent.training.search.methods import MULTI_FIDELITY
from prudent.tuning.goal import Goal

DocumentPath = tuple[str | int, ...]
Findings = Iterator[tuple[DocumentPath, str]]

_MAIL = re.compile(r"[^@\s]+@[^@\s]+\.?[^@\s]*")


def check(document: Mapping[str, Any]) -> list[RequestError]:
    """Every error of meaning. Parts of a wrong shape are skipped: pydantic reports those."""
    return [RequestError(json_path(place), words) for place, words in _all(document)]


def _all(document: Mapping[str, Any]) -> Findings:
    yield from _keys(document, TrainingRequest, ())
    name = document.get("domain")
    if isinstance(name, str):
        yield from _known(("domain",), "domain", name, domains())
    yield from _dataset(document)
    yield from _methods(document)
    search = document.get("parameterSearch")
    if isinstance(search, str):
        yield from _known(("parameterSearch",), "search", search, known_searches())
    yield from _resources(document.get("computationalResources"))
    yield from _transforms(document.get("transforms"))
    yield from _metric(document)
    forms = document.get("export")
    for place, form in enumerate(forms if isinstance(forms, list) else []):
        if isinstance(form, str):
            yield from _known(("export", place), "form of a model", form, (ONNX, PMML))
    mail, machine = document.get("emailAddress"), document.get("machine")
    if isinstance(mail, str) and not _MAIL.fullmatch(mail):
        yield ("emailAddress",), f'"{mail}" is not a mail address; write it like name@example.org.'
    if isinstance(machine, str):
        yield from _known(("machine",), "machine type", machine, [m.name for m in Catalog.load()])
    if isinstance(machines := document.get("machines"), Mapping):
        yield from _keys(machines, MachineOptions, ("machines",))
    yield from check_open_machines(document)


def _known(place: DocumentPath, kind: str, word: object, options: Iterable[str]) -> Findings:
    options = list(options)
    if word not in options:
        yield place, str(unknown(kind, word, options))


def _keys(part: Mapping[str, Any], model: Any, place: DocumentPath) -> Findings:
    """A key that is nearly a known one is taken for a typing error; any other is allowed."""
    known = [field.alias or name for name, field in model.model_fields.items()]
    for key in part:
        if key not in known and (hint := did_you_mean(str(key), [k for k in known if k not in part])):
            yield (*place, str(key)), f'Unknown key "{key}".{hint}'


def _dataset(document: Mapping[str, Any]) -> Findings:
    name, dataset = document.get("domain"), document.get("dataset")
    if dataset is None and name in domains() and name != "misc-functions":
        yield ("dataset",), f'The domain "{name}" needs data; add {{"path": …}}.'
    if not isinstance(dataset, Mapping):
        return
    yield from _keys(dataset, DataSource, ("dataset",))
    if isinstance(form := dataset.get("format"), str):
        yield from _known(("dataset", "format"), "format", form, FORMATS)
    features, target = dataset.get("features"), dataset.get("target")
    if isinstance(features, list):
        if not features:
            yield ("dataset", "features"), "The list is empty; name the columns, or leave it out to take all."
        if target is not None and target in features:
            yield ("dataset", "features", features.index(target)), f"{target} is the target; take it out."


def _items(listed: Any, place: DocumentPath) -> Iterator[tuple[DocumentPath, Mapping[str, Any]]]:
    if isinstance(listed, (list, tuple)):
        for index, item in enumerate(listed):
            if isinstance(item, Mapping):
                yield (*place, index), item


def _methods(document: Mapping[str, Any]) -> Findings:
    seen: list[Mapping[str, Any]] = []
    for place, method in _items(document.get("methods"), ("methods",)):
        yield from _keys(method, Method, place)
        if method in seen:
            yield place, f"It repeats methods[{seen.index(method)}]; remove one."
        seen.append(method)
        name = method.get("algorithm")
        if not isinstance(name, str):
            continue
        if name not in algorithms():
            yield (*place, "algorithm"), str(unknown("algorithm", name, _algorithms_domain_first(document)))
            continue
        found = algorithm(name)
        if document.get("domain") in domains() and document["domain"] not in found.domains:
            options = ", ".join(each.name for each in algorithms_of(document["domain"]))
            yield (
                (*place, "algorithm"),
                f"{name} is for {' and '.join(found.domains)}, not for {document['domain']}; "
                f"change the domain, or choose one of: {options}.",
            )
        yield from _hyperparameters(found, method, place, document.get("parameterSearch"))


def _algorithms_domain_first(document: Mapping[str, Any]) -> list[str]:
    """All algorithms, those of the domain first: they are the likely ones."""
    own = [found.name for found in algorithms_of(str(document.get("domain")))]
    return list(dict.fromkeys([*own, *algorithms()]))


def _hyperparameters(
    found: Algorithm, method: Mapping[str, Any], place: DocumentPath, search: Any
) -> Findings:
    seen: set[str] = set()
    for at, item in _items(method.get("hyperparameters"), (*place, "hyperparameters")):
        yield from _keys(item, HyperparameterSearch, at)
        name = item.get("param")
        if not isinstance(name, str) or not name:
            continue
        if name in seen:
            yield (*at, "param"), f"{name} is given twice; put all its values into one."
        seen.add(name)
        if name not in found:
            known = [parameter.name for parameter in found.hyperparameters]
            yield (*at, "param"), str(unknown(f"hyper-parameter of {found.name}", name, known))
            continue
        yield from check_values_or_range(found[name], item, at, search)


def check_values_or_range(
    parameter: Hyperparameter, item: Mapping[str, Any], place: DocumentPath, search: Any
) -> Findings:
    """What is wrong with the values or the range of one parameter."""
    values, span = item.get("values"), item.get("range")
    if values is None and span is None:
        yield (*place, "values"), "It is missing; list the values to try, or give a range."
    if values is not None and span is not None:
        yield (*place, "range"), "There are values beside it; keep one of them."
    if isinstance(values, (list, tuple)):
        for index, value in enumerate(values):
            yield from _value(parameter, value, (*place, "values", index))
    if isinstance(span, (list, tuple)):
        yield from _range(parameter, item, span, place, search)


def _value(parameter: Hyperparameter, value: Any, place: DocumentPath) -> Findings:
    try:
        parameter.check(value)
    except BadInput as error:
        yield place, str(error)


def _range(
    parameter: Hyperparameter, item: Mapping[str, Any], span: Any, place: DocumentPath, search: Any
) -> Findings:
    at, scale, kind = (*place, "range"), item.get("scale", "linear"), item.get("type")
    yield from _known((*place, "scale"), "scale", scale, ("linear", "log"))
    if kind is not None:
        yield from _known((*place, "type"), "type", kind, ("integer", "real"))
    if len(span) != 2:
        yield at, f"It has {len(span)} ends; write [lowest, highest]."
        return
    wrong = [found for i, end in enumerate(span) for found in _value(parameter, end, (*at, i))]
    yield from wrong
    if wrong:
        return
    low, high = (as_number(end) for end in span)
    if low is None or high is None:
        yield at, f"{parameter.name} is not a number; list its values instead of a range."
    elif low > high:
        yield at, f"It goes from {low} to {high}; put the smaller end first."
    elif scale == "log" and low <= 0:
        yield (*at, 0), f"A log scale cannot begin at {low}; raise it above 0, or drop the scale."
    elif kind == "integer" and (low != math.floor(low) or high != math.floor(high)):
        yield at, f"Whole numbers cannot go from {low} to {high}; round the ends."
    elif search == "grid" and low < high and parameter.kind != INTEGER and kind != "integer":
        yield at, "A grid cannot list every number between; list values, or choose another parameterSearch."


def _resources(said: Any) -> Findings:
    if not isinstance(said, Mapping):
        return
    place: DocumentPath = ("computationalResources",)
    yield from _keys(said, Resources, place)
    yield from _check_order(said, "minTotalInstances", "maxTotalInstances", place)
    for at, item in _items(said.get("instances"), (*place, "instances")):
        yield from _keys(item, Instances, at)
        yield from _check_order(item, "minInstances", "maxInstances", at)
        hardware = item.get("additionalHardware")
        for index, word in enumerate(hardware if isinstance(hardware, list) else ()):
            yield from _known((*at, "additionalHardware", index), "hardware", word, ("GPU",))


def _check_order(part: Mapping[str, Any], low: str, high: str, place: DocumentPath) -> Findings:
    least, most = part.get(low), part.get(high)
    if isinstance(least, int) and isinstance(most, int) and least > most:
        yield (*place, high), f"It is less than {low} ({least}); raise it."


def _transforms(said: Any) -> Findings:
    seen: set[str] = set()
    for place, item in _items(said, ("transforms",)):
        name = item.get("name")
        if not isinstance(name, str):
            continue
        if name in seen:
            yield (*place, "name"), f"{name} is there twice; keep one."
        seen.add(name)
        if name not in known_transforms():
            yield (*place, "name"), str(unknown("transform", name, known_transforms()))
            continue
        settings = transform_settings(name)
        for key, value in item.items():
            if key == "name":
                continue
            if key not in settings:
                yield (*place, key), str(unknown(f"setting of {name}", key, settings))
            elif isinstance(value, Mapping):
                yield from check_values_or_range(settings[key], value, (*place, key), None)
            elif isinstance(value, (list, tuple)):
                yield from check_values_or_range(settings[key], {"values": value}, (*place, key), None)
            else:
                yield from _value(settings[key], value, (*place, key))


def _metric(document: Mapping[str, Any]) -> Findings:
    metric, name = document.get("metric"), document.get("domain")
    if isinstance(metric, str) and name in domains():
        known = domain(str(name)).metrics
        yield from _known(("metric",), f"metric of {name}", metric_name(metric), known)


MEASURES = ("score", "value", "train_s", "predict_ms")
"""The measures that a goal may name besides time_s and cost_usd: those that an engine reports of a model."""


def check_open_machines(document: Mapping[str, Any]) -> Findings:
    """Errors in `machines`, and in the keys that need them or conflict with them."""
    if document.get("machines") is None:
        for key in ("fractions", "goal"):
            if document.get(key) is not None:
                yield (key,), 'It goes with machines that are left open; add "machines", or leave it out.'
        return
    yield from _repeated_machines(document["machines"])
    yield from _conflicts_with_machines(document)
    yield from _fractions(document)
    yield from _goal(document.get("goal"))


def _repeated_machines(machines: Any) -> Findings:
    for key in ("types", "count"):
        said = machines.get(key) if isinstance(machines, Mapping) else None
        listed = list(said) if isinstance(said, (list, tuple)) else []
        for index, item in enumerate(listed):
            if item in listed[:index]:
                yield ("machines", key, index), f"{item} is there twice; keep one."


def _conflicts_with_machines(document: Mapping[str, Any]) -> Findings:
    for key in ("machine", "computationalResources"):
        if document.get(key):
            yield (key,), 'The machines are left open by "machines"; keep one of the two.'
    name = document.get("domain")
    if name in domains() and domain(str(name)).task == FUNCTION:
        yield ("machines",), "A function has no data to train on machines; leave it out."
    if document.get("parameterSearch") == FRUGAL:
        yield ("parameterSearch",), "frugal does not look at machines; leave it out, or choose nephele."
    if isinstance(at_once := document.get("parallelism"), int) and at_once > 1:
        yield ("parallelism",), "Each trial has the machines for itself; leave it out."


def _fractions(document: Mapping[str, Any]) -> Findings:
    said, search = document.get("fractions"), document.get("parameterSearch")
    shares = list(said) if isinstance(said, (list, tuple)) else []
    if said is None or not all(is_number(share) and 0 < share <= 1 for share in shares):
        return
    if 1 not in shares:
        yield ("fractions",), "All of the data are not among them; add 1."
    if len(set(shares)) < len(shares):
        yield ("fractions",), "A share is there twice; keep one."
    if search in MULTI_FIDELITY and max(shares, default=1) == min(shares, default=1):
        yield ("fractions",), f"{search} begins on a part of the data; add a share below 1."


def _goal(said: Any) -> Findings:
    if not isinstance(said, str):
        return
    try:
        Goal.parse(said).check_measures(MEASURES)
    except BadInput as error:
        yield ("goal",), str(error)
