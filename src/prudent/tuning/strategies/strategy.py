"""The contract of a strategy, its options, and what every strategy needs."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown
from prudent.tuning.history import History
from prudent.tuning.problem import Problem
from prudent.tuning.trial import Configuration, Proposal


@runtime_checkable
class Strategy(Protocol):
    """Chooses what to run next. Pure: same problem, options, seed and history, same answer.

    A study calls `propose` whenever it has room for another trial, with the money that is neither
    spent nor reserved; trials under way are in `history.pending`. None means: enough. `recommend` may be
    called at any time; None while it has nothing to recommend.
    """

    def propose(self, history: History, money_left: float) -> Proposal | None: ...

    def recommend(self, history: History) -> Configuration | None: ...


@runtime_checkable
class PredictiveStrategy(Protocol):
    """A strategy that recommends configurations it has not run, and says what it expects of them."""

    def predict(self, history: History, configuration: Configuration) -> dict[str, float]:
        """What a run of this configuration on the full data should come out as.

        Each measure, cost_usd and time_s by name (the median), with its deviation and the ends of a 95 %
        interval (accuracy_std, accuracy_low, accuracy_high; cost_low_usd, …), and `probability_feasible`, the
        chance that it keeps every constraint. Empty while nothing is known.
        """


@runtime_checkable
class FrugalStrategy(Protocol):
    """A strategy that ends a study when the next trial is not worth its price (`Goal.runs_planned`)."""

    def why_enough(self, history: History, money_left: float) -> str:
        """Why no trial is worth its price any more; empty where one is, or where nothing could be run."""


def prediction_key(measure: str, word: str) -> str:
    """The key under which a prediction about a measure is kept; the unit stays at the end.

    >>> prediction_key("cost_usd", "low"), prediction_key("accuracy", "low")
    ('cost_low_usd', 'accuracy_low')
    """
    for unit in ("_usd", "_s", "_mb"):
        if measure.endswith(unit) and len(measure) > len(unit):
            return f"{measure[: -len(unit)]}_{word}{unit}"
    return f"{measure}_{word}"


def best_configuration(history: History) -> Configuration | None:
    """What most strategies recommend: the best feasible trial."""
    best = history.best
    return None if best is None else dict(best.configuration)


def untried(problem: Problem, history: History) -> NDArray[np.bool_]:
    """Which of a listed space's configurations were neither tried nor are under way."""
    mask = np.ones(len(problem.everything), dtype=np.bool_)
    for configuration in history.configurations:
        place = problem.index(configuration)
        if place >= 0:
            mask[place] = False
    return mask


T = TypeVar("T")


def read_options(kind: type[T], values: Mapping[str, Any], strategy: str) -> T:
    """Build the dataclass from what the user wrote; a wrong name or type is answered with the remedy.

    A field annotated with a Literal accepts those words only; a dataclass checks ranges itself.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(kind)
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            raise unknown(f"option of {strategy}", name, fields)
        chosen[name] = _converted(value, hints[name], f"{strategy}.{name}")
    return kind(**chosen)


def _converted(value: Any, hint: Any, where: str) -> Any:
    if typing.get_origin(hint) is typing.Literal:
        words = typing.get_args(hint)
        if value not in words:
            raise unknown(f"value of {where}", value, words)
        return value
    kinds = [k for k in (typing.get_args(hint) or (hint,)) if k is not type(None)]
    if value is None and type(None) in typing.get_args(hint):
        return None
    kind = kinds[0]
    try:
        if kind is bool:
            if not isinstance(value, bool):
                raise ValueError
            return value
        converted = kind(value)
        if kind is int and float(value) != converted:
            raise ValueError
    except (TypeError, ValueError):
        raise BadInput(f"The option {where} is {value!r}; give {_NAMES.get(kind, kind.__name__)}.") from None
    return converted


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def require(condition: bool, message: str) -> None:
    """Refuse an option outside its range."""
    if not condition:
        raise BadInput(message)
