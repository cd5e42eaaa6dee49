"""The target inside Spark: values, or numbers of classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from prudent.core.errors import BadInput
from prudent.training.algorithms.algorithm import REGRESSION
from prudent.training.data.target import as_whole_numbers, class_target

_MOST_CLASSES = 1000


def label_of(frame: Any, name: str, untyped: bool, domain: str, shown: str) -> tuple[Any, tuple[Any, ...]]:
    """The expression of the label, and the classes it numbers."""
    from pyspark.sql import functions as sf

    if domain == REGRESSION:
        number = sf.col(name).cast("double")
        low, high = frame.agg(sf.min(number), sf.max(number)).first()
        _refuse_constant(low, high, shown)
        return number, ()
    found = frame.select(sf.col(name).alias("v"), sf.col(name).cast("string").alias("w")).distinct()
    pairs = found.limit(_MOST_CLASSES + 1).collect()
    labels = np.array([pair["v"] for pair in pairs])
    if labels.dtype.kind == "U":
        labels = labels.astype(object)
    elif labels.dtype.kind == "f":
        labels = as_whole_numbers(labels)
    # Twice, because values that all differ are taken for no classes at all.
    target = class_target([labels, labels], shown, domain, untyped)
    assert target.y is not None
    codes = [value for pair, code in zip(pairs, target.y, strict=False) for value in (pair["w"], float(code))]
    numbers = sf.create_map(*(sf.lit(value) for value in codes))
    return sf.element_at(numbers, sf.col(name).cast("string")), target.classes


def _refuse_constant(low: float, high: float, shown: str) -> None:
    if low == high:
        raise BadInput(
            f'The target "{shown}" is {low:g} in every row, so there is nothing to learn; give data in which '
            "it varies, or another target."
        )
