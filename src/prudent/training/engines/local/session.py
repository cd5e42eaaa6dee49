"""The local engine with the data of one request in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prudent.training.algorithms.domains import domain as domain_of
from prudent.training.dataset import Dataset
from prudent.training.engine import DataShape, TrialSpec
from prudent.training.engines.local.builders import ALWAYS, libraries
from prudent.training.engines.local.memory import available_mb
from prudent.training.engines.local.pool import Pool, Setup
from prudent.training.engines.local.run import LocalRun
from prudent.training.engines.local.store import Store
from prudent.training.request_limits import Validation
from prudent.training.splitting import Split, hold_out, k_folds


class LocalSession:
    """Trains models of one data set in `parallelism` workers at a time.

    `memory_mb` is how much each worker may use beside the shared data; by default they divide what is free.
    `pmml` asks for the models in that form as well.
    """

    def __init__(
        self,
        dataset: Dataset,
        domain: str,
        metric: str | None,
        validation: Validation,
        seed: int,
        work: Path,
        parallelism: int,
        memory_mb: float | None = None,
        pool: Pool | None = None,
        pmml: bool = False,
    ) -> None:
        self._dataset = dataset
        self._pool = pool or open_pool(parallelism, work)
        found = domain_of(domain)
        classes = len(dataset.classes)
        store = work / "store"
        Store.write(store, dataset, splits_of(dataset, validation, seed))
        self._setup = Setup(
            store=str(store.resolve()),
            task=found.task,
            metric=metric or found.metric_for(classes),
            classes=classes,
            seed=seed,
            threads=self._pool.threads,
            memory_mb=memory_mb or available_mb() * 0.9 / parallelism,
            target=dataset.target,
            pmml=pmml,
        )

    @property
    def shape(self) -> DataShape:
        rows, columns = self._dataset.X.shape
        return DataShape(rows, columns, len(self._dataset.classes), self._dataset.fingerprint)

    @property
    def description(self) -> Mapping[str, Any]:
        """Columns with their categories, target and classes, as they stand in a model's description."""
        return {
            "columns": [
                {"name": column.name, "kind": column.kind, "categories": list(column.categories)}
                for column in self._dataset.columns
            ],
            "target": self._dataset.target,
            "classes": list(self._dataset.classes),
        }

    def start(self, spec: TrialSpec) -> LocalRun:
        spec.folder.mkdir(parents=True, exist_ok=True)
        return LocalRun(self._pool, self._setup, spec)

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_pool(parallelism: int, work: Path, algorithms: tuple[str, ...] = ()) -> Pool:
    """Workers for so many trials at a time, which share the cores."""
    work.mkdir(parents=True, exist_ok=True)
    threads = max(1, len(os.sched_getaffinity(0)) // parallelism)
    loaded = dict.fromkeys((*ALWAYS, *(module for name in algorithms for module in libraries(name))))
    return Pool(parallelism, threads, list(loaded), work / "workers.log")


def splits_of(dataset: Dataset, validation: Validation, seed: int) -> list[Split]:
    """Who trains and who measures, as the request says."""
    if validation.folds is not None:
        return k_folds(len(dataset), dataset.y, seed, validation.folds)
    return [hold_out(len(dataset), dataset.y, seed, validation.share)]
