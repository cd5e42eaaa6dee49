"""What the target is on average in each category: the numbers behind `TargetEncode`, on every engine.

A training row is encoded by what the rows of other parts say; else a category with one row would give that
row's target away.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for

MANY_CATEGORIES = 32
"""A column with more categories is told by the target's mean in each, not by a column for each."""
MOST_SHARES = 32
"""Classes up to which each gets a column of its own for every such category."""
SMOOTHING = 10.0
"""Rows of the overall mean that are counted to each category where nobody asks for another number."""
ENCODING_PARTS = 5


def encoding_parts(rows: int, seed: int) -> NDArray[np.int64]:
    """For each training row the part it is in: rows of that part do not say what its categories become."""
    return rng_for(seed, "parts of target encoding").permutation(rows) % ENCODING_PARTS


def encoded_classes(classes: int) -> tuple[int, ...]:
    """The classes whose shares are counted: the second of two, or each of several."""
    return (1,) if classes == 2 else tuple(range(classes))


def target_columns(y: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """What is averaged by category: values, or whether a row is of each class of `encoded_classes`."""
    if classes == 0:
        return np.asarray(y, dtype=np.float64)[:, None]
    return np.asarray(np.equal(y[:, None], np.array(encoded_classes(classes))), dtype=np.float64)


def smoothed_means(
    counts: NDArray[np.int64], sums: NDArray[np.float64], smoothing: float
) -> NDArray[np.float64]:
    """(categories, outputs): the mean of each category, drawn to the overall mean where rows are few.

    (sum + smoothing x overall mean) / (rows + smoothing); `counts` are the rows of each category, and `sums`
    (categories, outputs) what they add up to. The last category is a missing one.

    >>> smoothed_means(np.array([2, 1, 0]), np.array([[1.0], [1.0], [0.0]]), 1.0)[:, 0].round(3).tolist()
    [0.556, 0.833, 0.667]
    """
    overall = sums.sum(axis=0) / max(int(counts.sum()), 1)
    weight = counts[:, None] + smoothing
    known = sums + smoothing * overall
    return np.asarray(np.where(weight > 0, known / np.where(weight > 0, weight, 1.0), overall))


def encoding_tables(
    counts: NDArray[np.int64], sums: NDArray[np.float64], smoothing: float, apart: bool = True
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The table for all rows, and for each part the one that its own rows have no say in.

    `counts` (parts, categories) and `sums` (parts, categories, outputs) are by part; where rows are too few
    to be `apart`, all have a say everywhere.
    """
    whole = smoothed_means(counts.sum(axis=0), sums.sum(axis=0), smoothing)
    others = [np.arange(len(counts)) != part if apart else slice(None) for part in range(len(counts))]
    own = [smoothed_means(counts[some].sum(axis=0), sums[some].sum(axis=0), smoothing) for some in others]
    return whole, np.stack(own)
