"""Which rows train and which rows judge, inside Spark.

Up to some hundred thousand rows the split is the very one of the local engine, made on the driver. Beyond,
a hash of the row's number decides: nothing is collected, and every share holds its part of each class as
nearly as makes no difference at that size; one row of every class is in every sample.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.data.splitting import hold_out, k_folds, subsample
from prudent.training.engines.spark.table import LABEL, PART, ROW, SparkDataset

MOST_ON_DRIVER = 300_000
_BUCKETS = 1_000_000


class Validation(Protocol):
    """How a request wants its models validated."""

    @property
    def folds(self) -> int | None: ...

    @property
    def share(self) -> float: ...


class SparkSplit(Protocol):
    """The rows of a request by their task."""

    folds: int

    def train(self, fold: int | None, fraction: float) -> Any:
        """The frame to train on; of all rows where `fold` is None."""

    def held_out(self, fold: int) -> Any:
        """The frame to judge on."""

    def size(self, fold: int | None, fraction: float) -> int:
        """How many rows `train` answers."""

    def release(self) -> None:
        """Take it out of the cluster's memory."""


def split(spark: Any, table: SparkDataset, validation: Validation, seed: int) -> SparkSplit:
    """Split a table; `validation` says how."""
    if table.rows <= MOST_ON_DRIVER:
        return _Listed(spark, table, validation, seed)
    return _Hashed(table, validation, seed)


class _Listed:
    """The local engine's split: every row has the number of its fold in the cached frame."""

    def __init__(self, spark: Any, table: SparkDataset, validation: Validation, seed: int) -> None:
        self._spark, self._seed = spark, seed
        labelled = table.target is not None
        arrow = table.frame.select(ROW, *([LABEL] if labelled else [])).orderBy(ROW).toArrow()
        self._numbers: NDArray[np.int64] = arrow.column(ROW).to_numpy()
        self._y: NDArray[Any] | None = None
        if labelled:
            y = arrow.column(LABEL).to_numpy()
            self._y = y.astype(np.int64) if table.classes else y
        rows = len(self._numbers)
        if validation.folds is not None:
            self._splits = k_folds(rows, self._y, seed, validation.folds)
        else:
            self._splits = [hold_out(rows, self._y, seed, validation.share)]
        self.folds = len(self._splits)
        self._frame = self._marked(table)

    def _marked(self, table: SparkDataset) -> Any:
        """The table with the number of the fold in which a row judges, -1 if it never does."""
        import pyarrow as pa
        from pyspark.sql import functions as sf

        part = np.full(len(self._numbers), -1, dtype=np.int32)
        for number, found in enumerate(self._splits):
            part[found.validation] = number
        marks = self._spark.createDataFrame(pa.table({ROW: self._numbers, PART: part}))
        frame = table.frame.join(sf.broadcast(marks), ROW).persist()
        frame.count()
        table.frame.unpersist()
        return frame

    def train(self, fold: int | None, fraction: float) -> Any:
        from pyspark.sql import functions as sf

        frame = self._frame if fold is None else self._frame.where(sf.col(PART) != fold)
        if fraction >= 1:
            return frame
        import pyarrow as pa

        rows = pa.table({ROW: self._numbers[self._chosen(fold, fraction)]})
        return frame.join(sf.broadcast(self._spark.createDataFrame(rows)), ROW, "left_semi")

    def size(self, fold: int | None, fraction: float) -> int:
        return len(self._chosen(fold, fraction))

    def _chosen(self, fold: int | None, fraction: float) -> NDArray[np.int64]:
        every = np.arange(len(self._numbers)) if fold is None else self._splits[fold].train
        return every if fraction >= 1 else subsample(every, self._y, fraction, self._seed)

    def held_out(self, fold: int) -> Any:
        from pyspark.sql import functions as sf

        return self._frame.where(sf.col(PART) == fold)

    def release(self) -> None:
        self._frame.unpersist()


class _Hashed:
    """A split by hashes of row numbers, made anew where it is needed and the same each time."""

    def __init__(self, table: SparkDataset, validation: Validation, seed: int) -> None:
        from pyspark.sql import functions as sf

        self._table, self._seed = table, seed
        self._share = validation.share
        self.folds = validation.folds or 1
        self._always: list[int] = []
        if table.classes:
            firsts = table.frame.groupBy(LABEL).agg(sf.min(ROW).alias(ROW)).collect()
            self._always = [row[ROW] for row in firsts]

    def _place(self, purpose: int) -> Any:
        """A number in [0, 1) for each row, by seed and purpose."""
        from pyspark.sql import functions as sf

        hashed = sf.xxhash64(sf.col(ROW), sf.lit(self._seed), sf.lit(purpose))
        return sf.pmod(hashed, sf.lit(_BUCKETS)) / float(_BUCKETS)

    def _judges(self, fold: int) -> Any:
        from pyspark.sql import functions as sf

        if self.folds > 1:
            return sf.floor(self._place(1) * self.folds) == fold
        chosen = self._place(1) >= 1.0 - self._share
        return chosen & ~sf.col(ROW).isin(self._always) if self._always else chosen

    def train(self, fold: int | None, fraction: float) -> Any:
        from pyspark.sql import functions as sf

        frame = self._table.frame
        if fold is not None:
            frame = frame.where(~self._judges(fold))
        if fraction >= 1:
            return frame
        chosen = self._place(2) < fraction
        return frame.where(chosen | sf.col(ROW).isin(self._always) if self._always else chosen)

    def held_out(self, fold: int) -> Any:
        return self._table.frame.where(self._judges(fold))

    def size(self, fold: int | None, fraction: float) -> int:
        return int(self.train(fold, fraction).count())

    def release(self) -> None:
        self._table.frame.unpersist()


def check_rows(table: SparkDataset) -> None:
    """Refuse what cannot be split at all."""
    if table.rows < 2:
        raise BadInput("One row cannot be split into training and validation; give more rows.")
