"""Times and factors that are not known in advance: four distributions, and the constant."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown

Kind = Literal["constant", "normal", "lognormal", "gamma", "weibull"]
_PARAMETERS = {
    "constant": ("value",),
    "normal": ("mean", "deviation"),
    "lognormal": ("median", "sigma"),
    "gamma": ("shape", "scale"),
    "weibull": ("shape", "scale"),
}
_CALL = re.compile(r"\s*([a-z]+)\s*\(([^()]*)\)\s*")


@dataclass(frozen=True)
class Distribution:
    """A non-negative random number; what a normal draws below zero counts as zero.

    `a` and `b` are, by kind: constant (value); normal (mean, deviation); lognormal (median, sigma of the
    logarithm); gamma and Weibull (shape, scale).

    >>> Distribution.parse("normal(10, 2)").mean
    10.0
    >>> Distribution.parse("3.5")
    Distribution(kind='constant', a=3.5, b=0.0)
    """

    kind: Kind
    a: float
    b: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in _PARAMETERS:
            raise unknown("distribution", self.kind, _PARAMETERS)
        if not (self.a >= 0 and self.b >= 0 and math.isfinite(self.a) and math.isfinite(self.b)):
            raise BadInput(f"{self} has a parameter below zero; give numbers of zero or more.")
        if self.kind in ("gamma", "weibull") and not self.a > 0:
            raise BadInput(f"{self} has shape zero; give a shape above zero.")

    @classmethod
    def parse(cls, text: str | float | Distribution) -> Distribution:
        """A distribution from a number or from words like `weibull(1.5, 30)`."""
        if isinstance(text, Distribution):
            return text
        try:
            return cls("constant", float(text))
        except ValueError:
            match = _CALL.fullmatch(str(text))
        if match is None:
            raise BadInput(f'"{text}" is not a distribution; write a number, or like normal(10, 2).')
        kind, words = match[1], [word for word in match[2].split(",") if word.strip()]
        if kind not in _PARAMETERS:
            raise unknown("distribution", kind, _PARAMETERS)
        names = _PARAMETERS[kind]
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            numbers = []
        if len(numbers) != len(names):
            raise BadInput(f'"{text}" is not complete; write {kind}({", ".join(names)}) with numbers.')
        return cls(kind, *numbers)  # type: ignore[arg-type]

    @property
    def mean(self) -> float:
        """The expected value (of the normal before it is cut at zero)."""
        match self.kind:
            case "lognormal":
                return self.a * math.exp(self.b * self.b / 2)
            case "gamma":
                return self.a * self.b
            case "weibull":
                return self.b * math.gamma(1 + 1 / self.a)
            case _:
                return self.a

    @property
    def is_zero(self) -> bool:
        """Whether it never draws anything but zero."""
        return self.mean == 0 and self.b == 0

    def draw(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> NDArray[np.float64]:
        """That many numbers, in this shape."""
        match self.kind:
            case "normal":
                drawn = np.maximum(rng.normal(self.a, self.b, size), 0.0)
            case "lognormal":
                drawn = self.a * np.exp(rng.normal(0.0, self.b, size))
            case "gamma":
                drawn = rng.gamma(self.a, self.b, size)
            case "weibull":
                drawn = self.b * rng.weibull(self.a, size)
            case _:
                drawn = np.full(size, self.a)
        return np.asarray(drawn, dtype=np.float64)

    def __str__(self) -> str:
        numbers = (self.a,) if self.kind == "constant" else (self.a, self.b)
        return f"{self.kind}({', '.join(f'{number:g}' for number in numbers)})"
