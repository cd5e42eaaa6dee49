"""The engine that trains on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prudent.training.engine import Session
from prudent.training.functions import FunctionSession

SPARK = "spark"
_SMALL_BYTES = 8 << 20


class SparkEngine:
    """Trains with Spark ML and torch, here (`local[*]`) or on the cluster whose address is `master`.

    `options` are Spark's own settings, such as {"spark.executor.memory": "4g"}. A Spark session that runs in
    this process already is used, and left running.
    """

    name = SPARK

    def __init__(self, master: str | None = None, options: Mapping[str, str] | None = None) -> None:
        self._master = master
        self._options = dict(options or {})

    def open(self, request: Any, work: Path, parallelism: int) -> Session:
        """Start Spark, read the request's data into it, split and cache them."""
        from prudent.training.engines.spark.context import started, stop
        from prudent.training.engines.spark.judging import Judge
        from prudent.training.engines.spark.reading import read_table
        from prudent.training.engines.spark.session import SparkTraining
        from prudent.training.engines.spark.split import split
        from prudent.training.engines.spark.trial import Workshop

        del parallelism  # trials share the cluster by fair pools, however many there are
        if request.dataset is None:
            return FunctionSession()
        spark, own = started(self._master, work, self._options, _is_small(request.dataset.path))
        try:
            table = read_table(spark, _question(request), work)
            rows = split(spark, table, request.validation, request.seed)
            judge = Judge.of(request.domain, request.metric, len(table.classes))
            return SparkTraining(spark, Workshop(table, rows, judge), own)
        except BaseException:
            if own:
                stop(spark)
            raise


def _is_small(path: str) -> bool:
    """Whether the data lie here and are little: then it is Spark's own start that takes the time."""
    place = Path(path)
    files = [place] if place.is_file() else list(place.rglob("*")) if place.is_dir() else []
    return bool(files) and sum(file.stat().st_size for file in files if file.is_file()) < _SMALL_BYTES


def _question(request: Any) -> Any:
    from prudent.training.engines.spark.reading import Question

    source = request.dataset
    wants_columns = {"impute", "one-hot"} & {transform.name for transform in request.transforms}
    return Question(
        path=str(source.path),
        format=source.format,
        target=None if source.target is None else str(source.target),
        features=None if source.features is None else tuple(str(name) for name in source.features),
        domain=request.domain,
        as_columns=bool(wants_columns),
    )
