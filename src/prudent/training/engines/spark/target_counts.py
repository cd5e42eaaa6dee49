"""What the target adds up to in each category and part of the training rows, counted by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.spark.dataset import LABEL, ROW
from prudent.training.engines.spark.feature_expressions import ENCODING_PART
from prudent.training.engines.target_encoding import ENCODING_PARTS, encoded_classes, encoding_parts


def with_parts(rows: Any, few: bool, seed: int) -> Any:
    """Training rows with ENCODING_PART: of a `few` that of the local engine, of more one by a hash."""
    import pyarrow as pa
    from pyspark.sql import functions as sf

    if not few:
        hashed = sf.xxhash64(sf.col(ROW), sf.lit(seed))
        return rows.withColumn(ENCODING_PART, sf.pmod(hashed, sf.lit(ENCODING_PARTS)).cast("int"))
    numbers = np.sort(rows.select(ROW).toArrow().column(ROW).to_numpy())
    parts = encoding_parts(len(numbers), seed).astype(np.int32)
    table = rows.sparkSession.createDataFrame(pa.table({ROW: numbers, ENCODING_PART: parts}))
    return rows.join(sf.broadcast(table), ROW)


def counted_targets(
    rows: Any, codes: Mapping[int, str], sizes: Mapping[int, int], classes: int
) -> tuple[dict[int, NDArray[np.int64]], dict[int, NDArray[np.float64]]]:
    """For each feature its rows by part and category, and the sums of the target, by output too.

    `codes` are expressions of categories, `sizes` how many there are of each.
    """
    from pyspark.sql import functions as sf

    pairs = ", ".join(f"struct({place} AS place, {code} AS code)" for place, code in codes.items())
    label = sf.col(LABEL)
    aims = [(label == number).cast("double") for number in encoded_classes(classes)] if classes else [label]
    found = (
        rows.selectExpr(LABEL, ENCODING_PART, f"inline(array({pairs}))")
        .groupBy("place", ENCODING_PART, "code")
        .agg(sf.count(LABEL).alias("rows"), *(sf.sum(aim).alias(f"a{n}") for n, aim in enumerate(aims)))
        .collect()
    )
    counts = {place: np.zeros((ENCODING_PARTS, size), np.int64) for place, size in sizes.items()}
    sums = {place: np.zeros((ENCODING_PARTS, size, len(aims))) for place, size in sizes.items()}
    for place, part, code, count, *totals in found:
        counts[place][part, code] = count
        sums[place][part, code] = totals
    return counts, sums
