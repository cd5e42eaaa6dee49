"""Warm start: import libraries, and start the process that training forks from, before a run needs them."""

from __future__ import annotations

import contextlib
import importlib
import os
from pathlib import Path

from prudent.training.engines.local.engine import LocalEngine
from prudent.training.engines.local.pool import WorkerPool

_MODULES = (
    "prudent.training.train",
    "prudent.training.data.reading",
    "prudent.training.engines.local.engine",
    "prudent.tuning.tune",
    "prudent.tuning.job_file",
    "prudent.tuning.jobs.table",
    "prudent.tuning.dry_run",
    "prudent.tuning.strategies.lynceus",
    "prudent.workflows.scheduling",
    "prudent.reports.training",
    "prudent.reports.tuning",
    "prudent.reports.workflow",
    "plotly.offline",
)
_USUAL = (
    "random-forest-classification",
    "gradient-boosted-tree-classification",
    "binomial-logistic-regression",
    "linear-regression",
    "naive-bayes",
    "k-means",
)


def load() -> None:
    """Import the libraries that every kind of run needs."""
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class WarmPool:
    """Keeps a pool of training processes warm, for the next request of this process."""

    def __init__(self, parallelism: int, folder: Path) -> None:
        self.parallelism = parallelism
        self._folder = folder
        self._pool: WorkerPool | None = None

    def start(self) -> None:
        """Start a pool that loads its libraries by itself, if there is none."""
        if self._pool is None:
            from prudent.training.engines.local.engine import open_pool

            self._pool = open_pool(self.parallelism, self._folder, _USUAL)

    def take(self, parallelism: int) -> WorkerPool | None:
        """Hand over the warm pool, if it has that size."""
        if self._pool is None or parallelism != self.parallelism:
            return None
        pool, self._pool = self._pool, None
        return pool

    def stop(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class WarmEngine(LocalEngine):
    """The local engine, on a pool that is warm already where there is one."""

    def __init__(self, warm_pool: WarmPool) -> None:
        super().__init__()
        self._warm_pool = warm_pool

    def pool(self, parallelism: int, work: Path, algorithms: tuple[str, ...]) -> WorkerPool:
        from prudent.training.engines.local.learners.registry import libraries_for

        warm = self._warm_pool.take(parallelism)
        if warm is None:
            return super().pool(parallelism, work, algorithms)
        warm.load([module for name in algorithms for module in libraries_for(name)])
        return warm


def cores() -> int:
    """The processors that this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
