"""Whether what a request says about machines that it leaves open makes sense, beside all else it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prudent.core.errors import BadInput
from prudent.core.values import is_number
from prudent.training.algorithms.domains import FUNCTION, domain, domains
from prudent.training.methods import ON_PARTS
from prudent.training.request import FRUGAL
from prudent.tuning.goal import Goal

MEASURES = ("score", "value", "train_s", "predict_ms")
"""What a goal may speak of, besides time_s and cost_usd: what an engine tells of a model."""

Found = Iterator[tuple[tuple[str | int, ...], str]]


def joint(document: Mapping[str, Any]) -> Found:
    """What is wrong with `machines`, and with the keys that go with them or do not."""
    if document.get("machines") is None:
        for key in ("fractions", "goal"):
            if document.get(key) is not None:
                yield (key,), 'It goes with machines that are left open; add "machines", or leave it out.'
        return
    yield from _types(document["machines"])
    yield from _beside(document)
    yield from _fractions(document)
    yield from _goal(document.get("goal"))


def _types(machines: Any) -> Found:
    for key in ("types", "count"):
        said = machines.get(key) if isinstance(machines, Mapping) else None
        listed = list(said) if isinstance(said, (list, tuple)) else []
        for index, item in enumerate(listed):
            if item in listed[:index]:
                yield ("machines", key, index), f"{item} is there twice; keep one."


def _beside(document: Mapping[str, Any]) -> Found:
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


def _fractions(document: Mapping[str, Any]) -> Found:
    said, search = document.get("fractions"), document.get("parameterSearch")
    shares = list(said) if isinstance(said, (list, tuple)) else []
    if said is None or not all(is_number(share) and 0 < share <= 1 for share in shares):
        return
    if 1 not in shares:
        yield ("fractions",), "All of the data are not among them; add 1."
    if len(set(shares)) < len(shares):
        yield ("fractions",), "A share is there twice; keep one."
    if search in ON_PARTS and max(shares, default=1) == min(shares, default=1):
        yield ("fractions",), f"{search} begins on a part of the data; add a share below 1."


def _goal(said: Any) -> Found:
    if not isinstance(said, str):
        return
    try:
        Goal.parse(said).check_measures(MEASURES)
    except BadInput as error:
        yield ("goal",), str(error)
