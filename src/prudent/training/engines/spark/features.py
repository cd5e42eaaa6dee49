"""Transforms before the algorithm: fitted by Spark on the training rows, and kept for the ONNX graph.

They mean the same as on the local engine. Where features are columns of their own (categories, missing
values), every transform up to a projection is an expression over them, and one SQL stage computes all; a
vector of plain numbers goes through Spark's own scalers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.fitted_transforms import (
    Affine,
    Impute,
    OneHot,
    TransformFitter,
    check_components,
)
from prudent.training.engines.spark.dataset import FEATURES, SparkDataset, column_names

PREPARED = "prepared"


@dataclass(frozen=True)
class _FeatureExpression:
    """One feature on its way: an SQL expression, and whether it is the number of a category."""

    value: str
    is_category: bool = False

    @property
    def known(self) -> str:
        return f"CASE WHEN isnan({self.value}) THEN NULL ELSE {self.value} END"


class SparkTransformFitter(TransformFitter):
    """Fits transforms in Spark; `stages` are Spark's, `transforms` those of the ONNX graph.

    `rows` is the training frame, and `output` names its column of prepared vectors after `finish`.
    """

    def __init__(self, rows: Any, dataset: SparkDataset) -> None:
        super().__init__()
        self.rows = rows
        self.stages: list[Any] = []
        self.output = FEATURES
        self.categories: list[int] = []
        self._dataset = dataset
        self._slots = (
            None
            if dataset.is_vector
            else [
                _FeatureExpression(f"CAST({name} AS DOUBLE)", category)
                for name, category in zip(
                    column_names(len(dataset.columns)), dataset.categorical, strict=True
                )
            ]
        )
        self._maybe_missing = any(dataset.missing)

    def finish(self, native: bool = False) -> None:
        """What no model can do without: values for missing ones, columns for categories, one vector.

        A `native` one can do without the former: `categories` names the features that are still numbers of
        categories.
        """
        if self._slots is None:
            return
        # First values, then columns: a missing category becomes the most frequent one, not none at all.
        if self._maybe_missing and not native:
            self.impute()
        if any(slot.is_category for slot in self._slots) and not native:
            self.one_hot()
        self.categories = [place for place, slot in enumerate(self._slots) if slot.is_category]
        self._assemble()

    # Each transformation

    def impute(self, strategy: str = "mean") -> None:
        if self._slots is None:
            return  # in a vector nothing is missing
        asked = {"mean": "avg", "median": "median"}
        fills = self._measured(
            *(
                f"mode({slot.known}, true)"
                if strategy == "most_frequent" or slot.is_category
                else f"{asked[strategy]}({slot.known})"
                for slot in self._slots
            )
        )
        self.transforms.append(Impute(fills))
        self._slots = [
            replace(slot, value=f"CASE WHEN isnan({slot.value}) THEN {_sql(fill)} ELSE {slot.value} END")
            for slot, fill in zip(self._slots, np.float32(fills).astype(float), strict=True)
        ]
        self._maybe_missing = False

    def one_hot(self, most: int = 32) -> None:
        slots = self._slots or []
        categories = [place for place, slot in enumerate(slots) if slot.is_category]
        if not categories:
            return
        codes = self._frequent({place: slots[place].known for place in categories}, most)
        kept = [place for place in range(len(slots)) if place not in categories]
        pairs = [(place, code) for place in categories for code in codes[place]]
        self.transforms.append(
            OneHot(
                np.array(kept, dtype=np.int64),
                np.array([place for place, _ in pairs], dtype=np.int64),
                np.array([code for _, code in pairs], dtype=np.float64),
            )
        )
        self._slots = [slots[place] for place in kept] + [
            _FeatureExpression(f"CASE WHEN {slots[place].value} = {_sql(code)} THEN 1.0D ELSE 0.0D END")
            for place, code in pairs
        ]

    def scale(self, method: str) -> None:
        if self._slots is None:
            self._scale_vector(method)
            return
        two = ("avg", "stddev_samp") if method == "standard" else ("min", "max")
        first = self._measured(*(f"{two[0]}({slot.known})" for slot in self._slots))
        second = self._measured(*(f"{two[1]}({slot.known})" for slot in self._slots))
        spread = second if method == "standard" else second - first
        counted = np.array([not slot.is_category for slot in self._slots])
        factor = np.where((spread > 0) & counted, 1.0 / np.where(spread > 0, spread, 1.0), 1.0)
        shift = np.where(counted, first, 0.0)
        self.transforms.append(Affine(shift, factor))
        self._slots = [
            replace(slot, value=f"(({slot.value}) - {_sql(a)}) * {_sql(b)}")
            for slot, a, b in zip(self._slots, shift, factor, strict=True)
        ]

    def pca(self, k: int) -> None:
        from pyspark.ml.feature import PCA

        self.finish()
        width = self.width
        check_components(k, width)
        model = self._fit(PCA(k=k, inputCol=self.output, outputCol=self._next()))
        self.transforms.append(Affine(np.zeros(width), model.pc.toArray(), prefix="pc"))

    def index(self, most: int) -> Any:
        """After all others: features with at most so many different values become categories for trees."""
        from pyspark.ml.feature import VectorIndexer

        indexer = VectorIndexer(
            maxCategories=most, inputCol=self.output, outputCol=self._next(), handleInvalid="keep"
        )
        return self._fit(indexer)

    @property
    def width(self) -> int:
        """How many features there are now."""
        if self._slots is not None:
            return len(self._slots)
        return int(self.rows.select(self.output).first()[0].size)

    # How

    def _scale_vector(self, method: str) -> None:
        from pyspark.ml.feature import MinMaxScaler, StandardScaler

        if method == "standard":
            model = self._fit(
                StandardScaler(withMean=True, withStd=True, inputCol=self.output, outputCol=self._next())
            )
            spread = model.std.toArray()
            factor = np.where(spread > 0, 1.0 / np.where(spread > 0, spread, 1.0), 0.0)
            self.transforms.append(Affine(model.mean.toArray(), factor))
            return
        model = self._fit(MinMaxScaler(inputCol=self.output, outputCol=self._next()))
        low, high = model.originalMin.toArray(), model.originalMax.toArray()
        varies = high > low
        factor = np.where(varies, 1.0 / np.where(varies, high - low, 1.0), 0.0)
        self.transforms.append(Affine(low, factor))
        if not varies.all():  # Spark puts a constant in the middle
            self.transforms.append(Affine(np.where(varies, 0.0, -0.5), np.ones(len(low))))

    def _assemble(self) -> None:
        """From expressions to one vector column."""
        from pyspark.ml.feature import SQLTransformer, VectorAssembler

        assert self._slots is not None
        names = [f"s{place}" for place in range(len(self._slots))]
        wanted = ", ".join(f"{slot.value} AS {name}" for slot, name in zip(self._slots, names, strict=True))
        self._use(SQLTransformer(statement=f"SELECT *, {wanted} FROM __THIS__"))
        self._use(VectorAssembler(inputCols=names, outputCol=FEATURES, handleInvalid="keep"))
        self.rows = self.rows.drop(*names)
        self.output = FEATURES
        self._slots = None

    def _next(self) -> str:
        return f"{PREPARED}{len(self.stages)}"

    def _fit(self, estimator: Any) -> Any:
        model = estimator.fit(self.rows)
        self._use(model)
        self.output = model.getOutputCol()
        return model

    def _use(self, stage: Any) -> None:
        self.stages.append(stage)
        self.rows = stage.transform(self.rows)

    def _measured(self, *expressions: str) -> NDArray[np.float64]:
        """Aggregates of the training rows; 0 where there is nothing to aggregate."""
        found = self.rows.selectExpr(
            *(f"{each} AS a{place}" for place, each in enumerate(expressions))
        ).first()
        return np.array([0.0 if value is None or value != value else float(value) for value in found])  # noqa: PLR0124

    def _frequent(self, values: Mapping[int, str], most: int) -> dict[int, list[float]]:
        pairs = ", ".join(f"struct({place} AS place, {value} AS code)" for place, value in values.items())
        counts = (
            self.rows.selectExpr(f"inline(array({pairs}))")
            .where("code IS NOT NULL")
            .groupBy("place", "code")
            .count()
            .collect()
        )
        ranked = sorted(counts, key=lambda row: (-row["count"], row["code"]))
        return {
            place: sorted(row["code"] for row in [r for r in ranked if r["place"] == place][:most])
            for place in values
        }


def _sql(number: float) -> str:
    """A number as Spark's SQL writes a double.

    >>> _sql(-1e-05)
    "CAST('-1e-05' AS DOUBLE)"
    """
    return f"CAST('{float(number)!r}' AS DOUBLE)"
