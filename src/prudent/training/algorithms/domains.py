"""The kinds of question that data can be asked, and how an answer is measured."""

from __future__ import annotations

from dataclasses import dataclass

from prudent.core.errors import unknown

REGRESSION, CLASSIFICATION, CLUSTERING, FUNCTION = "regression", "classification", "clustering", "function"

LESS_IS_BETTER = frozenset({"rmse", "mae", "mse", "value"})
"""Metrics whose score is their negative."""

_OF_CLASSES = ("mcc", "f1", "accuracy", "precision", "recall")


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

    @property
    def labelled(self) -> bool:
        """Whether its data need a target."""
        return self.task in (REGRESSION, CLASSIFICATION)


_DOMAINS = {
    found.name: found
    for found in (
        Domain("regression", REGRESSION, "rmse", ("rmse", "mae", "mse", "r2")),
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
