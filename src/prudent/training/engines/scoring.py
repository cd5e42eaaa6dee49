"""The scorer: measures predictions by a request's metric, on rows or on a confusion matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.algorithm import CLASSIFICATION, CLUSTERING, domain, score_of
from prudent.training.data.dataset import Matrix
from prudent.training.models.metrics import confusion, silhouette, value_of_counts, value_of_numbers
from prudent.training.models.weighted_metrics import OF_PROBABILITIES, weighted_values


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

    @property
    def needs_probabilities(self) -> bool:
        return self.metric in OF_PROBABILITIES

    @property
    def of_classes(self) -> Scorer:
        """The same where only classes are known, as on the way of an iterative algorithm."""
        return replace(self, metric="mcc") if self.needs_probabilities else self

    def value(
        self,
        actual: NDArray[Any] | None,
        predicted: NDArray[Any],
        X: NDArray[Any] | None,
        probabilities: NDArray[Any] | None = None,
    ) -> float:
        """The metric as it is; X is needed for clusters only, probabilities for some metrics."""
        if X is not None and self.task == CLUSTERING:
            return silhouette(X, predicted)
        assert actual is not None
        if self.needs_probabilities:
            every = np.ones((1, len(actual)))
            return float(
                weighted_values(self.metric, every, actual, predicted, probabilities, self.classes)[0]
            )
        if self.task == CLASSIFICATION:
            return value_of_counts(self.metric, confusion(actual, predicted, self.classes))
        return value_of_numbers(self.metric, actual, predicted)

    def guess_value(self, actual: NDArray[Any]) -> float:
        """What a guess reaches: the most frequent class or the shares of all, the mean or the median."""
        if self.task == CLASSIFICATION:
            shares = np.bincount(actual, minlength=self.classes) / len(actual)
            guess = np.full(len(actual), shares.argmax())
            return self.value(actual, guess, None, np.tile(shares, (len(actual), 1)))
        middle = np.median(actual) if self.metric in ("mae", "mape") else np.mean(actual)
        return self.value(actual, np.full(len(actual), middle), None)

    def to_score(self, value: float) -> float:
        """A value of the metric such that larger is better; a score turns into a value the same way."""
        return score_of(self.metric, value)

    def score(self, actual: NDArray[Any] | None, predicted: NDArray[Any], X: Matrix) -> float:
        return self.to_score(self.value(actual, predicted, X))
