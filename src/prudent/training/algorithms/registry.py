"""The algorithms by name, and which of them a domain has."""

from __future__ import annotations

from prudent.core.errors import unknown
from prudent.training.algorithms.algorithm import Algorithm
from prudent.training.algorithms.linear import LINEAR
from prudent.training.algorithms.others import OTHERS
from prudent.training.algorithms.trees import TREES

_ALGORITHMS = {found.name: found for found in (*LINEAR, *TREES, *OTHERS)}


def algorithms() -> list[str]:
    """The names that a request's `methods[].algorithm` takes.

    >>> len(algorithms())
    16
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


def of_domain(domain: str) -> list[Algorithm]:
    """Every algorithm that a domain has."""
    return [found for found in _ALGORITHMS.values() if domain in found.domains]


def sensible(domain: str, classes: int = 0) -> list[Algorithm]:
    """What to try for a domain when nobody says; `classes` leaves out what cannot tell so many apart.

    >>> [found.name for found in sensible("clustering")]
    ['k-means', 'gaussian-mixture-model']
    """
    fitting = [found for found in of_domain(domain) if not (found.classes and classes > found.classes)]
    # Two names for one model on two classes: one of them is enough.
    if classes and any(found.name == "binomial-logistic-regression" for found in fitting):
        fitting = [found for found in fitting if found.name != "multinomial-logistic-regression"]
    return [found for found in fitting if found.sensible] or fitting
