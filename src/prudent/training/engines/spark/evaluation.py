"""How good a model is: from predictions collected on the driver where they are few, else inside Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, unknown
from prudent.training.algorithms.algorithm import CLASSIFICATION, CLUSTERING
from prudent.training.engines.engine import UnseenRows
from prudent.training.engines.figures import (
    MOST_POINTS,
    confusion_figure,
    prediction_figures,
    residuals_figure,
    silhouette_figure,
)
from prudent.training.engines.predictions import Predictions
from prudent.training.engines.scoring import Scorer
from prudent.training.engines.spark.dataset import FEATURES, LABEL, ROW, SparkDataset
from prudent.training.models.metrics import (
    ONE_CLUSTER,
    silhouettes,
    value_of_counts,
)

PREDICTION, PROBABILITY, SCORES = "prediction", "probability", "rawPrediction"
MOST_CELLS = 4_000_000
"""Values up to which the features of rows are collected."""
_OF_VALUES = ("rmse", "mse", "mae", "r2", "mape")
_SMALLEST = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class ValidationResult:
    """The metric as it is, how many rows it is of, and what a report draws of them."""

    value: float
    rows: int
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SparkScorer(Scorer):
    """The scorer with two more ways to be given predictions: collected ones, and a frame of any size."""

    def of_collected(
        self, predictions: CollectedPredictions, X: NDArray[Any] | None = None
    ) -> ValidationResult:
        """Evaluate what was collected; X is needed for clusters only."""
        predicted, actual = predictions.predicted, predictions.actual
        figures = prediction_figures(self, predicted, actual, X, range(self.classes))
        value = self.value(actual, predicted, X, predictions.probabilities)
        return ValidationResult(value, len(predicted), figures)

    def of_frame(self, predicted: Any, features: str = FEATURES) -> ValidationResult:
        """Evaluate a frame of predictions; `features`, for clusters only, is its column of vectors."""
        if self.task == CLASSIFICATION:
            return self._classes(predicted)
        if self.task == CLUSTERING:
            return self._clusters(predicted, features)
        return self._values(predicted)

    def _classes(self, predicted: Any) -> ValidationResult:
        counts = np.zeros((self.classes, self.classes), dtype=np.int64)
        for row in predicted.groupBy(LABEL, PREDICTION).count().collect():
            counts[int(row[LABEL]), int(row[PREDICTION])] = row["count"]
        figures = confusion_figure(counts, range(self.classes))
        return ValidationResult(value_of_counts(self.metric, counts), int(counts.sum()), figures)

    def _values(self, predicted: Any) -> ValidationResult:
        from pyspark.sql import functions as sf

        if self.metric not in _OF_VALUES:
            raise unknown("metric of a regression", self.metric, _OF_VALUES)
        error = sf.col(PREDICTION) - sf.col(LABEL)
        found = predicted.agg(
            sf.count(LABEL).alias("rows"),
            sf.avg(error * error).alias("mse"),
            sf.avg(sf.abs(error)).alias("mae"),
            sf.avg(sf.abs(error) / sf.greatest(sf.abs(LABEL), sf.lit(_SMALLEST))).alias("mape"),
            sf.var_pop(LABEL).alias("spread"),
        ).first()
        mse, spread = float(found["mse"]), float(found["spread"])
        r2 = 1.0 - mse / spread if spread > 0 else float(mse == 0)
        means = {name: float(found[name]) for name in ("mse", "mae", "mape")}
        values = {"rmse": float(np.sqrt(mse)), "r2": r2, **means}
        some = sample_columns(predicted, [PREDICTION, LABEL])
        return ValidationResult(
            values[self.metric], int(found["rows"]), residuals_figure(some[PREDICTION], some[LABEL])
        )

    def _clusters(self, predicted: Any, features: str) -> ValidationResult:
        from pyspark.ml.evaluation import ClusteringEvaluator
        from pyspark.ml.functions import vector_to_array
        from pyspark.sql import functions as sf

        found = predicted.agg(sf.count(PREDICTION), sf.count_distinct(PREDICTION)).first()
        if found[1] < 2:
            raise BadInput(ONE_CLUSTER)
        evaluator = ClusteringEvaluator(featuresCol=features, distanceMeasure="squaredEuclidean")
        value = float(evaluator.evaluate(predicted))
        some = sample_columns(predicted.withColumn("x", vector_to_array(sf.col(features))), [PREDICTION, "x"])
        clusters = some[PREDICTION].astype(np.int64)
        figures: dict[str, Any] = {}
        if len(np.unique(clusters)) > 1:
            figures = silhouette_figure(clusters, silhouettes(np.stack(list(some["x"])), clusters))
        return ValidationResult(value, int(found[0]), figures)


def sample_columns(frame: Any, names: list[str], most: int = MOST_POINTS) -> dict[str, NDArray[Any]]:
    """Columns of some rows, the same ones each time, few enough to collect."""
    from pyspark.sql import functions as sf

    arrow = frame.orderBy(sf.xxhash64(ROW), ROW).limit(most).select(*names).toArrow()
    return {name: arrow.column(name).to_numpy() for name in names}


@dataclass(frozen=True, eq=False)
class CollectedPredictions:
    """Rows as users have them, their labels, what was predicted, and with which probabilities.

    `rows` are their numbers. `scores` stand in for probabilities where the algorithm has none: a class for
    each, the largest wins.
    """

    rows: NDArray[np.int64]
    raw: NDArray[Any]
    predicted: NDArray[Any]
    probabilities: NDArray[np.float64] | None
    actual: NDArray[Any] | None
    scores: NDArray[np.float64] | None = None

    def kept(
        self, split: int, numbers: NDArray[np.int64], counted: bool, chosen: Any = slice(None)
    ) -> Predictions:
        """Those of some rows as a trial keeps them, with the rows' numbers in the data set as it was read.

        `counted` says that predictions are numbers of classes or clusters.
        """
        shares = self.probabilities

        def of(values: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(values[chosen], dtype=np.int64 if counted else values.dtype)

        return Predictions(
            numbers[chosen],
            np.full(len(numbers[chosen]), split),
            of(self.predicted),
            None if self.actual is None else of(self.actual),
            None if shares is None else shares[chosen].astype(np.float32),
        )


def can_collect(rows: int, dataset: SparkDataset) -> bool:
    """Whether so many rows can be collected without a thought."""
    return rows * (len(dataset.columns) + 8) <= MOST_CELLS


def collect_predictions(predicted: Any, dataset: SparkDataset) -> CollectedPredictions:
    """Everything about the rows of a frame of predictions, in one job."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as sf

    raw = vector_to_array(sf.col(FEATURES), "float32") if dataset.is_vector else sf.array(*dataset.inputs)
    wanted = [sf.col(ROW), raw.alias("raw"), sf.col(PREDICTION).cast("double").alias(PREDICTION)]
    likely = PROBABILITY in predicted.columns
    if likely:
        wanted.append(vector_to_array(sf.col(PROBABILITY)).alias(PROBABILITY))
    scored = SCORES in predicted.columns and not likely
    if scored:
        wanted.append(vector_to_array(sf.col(SCORES)).alias(SCORES))
    if dataset.target is not None:
        wanted.append(sf.col(LABEL))
    arrow = predicted.select(*wanted).toArrow().sort_by(ROW)

    def matrix(name: str) -> NDArray[Any]:
        flat = arrow.column(name).combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat).reshape(arrow.num_rows, -1)

    return CollectedPredictions(
        rows=arrow.column(ROW).to_numpy(),
        raw=matrix("raw").astype(dataset.precision).reshape(arrow.num_rows, len(dataset.columns)),
        predicted=arrow.column(PREDICTION).to_numpy(),
        probabilities=matrix(PROBABILITY) if likely else None,
        actual=arrow.column(LABEL).to_numpy() if dataset.target is not None else None,
        scores=matrix(SCORES) if scored else None,
    )


def collect_unseen(frame: Any, dataset: SparkDataset) -> UnseenRows:
    """Rows of the test part on the driver, as the exported model takes them."""
    from pyspark.sql import functions as sf

    found = collect_predictions(frame.withColumn(PREDICTION, sf.col(LABEL)), dataset)
    assert found.actual is not None
    y = found.actual.astype(np.int64) if dataset.counted else found.actual
    return UnseenRows(found.raw, y, found.rows)
