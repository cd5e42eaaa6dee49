"""The scorer: measures predictions by a request's metric, on rows or on a confusion matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import NDArray

from prudent.core.errors import unknown
from prudent.training.algorithms.algorithm import CLASSIFICATION, CLUSTERING, domain, score_of
from prudent.training.data.dataset import Matrix
from prudent.training.models.metrics import (
    accuracy,
    f1,
    mcc,
    precision,
    recall,
    silhouette,
    value_of_classes,
    value_of_numbers,
)

_OF_COUNTS: dict[str, Callable[[NDArray[Any]], float]] = {
    "mcc": mcc,
    "f1": f1,
    "accuracy": accuracy,
    "precision": precision,
    "recall": recall,
}


@dataclass(frozen=True)
class Scorer:
    """Measures predictions by the request's metric; `task` is the domain's."""

    task: str
    metric: str
    classes: int = 0

    @classmethod
    def of(cls, name: str, metric: str | None, classes: int) -> Self:
        """The scorer of a domain by its name, with the domain's own metric unless one is asked for."""
        found = domain(name)
        return cls(found.task, metric or found.metric_for(classes), classes)

    def value(self, actual: NDArray[Any] | None, predicted: NDArray[Any], X: Matrix) -> float:
        """The metric as it is; X is needed for clusters only."""
        if self.task == CLUSTERING:
            return silhouette(X, predicted)
        assert actual is not None
        if self.task == CLASSIFICATION:
            return value_of_classes(self.metric, actual, predicted, self.classes)
        return value_of_numbers(self.metric, actual, predicted)

    def value_of_counts(self, counts: NDArray[Any]) -> float:
        """The metric of a confusion matrix."""
        if self.metric not in _OF_COUNTS:
            raise unknown("metric of a classification", self.metric, _OF_COUNTS)
        return _OF_COUNTS[self.metric](counts)

    def to_score(self, value: float) -> float:
        """A value of the metric such that larger is better."""
        return score_of(self.metric, value)

    def score(self, actual: NDArray[Any] | None, predicted: NDArray[Any], X: Matrix) -> float:
        return self.to_score(self.value(actual, predicted, X))
