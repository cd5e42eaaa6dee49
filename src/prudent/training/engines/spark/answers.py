"""What a model said of some rows, on the driver: few enough to be collected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.spark.table import FEATURES, LABEL, ROW, SparkDataset

PREDICTION, PROBABILITY, SCORES = "prediction", "probability", "rawPrediction"
MOST_CELLS = 4_000_000
"""Values up to which the features of rows are collected."""


@dataclass(frozen=True, eq=False)
class CollectedPredictions:
    """Rows as users have them (float32), their labels, what was predicted, and with which probabilities.

    `scores` stand in for probabilities where the algorithm has none: a class for each, the largest wins.
    `prepared` are the features as the algorithm saw them, for clusters only.
    """

    raw: NDArray[np.float32]
    predicted: NDArray[Any]
    probabilities: NDArray[np.float64] | None
    actual: NDArray[Any] | None
    prepared: NDArray[np.float64] | None
    scores: NDArray[np.float64] | None = None


def fits(rows: int, table: SparkDataset) -> bool:
    """Whether so many rows can be collected without a thought."""
    return rows * (len(table.columns) + 8) <= MOST_CELLS


def collected(predicted: Any, table: SparkDataset, features: str | None = None) -> CollectedPredictions:
    """Everything about the rows of a frame of predictions, in one job."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as sf

    raw = vector_to_array(sf.col(FEATURES), "float32") if table.is_vector else sf.array(*table.inputs)
    wanted = [sf.col(ROW), raw.alias("raw"), sf.col(PREDICTION).cast("double").alias(PREDICTION)]
    likely = PROBABILITY in predicted.columns
    if likely:
        wanted.append(vector_to_array(sf.col(PROBABILITY)).alias(PROBABILITY))
    scored = SCORES in predicted.columns and not likely
    if scored:
        wanted.append(vector_to_array(sf.col(SCORES)).alias(SCORES))
    if table.target is not None:
        wanted.append(sf.col(LABEL))
    if features is not None:
        wanted.append(vector_to_array(sf.col(features)).alias("prepared"))
    arrow = predicted.select(*wanted).toArrow().sort_by(ROW)

    def matrix(name: str) -> NDArray[Any]:
        flat = arrow.column(name).combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return np.asarray(flat).reshape(arrow.num_rows, -1)

    return CollectedPredictions(
        raw=matrix("raw").astype(np.float32).reshape(arrow.num_rows, len(table.columns)),
        predicted=arrow.column(PREDICTION).to_numpy(),
        probabilities=matrix(PROBABILITY) if likely else None,
        actual=arrow.column(LABEL).to_numpy() if table.target is not None else None,
        prepared=matrix("prepared") if features is not None else None,
        scores=matrix(SCORES) if scored else None,
    )
