"""The engine that trains on Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prudent.core.errors import BadInput, RunFailed
from prudent.training.algorithms.algorithm import CLUSTERING, REGRESSION
from prudent.training.engines.class_weights import class_weights
from prudent.training.engines.engine import TrainingSession
from prudent.training.engines.functions import FunctionSession
from prudent.training.engines.spark.dataset import LABEL, SparkDataset
from prudent.training.request.limits import RowsFile
from prudent.training.request.request import PMML

if TYPE_CHECKING:
    from prudent.cloud.clusters.spark_cluster import SparkCluster
    from prudent.training.engines.spark.reading import DatasetQuery

SPARK = "spark"
_SMALL_BYTES = 8 << 20
_EXECUTOR_JAVA_OPTIONS = "spark.executor.extraJavaOptions"


class SparkEngine:
    """Trains with Spark ML and torch, here (`local[*]`) or on the cluster whose address is `master`.

    `options` are Spark's own settings, such as {"spark.executor.memory": "4g"}. A Spark session that runs in
    this process already is used, and left running. A `cluster` is started for the request and ends with it;
    `ready` is called when it can be used.
    """

    name = SPARK

    def __init__(
        self,
        master: str | None = None,
        options: Mapping[str, str] | None = None,
        cluster: SparkCluster | None = None,
        ready: Callable[[SparkCluster], None] | None = None,
    ) -> None:
        self._master = master
        self._options = dict(options or {})
        self._cluster = cluster
        self._ready = ready

    def open(self, request: Any, work: Path, parallelism: int) -> TrainingSession:
        """Start Spark, read the request's data into it, split and cache them."""
        del parallelism  # trials share the cluster by fair pools, however many there are
        if request.dataset is None:
            return FunctionSession()
        if request.class_weights is not None and request.domain in (REGRESSION, CLUSTERING):
            class_weights(
                request.class_weights, np.empty(0, np.int64), ()
            )  # refused before machines cost anything
        if self._cluster is None:
            return self._open_session(request, work, None, True)
        try:
            sources = self._start_cluster(self._cluster, _query_of(request), work)
            if self._ready is not None:
                self._ready(self._cluster)
            return self._open_session(request, work, sources, self._cluster.shares(work))
        except BaseException:
            self._cluster.close()
            raise

    def _start_cluster(self, cluster: SparkCluster, query: DatasetQuery, work: Path) -> list[list[Path]]:
        """Start the cluster while the data are fetched; returns the files by names that all machines know."""
        from prudent.training.data.formats import AVRO, format_of

        errors: list[BaseException] = []

        def start() -> None:
            try:
                cluster.start()
            except BaseException as error:  # noqa: BLE001 - raised again where somebody waits for it
                errors.append(error)

        # What should lie here is looked for first: a slip in a path must not cost a machine.
        far = any(place is not None and "://" in place for place in query.places)
        sources = [] if far else query.sources(work / "data")
        starting = threading.Thread(target=start, name="starting Spark", daemon=True)
        starting.start()
        sources = sources or query.sources(work / "data")
        while starting.is_alive():
            starting.join(0.2)  # in pieces, so that Ctrl-C is heard
        if errors:
            raise errors[0]
        parts = [part for some in sources for part in some]
        reached = cluster.reached(parts, work)
        if reached != parts and format_of(parts, None) == AVRO:
            raise BadInput(f'The machines cannot read "{query.path}" as Avro; give it as Parquet.')
        names = iter(reached)
        return [[next(names) for _ in some] for some in sources]

    def _open_session(
        self, request: Any, work: Path, sources: Sequence[Sequence[Path]] | None, own_form: bool
    ) -> TrainingSession:
        from prudent.training.engines.partition import share_for_test
        from prudent.training.engines.spark.evaluation import SparkScorer
        from prudent.training.engines.spark.reading import read_dataset_into_spark
        from prudent.training.engines.spark.session import SparkTrainingSession
        from prudent.training.engines.spark.spark_session import (
            QUICK_JAVA,
            interrupt_spark,
            start_spark,
            stop_spark,
        )
        from prudent.training.engines.spark.splits import split
        from prudent.training.engines.spark.trial import SparkTrialContext

        cluster = self._cluster
        master, options, environment = self._master, self._options, dict[str, str]()
        if cluster is not None:
            master, environment = cluster.master, cluster.environment
            options = {**cluster.options, **options}
        small = _is_small(sources[0] if sources else [Path(request.dataset.path)])
        if small and cluster is not None:
            options = {
                **options,
                _EXECUTOR_JAVA_OPTIONS: f"{options.get(_EXECUTOR_JAVA_OPTIONS, '')} {QUICK_JAVA}",
            }
        _refuse_if_closing(cluster)
        with stoppable(cluster) as ended_by:
            spark, own = start_spark(master, work, options, small, environment, ended_by)
            try:
                ended_by(lambda: interrupt_spark(spark))
                dataset = _weighed(
                    read_dataset_into_spark(spark, _query_of(request), work, sources), request.class_weights
                )
                share = 0.0
                if not dataset.apart[1]:
                    share = share_for_test(request.test, dataset.rows, dataset.target is not None)
                rows = split(spark, dataset, request.validation, request.seed, share)
                scorer = SparkScorer.of(request.domain, request.metric, len(dataset.classes))
                context = SparkTrialContext(dataset, rows, scorer, own_form, PMML in request.export)
                return SparkTrainingSession(spark, context, own, cluster)
            except BaseException:
                if own:
                    stop_spark(spark)
                raise


@contextmanager
def stoppable(cluster: SparkCluster | None) -> Iterator[Callable[[Callable[[], None]], None]]:
    """While a driver waits for its machines: takes what ends it, for whoever gives them back.

    Without them it would wait a minute before it believes that they are gone.
    """

    def ended_by(end: Callable[[], None]) -> None:
        if cluster is not None:
            cluster.stop_driver = end
            _refuse_if_closing(cluster)

    try:
        yield ended_by
    finally:
        if cluster is not None:
            cluster.stop_driver = None


def _weighed(dataset: SparkDataset, said: str | Mapping[str, float] | None) -> SparkDataset:
    """The data with the weights of their classes, if a request says any."""
    if said is None:
        return dataset
    counts = np.zeros(len(dataset.classes), np.int64)
    for row in dataset.frame.groupBy(LABEL).count().collect():
        counts[int(row[LABEL])] = row["count"]
    return replace(dataset, class_weights=class_weights(said, counts, dataset.classes))


def _refuse_if_closing(cluster: SparkCluster | None) -> None:
    if cluster is not None and cluster.closing:
        raise RunFailed("The machines were given back; start again.")


def _is_small(places: Sequence[Path]) -> bool:
    """Whether the data lie here and are little: then it is Spark's own start that takes the time."""
    files = [file for place in places for file in ([place] if place.is_file() else place.rglob("*"))]
    return bool(files) and sum(file.stat().st_size for file in files if file.is_file()) < _SMALL_BYTES


def _query_of(request: Any) -> DatasetQuery:
    from prudent.training.engines.spark.reading import DatasetQuery

    source, validation = request.dataset, request.validation
    wants_columns = {"impute", "one-hot"} & {transform.name for transform in request.transforms}
    return DatasetQuery(
        path=str(source.path),
        format=source.format,
        target=None if source.target is None else str(source.target),
        features=None if source.features is None else tuple(str(name) for name in source.features),
        domain=request.domain,
        as_columns=bool(wants_columns),
        groups=validation.groups,
        time=validation.time,
        also=(validation.path, request.test.path if isinstance(request.test, RowsFile) else None),
    )
