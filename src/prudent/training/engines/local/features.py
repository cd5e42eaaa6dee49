"""Features as models get them: transforms fitted on training rows, and a cache of prepared rows."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.data.dataset import CATEGORICAL, DATE, Column, Matrix
from prudent.training.data.splitting import RowNumbers, repeated, subsample
from prudent.training.engines.date_parts import PARTS, SplitDates
from prudent.training.engines.fit_task import PreparedRows
from prudent.training.engines.fitted_transforms import (
    NO_TARGET,
    Affine,
    FittedTransform,
    Impute,
    OneHot,
    TargetEncode,
    TransformFitter,
    apply_all,
    category_rows,
    check_components,
)
from prudent.training.engines.local.column_statistics import covariance, mean_and_deviation
from prudent.training.engines.local.shared_dataset import SharedDataset
from prudent.training.engines.partition import inner_split
from prudent.training.engines.target_encoding import (
    ENCODING_PARTS,
    MANY_CATEGORIES,
    MOST_SHARES,
    SMOOTHING,
    encoding_parts,
    encoding_tables,
    target_columns,
)


class LocalTransformFitter(TransformFitter):
    """Fits transforms on a matrix, and tracks which columns are categories.

    `others_miss` says that values are missing in rows which the model will meet, if not in these. With a
    target (`y`, and how many classes it has, 0 for values), categories can be told by it.
    """

    def __init__(
        self,
        X: Matrix,
        columns: Sequence[Column],
        others_miss: bool = False,
        y: NDArray[Any] | None = None,
        classes: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.X = X
        self.sizes = np.array(
            [max(len(column.categories), 1) if column.kind == CATEGORICAL else 0 for column in columns],
            dtype=np.int64,
        )
        """Of each column the number of its categories, 0 of one that holds numbers."""
        self._may_miss = others_miss or has_missing(X)
        dates = np.array([column.kind == DATE for column in columns], dtype=bool)
        if dates.any():
            self._append(SplitDates(np.flatnonzero(~dates), np.flatnonzero(dates)))
            parts = np.zeros((len(PARTS) + 1) * int(dates.sum()), dtype=np.int64)
            self.sizes = np.concatenate([self.sizes[~dates], parts])
        self._y, self._classes, self._seed = y, classes, seed

    def finish(self, max_categories: int | None = None, native: bool = False) -> None:
        """What no model can do without: values for missing ones, columns for categories.

        A `native` one can; only categories that are many are told by the target for it, too.
        `max_categories` makes categories of the columns with at most so many different values, as Spark's
        VectorIndexer does.
        """
        if self._y is not None and self._classes <= MOST_SHARES:
            self._encode_by_target(np.flatnonzero(self.sizes > MANY_CATEGORIES), SMOOTHING)
        if native:
            return
        self._make_plain()
        if max_categories is not None:
            self._index(max_categories)

    # Each transformation

    def impute(self, strategy: str = "mean") -> None:
        fills = np.zeros(self.X.shape[1])
        for column in range(self.X.shape[1]):
            values = self.X[:, column]
            values = values[~np.isnan(values)].astype(np.float64)
            frequent = strategy == "most_frequent" or bool(self._categorical[column])
            if len(values):
                fills[column] = _most_frequent(values) if frequent else getattr(np, strategy)(values)
        self._append(Impute(fills))
        self._may_miss = False

    def target_encode(self, smoothing: float = SMOOTHING) -> None:
        if self._y is None:
            raise BadInput(NO_TARGET)
        self._encode_by_target(np.flatnonzero(self.sizes), smoothing)

    def one_hot(self, most: int = 32) -> None:
        chosen: dict[int, NDArray[Any]] = {}
        for column in np.flatnonzero(self._categorical):
            values = self.X[:, column]
            found, counts = np.unique(values[~np.isnan(values)], return_counts=True)
            # By count, then by code: the same whatever order the rows come in.
            frequent = np.lexsort((found, -counts))[:most]
            chosen[int(column)] = np.sort(found[frequent])
        self._expand(chosen)

    def scale(self, method: str) -> None:
        if method == "standard":
            shift, spread = mean_and_deviation(self.X)
        else:
            # fmin and fmax pass over missing values; a column of nothing else stays as it is.
            shift = np.nan_to_num(np.fmin.reduce(self.X, axis=0).astype(np.float64))
            spread = np.nan_to_num(np.fmax.reduce(self.X, axis=0).astype(np.float64)) - shift
        shift[self._categorical], spread[self._categorical] = 0.0, 1.0
        self._append(Affine(shift, 1.0 / np.where(spread > 0, spread, 1.0)))

    def pca(self, k: int) -> None:
        self._make_plain()
        check_components(k, self.X.shape[1])
        shift = self.X.mean(axis=0, dtype=np.float64)
        _, axes = np.linalg.eigh(covariance(self.X, shift))
        axes = axes[:, ::-1][:, :k]
        # Of an axis's two directions, the one in which its largest part is positive: the same every time.
        signs = np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(k)])
        self._append(Affine(shift, axes * signs, prefix="pc"))
        self.sizes = np.zeros(k, dtype=np.int64)

    @property
    def _categorical(self) -> NDArray[np.bool_]:
        return self.sizes > 0

    def _encode_by_target(self, chosen: NDArray[np.int64], smoothing: float) -> None:
        """Encode columns by the target; a training row by what the rows of other parts say."""
        if not len(chosen):
            return
        assert self._y is not None
        aims = target_columns(self._y, self._classes)
        part = encoding_parts(len(aims), self._seed)
        kept = np.flatnonzero(~np.isin(np.arange(len(self.sizes)), chosen))
        own, tables = [], []
        for column in chosen:
            width = int(self.sizes[column]) + 1
            rows = category_rows(self.X[:, column], width - 1)
            cell = part * width + rows
            counts = np.bincount(cell, minlength=ENCODING_PARTS * width).reshape(ENCODING_PARTS, width)
            sums = [np.bincount(cell, weights=aim, minlength=counts.size) for aim in aims.T]
            by_part = np.stack(sums, axis=1).reshape(*counts.shape, -1).astype(np.float64)
            table, apart = encoding_tables(counts, by_part, smoothing, len(aims) > ENCODING_PARTS)
            tables.append(table)
            own.append(apart[part, rows])
        self.transforms.append(TargetEncode(kept, chosen.astype(np.int64), tuple(tables)))
        self.X = np.concatenate([self.X[:, kept], *own], axis=1, dtype=self.X.dtype)
        self.sizes = np.concatenate([self.sizes[kept], np.zeros(len(chosen) * aims.shape[1], dtype=np.int64)])

    def _make_plain(self) -> None:
        if self._may_miss:
            self.impute()
        if self._categorical.any():
            self.one_hot()

    def _index(self, most: int) -> None:
        chosen = {}
        for column in range(self.X.shape[1]):
            values = np.unique(self.X[: 20 * most, column])
            if len(values) <= most:
                values = np.unique(self.X[:, column])
            if 2 < len(values) <= most:  # two values are told apart by one question in any case
                chosen[column] = values
        self._expand(chosen)

    def _expand(self, chosen: Mapping[int, NDArray[Any]]) -> None:
        if not chosen:
            return
        kept = np.array([c for c in range(self.X.shape[1]) if c not in chosen], dtype=np.int64)
        sources = np.concatenate([np.full(len(values), column) for column, values in chosen.items()])
        values = np.concatenate(list(chosen.values()))
        sizes = self.sizes[kept]
        self._append(OneHot(kept, sources.astype(np.int64), values))
        self.sizes = np.concatenate([sizes, np.zeros(len(sources), dtype=np.int64)])

    def _append(self, transform: FittedTransform) -> None:
        self.transforms.append(transform)
        self.X = transform.apply(self.X)


def has_missing(X: Matrix) -> bool:
    """Whether a value is missing anywhere; a sum that is a number says no at once."""
    return bool(not np.isfinite(X.sum(dtype=np.float64)) and np.isnan(X).any())


def _most_frequent(values: NDArray[Any]) -> float:
    found, counts = np.unique(values, return_counts=True)
    return float(found[counts.argmax()])


ALL_ROWS = -1
"""In place of a split's number: every row trains, none is held out."""


INNER_FIT_ROWS = 20_000
"""With more training rows than this, an iterative algorithm's model is that of the inner part: to fit it
once more on all of them would cost more than the rows that were watched are worth."""


@dataclass(frozen=True, eq=False)
class PreparedFeatures:
    """Training rows, held-out rows and watched rows, after the transforms that were fitted on the first.

    The held-out rows are those that rank. Where some of the training rows are watched, they are not among
    `rows`.
    """

    rows: PreparedRows
    held_out: PreparedRows | None
    transforms: tuple[FittedTransform, ...]
    watched: PreparedRows | None = None
    categories: tuple[int, ...] = ()
    """For each feature how many categories it has, 0 for a number; empty where all are numbers."""
    trained: int = 0
    """How many different rows it is trained on."""

    @property
    def size(self) -> int:
        parts = (self.rows, self.held_out, self.watched)
        return sum(int(part.X.nbytes) for part in parts if part is not None)


class FeatureCache:
    """Prepares rows by split, share and transforms; keeps what was used last, up to `most_bytes`."""

    def __init__(self, data: SharedDataset, seed: int, most_bytes: int) -> None:
        self._data = data
        self._seed = seed
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, PreparedFeatures] = OrderedDict()
        self._missing: bool | None = None
        self._standard: tuple[FittedTransform, ...] | None = None

    def prepare(
        self,
        split: int,
        fraction: float,
        transforms: Mapping[str, Any],
        max_categories: int | None,
        native: bool = False,
        inner: bool = False,
    ) -> PreparedFeatures:
        """The rows of a split; with `inner` some of its training rows are set apart to be watched."""
        asked = [split, fraction, list(transforms.items()), max_categories, native, inner]
        key = json.dumps(asked, default=str)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        found = self._prepare(split, fraction, transforms, max_categories, native, inner)
        self._kept[key] = found
        while len(self._kept) > 1 and sum(kept.size for kept in self._kept.values()) > self._most_bytes:
            self._kept.popitem(last=False)
        return found

    def _prepare(
        self,
        split: int,
        fraction: float,
        transforms: Mapping[str, Any],
        max_categories: int | None,
        native: bool,
        inner: bool,
    ) -> PreparedFeatures:
        data = self._data
        chosen = np.arange(len(data.X)) if split == ALL_ROWS else data.splits[split].train
        chosen = subsample(chosen, data.y, fraction, self._seed)
        apart = inner_split(chosen, data.y, self._seed, data.links) if inner else None
        judges = split != ALL_ROWS and (apart is None or len(chosen) > INNER_FIT_ROWS)
        chosen = chosen if apart is None else apart.train
        trained = len(chosen)
        y = self._target(chosen)
        classes = len(data.classes)
        fitter = LocalTransformFitter(
            data.X[chosen], data.columns, self._some_missing, y, classes, self._seed
        )
        for name, settings in transforms.items():
            fitter.add(name, settings)
        fitter.finish(max_categories, native)
        fitted = tuple(fitter.transforms)
        categories = tuple(fitter.sizes.tolist()) if fitter.sizes.any() else ()

        def prepared(rows: RowNumbers) -> PreparedRows:
            return PreparedRows(apply_all(fitted, data.X[rows]), self._target(rows))

        learned = PreparedRows(fitter.X, y)
        if data.class_weights and y is not None:
            # Features mean the same whatever classes weigh: only the algorithm sees rows more than once.
            often = repeated(y, data.class_weights, self._seed)
            learned = PreparedRows(fitter.X[often], y[often])
        return PreparedFeatures(
            learned,
            prepared(data.splits[split].validation) if judges else None,
            fitted,
            None if apart is None else prepared(apart.validation),
            categories,
            trained,
        )

    def standardised(self, rows: RowNumbers) -> Matrix:
        """Some rows by the standardised features of all: there clusterings are compared."""
        if self._standard is None:
            fitter = LocalTransformFitter(self._data.X, self._data.columns, self._some_missing)
            fitter.standardise()
            self._standard = tuple(fitter.transforms)
        return apply_all(self._standard, self._data.X[rows])

    @property
    def _some_missing(self) -> bool:
        if self._missing is None:
            self._missing = has_missing(self._data.X)
        return self._missing

    def _target(self, rows: RowNumbers) -> Any:
        return None if self._data.y is None else self._data.y[rows]
