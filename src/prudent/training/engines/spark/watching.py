"""Looks at boosting after every tree: how it does on rows that it does not learn from, and when to stop."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.algorithm import CLASSIFICATION
from prudent.training.engines.fit_task import (
    EarlyStopping,
    FitTask,
    Judge,
    LearningCurve,
    PreparedRows,
    ReportProgress,
)
from prudent.training.engines.spark.table import LABEL

_MOST = 10_000
"""Rows of either kind: what is looked at after every tree must cost less than the tree."""
_HELD, _HASH, _SAID = "held", "hash", "said"


def _silent(score: float, done: float) -> None:
    """Nobody is told."""


class BoostingMonitor:
    """A few held-out rows and a few training rows, with what the trees so far add up to on them.

    The rule is the local engine's own. Use it as a context: the rows are kept in the cluster's memory.
    """

    def __init__(
        self,
        rows: Any,
        held_out: Any,
        features: str,
        scorer: Judge,
        most: int,
        report: ReportProgress = _silent,
        until_s: float = math.inf,
    ) -> None:
        self._features, self._scorer = features, scorer
        self._frame = _few(held_out, features, 1).unionByName(_few(rows, features, 0)).coalesce(1).persist()
        arrow = self._frame.select(LABEL, _HELD).toArrow()
        self._held = arrow.column(_HELD).to_numpy() == 1
        y = arrow.column(LABEL).to_numpy().astype(np.float64)
        self._y = y.astype(np.int64) if scorer.task == CLASSIFICATION else y
        none = np.empty((0, 0), dtype=np.float32)
        held = PreparedRows(none, self._y[self._held])
        fit_task = FitTask(PreparedRows(none, None), held, scorer, 0, report=report, until_s=until_s)
        self._watch = EarlyStopping(fit_task, most)
        self._sums: NDArray[np.float64] | None = None

    def begin(self, constant: float) -> None:
        self._sums = np.full(len(self._y), constant)

    def look(self, tree: Any, weight: float) -> bool:
        """Take in a tree; answers whether it was the last one."""
        assert self._sums is not None
        tree.setFeaturesCol(self._features).setPredictionCol(_SAID)
        said = tree.transform(self._frame).select(_SAID).toArrow().column(_SAID).to_numpy()
        self._sums = self._sums + weight * said
        sums, y = self._sums, self._y
        if self._scorer.task == CLASSIFICATION:
            predicted: NDArray[Any] = (sums > 0).astype(np.int64)
            every = np.logaddexp(0.0, 2.0 * sums) - y * 2.0 * sums
        else:
            predicted, every = sums, np.square(sums - y)
        held = self._held
        train = self._scorer.score(y[~held], predicted[~held], np.empty((0, 0), dtype=np.float32))
        return self._watch.step(predicted[held], float(every[held].mean()), train)

    @property
    def best(self) -> int:
        """After how many trees it was best."""
        return max(self._watch.best_step, 1)

    def learning_curve(self) -> LearningCurve:
        return self._watch.learning_curve()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._frame.unpersist()


def _few(rows: Any, features: str, held: int) -> Any:
    """The same rows each time, whichever way they come."""
    from pyspark.sql import functions as sf

    marked = rows.select(
        LABEL, features, sf.lit(held).alias(_HELD), sf.xxhash64(LABEL, features).alias(_HASH)
    )
    return marked.orderBy(_HASH).limit(_MOST).drop(_HASH)
