"""An algorithm as a request names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from prudent.core.errors import unknown
from prudent.training.algorithms.hyperparameter import Hyperparameter


@dataclass(frozen=True)
class Algorithm:
    """What an engine can build: its domains, its task, its hyper-parameters in the names of Spark ML.

    `iterative` ones report the score so far while they train. `classes` is 2 for an algorithm that tells
    two classes apart only, and 0 for one that takes any number. `sensible` ones are tried when a request
    names no methods.
    """

    name: str
    task: str
    domains: tuple[str, ...]
    hyperparameters: tuple[Hyperparameter, ...]
    iterative: bool = False
    classes: int = 0
    sensible: bool = True
    needs_data: bool = True

    @cached_property
    def _by_name(self) -> dict[str, Hyperparameter]:
        return {parameter.name: parameter for parameter in self.hyperparameters}

    @property
    def defaults(self) -> dict[str, Any]:
        """Every hyper-parameter at its default; None where the data decide."""
        return {parameter.name: parameter.default for parameter in self.hyperparameters}

    def __getitem__(self, name: str) -> Hyperparameter:
        if name not in self._by_name:
            raise unknown(f"hyper-parameter of {self.name}", name, self._by_name)
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every hyper-parameter: the given ones checked, the others at their defaults."""
        checked = {name: None if value is None else self[name].check(value) for name, value in given.items()}
        return {**self.defaults, **checked}
