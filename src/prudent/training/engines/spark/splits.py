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

from prudent.training.data.splitting import (
    UNLINKED,
    RowLinks,
    fold_values,
    judging_values,
    learns_before,
    subsample,
)
from prudent.training.engines.partition import (
    FOLDS,
    INNER_SHARE,
    REPEAT_ROWS,
    Partition,
    inner_split,
    seed_of,
)
from prudent.training.engines.predictions import MOST_CELLS, MOST_ROWS, Predictions, kept_places
from prudent.training.engines.spark.dataset import (
    JUDGING,
    LABEL,
    LINK,
    MAIN,
    ROW,
    TESTING,
    SparkDataset,
    origin_of,
)
from prudent.training.engines.spark.evaluation import CollectedPredictions
from prudent.training.request.limits import ValidationMethod

PART = "part"
MOST_ON_DRIVER = 300_000
_BUCKETS = 1_000_000
_BUCKET, _MOST_BUCKETS = "bucket", 1 << 20
_MOST_WATCHED, _WATCHED = 50_000, "watched"
_ALWAYS_TRAINS, _TESTS = -1, -2  # in place of the split in which a row judges


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
        return _LinkedSplit(spark, dataset, validation, seed, test_share)
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

    def inner(self, split: int, fraction: float) -> tuple[Any, Any] | None:
        import pyarrow as pa
        from pyspark.sql import functions as sf

        chosen = self._chosen(split, fraction)
        found = inner_split(chosen, self._y, self._seed, self._links)
        if found is None:
            return None
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


class _HashSplit:
    """A split by hashes of row numbers, made anew where it is needed and the same each time."""

    def __init__(
        self, dataset: SparkDataset, validation: ValidationMethod, seed: int, test_share: float
    ) -> None:
        from pyspark.sql import functions as sf

        self._dataset, self._seed, self._frame = dataset, seed, dataset.frame
        self._share, self._test_share = validation.share, test_share
        self.splits = 1 if dataset.apart[0] else validation.folds or 1
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

    def _is_from(self, origin: int) -> Any:
        from pyspark.sql import functions as sf

        return origin_of(sf.col(ROW)) == origin

    def _is_test(self) -> Any:
        if self._dataset.apart[1]:
            return self._is_from(TESTING)
        return self._is_from(MAIN) & self._unless_needed(self._hash_fraction(4) < self._test_share)

    def _is_held_out(self, split: int) -> Any:
        from pyspark.sql import functions as sf

        if self._dataset.apart[0]:
            return self._is_from(JUDGING)
        if self.splits > 1:
            return sf.floor(self._hash_fraction(1) * self.splits) == split
        return self._unless_needed(self._hash_fraction(1) >= 1.0 - self._share)

    def _trains(self, split: int) -> Any:
        return ~self._is_test() & ~self._is_held_out(split)

    def train(self, split: int | None, fraction: float) -> Any:
        from pyspark.sql import functions as sf

        frame = self._frame if split is None else self._frame.where(self._trains(split))
        if fraction >= 1:
            return frame
        chosen = self._hash_fraction(2) < fraction
        return frame.where(chosen | sf.col(ROW).isin(self._always) if self._always else chosen)

    def inner(self, split: int, fraction: float) -> tuple[Any, Any] | None:
        rows = self.train(split, fraction)
        share = min(INNER_SHARE, _MOST_WATCHED / max(fraction * self._dataset.rows, 1.0))
        watched = self._unless_needed(self._hash_fraction(3) < share)
        return rows.where(~watched), rows.where(watched)

    def held_out(self, split: int) -> Any:
        return self._frame.where(~self._is_test() & self._is_held_out(split))

    def size(self, split: int | None, fraction: float) -> int:
        return int(self.train(split, fraction).count())

    def at(self, numbers: NDArray[np.int64]) -> Any:
        import pyarrow as pa
        from pyspark.sql import functions as sf

        rows = self._frame.sparkSession.createDataFrame(pa.table({ROW: numbers}))
        return self._frame.join(sf.broadcast(rows), ROW, "left_semi")

    def numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows

    def kept(self, split: int, found: CollectedPredictions) -> Predictions:
        return found.kept(split, found.rows, self._dataset.counted)

    def sampled(self, split: int, frame: Any) -> Any:
        del split
        most = min(MOST_ROWS, MOST_CELLS // max(len(self._dataset.classes), 1)) // self.splits
        judges = self._dataset.rows * (1.0 if self.splits > 1 else self._share)
        share = most / (self._dataset.apart[0] or judges)
        return frame.where(self._hash_fraction(5) < min(share, 1.0)).limit(most)

    def test(self) -> Any | None:
        size = self._dataset.apart[1] or self._dataset.rows * self._test_share
        if not size:
            return None
        rows = self._frame.where(self._is_test())
        return rows.where(self._hash_fraction(5) < min(MOST_ROWS / size, 1.0)).limit(MOST_ROWS)

    def release(self) -> None:
        self._frame.unpersist()


class _LinkedSplit(_HashSplit):
    """Many rows that are linked: what is split are groups, by hashes of their names, or stretches of time."""

    def __init__(
        self, spark: Any, dataset: SparkDataset, validation: ValidationMethod, seed: int, test_share: float
    ) -> None:
        from pyspark.sql import functions as sf

        super().__init__(dataset, validation, seed, test_share)
        self._spark, self._ordered = spark, validation.time is not None
        marked = dataset.frame.withColumn(_BUCKET, self._bucket())
        own = marked.where(self._is_from(MAIN)).groupBy(_BUCKET).count().orderBy(_BUCKET).toArrow()
        self._buckets: NDArray[np.int64] = own.column(_BUCKET).to_numpy()
        self._sizes: NDArray[np.int64] = own.column("count").to_numpy()
        self._part = self._parts(validation.folds)
        table = self._table(PART, self._part, self._buckets)
        # Rows of files beside the data are in no bucket: what they do is known by where they are from.
        everywhere = sf.coalesce(sf.col(PART), sf.lit(_ALWAYS_TRAINS)).alias(PART)
        kept = [name for name in marked.columns if name != _BUCKET]
        self._frame = (
            marked.join(sf.broadcast(table), _BUCKET, "left").select(*kept, _BUCKET, everywhere).persist()
        )
        self._frame.count()
        dataset.frame.unpersist()

    def _bucket(self) -> Any:
        """A number for each row, the same for all of a group, or in the order of time."""
        from pyspark.sql import functions as sf

        link = sf.col(LINK)
        if not self._ordered:
            return sf.pmod(sf.xxhash64(link, sf.lit(self._seed)), sf.lit(_MOST_BUCKETS))
        rows = self._dataset.frame.where(self._is_from(MAIN))
        low, high = rows.agg(sf.min(link), sf.max(link)).first()
        width = (high - low) / (_MOST_BUCKETS - 1) or 1.0
        return sf.floor((link - low) / width)

    def _parts(self, folds: int | None) -> NDArray[np.int32]:
        """For each bucket the split in which it is held out, _TESTS or _ALWAYS_TRAINS."""
        part = np.full(len(self._sizes), _ALWAYS_TRAINS, dtype=np.int32)
        if self._test_share:
            seed = seed_of(self._seed, "test")
            part[judging_values(self._sizes, self._ordered, seed, self._test_share)] = _TESTS
        rest = np.flatnonzero(part != _TESTS)
        if self.splits > 1:
            part[rest] = fold_values(self._sizes[rest], self._ordered, self._seed, folds or 1)
            self.splits = int(part.max()) + 1
        else:
            judges = judging_values(self._sizes[rest], self._ordered, self._seed, self._share)
            part[rest[judges]] = 0
        return part

    def _table(self, name: str, values: NDArray[Any], buckets: NDArray[np.int64]) -> Any:
        import pyarrow as pa

        return self._spark.createDataFrame(pa.table({_BUCKET: buckets, name: values}))

    def _is_test(self) -> Any:
        from pyspark.sql import functions as sf

        return self._is_from(TESTING) if self._dataset.apart[1] else sf.col(PART) == _TESTS

    def _is_held_out(self, split: int) -> Any:
        from pyspark.sql import functions as sf

        return sf.col(PART) == split

    def _trains(self, split: int) -> Any:
        from pyspark.sql import functions as sf

        return ~self._is_test() & learns_before(sf.col(PART), split, self._ordered)

    def inner(self, split: int, fraction: float) -> tuple[Any, Any] | None:
        from pyspark.sql import functions as sf

        learns = np.flatnonzero((self._part != _TESTS) & learns_before(self._part, split, self._ordered))
        if len(learns) < 2:
            return None
        seed = seed_of(self._seed, "inner")
        watched = judging_values(self._sizes[learns], self._ordered, seed, INNER_SHARE)
        table = self._table(_WATCHED, watched, self._buckets[learns])
        both = self.train(split, fraction).join(sf.broadcast(table), _BUCKET)
        return both.where(~sf.col(_WATCHED)).drop(_WATCHED), both.where(_WATCHED).drop(_WATCHED)
