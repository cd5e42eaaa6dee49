"""Which rows of a data set inside Spark train, which validate, and which are kept for the test.

Up to some hundred thousand rows the split is the very one of the local engine, made on the driver. Beyond,
a hash of the row's number decides: nothing is collected, and every share holds its part of each class as
nearly as makes no difference at that size; one row of every class is in every sample.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.data.splitting import subsample
from prudent.training.engines.partition import FOLDS, INNER_SHARE, REPEAT_ROWS, Partition, inner_split
from prudent.training.engines.predictions import MOST_CELLS, MOST_ROWS, Predictions, kept_places
from prudent.training.engines.spark.dataset import LABEL, ROW, SparkDataset
from prudent.training.engines.spark.evaluation import CollectedPredictions
from prudent.training.request.limits import ValidationMethod

PART = "part"
MOST_ON_DRIVER = 300_000
_BUCKETS = 1_000_000
_MOST_WATCHED, _WATCHED = 50_000, "watched"
_ALWAYS_TRAINS, _TESTS = -1, -2  # in place of the split in which a row judges


class SparkSplit(Protocol):
    """Who trains and who judges, split by split, and the rows of the test part, which are in none of them."""

    splits: int

    def train(self, split: int | None, fraction: float) -> Any:
        """The frame to train on; of all rows, those of the test part too, where `split` is None."""

    def inner(self, split: int, fraction: float) -> tuple[Any, Any]:
        """The rows of `train` in two frames: to learn from, and to watch where it is learned in steps."""

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

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of rows in the data set as it was read, where those are known."""

    def release(self) -> None:
        """Take it out of the cluster's memory."""


def split(
    spark: Any, dataset: SparkDataset, validation: ValidationMethod, seed: int, test_share: float = 0.0
) -> SparkSplit:
    """Split a table; `validation` says how, and `test_share` how much of it is the test part."""
    if dataset.rows <= MOST_ON_DRIVER:
        return _DriverSplit(spark, dataset, validation, seed, test_share)
    return _HashSplit(dataset, validation, seed, test_share)


class _DriverSplit:
    """The local engine's split: every row has the number of the fold it judges in, in the cached frame.

    Where rows judge in several splits, or neither train nor judge in some, a split's rows are sought out.
    """

    def __init__(
        self, spark: Any, dataset: SparkDataset, validation: ValidationMethod, seed: int, test_share: float
    ) -> None:
        self._spark, self._seed, self._dataset = spark, seed, dataset
        labelled = dataset.target is not None
        arrow = dataset.frame.select(ROW, *([LABEL] if labelled else [])).orderBy(ROW).toArrow()
        self._numbers: NDArray[np.int64] = arrow.column(ROW).to_numpy()
        self._y: NDArray[Any] | None = None
        if labelled:
            y = arrow.column(LABEL).to_numpy()
            self._y = y.astype(np.int64) if dataset.classes else y
        rows = len(self._numbers)
        found = Partition.of(
            self._y, rows, len(dataset.columns), _once(validation, rows, labelled), seed, test_share
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

        part = np.full(len(self._numbers), _ALWAYS_TRAINS, dtype=np.int32)
        part[self._partition.test] = _TESTS
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
            return self._frame.where((sf.col(PART) != split) & (sf.col(PART) != _TESTS))
        return self._only(self._chosen(split, fraction))

    def size(self, split: int | None, fraction: float) -> int:
        return len(self._chosen(split, fraction))

    def inner(self, split: int, fraction: float) -> tuple[Any, Any]:
        import pyarrow as pa
        from pyspark.sql import functions as sf

        chosen = self._chosen(split, fraction)
        found = inner_split(chosen, self._y, self._seed)
        if found is None:
            raise BadInput("One row cannot be split into training and watched rows; give more rows.")
        numbers = np.concatenate([found.train, found.validation])
        watched = np.arange(len(numbers)) >= len(found.train)
        marks = self._spark.createDataFrame(pa.table({ROW: self._numbers[numbers], _WATCHED: watched}))
        both = self._frame.join(sf.broadcast(marks), ROW)
        return both.where(~sf.col(_WATCHED)).drop(_WATCHED), both.where(_WATCHED).drop(_WATCHED)

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
    by_default = validation.folds is None and validation.holdout is None
    if by_default and labelled and 2 * FOLDS <= rows < REPEAT_ROWS:
        return ValidationMethod(folds=FOLDS)
    return validation


class _HashSplit:
    """A split by hashes of row numbers, made anew where it is needed and the same each time."""

    def __init__(
        self, dataset: SparkDataset, validation: ValidationMethod, seed: int, test_share: float
    ) -> None:
        from pyspark.sql import functions as sf

        self._dataset, self._seed = dataset, seed
        self._share, self._test_share = validation.share, test_share
        self.splits = validation.folds or 1
        self._always: list[int] = []
        if dataset.classes:
            firsts = dataset.frame.groupBy(LABEL).agg(sf.min(ROW).alias(ROW)).collect()
            self._always = [row[ROW] for row in firsts]

    def _hash_fraction(self, purpose: int) -> Any:
        """A number in [0, 1) for each row, by seed and purpose."""
        from pyspark.sql import functions as sf

        hashed = sf.xxhash64(sf.col(ROW), sf.lit(self._seed), sf.lit(purpose))
        return sf.pmod(hashed, sf.lit(_BUCKETS)) / float(_BUCKETS)

    def _unless_needed(self, chosen: Any) -> Any:
        """Rows that are chosen, but for those that every training has to see."""
        from pyspark.sql import functions as sf

        return chosen & ~sf.col(ROW).isin(self._always) if self._always else chosen

    def _is_test(self) -> Any:
        return self._unless_needed(self._hash_fraction(4) < self._test_share)

    def _is_held_out(self, split: int) -> Any:
        from pyspark.sql import functions as sf

        if self.splits > 1:
            return sf.floor(self._hash_fraction(1) * self.splits) == split
        return self._unless_needed(self._hash_fraction(1) >= 1.0 - self._share)

    def train(self, split: int | None, fraction: float) -> Any:
        from pyspark.sql import functions as sf

        frame = self._dataset.frame
        if split is not None:
            frame = frame.where(~self._is_test() & ~self._is_held_out(split))
        if fraction >= 1:
            return frame
        chosen = self._hash_fraction(2) < fraction
        return frame.where(chosen | sf.col(ROW).isin(self._always) if self._always else chosen)

    def inner(self, split: int, fraction: float) -> tuple[Any, Any]:
        rows = self.train(split, fraction)
        share = min(INNER_SHARE, _MOST_WATCHED / max(fraction * self._dataset.rows, 1.0))
        watched = self._unless_needed(self._hash_fraction(3) < share)
        return rows.where(~watched), rows.where(watched)

    def held_out(self, split: int) -> Any:
        return self._dataset.frame.where(~self._is_test() & self._is_held_out(split))

    def size(self, split: int | None, fraction: float) -> int:
        return int(self.train(split, fraction).count())

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows

    def kept(self, split: int, found: CollectedPredictions) -> Predictions:
        return found.kept(split, found.rows, self._dataset.counted)

    def sampled(self, split: int, frame: Any) -> Any:
        del split
        most = min(MOST_ROWS, MOST_CELLS // max(len(self._dataset.classes), 1)) // self.splits
        share = most / (self._dataset.rows * (1.0 if self.splits > 1 else self._share))
        return frame.where(self._hash_fraction(5) < min(share, 1.0)).limit(most)

    def test(self) -> Any | None:
        if not self._test_share:
            return None
        share = MOST_ROWS / (self._dataset.rows * self._test_share)
        rows = self._dataset.frame.where(self._is_test())
        return rows.where(self._hash_fraction(5) < min(share, 1.0)).limit(MOST_ROWS)

    def release(self) -> None:
        self._dataset.frame.unpersist()
