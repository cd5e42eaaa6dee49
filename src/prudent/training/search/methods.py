"""Methods of a request: the search space of each, and where its search begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prudent.core.parameters import Constant, Ordinal, Parameter
from prudent.core.space import Configuration, Space
from prudent.training.algorithms.algorithm import Algorithm
from prudent.training.algorithms.hyperparameter import Hyperparameter
from prudent.training.algorithms.registry import algorithm, default_algorithms, transform_settings
from prudent.training.engines.engine import DataShape
from prudent.training.models.weighted_metrics import OF_PROBABILITIES
from prudent.training.request.request import BAYESIAN, FRUGAL, Method, TrainingRequest, Transform

FRACTION = "fraction"
MULTI_FIDELITY = ("nephele", "hyperband", "bohb", "fabolas", "fabulinus")
"""Searches that begin on a part of the data."""

LEAST_ROWS = 100
"""No part of the data has fewer rows than this."""
FIRST_ROWS = 10_000
"""The frugal search begins on so many rows; smaller data are used whole."""


@dataclass(frozen=True)
class MethodPlan:
    """One method: its algorithm, the space that is searched, and how many trials do without a budget.

    `fraction` names the parameter of the space that is the share of the training rows; `cheap` is the
    configuration that trains fastest.
    """

    index: int
    algorithm: Algorithm
    space: Space
    search: str
    fraction: str | None
    default_trials: int
    cheap: Configuration
    good: Configuration
    costly: tuple[str, ...]

    def split(self, configuration: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], float]:
        """Hyper-parameters, transforms and the share of the data that a configuration of the space means."""
        chosen: dict[str, Any] = {}
        transforms: dict[str, dict[str, Any]] = {}
        share = 1.0
        for name, value in configuration.items():
            transform, dot, setting = name.partition(".")
            if name == self.fraction:
                share = float(value)
            elif dot:
                transforms.setdefault(transform, {})[setting] = value
            else:
                chosen[name] = value
        return chosen, transforms, share

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of the data that are used, the least first."""
        return (1.0,) if self.fraction is None else tuple(self.space[self.fraction].values)

    def on_share(self, share: float, configuration: Configuration) -> Configuration:
        """The same configuration on that share of the data."""
        return configuration if self.fraction is None else {**configuration, self.fraction: share}


def strategy_name(request: TrainingRequest) -> str:
    """The strategy that a request's `parameterSearch` means."""
    said = request.parameter_search
    return FRUGAL if said is None else "gp-ei" if said == BAYESIAN else said


def method_plans(
    request: TrainingRequest, shape: DataShape | None = None, engine: str = ""
) -> tuple[MethodPlan, ...]:
    """A plan for each method of the request, or for the engine's default algorithms where it names none.

    `shape` tells how many classes and rows there are; without it nothing is left out.
    """
    engine = engine or (shape.engine if shape else "local")
    methods = request.methods or tuple(
        Method(algorithm=found.name)
        for found in default_algorithms(request.domain, shape.classes if shape else 0, engine)
        if found.probabilities or request.metric not in OF_PROBABILITIES
    )
    search = strategy_name(request)
    return tuple(_method_plan(index, method, request, search, shape) for index, method in enumerate(methods))


def _method_plan(
    index: int, method: Method, request: TrainingRequest, search: str, shape: DataShape | None
) -> MethodPlan:
    found = algorithm(method.algorithm)
    parameters = _hyperparameters(found, method, search) + _transforms(request.transforms)
    shares = _shares(search, shape.rows if shape and found.needs_data else 0)
    searched = [parameter for parameter in parameters if parameter.size != 1]
    default_trials = _default_trials(search, Space(parameters), len(searched))
    cheap = {parameter.name: _starting_value(found, parameter, "cheap") for parameter in parameters}
    good = {parameter.name: _starting_value(found, parameter, "good") for parameter in parameters}
    costly = tuple(own.name for own in found.hyperparameters if own.search and own.search.cheap is not None)
    if shares:
        parameters = [*parameters, Ordinal(FRACTION, shares, log=True)]
        cheap[FRACTION] = good[FRACTION] = shares[0]
    fraction = FRACTION if shares else None
    return MethodPlan(index, found, Space(parameters), search, fraction, default_trials, cheap, good, costly)


def _hyperparameters(found: Algorithm, method: Method, search: str) -> list[Parameter]:
    """The hyper-parameters that the method names; where it names none, those that are worth a search."""
    if method.hyperparameters is None and search != "grid":
        looked = [parameter.searched() for parameter in found.hyperparameters if parameter.search]
        return looked or [_fixed(found)]
    said = method.hyperparameters or ()
    parameters = [_searched(found[item.param], item.model_dump()) for item in said]
    return parameters or [_fixed(found)]


def _fixed(found: Algorithm) -> Parameter:
    """A space needs a parameter: one that stays at its default."""
    first = next(parameter for parameter in found.hyperparameters if parameter.default is not None)
    return Constant(first.name, first.default)


def _searched(parameter: Hyperparameter, said: Mapping[str, Any]) -> Parameter:
    if said.get("range") is not None:
        low, high = said["range"]
        return parameter.of_range(low, high, said.get("scale") == "log", said.get("type") == "integer")
    return parameter.of_values(said["values"]) if said.get("values") else parameter.searched()


def _transforms(asked: Sequence[Transform]) -> list[Parameter]:
    parameters: list[Parameter] = []
    for transform in asked:
        for name, setting in transform_settings(transform.name).items():
            full = _renamed(setting, f"{transform.name}.{name}")
            said = transform.settings.get(name, setting.default)
            if isinstance(said, Mapping):
                parameters.append(_searched(full, said))
            else:
                parameters.append(full.of_values(said if isinstance(said, (list, tuple)) else [said]))
    return parameters


def _renamed(setting: Hyperparameter, name: str) -> Hyperparameter:
    return replace(setting, name=name)


def _shares(search: str, rows: int) -> tuple[float, ...]:
    """Shares of the data to learn on, the least first; none where the search uses all of them."""
    if search in MULTI_FIDELITY:
        least = max(LEAST_ROWS / rows if rows else 0.0, 1 / 27)
        return (*(share for share in (1 / 27, 1 / 9, 1 / 3) if share >= least), 1.0)
    if search == FRUGAL and rows > 2 * FIRST_ROWS:
        steps = int(math.log(rows / FIRST_ROWS, 4))
        return tuple(4.0**-step for step in range(steps, -1, -1)) if steps else ()
    return ()


def _default_trials(search: str, space: Space, searched: int) -> int:
    """How many trials a method gets when no budget ends it.

    A grid is tried whole. Of a finite space a third is drawn (as in the paper, 4 of 12); otherwise ten
    trials for each hyper-parameter, which is what most advise.
    """
    size = space.size
    if search == "grid" and size is not None:
        return size
    if size is None:
        return min(10 * searched, 60)
    return max(min(math.ceil(size / 3), 10 * searched, 60), min(size, 4))


def _starting_value(found: Algorithm, parameter: Parameter, kind: str) -> Any:
    """The cheap or good value of a parameter, or else its default; of the values allowed, the nearest."""
    if parameter.size == 1:
        return parameter.values[0]
    own = {known.name: known for known in found.hyperparameters}.get(parameter.name)
    wanted_values = [getattr(own.search, kind) if own and own.search else None, own.default if own else None]
    for wanted in wanted_values:
        near = None if wanted is None else _nearest(parameter, wanted)
        if near is not None:
            return near
    return parameter.from_unit(0.0 if parameter.finite else 0.5)


def _nearest(parameter: Parameter, wanted: Any) -> Any:
    if isinstance(wanted, (int, float)) and not isinstance(wanted, bool):
        if parameter.finite and (parameter.size or 0) <= 10_000:
            numbers = [value for value in parameter.values if isinstance(value, (int, float))]
            return min(numbers, key=lambda value: abs(value - wanted), default=None)
        low, high = getattr(parameter, "low", wanted), getattr(parameter, "high", wanted)
        return parameter.check(min(max(wanted, low), high))
    return wanted if parameter.finite and wanted in parameter.values else None
