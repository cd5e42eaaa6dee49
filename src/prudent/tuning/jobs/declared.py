"""What a job says about itself, checked before anything runs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from prudent.core.errors import BadInput
from prudent.core.space import Space
from prudent.core.values import is_number
from prudent.tuning.goal import COST, TIME

PROGRESS = "progress"
ELAPSED = "elapsed_s"
_OURS = (COST, TIME)


def declared_measures(measures: Iterable[str]) -> tuple[str, ...]:
    """The names of what runs report; time and cost are measured anyway and need not be named.

    >>> declared_measures(["accuracy", "time_s"])
    ('accuracy',)
    """
    if isinstance(measures, str):
        measures = (measures,)
    names = tuple(measures)
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise BadInput(f'{name!r} is no name of a measure; name what runs report, like "accuracy".')
        if name in (PROGRESS, ELAPSED):
            raise BadInput(f'"{name}" says how far a run is and cannot be a measure; choose another name.')
        if names.count(name) > 1:
            raise BadInput(f'The measure "{name}" is named twice; remove one.')
    return tuple(name for name in names if name not in _OURS)


def declared_fraction(fraction: str | None, space: Space) -> str | None:
    """The parameter that is the share of the data, if all its values can be one."""
    if fraction is None:
        return None
    parameter = space[fraction]
    listed = parameter.values if parameter.finite and (parameter.size or 0) <= 10_000 else ()
    for value in (*listed, parameter.from_unit(0.0), parameter.from_unit(1.0 - 1e-12)):
        if not is_number(value) or not 0 < value <= 1:
            raise BadInput(
                f'The fraction "{fraction}" can be {value!r}, which is no share of the data in (0, 1]; '
                "write shares, 1 for all."
            )
    return fraction


def declared_seconds(what: str, seconds: float) -> float:
    """A length of time that somebody gave."""
    if not is_number(seconds) or not math.isfinite(seconds) or seconds < 0:
        raise BadInput(f"{what} cannot be {seconds!r}; give seconds of 0 or more.")
    return float(seconds)


def fingerprint_of(kind: str, *parts: Any) -> str:
    """A short text that is the same in every process, and another one when a part changes."""
    said = json.dumps(parts, sort_keys=True, default=repr)
    return f"{kind} {hashlib.sha256(said.encode()).hexdigest()[:16]}"


def name_of(function: Callable[..., Any]) -> str:
    """How people call a callable: its name, that of what it wraps, or that of its class."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))
