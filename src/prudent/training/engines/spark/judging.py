"""How good a model is: from collected answers where they are few, else by aggregates inside Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown
from prudent.training.algorithms.algorithm import CLASSIFICATION, CLUSTERING, domain, score_of
from prudent.training.engines.spark.answers import PREDICTION, CollectedPredictions
from prudent.training.engines.spark.table import LABEL, ROW
from prudent.training.models.metrics import (
    accuracy,
    confusion,
    f1,
    mcc,
    precision,
    recall,
    silhouettes,
    value_of_numbers,
)

_OF_COUNTS: dict[str, Callable[[NDArray[Any]], float]] = {
    "mcc": mcc,
    "f1": f1,
    "accuracy": accuracy,
    "precision": precision,
    "recall": recall,
}
_OF_VALUES = ("rmse", "mse", "mae", "r2")
_POINTS = 2000


@dataclass(frozen=True)
class ValidationResult:
    """The metric as it is, how many rows it is of, and what a report draws of them."""

    value: float
    rows: int
    picture: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Judge:
    """Measures predictions by the request's metric."""

    task: str
    metric: str
    classes: int

    @classmethod
    def of(cls, name: str, metric: str | None, classes: int) -> Judge:
        found = domain(name)
        return cls(found.task, metric or found.metric_for(classes), classes)

    def score(self, value: float) -> float:
        return score_of(self.metric, value)

    def of_counts(self, counts: NDArray[Any]) -> float:
        """The metric of a confusion matrix."""
        if self.metric not in _OF_COUNTS:
            raise unknown("metric of a classification", self.metric, _OF_COUNTS)
        return _OF_COUNTS[self.metric](counts)

    def of_answers(self, answers: CollectedPredictions) -> ValidationResult:
        """Judge what was collected."""
        predicted, actual, rows = answers.predicted, answers.actual, len(answers.predicted)
        if self.task == CLUSTERING:
            assert answers.prepared is not None
            values = silhouettes(answers.prepared, predicted)
            some = _some(rows)
            return ValidationResult(float(values.mean()), rows, _silhouette(predicted[some], values[some]))
        assert actual is not None
        if self.task == CLASSIFICATION:
            return self._confused(confusion(actual, predicted, self.classes))
        value = value_of_numbers(self.metric, actual, predicted)
        some = _some(rows)
        return ValidationResult(value, rows, _residuals(predicted[some], actual[some]))

    def of_frame(self, predicted: Any, features: str) -> ValidationResult:
        """Judge a frame of predictions of any size; `features` is its column of prepared vectors."""
        if self.task == CLASSIFICATION:
            return self._classes(predicted)
        if self.task == CLUSTERING:
            return self._clusters(predicted, features)
        return self._values(predicted)

    def _classes(self, predicted: Any) -> ValidationResult:
        counts = np.zeros((self.classes, self.classes), dtype=np.int64)
        for row in predicted.groupBy(LABEL, PREDICTION).count().collect():
            counts[int(row[LABEL]), int(row[PREDICTION])] = row["count"]
        return self._confused(counts)

    def _confused(self, counts: NDArray[np.int64]) -> ValidationResult:
        drawn = {"confusion": {"labels": list(range(self.classes)), "counts": counts.tolist()}}
        return ValidationResult(self.of_counts(counts), int(counts.sum()), drawn)

    def _values(self, predicted: Any) -> ValidationResult:
        from pyspark.sql import functions as sf

        if self.metric not in _OF_VALUES:
            raise unknown("metric of a regression", self.metric, _OF_VALUES)
        error = sf.col(PREDICTION) - sf.col(LABEL)
        found = predicted.agg(
            sf.count(LABEL).alias("rows"),
            sf.avg(error * error).alias("mse"),
            sf.avg(sf.abs(error)).alias("mae"),
            sf.var_pop(LABEL).alias("spread"),
        ).first()
        mse, spread = float(found["mse"]), float(found["spread"])
        r2 = 1.0 - mse / spread if spread > 0 else float(mse == 0)
        values = {"rmse": float(np.sqrt(mse)), "mse": mse, "mae": float(found["mae"]), "r2": r2}
        some = sample(predicted, [PREDICTION, LABEL])
        return ValidationResult(
            values[self.metric], int(found["rows"]), _residuals(some[PREDICTION], some[LABEL])
        )

    def _clusters(self, predicted: Any, features: str) -> ValidationResult:
        from pyspark.ml.evaluation import ClusteringEvaluator
        from pyspark.ml.functions import vector_to_array
        from pyspark.sql import functions as sf

        found = predicted.agg(sf.count(PREDICTION), sf.count_distinct(PREDICTION)).first()
        if found[1] < 2:
            raise BadInput(
                "All rows fall into one cluster, which has no silhouette; ask for more clusters, "
                "or other data."
            )
        evaluator = ClusteringEvaluator(featuresCol=features, distanceMeasure="squaredEuclidean")
        value = float(evaluator.evaluate(predicted))
        some = sample(predicted.withColumn("x", vector_to_array(sf.col(features))), [PREDICTION, "x"])
        clusters = some[PREDICTION].astype(np.int64)
        drawn: dict[str, Any] = {}
        if len(np.unique(clusters)) > 1:
            drawn = _silhouette(clusters, silhouettes(np.stack(list(some["x"])), clusters))
        return ValidationResult(value, int(found[0]), drawn)


def _residuals(predicted: NDArray[Any], actual: NDArray[Any]) -> dict[str, Any]:
    return {"residuals": {"predicted": short(predicted), "actual": short(actual)}}


def _silhouette(clusters: NDArray[Any], values: NDArray[Any]) -> dict[str, Any]:
    return {"silhouette": {"cluster": clusters.astype(np.int64).tolist(), "value": short(values)}}


def _some(rows: int) -> NDArray[np.int64]:
    """Places of rows enough for a picture, evenly spread."""
    return np.unique(np.linspace(0, rows - 1, min(rows, _POINTS)).astype(np.int64))


def sample(frame: Any, names: list[str], most: int = _POINTS) -> dict[str, NDArray[Any]]:
    """Columns of some rows, the same ones each time, few enough to collect."""
    from pyspark.sql import functions as sf

    arrow = frame.orderBy(sf.xxhash64(ROW), ROW).limit(most).select(*names).toArrow()
    return {name: arrow.column(name).to_numpy() for name in names}


def short(values: NDArray[Any]) -> list[float]:
    """Six digits are more than a picture shows."""
    return [float(f"{value:.6g}") for value in values]
