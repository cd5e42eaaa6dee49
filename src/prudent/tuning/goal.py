"""What the user wants: one measure to minimise or maximise, and what must hold."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prudent.core.errors import BadInput, unknown
from prudent.core.units import MB, PLAIN, SECONDS, SHARE, USD, format_quantity, parse_quantity

COST, TIME = "cost_usd", "time_s"
FULL_DATA = "at full data"

_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_DIRECTIONS = {"minimise": True, "minimize": True, "maximise": False, "maximize": False}
_UNIT_BY_SUFFIX = {"_s": SECONDS, "_usd": USD, "_mb": MB}
_RUNS_PLANNED = re.compile(r"(?P<goal>.+?)\s+for\s+(?P<runs>\S+)\s+runs?", re.IGNORECASE)
_CONSTRAINT = re.compile(r"(?P<measure>\w+)\s*(?P<sign><=|>=|≤|≥|<|>)\s*(?P<bound>.+)")


def _unit_of(measure: str) -> str:
    return next((unit for suffix, unit in _UNIT_BY_SUFFIX.items() if measure.endswith(suffix)), SHARE)


@dataclass(frozen=True)
class Constraint:
    """A measure and the bound it must keep, such as `time_s <= 300`.

    >>> Constraint("accuracy", ">=", 0.85).holds(0.9)
    True
    """

    measure: str
    sign: str
    bound: float
    at_full_data: bool = False

    def __post_init__(self) -> None:
        if self.sign not in _HOLDS:
            raise unknown("comparison", self.sign, _HOLDS)
        if not math.isfinite(self.bound):
            raise BadInput(f"The bound of {self.measure} is {self.bound}; give a finite number.")

    @property
    def is_upper(self) -> bool:
        return self.sign.startswith("<")

    def holds(self, value: float | None) -> bool:
        """Whether a measured value keeps the bound; a value nobody measured does not."""
        return value is not None and _HOLDS[self.sign](value, self.bound)

    def excess(self, value: float | None) -> float:
        """How far a value misses the bound, relative to it: 0 where it holds, inf where unmeasured."""
        if value is None or math.isnan(value):
            return math.inf
        if self.holds(value):
            return 0.0
        return abs(value - self.bound) / max(abs(self.bound), 1e-12)

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read `time_s <= 5 min` or `cost_usd <= $0.1 at full data`.

        >>> Constraint.parse("time_s <= 5 min")
        Constraint(measure='time_s', sign='<=', bound=300.0, at_full_data=False)
        """
        words, full = _strip_full_data(text)
        match = _CONSTRAINT.fullmatch(words)
        if not match:
            raise BadInput(f'Cannot read the constraint "{text}"; write it like "time_s <= 5 min".')
        sign = {"≤": "<=", "≥": ">="}.get(match["sign"], match["sign"])
        return cls(match["measure"], sign, _bound(match["measure"], match["bound"]), full)

    def __str__(self) -> str:
        unit = _unit_of(self.measure)
        bound = f"{self.bound:g}" if unit == SHARE else format_quantity(self.bound, unit)
        return f"{self.measure} {self.sign} {bound}" + (f" {FULL_DATA}" if self.at_full_data else "")


def _bound(measure: str, text: str) -> float:
    quantity = parse_quantity(text)
    if quantity.unit in (PLAIN, _unit_of(measure)):
        return quantity.value
    raise BadInput(
        f'"{text.strip()}" has the wrong unit for {measure}; '
        "names ending in _s take times, in _usd money, in _mb sizes, others plain numbers or %."
    )


def _strip_full_data(text: str) -> tuple[str, bool]:
    words = " ".join(text.split())
    if words.lower().endswith(f" {FULL_DATA}"):
        return words[: -len(FULL_DATA) - 1], True
    return words, False


@dataclass(frozen=True)
class Goal:
    """Minimise or maximise one measure, subject to any number of constraints.

    >>> goal = Goal.parse("minimise cost_usd subject to time_s <= 5 min and accuracy >= 85 %")
    >>> goal.measure, goal.minimise, [c.bound for c in goal.constraints]
    ('cost_usd', True, [300.0, 0.85])
    >>> goal.feasible({"time_s": 100, "accuracy": 0.9})
    True
    """

    measure: str = COST
    minimise: bool = True
    constraints: tuple[Constraint, ...] = ()
    at_full_data: bool = False
    runs_planned: int | None = None
    """How often the answer will be run: what a cheaper one saves, and so what finding it may cost."""

    def __post_init__(self) -> None:
        if self.runs_planned is None:
            return
        if self.runs_planned < 1:
            raise BadInput(f"{self.runs_planned} runs are planned; give 1 or more, or leave it out.")
        if self.measure != COST or not self.minimise:
            raise BadInput(
                "The number of planned runs says what a cheaper run saves; it goes with "
                '"minimise cost_usd" only: change the goal or leave it out.'
            )

    @classmethod
    def parse(cls, text: str | Mapping[str, Any] | Goal) -> Goal:
        """Read a sentence, or the same as a mapping: `{minimise: cost_usd, subject_to: [time_s <= 300]}`.

        >>> Goal.parse("minimise cost_usd subject to time_s <= 300 for 200 runs").runs_planned
        200
        """
        if isinstance(text, Goal):
            return text
        if isinstance(text, Mapping):
            return cls._from_mapping(text)
        if not isinstance(text, str):
            raise BadInput(f"A goal is a sentence or a mapping, not {text!r}; {_EXAMPLE}")
        sentence = " ".join(text.split())
        runs_planned = None
        if match := _RUNS_PLANNED.fullmatch(sentence):
            sentence, runs_planned = match["goal"], _count(match["runs"])
        wish, _, rest = _split_once(sentence, " subject to ")
        constraints = re.split(r"\s+and\s+|\s*,\s*", rest, flags=re.IGNORECASE) if rest else []
        return cls._build(wish, constraints, runs_planned)

    @classmethod
    def _from_mapping(cls, values: Mapping[str, Any]) -> Goal:
        directions = [key for key in values if str(key).lower() in _DIRECTIONS]
        strangers = [key for key in values if key not in (*directions, *_GOAL_KEYS)]
        if strangers:
            raise unknown("key of the goal", strangers[0], ["minimise", "maximise", *_GOAL_KEYS])
        if len(directions) != 1:
            raise BadInput(f"A goal has exactly one of minimise and maximise; {_EXAMPLE}")
        constraints = values.get("subject_to") or []
        if isinstance(constraints, Mapping):
            constraints = [f"{measure} {rest}" for measure, rest in constraints.items()]
        elif isinstance(constraints, str):
            constraints = re.split(r"\s+and\s+|\s*,\s*", constraints)
        runs = values.get("runs_planned")
        return cls._build(
            f"{directions[0]} {values[directions[0]]}",
            [str(c) for c in constraints],
            None if runs is None else _count(runs),
        )

    @classmethod
    def _build(cls, wish: str, constraints: Iterable[str], runs_planned: int | None) -> Goal:
        words, full = _strip_full_data(wish)
        parts = words.split()
        if len(parts) != 2 or not re.fullmatch(r"\w+", parts[1]):
            raise BadInput(f'Cannot read the goal "{wish}"; {_EXAMPLE}')
        direction = parts[0].lower()
        if direction not in _DIRECTIONS:
            raise unknown("direction", parts[0], ["minimise", "maximise"])
        parsed = tuple(Constraint.parse(c) for c in constraints)
        return cls(parts[1], _DIRECTIONS[direction], parsed, full, runs_planned)

    @property
    def measures(self) -> tuple[str, ...]:
        """Every measure the goal speaks of, the objective first."""
        return tuple(dict.fromkeys([self.measure, *(c.measure for c in self.constraints)]))

    @property
    def speaks_of_full_data(self) -> bool:
        return self.at_full_data or any(c.at_full_data for c in self.constraints)

    @property
    def max_time_s(self) -> float:
        """The tightest upper bound on the run time; inf without one."""
        return self._tightest(TIME)

    @property
    def max_cost_usd(self) -> float:
        """The tightest upper bound on the cost of one run; inf without one."""
        return self._tightest(COST)

    def _tightest(self, measure: str) -> float:
        bounds = [c.bound for c in self.constraints if c.measure == measure and c.is_upper]
        return min(bounds, default=math.inf)

    def feasible(self, values: Mapping[str, float]) -> bool:
        """Whether measured values keep every constraint."""
        return all(constraint.holds(values.get(constraint.measure)) for constraint in self.constraints)

    def loss(self, value: float) -> float:
        """The objective with its sign turned so that less is better."""
        return value if self.minimise else -value

    def excess(self, values: Mapping[str, float]) -> float:
        """How far the values are from keeping every constraint, as a sum of relative distances."""
        return math.fsum(c.excess(values.get(c.measure)) for c in self.constraints)

    def check_measures(self, measured: Iterable[str]) -> None:
        """Refuse a goal about something the job does not measure."""
        known = list(dict.fromkeys([COST, TIME, *measured]))
        for measure in self.measures:
            if measure not in known:
                raise unknown("measure in the goal", measure, known)

    def __str__(self) -> str:
        text = f"{'minimise' if self.minimise else 'maximise'} {self.measure}"
        text += f" {FULL_DATA}" if self.at_full_data else ""
        if self.constraints:
            text += " subject to " + " and ".join(str(c) for c in self.constraints)
        return text if self.runs_planned is None else f"{text} for {self.runs_planned} runs"


_GOAL_KEYS = ("subject_to", "runs_planned")
_EXAMPLE = 'write it like "minimise cost_usd subject to time_s <= 5 min and accuracy >= 0.85".'


def _count(said: object) -> int:
    """A whole number of runs, as written."""
    digits = str(said).replace(",", "").replace("_", "")
    if isinstance(said, bool) or not re.fullmatch(r"\d{1,15}", digits):
        raise BadInput(f'"{said}" is not a number of planned runs; give a whole number, such as 200.')
    return int(digits)


def _split_once(text: str, separator: str) -> tuple[str, str, str]:
    place = text.lower().find(separator)
    if place < 0:
        return text, "", ""
    return text[:place], separator, text[place + len(separator) :]
