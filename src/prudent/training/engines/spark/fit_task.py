"""What a model is fitted on by Spark: a `FitTask` with frames instead of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prudent.training.engines.fit_task import ReportProgress, unreported
from prudent.training.engines.scoring import Scorer


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
