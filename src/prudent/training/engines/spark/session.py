"""The Spark engine with the data of one request in it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from prudent.training.engine import DataShape, TrialSpec
from prudent.training.engines.spark.context import stop
from prudent.training.engines.spark.run import SparkRun
from prudent.training.engines.spark.trial import Workshop


class SparkTraining:
    """Trains models of one cached data set, as many side by side as are started.

    `own` says that the Spark session was started for this, and ends with it.
    """

    def __init__(self, spark: Any, workshop: Workshop, own: bool) -> None:
        self._spark, self._workshop, self._own = spark, workshop, own

    @property
    def shape(self) -> DataShape:
        table = self._workshop.table
        return DataShape(table.rows, len(table.columns), len(table.classes), table.fingerprint)

    @property
    def description(self) -> Mapping[str, Any]:
        """Columns with their categories, target and classes, as they stand in a model's description."""
        return self._workshop.table.description

    def start(self, spec: TrialSpec) -> SparkRun:
        spec.folder.mkdir(parents=True, exist_ok=True)
        return SparkRun(self._spark, self._workshop, spec)

    def close(self) -> None:
        self._workshop.rows.release()
        if self._own:
            stop(self._spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
