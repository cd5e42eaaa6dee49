"""A hyper-parameter: its name as in Spark ML, the values it takes, and where to look for good ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prudent.core.errors import BadInput, unknown
from prudent.core.parameters import Categorical, Constant, Ordinal, Parameter, as_number
from prudent.core.ranges import Integer, Real

INTEGER, REAL, CHOICE, BOOLEAN = "integer", "real", "choice", "boolean"


@dataclass(frozen=True)
class SearchRange:
    """Where to look when the request does not say: a range (log scale or not) or a list of values.

    `cheap` is the value that trains fastest, to begin with; None where it makes no difference. `good` is one
    that often does well, to look at next; None where the default does.
    """

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    values: tuple[Any, ...] = ()
    cheap: Any = None
    good: Any = None


@dataclass(frozen=True)
class Hyperparameter:
    """One setting of an algorithm.

    `low` and `high` bound the numbers it takes (`open_low`: `low` itself is not among them). A default of
    None means that the data decide (the widths of a network's ends) or that it is left out. A `choice` with
    `numbers` takes numbers between the bounds as well as its words.
    """

    name: str
    kind: str
    default: Any
    about: str
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    choices: tuple[str, ...] = ()
    numbers: bool = False
    search: SearchRange | None = None

    def check(self, value: Any) -> Any:
        """The canonical value that is meant; texts are read as numbers and truth values where those are due.

        >>> depth = Hyperparameter("maxDepth", INTEGER, 5, "depth of the tree", low=0, high=30)
        >>> depth.check("7"), depth.check(7.0)
        (7, 7)
        >>> depth.check(31)
        Traceback (most recent call last):
        ...
        prudent.core.errors.BadInput: maxDepth is 31; give a whole number from 0 to 30.
        """
        if self.kind == BOOLEAN:
            return self._boolean(value)
        if self.kind == CHOICE:
            return self._choice(value)
        return self._number(value)

    def _boolean(self, value: Any) -> bool:
        known = {"true": True, "false": False, "1": True, "0": False}
        said = str(value).strip().lower()
        if said not in known:
            raise BadInput(f"{self.name} is {value!r}; give true or false.")
        return known[said]

    def _choice(self, value: Any) -> Any:
        for word in self.choices:
            if str(value).lower() == word.lower():
                return word
        number = None if isinstance(value, bool) else as_number(value)
        if self.numbers and number is not None and self._within(number):
            return number
        if self.numbers:
            raise BadInput(
                f"{self.name} is {value!r}; give one of {', '.join(self.choices)}, or {self._bounds()}."
            )
        raise unknown(f"value of {self.name}", value, self.choices)

    def _number(self, value: Any) -> float | int:
        number = None if isinstance(value, bool) else as_number(value)
        wanted = self._bounds()
        if number is None or not self._within(number):
            raise BadInput(f"{self.name} is {value!r}; give {wanted}.")
        if self.kind == REAL:
            return float(number)
        if number != int(number):
            raise BadInput(f"{self.name} is {value!r}; give {wanted}.")
        return int(number)

    def _within(self, number: float) -> bool:
        if not math.isfinite(number) or number > self.high:
            return False
        return number > self.low if self.open_low else number >= self.low

    def _bounds(self) -> str:
        noun = "a whole number" if self.kind == INTEGER else "a number"
        low = "" if self.low == -math.inf else f" {'above' if self.open_low else 'from'} {self.low:g}"
        if self.high == math.inf:
            return noun + (f" of {self.low:g} or more" if low and not self.open_low else low)
        return f"{noun}{low} {'up to' if self.open_low else 'to'} {self.high:g}"

    # As parameters of a space

    def of_values(self, values: Sequence[Any]) -> Parameter:
        """The parameter that takes these values only, each once."""
        listed = list(dict.fromkeys(self.check(value) for value in values))
        if not listed:
            raise BadInput(f"{self.name} has no values; list at least one.")
        if len(listed) == 1:
            return Constant(self.name, listed[0])
        if self.kind in (REAL, INTEGER):
            return Ordinal(self.name, listed, log=min(listed) > 0 and max(listed) / min(listed) >= 10)
        return Categorical(self.name, listed)

    def of_range(self, low: Any, high: Any, log: bool, whole: bool | None = None) -> Parameter:
        """The parameter that takes the numbers of a range; `whole` asks for whole ones."""
        if self.kind not in (REAL, INTEGER) and not self.numbers:
            raise BadInput(f"{self.name} is not a number; list its values instead of a range.")
        ends = [self.check(low), self.check(high)]
        if ends[0] == ends[1]:
            return Constant(self.name, ends[0])
        if self.kind == INTEGER or whole:
            return Integer(self.name, ends[0], ends[1], log=log)
        return Real(self.name, ends[0], ends[1], log=log)

    def searched(self) -> Parameter:
        """Where to look by default; the default value alone where nothing is gained by looking."""
        if self.search is None:
            return Constant(self.name, self.default)
        if self.search.values:
            return self.of_values(self.search.values)
        return self.of_range(self.search.low, self.search.high, self.search.log)


SEED = Hyperparameter(
    "seed",
    INTEGER,
    None,
    "of what is drawn at random in a trial; None: the request's seed",
    low=-(2**63),
    high=2**63 - 1,
)
"""Every algorithm that trains on data takes it."""


def choice(name: str, about: str, *choices: str, searched: bool = False) -> Hyperparameter:
    """One of some words, by default the first; `searched` tries them all."""
    search = SearchRange(values=choices) if searched else None
    return Hyperparameter(name, CHOICE, choices[0], about, choices=choices, search=search)
