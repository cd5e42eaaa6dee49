"""Algorithms and domains as a request names them."""

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
    names no methods. `native` ones take missing values and categories as they are.
    `engines` are those that build it.
    """

    name: str
    task: str
    domains: tuple[str, ...]
    hyperparameters: tuple[Hyperparameter, ...]
    iterative: bool = False
    classes: int = 0
    sensible: bool = True
    needs_data: bool = True
    probabilities: bool = True
    """Whether a classifier gives probabilities of the classes."""
    simplicity: int = 5
    """Of models that cannot be told apart the one with the least number stands first: 1 is a line that a
    person can read, 9 what nobody can."""
    native: bool = False
    engines: tuple[str, ...] = ("local", "spark")

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


REGRESSION, CLASSIFICATION, CLUSTERING, FUNCTION = "regression", "classification", "clustering", "function"

LESS_IS_BETTER = frozenset({"rmse", "mae", "mse", "mape", "log-loss", "brier", "value"})
"""Metrics whose score is their negative."""

_OF_CLASSES = (
    "mcc",
    "f1",
    "accuracy",
    "precision",
    "recall",
    "balanced-accuracy",
    "auc",
    "log-loss",
    "brier",
)


@dataclass(frozen=True)
class Domain:
    """A domain of the request: the task it is, its metric, and the others it can be measured by.

    `metric` is empty where it depends on the data: MCC for two classes, weighted F1 for more.
    """

    name: str
    task: str
    metric: str
    metrics: tuple[str, ...]

    def metric_for(self, classes: int) -> str:
        """The metric by which models of this domain are ranked.

        >>> domain("classification").metric_for(2), domain("classification").metric_for(3)
        ('mcc', 'f1')
        """
        return self.metric or ("mcc" if classes == 2 else "f1")


_DOMAINS = {
    found.name: found
    for found in (
        Domain("regression", REGRESSION, "rmse", ("rmse", "mae", "mse", "r2", "mape")),
        Domain("classification", CLASSIFICATION, "", _OF_CLASSES),
        Domain("clustering", CLUSTERING, "silhouette", ("silhouette",)),
        Domain("deep-learning", CLASSIFICATION, "f1", _OF_CLASSES),
        Domain("binomial-classification", CLASSIFICATION, "mcc", _OF_CLASSES),
        Domain("multinomial-classification", CLASSIFICATION, "f1", _OF_CLASSES),
        Domain("misc-functions", FUNCTION, "value", ("value",)),
    )
}


def domains() -> list[str]:
    """The names that a request's `domain` takes."""
    return list(_DOMAINS)


def domain(name: str) -> Domain:
    """The domain of that name."""
    if name not in _DOMAINS:
        raise unknown("domain", name, _DOMAINS)
    return _DOMAINS[name]


def score_of(metric: str, value: float) -> float:
    """A metric's value turned so that larger is better.

    >>> score_of("rmse", 10.0), score_of("f1", 0.9)
    (-10.0, 0.9)
    """
    return -value if metric in LESS_IS_BETTER else value


_OTHER_NAMES = {
    "rocauc": "auc",
    "crossentropy": "log-loss",
    "brierscore": "brier",
    "matthews": "mcc",
    "f1score": "f1",
}


def metric_name(said: str) -> str:
    """A metric as it is called here, however it is written; what is unknown stays as it is.

    >>> metric_name("Balanced accuracy"), metric_name("R\u00b2"), metric_name("log_loss")
    ('balanced-accuracy', 'r2', 'log-loss')
    """
    known = {_plain(name): name for found in _DOMAINS.values() for name in found.metrics}
    return {**known, **_OTHER_NAMES}.get(_plain(said), said)


def _plain(said: str) -> str:
    return "".join(letter for letter in said.lower().replace("\u00b2", "2") if letter.isalnum())
