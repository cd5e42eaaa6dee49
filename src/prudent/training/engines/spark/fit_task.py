"""What a model is fitted on by Spark: a `FitTask` with frames instead of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prudent.training.engines.fit_task import ReportProgress, unreported
from prudent.training.engines.scoring import Scorer


@dataclass(frozen=True, eq=False)
class SparkFitTask:
    """Frames of labels and prepared features, with all that a fit may use beside them.

    `features` names the column of vectors. `held_out` is None where the final model of k folds is made.
    """

    algorithm: str
    settings: Mapping[str, Any]
    rows: Any
    held_out: Any
    features: str
    scorer: Scorer
    seed: int
    report: ReportProgress = unreported
    until_s: float = math.inf
    """When an iterative algorithm comes to an end, on the monotonic clock."""
