"""The scorer: measures predictions by a request's metric, on rows or on a confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import NDArray

from prudent.training.algorithms.algorithm import CLASSIFICATION, CLUSTERING, domain, score_of
from prudent.training.data.dataset import Matrix
from prudent.training.models.metrics import confusion, silhouette, value_of_counts, value_of_numbers


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

    def value(self, actual: NDArray[Any] | None, predicted: NDArray[Any], X: NDArray[Any] | None) -> float:
        """The metric as it is; X is needed for clusters only."""
        if X is not None and self.task == CLUSTERING:
            return silhouette(X, predicted)
        assert actual is not None
        if self.task == CLASSIFICATION:
            return value_of_counts(self.metric, confusion(actual, predicted, self.classes))
        return value_of_numbers(self.metric, actual, predicted)

    def to_score(self, value: float) -> float:
        """A value of the metric such that larger is better."""
        return score_of(self.metric, value)

    def score(self, actual: NDArray[Any] | None, predicted: NDArray[Any], X: Matrix) -> float:
        return self.to_score(self.value(actual, predicted, X))
