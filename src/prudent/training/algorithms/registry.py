"""Algorithms and transforms by name, and the algorithms of a domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prudent.core.errors import unknown
from prudent.training.algorithms.algorithm import Algorithm
from prudent.training.algorithms.boosters import BOOSTERS
from prudent.training.algorithms.hyperparameter import (
    INTEGER,
    REAL,
    SEED,
    Hyperparameter,
    SearchRange,
    choice,
)
from prudent.training.algorithms.linear import LINEAR
from prudent.training.algorithms.others import OTHERS
from prudent.training.algorithms.trees import TREES


def _with_seed(found: Algorithm) -> Algorithm:
    return replace(found, hyperparameters=(*found.hyperparameters, SEED)) if found.needs_data else found


_ALGORITHMS = {found.name: _with_seed(found) for found in (*LINEAR, *TREES, *BOOSTERS, *OTHERS)}


def algorithms() -> list[str]:
    """The names that a request's `methods[].algorithm` takes.

    >>> len(algorithms())
    20
    """
    return list(_ALGORITHMS)


def algorithm(name: str) -> Algorithm:
    """The algorithm of that name.

    >>> algorithm("k-means")["initMode"].default
    'k-means||'
    """
    if name not in _ALGORITHMS:
        raise unknown("algorithm", name, _ALGORITHMS)
    return _ALGORITHMS[name]


def algorithms_of(domain: str) -> list[Algorithm]:
    """Every algorithm that a domain has."""
    return [found for found in _ALGORITHMS.values() if domain in found.domains]


def default_algorithms(domain: str, classes: int = 0, engine: str = "local") -> list[Algorithm]:
    """What to try for a domain when nobody says; `classes` leaves out what cannot tell so many apart.

    >>> [found.name for found in default_algorithms("clustering")]
    ['k-means', 'gaussian-mixture-model']
    """
    built = [found for found in algorithms_of(domain) if engine in found.engines]
    fitting = [found for found in built if not (found.classes and classes > found.classes)]
    # Two names for one model on two classes: one of them is enough.
    if classes and any(found.name == "binomial-logistic-regression" for found in fitting):
        fitting = [found for found in fitting if found.name != "multinomial-logistic-regression"]
    return [found for found in fitting if found.sensible] or fitting


_TRANSFORMS: dict[str, tuple[Hyperparameter, ...]] = {
    "impute": (
        choice(
            "strategy",
            "what takes the place of a missing number",
            *("mean", "median", "most_frequent"),
            searched=True,
        ),
    ),
    "target-encode": (
        Hyperparameter(
            "smoothing",
            REAL,
            10.0,
            "rows of the overall mean that are counted to each category's own",
            low=0,
            search=SearchRange(1.0, 100.0, log=True),
        ),
    ),
    "one-hot": (Hyperparameter("maxCategories", INTEGER, 32, "categories that get a column", low=2),),
    "scale": (
        choice("method", "how columns are brought to one scale", "standard", "minmax", "none", searched=True),
    ),
    "pca": (Hyperparameter("k", INTEGER, 5, "principal components that are kept", low=1),),
}


def transforms() -> list[str]:
    """The names that a request's `transforms[].name` takes, in the order in which they are applied."""
    return list(_TRANSFORMS)


def transform_settings(name: str) -> dict[str, Hyperparameter]:
    """The settings of a transform.

    >>> transform_settings("scale")["method"].choices
    ('standard', 'minmax', 'none')
    """
    if name not in _TRANSFORMS:
        raise unknown("transform", name, _TRANSFORMS)
    return {setting.name: setting for setting in _TRANSFORMS[name]}


def complete_transform(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a transform, checked; what is not given is the default.

    >>> complete_transform("scale", {}), complete_transform("pca", {"k": "3"})
    ({'method': 'standard'}, {'k': 3})
    """
    known = transform_settings(name)
    return {key: setting.check(settings.get(key, setting.default)) for key, setting in known.items()}
