"""Transforms before the algorithm: fitted by Spark on the training rows, and kept for the ONNX graph.

They mean the same as on the local engine. Where features are columns of their own (categories, missing
values), every transform up to a projection is an expression over them, and one SQL stage computes all; a
vector of plain numbers goes through Spark's own scalers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.data.dataset import DATE
from prudent.training.engines.date_parts import PARTS, SplitDates
from prudent.training.engines.fitted_transforms import (
    NO_TARGET,
    Affine,
    Impute,
    OneHot,
    TargetEncode,
    TransformFitter,
    check_components,
)
from prudent.training.engines.spark.dataset import FEATURES, SparkDataset, column_names
from prudent.training.engines.spark.feature_expressions import (
    ENCODING_PART,
    FeatureExpression,
    part_of_date,
    sql_number,
)
from prudent.training.engines.spark.splits import MOST_ON_DRIVER
from prudent.training.engines.spark.target_counts import counted_targets, with_parts
from prudent.training.engines.target_encoding import (
    ENCODING_PARTS,
    MANY_CATEGORIES,
    MOST_SHARES,
    SMOOTHING,
    encoding_tables,
)

PREPARED = "prepared"


class SparkTransformFitter(TransformFitter):
    """Fits transforms in Spark; `stages` are Spark's, `transforms` those of the ONNX graph.

    `rows` is the training frame, and `output` names its column of prepared vectors after `finish`. Training
    rows may have other features than the same rows would have in a prediction: see `target_encode`.
    """

    def __init__(self, rows: Any, dataset: SparkDataset, seed: int = 0) -> None:
        super().__init__()
        self.rows = rows
        self.stages: list[Any] = []
        self.output = FEATURES
        self.categories: list[int] = []
        self._dataset, self._seed = dataset, seed
        self._slots = None if dataset.is_vector else self._columns()
        self._maybe_missing = any(dataset.missing)

    def _columns(self) -> list[FeatureExpression]:
        """The features as they come, dates split into their parts."""
        columns = self._dataset.columns
        named = zip(columns, column_names(len(columns)), strict=True)
        slots = [FeatureExpression.of(column, name) for column, name in named]
        dates = [place for place, column in enumerate(columns) if column.kind == DATE]
        if not dates:
            return slots
        kept = [place for place in range(len(slots)) if place not in dates]
        self.transforms.append(SplitDates(np.array(kept, dtype=np.int64), np.array(dates, dtype=np.int64)))
        parts = [part_of_date(slots[place], part) for part in PARTS for place in dates]
        return [*(slots[place] for place in kept), *parts, *(slots[place] for place in dates)]

    def finish(self, native: bool = False, centred: bool = False) -> None:
        """What no model can do without: values for missing ones, columns for categories, one vector.

        Categories that are many are told by the target. A `native` model can do without the rest:
        `categories` names the features that are still numbers of categories. `centred` takes the middle off
        each number, for a model that looks at fewer digits than there are.
        """
        if self._slots is None:
            return
        if self._dataset.target is not None and len(self._dataset.classes) <= MOST_SHARES:
            many = [place for place, slot in enumerate(self._slots) if slot.categories > MANY_CATEGORIES]
            self._encode_by_target(many, SMOOTHING)
        # First values, then columns: a missing category becomes the most frequent one, not none at all.
        if self._maybe_missing and not native:
            self.impute()
        if any(slot.is_category for slot in self._slots) and not native:
            self.one_hot()
        if centred:
            self._centre()
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
        told = map(sql_number, self._rounded(fills))
        self._slots = [
            slot.through(lambda v, fill=fill: f"CASE WHEN isnan({v}) THEN {fill} ELSE {v} END")  # type: ignore[misc]
            for slot, fill in zip(self._slots, told, strict=True)
        ]
        self._maybe_missing = False

    def target_encode(self, smoothing: float = SMOOTHING) -> None:
        if self._dataset.target is None:
            raise BadInput(NO_TARGET)
        self._encode_by_target(
            [place for place, slot in enumerate(self._slots or []) if slot.is_category], smoothing
        )

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
            replace(
                slots[place].through(
                    lambda v, code=code: f"CASE WHEN {v} = {sql_number(code)} THEN 1.0D ELSE 0.0D END"  # type: ignore[misc]
                ),
                categories=0,
            )
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
        self._move(shift, factor)

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

    def _rounded(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Numbers as the exported model has them."""
        return np.asarray(numbers).astype(self._dataset.precision).astype(np.float64)

    def _move(self, shift: NDArray[np.float64], factor: NDArray[np.float64]) -> None:
        assert self._slots is not None
        self.transforms.append(Affine(shift, factor))
        told = zip(self._slots, map(sql_number, shift), map(sql_number, factor), strict=True)
        self._slots = [
            slot.through(lambda v, a=a, b=b: f"(({v}) - {a}) * {b}")  # type: ignore[misc]
            for slot, a, b in told
        ]

    def _centre(self) -> None:
        assert self._slots is not None
        low = self._measured(*(f"min({slot.known})" for slot in self._slots))
        high = self._measured(*(f"max({slot.known})" for slot in self._slots))
        counted = np.array([not slot.is_category for slot in self._slots])
        self._move(np.where(counted, np.round((low + high) / 2), 0.0), np.ones(len(low)))

    def _encode_by_target(self, chosen: Sequence[int], smoothing: float) -> None:
        """Encode features by the target; a training row by what the rows of other parts say."""
        if not chosen:
            return
        assert self._slots is not None
        if ENCODING_PART not in self.rows.columns:
            self.rows = with_parts(self.rows, self._dataset.rows <= MOST_ON_DRIVER, self._seed)
        slots = self._slots
        sizes = {place: slots[place].categories + 1 for place in chosen}
        counts, sums = counted_targets(
            self.rows, {place: slots[place].code() for place in chosen}, sizes, len(self._dataset.classes)
        )
        tables, new = [], []
        for place in chosen:
            whole, own = encoding_tables(
                counts[place], sums[place], smoothing, int(counts[place].sum()) > ENCODING_PARTS
            )
            tables.append(whole)
            new += [
                slots[place].encoded(self._rounded(whole[:, output]), self._rounded(own[:, :, output]))
                for output in range(whole.shape[1])
            ]
        kept = [place for place in range(len(slots)) if place not in sizes]
        self.transforms.append(
            TargetEncode(np.array(kept, dtype=np.int64), np.array(chosen, dtype=np.int64), tuple(tables))
        )
        self._slots = [*(slots[place] for place in kept), *new]

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
        said = zip(self._slots, names, strict=True)
        wanted, learned = zip(
            *((f"{slot.value} AS {name}", f"{slot.trained} AS {name}") for slot, name in said), strict=True
        )
        assembler = VectorAssembler(inputCols=names, outputCol=FEATURES, handleInvalid="keep")
        self.stages += [SQLTransformer(statement=f"SELECT *, {', '.join(wanted)} FROM __THIS__"), assembler]
        self.rows = assembler.transform(self.rows.selectExpr("*", *learned)).drop(*names)
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
