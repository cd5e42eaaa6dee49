"""A data set inside Spark, cached as numbers, and which of its rows train and which validate.

Up to some hundred thousand rows the split is the very one of the local engine, made on the driver. Beyond,
a hash of the row's number decides: nothing is collected, and every share holds its part of each class as
nearly as makes no difference at that size; one row of every class is in every sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import CATEGORICAL, Column
from prudent.training.data.splitting import FEW_ROWS, every_row, hold_out, k_folds, subsample
from prudent.training.request.limits import ValidationMethod

ROW, LABEL, FEATURES, PART, PLACE = "row", "label", "features", "part", "place"


@dataclass(frozen=True, eq=False)
class SparkDataset:
    """A cached frame of `row` (a number for each row), `label` (unless there is none) and the features.

    Features are one vector column `features` where all are numbers and none is missing; else a column for
    each, `c0` and on: categories by their numbers, NaN where a value is missing. All are float32 numbers, as
    the exported model will get them.
    """

    frame: Any
    columns: tuple[Column, ...]
    classes: tuple[Any, ...]
    target: str | None
    rows: int
    fingerprint: str
    is_vector: bool
    missing: tuple[bool, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the frame that hold features."""
        return (FEATURES,) if self.is_vector else column_names(len(self.columns))

    @property
    def categorical(self) -> tuple[bool, ...]:
        return tuple(column.kind == CATEGORICAL for column in self.columns)


def column_names(number: int) -> tuple[str, ...]:
    return tuple(f"c{place}" for place in range(number))


MOST_ON_DRIVER = 300_000
_BUCKETS = 1_000_000


def moments(rows: Any, features: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and standard deviations of a column of vectors."""
    from pyspark.ml.stat import Summarizer
    from pyspark.sql import functions as sf

    column = sf.col(features)
    mean, spread = rows.agg(Summarizer.mean(column), Summarizer.std(column)).first()
    return mean.toArray(), spread.toArray()


class SparkSplit(Protocol):
    """Training and held-out rows of a request, by fold."""

    folds: int

    def train(self, fold: int | None, fraction: float) -> Any:
        """The frame to train on; of all rows where `fold` is None."""

    def held_out(self, fold: int) -> Any:
        """The frame to validate on."""

    def size(self, fold: int | None, fraction: float) -> int:
        """How many rows `train` returns."""

    def release(self) -> None:
        """Take it out of the cluster's memory."""


def split(spark: Any, dataset: SparkDataset, validation: ValidationMethod, seed: int) -> SparkSplit:
    """Split a table; `validation` says how."""
    if dataset.rows <= MOST_ON_DRIVER:
        return _DriverSplit(spark, dataset, validation, seed)
    return _HashSplit(dataset, validation, seed)


class _DriverSplit:
    """The local engine's split: every row has the number of its fold in the cached frame."""

    def __init__(self, spark: Any, dataset: SparkDataset, validation: ValidationMethod, seed: int) -> None:
        self._spark, self._seed = spark, seed
        labelled = dataset.target is not None
        arrow = dataset.frame.select(ROW, *([LABEL] if labelled else [])).orderBy(ROW).toArrow()
        self._numbers: NDArray[np.int64] = arrow.column(ROW).to_numpy()
        self._y: NDArray[Any] | None = None
        if labelled:
            y = arrow.column(LABEL).to_numpy()
            self._y = y.astype(np.int64) if dataset.classes else y
        rows = len(self._numbers)
        self._on_all = not labelled and rows <= FEW_ROWS and not validation.given
        if self._on_all:
            self._splits = [every_row(rows)]
        elif validation.folds is not None:
            self._splits = k_folds(rows, self._y, seed, validation.folds)
        else:
            self._splits = [hold_out(rows, self._y, seed, validation.share)]
        self.folds = len(self._splits)
        self._frame = self._with_folds(dataset)

    def _with_folds(self, dataset: SparkDataset) -> Any:
        """The table with the number of the fold in which a row is held out, -1 if it never is."""
        import pyarrow as pa
        from pyspark.sql import functions as sf

        part = np.full(len(self._numbers), -1, dtype=np.int32)
        for number, found in enumerate(self._splits):
            part[found.validation] = number
        marks = self._spark.createDataFrame(pa.table({ROW: self._numbers, PART: part}))
        frame = dataset.frame.join(sf.broadcast(marks), ROW).persist()
        frame.count()
        dataset.frame.unpersist()
        return frame

    def train(self, fold: int | None, fraction: float) -> Any:
        from pyspark.sql import functions as sf

        every = fold is None or self._on_all
        frame = self._frame if every else self._frame.where(sf.col(PART) != fold)
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


class _HashSplit:
    """A split by hashes of row numbers, made anew where it is needed and the same each time."""

    def __init__(self, dataset: SparkDataset, validation: ValidationMethod, seed: int) -> None:
        from pyspark.sql import functions as sf

        self._dataset, self._seed = dataset, seed
        self._share = validation.share
        self.folds = validation.folds or 1
        self._always: list[int] = []
        if dataset.classes:
            firsts = dataset.frame.groupBy(LABEL).agg(sf.min(ROW).alias(ROW)).collect()
            self._always = [row[ROW] for row in firsts]

    def _hash_fraction(self, purpose: int) -> Any:
        """A number in [0, 1) for each row, by seed and purpose."""
        from pyspark.sql import functions as sf

        hashed = sf.xxhash64(sf.col(ROW), sf.lit(self._seed), sf.lit(purpose))
        return sf.pmod(hashed, sf.lit(_BUCKETS)) / float(_BUCKETS)

    def _is_held_out(self, fold: int) -> Any:
        from pyspark.sql import functions as sf

        if self.folds > 1:
            return sf.floor(self._hash_fraction(1) * self.folds) == fold
        chosen = self._hash_fraction(1) >= 1.0 - self._share
        return chosen & ~sf.col(ROW).isin(self._always) if self._always else chosen

    def train(self, fold: int | None, fraction: float) -> Any:
        from pyspark.sql import functions as sf

        frame = self._dataset.frame
        if fold is not None:
            frame = frame.where(~self._is_held_out(fold))
        if fraction >= 1:
            return frame
        chosen = self._hash_fraction(2) < fraction
        return frame.where(chosen | sf.col(ROW).isin(self._always) if self._always else chosen)

    def held_out(self, fold: int) -> Any:
        return self._dataset.frame.where(self._is_held_out(fold))

    def size(self, fold: int | None, fraction: float) -> int:
        return int(self.train(fold, fraction).count())

    def release(self) -> None:
        self._dataset.frame.unpersist()
