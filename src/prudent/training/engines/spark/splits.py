"""Which rows of a data set inside Spark train, which validate, and which are kept for the test.

Up to some hundred thousand rows the split is the very one of the local engine, made on the driver. Beyond,
a hash of the row's number decides: nothing is collected, and every share holds its part of each class as
nearly as makes no difference at that size; one row of every class is in every sample. Groups and times are
then counted, and split as on the local engine.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.splitting import UNLINKED, RowLinks, subsample
from prudent.training.engines.partition import FOLDS, REPEAT_ROWS, Partition, inner_split
from prudent.training.engines.predictions import Predictions, kept_places
from prudent.training.engines.spark.dataset import LABEL, LINK, ROW, SparkDataset
from prudent.training.engines.spark.evaluation import CollectedPredictions
from prudent.training.engines.spark.hash_splits import (
    ALWAYS_TRAINS,
    PART,
    TESTS,
    WATCHED,
    HashSplit,
    LinkedSplit,
)
from prudent.training.request.limits import ValidationMethod

MOST_ON_DRIVER = 300_000


class SparkSplit(Protocol):
    """Who trains and who judges, split by split, and the rows of the test part, which are in none of them."""

    splits: int

    def train(self, split: int | None, fraction: float) -> Any:
        """The frame to train on; of all rows, those of the test part too, where `split` is None."""

    def inner(self, split: int, fraction: float) -> tuple[Any, Any] | None:
        """The rows of `train` in two frames: to learn from, and to watch where it is learned in steps.

        None where they are too few to be parted.
        """

    def held_out(self, split: int) -> Any:
        """The frame to judge on."""

    def size(self, split: int | None, fraction: float) -> int:
        """How many rows `train` returns."""

    def sampled(self, split: int, frame: Any) -> Any:
        """As many held-out rows of a frame as predictions are kept of, the same ones every time."""

    def kept(self, split: int, found: CollectedPredictions) -> Predictions:
        """What is kept of predictions for all held-out rows, or for those that were sampled."""

    def test(self) -> Any | None:
        """Rows of the test part, as many as are collected; None where there is none."""

    def at(self, numbers: NDArray[np.int64]) -> Any:
        """The rows of those numbers."""

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of rows in the data set as it was read, where those are known."""

    def release(self) -> None:
        """Take it out of the cluster's memory."""


def split(
    spark: Any, dataset: SparkDataset, validation: ValidationMethod, seed: int, test_share: float = 0.0
) -> SparkSplit:
    """Split a table; `validation` says how, and `test_share` how much of it is the test part.

    Rows that come from files for validation and for the test judge and test in any case.
    """
    if dataset.rows <= MOST_ON_DRIVER:
        return _DriverSplit(spark, dataset, validation, seed, test_share)
    if LINK in dataset.frame.columns:
        return LinkedSplit(spark, dataset, validation, seed, test_share)
    return HashSplit(dataset, validation, seed, test_share)


class _DriverSplit:
    """The local engine's split: every row has the number of the fold it judges in, in the cached frame.

    Where rows judge in several splits, or neither train nor judge in some, a split's rows are sought out.
    """

    def __init__(
        self, spark: Any, dataset: SparkDataset, validation: ValidationMethod, seed: int, test_share: float
    ) -> None:
        self._spark, self._seed, self._dataset = spark, seed, dataset
        labelled = dataset.target is not None
        asked = [name for name in (ROW, LABEL, LINK) if name in dataset.frame.columns]
        arrow = dataset.frame.select(*asked).orderBy(ROW).toArrow()
        self._numbers: NDArray[np.int64] = arrow.column(ROW).to_numpy()
        self._y: NDArray[Any] | None = None
        if labelled:
            y = arrow.column(LABEL).to_numpy()
            self._y = y.astype(np.int64) if dataset.classes else y
        rows, self._links = len(self._numbers), UNLINKED
        if LINK in asked:
            values = arrow.column(LINK).to_numpy()
            self._links = RowLinks(times=values) if validation.time is not None else RowLinks(groups=values)
        found = Partition.of(
            self._y,
            rows,
            len(dataset.columns),
            _once(validation, rows, labelled),
            seed,
            test_share,
            self._links,
            dataset.apart,
        )
        self._partition, self.splits = found, len(found.splits)
        developed = rows - len(found.test)
        judged = sum(len(each.validation) for each in found.splits)
        whole = all(len(each.train) + len(each.validation) == developed for each in found.splits)
        self._by_part = whole and judged <= developed
        self._frame = self._with_parts() if self._by_part else dataset.frame

    def _with_parts(self) -> Any:
        """The table with the number of the split in which a row is held out; negative if it never is."""
        import pyarrow as pa
        from pyspark.sql import functions as sf

        part = np.full(len(self._numbers), ALWAYS_TRAINS, dtype=np.int32)
        part[self._partition.test] = TESTS
        for number, found in enumerate(self._partition.splits):
            part[found.validation] = number
        marks = self._spark.createDataFrame(pa.table({ROW: self._numbers, PART: part}))
        frame = self._dataset.frame.join(sf.broadcast(marks), ROW).persist()
        frame.count()
        self._dataset.frame.unpersist()
        return frame

    def train(self, split: int | None, fraction: float) -> Any:
        from pyspark.sql import functions as sf

        if split is None and fraction >= 1:
            return self._frame
        if split is not None and fraction >= 1 and self._by_part:
            return self._frame.where((sf.col(PART) != split) & (sf.col(PART) != TESTS))
        return self._only(self._chosen(split, fraction))

    def size(self, split: int | None, fraction: float) -> int:
        return len(self._chosen(split, fraction))

    def inner(self, split: int, fraction: float) -> tuple[Any, Any] | None:
        import pyarrow as pa
        from pyspark.sql import functions as sf

        chosen = self._chosen(split, fraction)
        found = inner_split(chosen, self._y, self._seed, self._links)
        if found is None:
            return None
        numbers = np.concatenate([found.train, found.validation])
        watched = np.arange(len(numbers)) >= len(found.train)
        marks = self._spark.createDataFrame(pa.table({ROW: self._numbers[numbers], WATCHED: watched}))
        both = self._frame.join(sf.broadcast(marks), ROW)
        return both.where(~sf.col(WATCHED)).drop(WATCHED), both.where(WATCHED).drop(WATCHED)

    def held_out(self, split: int) -> Any:
        from pyspark.sql import functions as sf

        if self._by_part:
            return self._frame.where(sf.col(PART) == split)
        return self._only(self._partition.splits[split].validation)

    def sampled(self, split: int, frame: Any) -> Any:
        return self._only(self._kept(split), frame)

    def kept(self, split: int, found: CollectedPredictions) -> Predictions:
        numbers = self.numbers(found.rows)
        return found.kept(split, numbers, self._dataset.counted, np.isin(numbers, self._kept(split)))

    def at(self, numbers: NDArray[np.int64]) -> Any:
        return self._only(numbers)

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._numbers, rows)

    def _kept(self, split: int) -> NDArray[np.int64]:
        judges = self._partition.splits[split].validation
        every = sum(len(each.validation) for each in self._partition.splits)
        return judges[kept_places(len(judges), every, len(self._dataset.classes))]

    def test(self) -> Any | None:
        rows = self._partition.test
        if not len(rows):
            return None
        return self._only(rows[kept_places(len(rows), len(rows), 0)])

    def release(self) -> None:
        self._frame.unpersist()

    def _chosen(self, split: int | None, fraction: float) -> NDArray[np.int64]:
        every = np.arange(len(self._numbers)) if split is None else self._partition.splits[split].train
        return every if fraction >= 1 else subsample(every, self._y, fraction, self._seed)

    def _only(self, places: NDArray[np.int64], frame: Any = None) -> Any:
        import pyarrow as pa
        from pyspark.sql import functions as sf

        rows = self._spark.createDataFrame(pa.table({ROW: self._numbers[places]}))
        return (self._frame if frame is None else frame).join(sf.broadcast(rows), ROW, "left_semi")


def _once(validation: ValidationMethod, rows: int, labelled: bool) -> ValidationMethod:
    """Folds where the local engine has them, but no repeats: on a cluster every fit has its price."""
    by_default = validation.folds is None and validation.holdout is None and validation.path is None
    if by_default and labelled and 2 * FOLDS <= rows < REPEAT_ROWS:
        return validation.model_copy(update={"folds": FOLDS})
    return validation
