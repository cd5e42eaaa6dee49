"""A data set inside Spark, cached as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import Column

ROW, LABEL, FEATURES = "row", "label", "features"
WEIGHT = "weight"
LINK = "link"
"""The column of groups, or of times, by which rows are split; not there, as a rule."""
MAIN, JUDGING, TESTING = range(3)
"""Where rows come from: the data, a file for validation, a file for the test."""
_FROM = 1 << 60


@dataclass(frozen=True, eq=False)
class SparkDataset:
    """A cached frame of `row` (a number for each row), `label` (unless there is none) and the features.

    Numbers of rows tell their order, and where they come from: `origin_of`.

    Features are one vector column `features` where all are numbers and none is missing; else a column for
    each, `c0` and on: categories by their numbers, dates as days since 1970, NaN where a value is missing.
    All are float32 numbers, or float64 where they are `wide`, as the exported model will get them.
    """

    frame: Any
    columns: tuple[Column, ...]
    classes: tuple[Any, ...]
    target: str | None
    rows: int
    fingerprint: str
    is_vector: bool
    missing: tuple[bool, ...]
    apart: tuple[int, int] = (0, 0)
    """How many rows come from a file for validation, and how many from one for the test."""
    wide: bool = False
    """Whether features have more digits than single precision keeps."""
    class_weights: tuple[float, ...] = ()
    """How much a training row of each class counts; empty where all count the same."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of the frame that hold features."""
        return (FEATURES,) if self.is_vector else column_names(len(self.columns))

    @property
    def counted(self) -> bool:
        """Whether what is predicted is the number of a class or of a cluster."""
        return bool(self.classes) or self.target is None

    @property
    def precision(self) -> Any:
        """The type of the features."""
        return np.float64 if self.wide else np.float32


def row_numbers(origin: Any) -> Any:
    """A number for each row of a frame, in their order; the data come first, then the files beside them."""
    from pyspark.sql import functions as sf

    return sf.monotonically_increasing_id() + origin * sf.lit(_FROM)


def origin_of(row: Any) -> Any:
    """Where a row comes from, by its number: MAIN, JUDGING or TESTING."""
    from pyspark.sql import functions as sf

    return sf.floor(row / sf.lit(_FROM))


def column_names(number: int) -> tuple[str, ...]:
    return tuple(f"c{place}" for place in range(number))


def moments(rows: Any, features: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and standard deviations of a column of vectors."""
    from pyspark.ml.stat import Summarizer
    from pyspark.sql import functions as sf

    column = sf.col(features)
    mean, spread = rows.agg(Summarizer.mean(column), Summarizer.std(column)).first()
    return mean.toArray(), spread.toArray()
