"""The Spark engine with the data of one request in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prudent.cloud.clusters.autoscaling import Autoscaler
from prudent.cloud.clusters.spark_cluster import SparkCluster
from prudent.core.errors import RunFailed
from prudent.training.engines.engine import DataShape, TrialSpec, UnseenRows
from prudent.training.engines.spark.engine import stoppable
from prudent.training.engines.spark.evaluation import collect_unseen
from prudent.training.engines.spark.run import SparkRun, failure_reason
from prudent.training.engines.spark.spark_session import interrupt_spark, stop_spark
from prudent.training.engines.spark.trial import SparkTrialContext
from prudent.training.models.description import data_description


class SparkTrainingSession:
    """Trains models of one cached data set, as many side by side as are started.

    `own` says that the Spark session was started for this, and ends with it; so does the `cluster`, which has
    as many machines meanwhile as there are trials for.
    """

    def __init__(
        self, spark: Any, context: SparkTrialContext, own: bool, cluster: SparkCluster | None = None
    ) -> None:
        self._spark, self._context, self._own = spark, context, own
        self._cluster = cluster
        self._runs: list[SparkRun] = []
        self._elastic = None if cluster is None else Autoscaler(cluster, self._under_way)

    @property
    def shape(self) -> DataShape:
        dataset = self._context.dataset
        return DataShape(
            dataset.rows, len(dataset.columns), len(dataset.classes), dataset.fingerprint, "spark"
        )

    @property
    def description(self) -> Mapping[str, Any]:
        """Columns with their categories, target and classes, as they stand in a model's description."""
        dataset = self._context.dataset
        return data_description(dataset.columns, dataset.classes, dataset.target)

    # What a search asks for at its end

    def test_rows(self) -> UnseenRows | None:
        return self._test_rows

    @cached_property
    def _test_rows(self) -> UnseenRows | None:
        if self._context.dataset.target is None or self._context.split.test() is None:
            return None
        return self._collected(self._context.split.test)

    def rows_of(self, rows: NDArray[np.int64]) -> UnseenRows | None:
        if self._context.dataset.target is None:
            return None
        found = self._collected(lambda: self._context.split.at(rows))
        order = np.argsort(found.rows)
        places = np.searchsorted(found.rows[order], rows[np.isin(rows, found.rows)])
        return found.at(order[places])

    def _collected(self, frame: Callable[[], Any]) -> UnseenRows:
        """Rows on this computer; RunFailed if the machines are gone, also while somebody waits for them."""
        try:
            with stoppable(self._cluster) as ended_by:
                ended_by(lambda: interrupt_spark(self._spark))
                found = collect_unseen(frame(), self._context.dataset)
        except Exception as error:
            if self._cluster is None:
                raise
            raise RunFailed(f"The rows could not be fetched ({failure_reason(error)}).") from error
        return replace(found, rows=self._context.split.numbers(found.rows))

    def start(self, spec: TrialSpec) -> SparkRun:
        if self._cluster is not None and (trouble := self._cluster.trouble):
            raise RunFailed(f"{trouble.rstrip('.')}; what is trained is kept, continue with --resume.")
        spec.folder.mkdir(parents=True, exist_ok=True)
        run = SparkRun(self._spark, self._context, spec)
        self._runs = [*(each for each in self._runs if each.running), run]
        return run

    def close(self) -> None:
        """End Spark here and there; machines cost money, so they go first."""
        if self._elastic is not None:
            self._elastic.close()
        if self._cluster is None:
            self._context.split.release()
        try:
            if self._cluster is not None:
                self._cluster.close()
        finally:
            if self._own:
                stop_spark(self._spark)

    def _under_way(self) -> int:
        return sum(run.running for run in self._runs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
