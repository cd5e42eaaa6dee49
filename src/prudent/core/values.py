"""The values of parameters: one plain form for each, and their place on a scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown

Value: TypeAlias = Any  # text, number, bool, None, or a tuple of these
Features: TypeAlias = tuple[float, ...]


def is_number(value: object) -> bool:
    """A real number; a bool is not one here."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def plain(name: str, value: Value) -> Value:
    """The value without numpy or lists around it: it compares, hashes and serialises alike everywhere."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (list, tuple)):
        return tuple(plain(name, part) for part in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(
            f'The value {value} of "{name}" is not a finite number; remove it or give a real value.'
        )
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise BadInput(
        f'A {type(value).__name__} cannot be a value of "{name}"; use text, a number, true or false.'
    )


def need_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise BadInput(f"A parameter needs a name, not {name!r}; give it one.")


def find(name: str, index: dict[Hashable, int], value: Value) -> int:
    """The rank of a value, said as itself, as its text ("0.001" in a file), or as an almost equal number."""
    said = plain(name, value)
    if said in index:
        return index[said]
    number = as_number(said)
    for known, rank in index.items():
        if str(known) == str(said):
            return rank
        if number is not None and is_number(known) and math.isclose(number, known, rel_tol=1e-9):  # type: ignore[arg-type]
            return rank
    raise unknown(f'value of "{name}"', said, index)


def as_number(value: Value) -> float | int | None:
    """The number that a value is or spells, if any."""
    if is_number(value):
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):
        kinds: tuple[Callable[[str], float | int], ...] = (int, float)
        for kind in kinds:
            try:
                return kind(value)
            except ValueError:
                continue
    return None


def place(value: float, low: float, high: float, log: bool) -> float:
    """Where a value lies between low and high, in [0, 1]."""
    if high == low:
        return 0.0
    if log:
        value, low, high = math.log(value), math.log(low), math.log(high)
    return min(max((value - low) / (high - low), 0.0), 1.0)


def at(u: float, low: float, high: float, log: bool) -> float:
    """The inverse of `_place`."""
    value = math.exp(math.log(low) + u * (math.log(high) - math.log(low))) if log else low + u * (high - low)
    return min(max(value, low), high)


def places(values: NDArray[np.float64], low: float, high: float, log: bool) -> NDArray[np.float64]:
    inside = (values >= low) & (values <= high)
    if high == low:
        return np.where(inside, 0.0, np.nan)
    if log:
        values, low, high = np.log(np.where(inside, values, low)), math.log(low), math.log(high)
    return np.where(inside, np.clip((values - low) / (high - low), 0.0, 1.0), np.nan)
