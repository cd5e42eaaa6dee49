"""Configurations as rows of numbers, a column block per parameter, for models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.core.parameters import Categorical, Parameter, Value
from prudent.core.ranges import Integer, Real

_TABLE_LIMIT = 50_000  # values of one parameter whose features are worth keeping


class Encoder:
    """Encodes many configurations at once: finite parameters by looking up rows, ranges by arithmetic."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self._parameters = tuple(parameters)
        self._tables: dict[str, tuple[dict[Value, int], NDArray[np.float64]]] = {}
        ends = list(accumulate(parameter.width for parameter in parameters))
        self.width: int = ends[-1] if ends else 0
        self.groups: list[tuple[str, slice]] = [
            (parameter.name, slice(end - parameter.width, end))
            for parameter, end in zip(parameters, ends, strict=True)
        ]
        self.feature_names: tuple[str, ...] = tuple(
            name for parameter in parameters for name in _feature_names(parameter)
        )

    def encode(self, configurations: Sequence[Mapping[str, Value]]) -> NDArray[np.float64]:
        """Features in [0, 1], shape (configurations, width); a wrong value raises BadInput."""
        features = np.empty((len(configurations), self.width), dtype=np.float64)
        for parameter, (name, columns) in zip(self._parameters, self.groups, strict=True):
            if parameter.width == 0:
                continue
            try:
                values = [configuration[name] for configuration in configurations]
            except KeyError:
                raise BadInput(
                    f'A configuration has no value for "{name}"; give every parameter one.'
                ) from None
            features[:, columns] = self._columns(parameter, values)
        return features

    def distances(self, features: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far each row is from a target; two categories are as far apart as the two ends of a range."""
        squares = (features - target) ** 2
        for parameter, (_, columns) in zip(self._parameters, self.groups, strict=True):
            if parameter.width > 1:
                squares[:, columns] /= 2.0 if isinstance(parameter, Categorical) else parameter.width
        return np.asarray(np.sqrt(squares.sum(axis=1)))

    def _columns(self, parameter: Parameter, values: list[Value]) -> NDArray[np.float64]:
        if isinstance(parameter, (Integer, Real)):
            return _arithmetic(parameter, values)
        if parameter.size is None or parameter.size > _TABLE_LIMIT:
            rows = [parameter.encode(parameter.check(value)) for value in values]
            return np.array(rows, dtype=np.float64).reshape(len(values), parameter.width)
        index, table = self._table(parameter)
        return table[_ranks(index, parameter.check, values)]

    def _table(self, parameter: Parameter) -> tuple[dict[Value, int], NDArray[np.float64]]:
        if parameter.name not in self._tables:
            values = parameter.values
            rows = np.array([parameter.encode(value) for value in values], dtype=np.float64)
            index = {value: rank for rank, value in enumerate(values)}
            self._tables[parameter.name] = index, rows.reshape(len(values), parameter.width)
        return self._tables[parameter.name]


def _ranks(index: dict[Value, int], check: Callable[[Value], Value], values: list[Value]) -> list[int]:
    try:
        return [index[value] for value in values]
    except (KeyError, TypeError):  # spelt otherwise ("0.1", a list): slower, but as meant
        return [index[check(value)] for value in values]


def _arithmetic(parameter: Integer | Real, values: list[Value]) -> NDArray[np.float64]:
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = np.array([parameter.check(value) for value in values], dtype=np.float64)
    places = parameter.encode_many(numbers.reshape(len(values)))
    for wrong in np.flatnonzero(np.isnan(places))[:1]:
        parameter.check(values[wrong])
    return places.reshape(-1, 1)


def _feature_names(parameter: Parameter) -> tuple[str, ...]:
    named: Any = getattr(parameter, "feature_names", None)
    if named is not None:
        return tuple(named)
    if parameter.width == 1:
        return (parameter.name,)
    return tuple(f"{parameter.name}[{column}]" for column in range(parameter.width))
