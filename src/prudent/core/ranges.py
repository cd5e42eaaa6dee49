"""Parameters that are numbers between two bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.core.parameters import Features, Value, as_number, at, need_name, place, places, plain

_STEP = 0.1  # spread of a small step, as a share of the scale


def _bound(name: str, value: Value) -> float | int:
    number = as_number(plain(name, value))
    if number is None or not math.isfinite(number):
        raise BadInput(
            f'The bounds of "{name}" must be numbers, not {value!r}; give a low and a high number.'
        )
    return number


def _need_positive(name: str, low: float, log: bool) -> None:
    if log and low <= 0:
        raise BadInput(
            f'The log scale of "{name}" needs a lower bound above zero, not {low}; raise it or drop log.'
        )


def _reflect(u: float) -> float:
    """Fold a place that a step has moved outside back into [0, 1]."""
    u = abs(u) % 2.0
    return 2.0 - u if u > 1.0 else u


@dataclass(frozen=True)
class Integer:
    """Whole numbers from low to high, both included, in steps; on a log scale small ones count for more.

    >>> depth = Integer("depth", 1, 100, log=True)
    >>> depth.encode(10), depth.size, depth.from_unit(0.5)
    ((0.5,), 100, 10)
    """

    name: str
    low: int
    high: int
    log: bool = False
    step: int = 1

    def __post_init__(self) -> None:
        need_name(self.name)
        for field in ("low", "high", "step"):
            number = _bound(self.name, getattr(self, field))
            if number != int(number):
                raise BadInput(
                    f'"{self.name}" is an integer, but its {field} is {number}; round it or use real.'
                )
            object.__setattr__(self, field, int(number))
        if self.step < 1:
            raise BadInput(f'The step of "{self.name}" is {self.step}; make it at least 1.')
        if self.low > self.high:
            raise BadInput(f'"{self.name}" goes from {self.low} to {self.high}; put the smaller bound first.')
        _need_positive(self.name, self.low, self.log)
        object.__setattr__(self, "high", self.range[-1])

    @property
    def range(self) -> range:
        """The values, not listed: there may be billions."""
        return range(self.low, self.high + 1, self.step)

    @property
    def finite(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return (self.high - self.low) // self.step + 1

    @property
    def values(self) -> tuple[int, ...]:
        return tuple(self.range)

    @property
    def width(self) -> int:
        return 1

    def check(self, value: Value) -> int:
        number = as_number(plain(self.name, value))
        if number is None or not math.isfinite(number) or number != int(number):
            raise BadInput(f'"{self.name}" takes whole numbers, not {value!r}; choose {self._choice()}.')
        if int(number) not in self.range:
            raise BadInput(
                f'The value {int(number)} of "{self.name}" is not allowed; choose {self._choice()}.'
            )
        return int(number)

    def _choice(self) -> str:
        return f"one from {self.low} to {self.high}" + (f" in steps of {self.step}" if self.step > 1 else "")

    def encode(self, value: Value) -> Features:
        return (place(self.check(value), self.low, self.high, self.log),)

    def encode_many(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`encode` for a whole column; NaN where a value is not allowed."""
        encoded = places(values, self.low, self.high, self.log)
        encoded[(values - self.low) % self.step != 0] = np.nan
        return encoded

    def from_unit(self, u: float) -> int:
        if self.log:
            # The share of a value v is log((v + step) / v), so that the shares meet without gaps.
            low, beyond = math.log(self.low), math.log(self.high + self.step)
            rank = int((math.exp(low + u * (beyond - low)) - self.low) / self.step)
        else:
            rank = int(u * self.size)
        return self.range[min(max(rank, 0), self.size - 1)]

    def neighbours(self, value: Value, rng: np.random.Generator) -> int:
        here = self.range.index(self.check(value))
        if self.size == 1:
            return self.low
        u = _reflect(self.encode(value)[0] + float(rng.normal(0.0, _STEP)))
        target = at(u, self.low, self.high, self.log)
        rank = min(max(round((target - self.low) / self.step), 0), self.size - 1)
        if rank == here:
            rank = 1 if here == 0 else here - 1 if here == self.size - 1 else here + int(rng.choice((-1, 1)))
        return self.range[rank]

    def __str__(self) -> str:
        steps = f", steps of {self.step}" if self.step > 1 else ""
        return f"{self.name}: {self.low} to {self.high}{steps}{' (log scale)' if self.log else ''}"


@dataclass(frozen=True)
class Real:
    """Any number from low to high, both included.

    >>> rate = Real("learning_rate", 1e-5, 1e-1, log=True)
    >>> round(rate.encode(1e-3)[0], 9), rate.size
    (0.5, None)
    """

    name: str
    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        need_name(self.name)
        for field in ("low", "high"):
            object.__setattr__(self, field, float(_bound(self.name, getattr(self, field))))
        if self.low >= self.high:
            raise BadInput(
                f'"{self.name}" goes from {self.low} to {self.high}; put the smaller bound first, '
                "or give a single number for a constant."
            )
        if not math.isfinite(self.high - self.low):
            raise BadInput(f'The range of "{self.name}" is too wide for a computer; narrow its bounds.')
        _need_positive(self.name, self.low, self.log)

    @property
    def finite(self) -> bool:
        return False

    @property
    def size(self) -> None:
        return None

    @property
    def values(self) -> tuple[float, ...]:
        raise BadInput(f'"{self.name}" has infinitely many values; sample them, or list the ones to try.')

    @property
    def width(self) -> int:
        return 1

    def check(self, value: Value) -> float:
        number = as_number(plain(self.name, value))
        if number is None or not self.low <= number <= self.high:
            raise BadInput(
                f'The value {value!r} of "{self.name}" is not allowed; choose a number from '
                f"{self.low:g} to {self.high:g}."
            )
        return float(number)

    def encode(self, value: Value) -> Features:
        return (place(self.check(value), self.low, self.high, self.log),)

    def encode_many(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`encode` for a whole column; NaN where a value is not allowed."""
        return places(values, self.low, self.high, self.log)

    def from_unit(self, u: float) -> float:
        return at(u, self.low, self.high, self.log)

    def neighbours(self, value: Value, rng: np.random.Generator) -> float:
        return self.from_unit(_reflect(self.encode(value)[0] + float(rng.normal(0.0, _STEP))))

    def __str__(self) -> str:
        return f"{self.name}: {self.low:g} to {self.high:g}{' (log scale)' if self.log else ''}"
