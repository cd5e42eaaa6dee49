"""A running sum without rounding errors: `math.fsum` of all numbers so far, without going over them again."""

from __future__ import annotations

import math
from collections.abc import Iterable


class ExactSum:
    """The sum of finite numbers, rounded once, when it is asked for; so their order does not matter.

    It is kept as a few numbers whose bits do not overlap (Shewchuk, Adaptive Precision Floating-Point
    Arithmetic, 1997), so that to add a number takes the same time however many were added before.

    >>> running = ExactSum()
    >>> for _ in range(10):
    ...     running.add(0.1)
    >>> running.total(), sum([0.1] * 10)
    (1.0, 0.9999999999999999)
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[float] = []

    def add(self, number: float) -> None:
        """Take in one more number."""
        kept = []
        for part in self._parts:
            larger, smaller = (number, part) if abs(number) >= abs(part) else (part, number)
            number = larger + smaller
            lost = smaller - (number - larger)
            if lost:
                kept.append(lost)
        self._parts = [*kept, number]

    def total(self, more: Iterable[float] = ()) -> float:
        """The sum, and that of `more` numbers that are not kept."""
        return math.fsum([*self._parts, *more])
