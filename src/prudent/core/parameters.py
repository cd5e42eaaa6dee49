"""Parameters of a space that are given as a list of values, and what every kind of parameter must offer.

`Integer` and `Real`, numbers between two bounds, are in `prudent.core.ranges`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown

__all__ = ["Categorical", "Constant", "Ordinal", "Parameter"]


class Parameter(Protocol):
    """What a space asks of a parameter; implement it to bring another kind.

    The space calls `check` on values that come from outside and the others on canonical values.
    Two optional attributes are used where they exist: `feature_names` (one name per column of `encode`), and
    `fact_names` with `facts(value)`, which let a rule say `cluster.vcpus` about the parameter `cluster`.
    """

    @property
    def name(self) -> str: ...

    @property
    def finite(self) -> bool:
        """Whether the values can be listed."""
        ...

    @property
    def size(self) -> int | None:
        """How many values there are, or None."""
        ...

    @property
    def values(self) -> Sequence[Value]:
        """Every value, in a fixed order; only for a finite parameter."""
        ...

    @property
    def width(self) -> int:
        """The number of features of `encode`."""
        ...

    def check(self, value: Value) -> Value:
        """The canonical value that is meant, or BadInput."""
        ...

    def encode(self, value: Value) -> Features:
        """Features in [0, 1] for a model."""
        ...

    def from_unit(self, u: float) -> Value:
        """The value at place u in [0, 1): uniform u gives the values a fair share on their scale."""
        ...

    def neighbours(self, value: Value, rng: np.random.Generator) -> Value:
        """A value a small random step away (the same one if there is no other)."""
        ...


def _checked_values(name: str, values: Iterable[Value]) -> tuple[Value, ...]:
    need_name(name)
    if isinstance(values, str):
        raise BadInput(f'The values of "{name}" are one text, "{values}"; give a list.')
    listed = tuple(plain(name, value) for value in values)
    if not listed:
        raise BadInput(f'Parameter "{name}" has no values; list at least one.')
    seen: set[Hashable] = set()
    for value in listed:
        if value in seen:
            raise BadInput(f'Parameter "{name}" lists the value {value!r} twice; remove one.')
        seen.add(value)
    return listed


@dataclass(frozen=True)
class _ListParameter:
    """What the parameters given as a list share."""

    name: str
    values: Sequence[Value]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _checked_values(self.name, self.values))

    @property
    def finite(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return len(self.values)

    @cached_property
    def _index(self) -> dict[Hashable, int]:
        return {value: rank for rank, value in enumerate(self.values)}

    def rank(self, value: Value) -> int:
        """The place of a value in the list."""
        try:
            return self._index[value]
        except (KeyError, TypeError):
            return find(self.name, self._index, value)

    def check(self, value: Value) -> Value:
        return self.values[self.rank(value)]

    def from_unit(self, u: float) -> Value:
        return self.values[min(int(u * len(self.values)), len(self.values) - 1)]

    def _shown(self) -> str:
        shown = ", ".join(str(value) for value in self.values[:8])
        return shown + (f", … ({len(self.values)} values)" if len(self.values) > 8 else "")


@dataclass(frozen=True)
class Categorical(_ListParameter):
    """Values without an order, such as a machine family: one column each (two values share one column).

    >>> kind = Categorical("kind", ["adam", "sgd", "lion"])
    >>> kind.encode("sgd")
    (0.0, 1.0, 0.0)
    >>> kind.check("sdg")
    Traceback (most recent call last):
    ...
    prudent.core.errors.BadInput: Unknown value of "kind" "sdg". Did you mean "sgd"? Choose one of: \
adam, sgd, lion.
    """

    @property
    def width(self) -> int:
        return 1 if len(self.values) <= 2 else len(self.values)

    @property
    def feature_names(self) -> tuple[str, ...]:
        if self.width > 1:
            return tuple(f"{self.name}={value}" for value in self.values)
        return (f"{self.name}={self.values[-1]}",)

    def encode(self, value: Value) -> Features:
        rank = self.rank(value)
        if self.width == 1:
            return (float(rank),)
        return tuple(float(rank == column) for column in range(self.width))

    def neighbours(self, value: Value, rng: np.random.Generator) -> Value:
        if len(self.values) == 1:
            return self.values[0]
        others = int(rng.integers(len(self.values) - 1))
        return self.values[others + (others >= self.rank(value))]

    def __str__(self) -> str:
        return f"{self.name}: {self._shown()}"


@dataclass(frozen=True)
class Ordinal(_ListParameter):
    """An ordered list. Numbers are sorted and lie where their (log) value is; other values lie at their rank.

    >>> Ordinal("batch", [1, 10, 100], log=True).encode(10)
    (0.5,)
    >>> Ordinal("size", ["small", "medium", "large"]).encode("large")
    (1.0,)
    """

    log: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.numeric:
            object.__setattr__(self, "values", tuple(sorted(self.values)))
        if self.log and not (self.numeric and self.values[0] > 0):
            raise BadInput(f'The log scale of "{self.name}" needs numbers above zero; drop the log scale.')

    @cached_property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(is_number(value) for value in self.values)

    @property
    def width(self) -> int:
        return 1

    @cached_property
    def _places(self) -> tuple[float, ...]:
        if len(self.values) == 1:
            return (0.0,)
        marks = [float(value) for value in self.values] if self.numeric else [*map(float, range(self.size))]
        return tuple(place(mark, marks[0], marks[-1], self.log) for mark in marks)

    def encode(self, value: Value) -> Features:
        return (self._places[self.rank(value)],)

    def neighbours(self, value: Value, rng: np.random.Generator) -> Value:
        rank, last = self.rank(value), self.size - 1
        if last == 0:
            return self.values[0]
        step = 1 if rank == 0 else -1 if rank == last else int(rng.choice((-1, 1)))
        return self.values[rank + step]

    def __str__(self) -> str:
        return f"{self.name}: {self._shown()}{' (log scale)' if self.log else ' (in order)'}"


@dataclass(frozen=True)
class Constant:
    """A value that is not varied but belongs to the configuration; no feature tells it."""

    name: str
    value: Value

    def __post_init__(self) -> None:
        need_name(self.name)
        object.__setattr__(self, "value", plain(self.name, self.value))

    @property
    def finite(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return 1

    @property
    def values(self) -> tuple[Value, ...]:
        return (self.value,)

    @property
    def width(self) -> int:
        return 0

    def check(self, value: Value) -> Value:
        find(self.name, {self.value: 0}, value)
        return self.value

    def encode(self, value: Value) -> Features:
        self.check(value)
        return ()

    def from_unit(self, u: float) -> Value:
        return self.value

    def neighbours(self, value: Value, rng: np.random.Generator) -> Value:
        return self.value

    def __str__(self) -> str:
        return f"{self.name}: {self.value} (constant)"


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
