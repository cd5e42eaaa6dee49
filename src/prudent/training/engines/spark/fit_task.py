"""What a model is fitted on by Spark: a `FitTask` with frames instead of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prudent.training.engines.fit_task import ReportProgress, unreported
from prudent.training.engines.scoring import Scorer
from prudent.training.engines.spark.dataset import LABEL


@dataclass(frozen=True, eq=False)
class SparkFitTask:
    """Frames of labels and prepared features, with all that a fit may use beside them.

    `features` names the column of vectors. `watched` are an inner part of the training rows, by which an
    iterative algorithm finds out how many steps are enough; the rows that rank are not here. Where
    `iterations` says how many there are, nothing is watched.
    """

    algorithm: str
    settings: Mapping[str, Any]
    rows: Any
    watched: Any
    features: str
    scorer: Scorer
    seed: int
    report: ReportProgress = unreported
    until_s: float = math.inf
    """When an iterative algorithm comes to an end, on the monotonic clock."""
    iterations: int | None = None
    categories: Mapping[int, Mapping[float, int]] = field(default_factory=dict)
    """Features that are numbers of categories, with the numbers of their values where those are others."""
    precision: str = "float32"
    """The type of the features before they were prepared."""
    class_weights: tuple[float, ...] = ()
    """How much a training row of each class counts; empty where all count the same."""

    @property
    def weight(self) -> Any:
        """How much each row counts in training, as an expression."""
        from pyspark.sql import functions as sf

        if not self.class_weights:
            return sf.lit(1.0)
        weights = sf.array(*(sf.lit(weight) for weight in self.class_weights))
        return sf.element_at(weights, sf.col(LABEL).cast("int") + 1)
