"""Splits of very many rows: by hashes of their numbers, or by the groups or times that link them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.splitting import fold_values, judging_values, learns_before
from prudent.training.engines.partition import INNER_SHARE, seed_of
from prudent.training.engines.predictions import MOST_CELLS, MOST_ROWS, Predictions
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

PART, WATCHED = "part", "watched"
ALWAYS_TRAINS, TESTS = -1, -2
"""In place of the split in which a row judges."""
_BUCKETS = 1_000_000
_BUCKET, _MOST_BUCKETS = "bucket", 1 << 20
_MOST_WATCHED = 50_000


class HashSplit:
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


class LinkedSplit(HashSplit):
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
        everywhere = sf.coalesce(sf.col(PART), sf.lit(ALWAYS_TRAINS)).alias(PART)
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
        """For each bucket the split in which it is held out, TESTS or ALWAYS_TRAINS."""
        part = np.full(len(self._sizes), ALWAYS_TRAINS, dtype=np.int32)
        if self._test_share:
            seed = seed_of(self._seed, "test")
            part[judging_values(self._sizes, self._ordered, seed, self._test_share)] = TESTS
        rest = np.flatnonzero(part != TESTS)
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

        return self._is_from(TESTING) if self._dataset.apart[1] else sf.col(PART) == TESTS

    def _is_held_out(self, split: int) -> Any:
        from pyspark.sql import functions as sf

        return sf.col(PART) == split

    def _trains(self, split: int) -> Any:
        from pyspark.sql import functions as sf

        return ~self._is_test() & learns_before(sf.col(PART), split, self._ordered)

    def inner(self, split: int, fraction: float) -> tuple[Any, Any] | None:
        from pyspark.sql import functions as sf

        learns = np.flatnonzero((self._part != TESTS) & learns_before(self._part, split, self._ordered))
        if len(learns) < 2:
            return None
        seed = seed_of(self._seed, "inner")
        watched = judging_values(self._sizes[learns], self._ordered, seed, INNER_SHARE)
        table = self._table(WATCHED, watched, self._buckets[learns])
        both = self.train(split, fraction).join(sf.broadcast(table), _BUCKET)
        return both.where(~sf.col(WATCHED)).drop(WATCHED), both.where(WATCHED).drop(WATCHED)
