"""The local engine, which trains in processes of this machine, and its session with the data of a request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.registry import default_algorithms
from prudent.training.data.dataset import Dataset
from prudent.training.data.splitting import UNLINKED, RowLinks
from prudent.training.engines.class_weights import class_weights
from prudent.training.engines.engine import DataShape, TrainingSession, TrialSpec, UnseenRows
from prudent.training.engines.functions import FunctionSession
from prudent.training.engines.local.learners.registry import PRELOADED, libraries_for
from prudent.training.engines.local.pool import WorkerPool, WorkerSetup, available_mb
from prudent.training.engines.local.run import LocalRun
from prudent.training.engines.local.shared_dataset import SharedDataset
from prudent.training.engines.partition import Partition, share_for_test
from prudent.training.engines.scoring import Scorer
from prudent.training.models.description import data_description
from prudent.training.request.limits import RowsFile, ValidationMethod
from prudent.training.request.request import PMML

LOCAL = "local"


class LocalEngine:
    """Trains with NumPy, scikit-learn and torch, in parallel processes that share the data.

    `memory_mb` is how much a trial may use beside the shared data; a trial that wants more fails. By default
    the trials that run at a time share what memory is free when the session opens.
    """

    name = LOCAL

    def __init__(self, memory_mb: float | None = None) -> None:
        self._memory_mb = memory_mb

    def pool(self, parallelism: int, work: Path, algorithms: tuple[str, ...]) -> WorkerPool:
        """Processes for so many trials at a time, which load what these algorithms need."""
        return open_pool(parallelism, work, algorithms)

    def open(self, request: Any, work: Path, parallelism: int) -> TrainingSession:
        """Read the request's data while the workers' libraries load."""
        source = request.dataset
        if source is None:
            return FunctionSession()
        named = [method.algorithm for method in request.methods]
        expected = named or [found.name for found in default_algorithms(request.domain)]
        pool = self.pool(parallelism, work, tuple(expected))
        try:
            return self._read(request, work, parallelism, pool)
        except BaseException:
            pool.close()
            raise

    def _read(self, request: Any, work: Path, parallelism: int, pool: WorkerPool) -> LocalSession:
        from prudent.training.data.links import read_links, rows_at
        from prudent.training.data.reading import read_dataset

        source, validation, cache = request.dataset, request.validation, work / "data"
        files = [validation.path, request.test.path if isinstance(request.test, RowsFile) else None]
        dataset = read_dataset(
            source.path,
            source.format,
            source.target,
            source.features,
            domain=request.domain,
            cache=cache,
            also=[path for path in files if path is not None],
            without=[] if validation.groups is None else [validation.groups],
        )
        counts = [0 if path is None else rows_at(path, source.format, cache) for path in files]
        share = 0.0 if counts[1] else share_for_test(request.test, len(dataset), dataset.y is not None)
        rows, columns = dataset.X.shape
        links = read_links(source.path, source.format, cache, validation.groups, validation.time)
        partition = Partition.of(
            dataset.y, rows, columns, validation, request.seed, share, links, (counts[0], counts[1])
        )
        return LocalSession(
            dataset,
            request.domain,
            request.metric,
            validation,
            request.seed,
            work,
            parallelism,
            memory_mb=self._memory_mb,
            pool=pool,
            pmml=PMML in request.export,
            partition=partition,
            links=links,
            weights=class_weights(request.class_weights, _class_counts(dataset), dataset.classes),
        )


class LocalSession:
    """Trains models of one data set in `parallelism` workers at a time.

    `memory_mb` is how much each worker may use beside the shared data; by default they divide what is free.
    `pmml` asks for the models in that form as well. `partition` says which rows do what, by default as
    `validation` has it, without a test part.
    """

    def __init__(
        self,
        dataset: Dataset,
        domain: str,
        metric: str | None,
        validation: ValidationMethod,
        seed: int,
        work: Path,
        parallelism: int,
        memory_mb: float | None = None,
        pool: WorkerPool | None = None,
        pmml: bool = False,
        partition: Partition | None = None,
        links: RowLinks = UNLINKED,
        weights: Sequence[float] = (),
    ) -> None:
        self._dataset = dataset
        self._pool = pool or open_pool(parallelism, work)
        data_folder = work / "store"
        rows, columns = dataset.X.shape
        self._partition = partition or Partition.of(dataset.y, rows, columns, validation, seed)
        SharedDataset.write(data_folder, dataset, self._partition.splits, links, weights)
        self._setup = WorkerSetup(
            data_folder=str(data_folder.resolve()),
            scorer=Scorer.of(domain, metric, len(dataset.classes)),
            seed=seed,
            threads=self._pool.threads,
            memory_mb=memory_mb or available_mb() * 0.9 / parallelism,
            target=dataset.target,
            pmml=pmml,
        )

    # What a search asks for at its end

    def test_rows(self) -> UnseenRows | None:
        rows = self._partition.test
        return self.rows_of(rows) if len(rows) else None

    def rows_of(self, rows: NDArray[np.int64]) -> UnseenRows | None:
        y = self._dataset.y
        return None if y is None else UnseenRows(np.asarray(self._dataset.X[rows]), y[rows], rows)

    @property
    def shape(self) -> DataShape:
        rows, columns = self._dataset.X.shape
        return DataShape(rows, columns, len(self._dataset.classes), self._dataset.fingerprint)

    @property
    def description(self) -> Mapping[str, Any]:
        """Columns with their categories, target and classes, as they stand in a model's description."""
        return data_description(self._dataset.columns, self._dataset.classes, self._dataset.target)

    def start(self, spec: TrialSpec) -> LocalRun:
        spec.folder.mkdir(parents=True, exist_ok=True)
        return LocalRun(self._pool, self._setup, spec)

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _class_counts(dataset: Dataset) -> NDArray[np.int64]:
    if not dataset.classes or dataset.y is None:
        return np.empty(0, np.int64)
    return np.bincount(dataset.y, minlength=len(dataset.classes))


def open_pool(parallelism: int, work: Path, algorithms: tuple[str, ...] = ()) -> WorkerPool:
    """Workers for so many trials at a time, which share the cores."""
    work.mkdir(parents=True, exist_ok=True)
    threads = max(1, len(os.sched_getaffinity(0)) // parallelism)
    loaded = dict.fromkeys((*PRELOADED, *(module for name in algorithms for module in libraries_for(name))))
    return WorkerPool(parallelism, threads, list(loaded), work / "workers.log")
