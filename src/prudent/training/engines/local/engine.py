"""The engine that trains in processes of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prudent.training.algorithms.registry import sensible
from prudent.training.engine import Session
from prudent.training.engines.local.pool import Pool
from prudent.training.engines.local.session import LocalSession, open_pool
from prudent.training.functions import FunctionSession
from prudent.training.request import PMML

LOCAL = "local"


class LocalEngine:
    """Trains with NumPy, scikit-learn and torch, in parallel processes that share the data.

    `memory_mb` is how much a trial may use beside the shared data; a trial that wants more fails. By default
    the trials that run at a time share what memory is free when the session opens.
    """

    name = LOCAL

    def __init__(self, memory_mb: float | None = None) -> None:
        self._memory_mb = memory_mb

    def pool(self, parallelism: int, work: Path, algorithms: tuple[str, ...]) -> Pool:
        """Processes for so many trials at a time, which load what these algorithms need."""
        return open_pool(parallelism, work, algorithms)

    def open(self, request: Any, work: Path, parallelism: int) -> Session:
        """Read the request's data while the workers' libraries load."""
        from prudent.training.data.reading import read_dataset

        source = request.dataset
        if source is None:
            return FunctionSession()
        named = [method.algorithm for method in request.methods]
        expected = named or [found.name for found in sensible(request.domain)]
        pool = self.pool(parallelism, work, tuple(expected))
        try:
            dataset = read_dataset(
                source.path,
                source.format,
                source.target,
                source.features,
                domain=request.domain,
                cache=work / "data",
            )
            return LocalSession(
                dataset,
                request.domain,
                request.metric,
                request.validation,
                request.seed,
                work,
                parallelism,
                memory_mb=self._memory_mb,
                pool=pool,
                pmml=PMML in request.export,
            )
        except BaseException:
            pool.close()
            raise
