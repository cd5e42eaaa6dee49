"""Features as models get them: transforms fitted on training rows, and a cache of prepared rows."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import CATEGORICAL, Column, Matrix
from prudent.training.data.splitting import RowNumbers, subsample
from prudent.training.engines.fit_task import PreparedRows
from prudent.training.engines.fitted_transforms import (
    Affine,
    FittedTransform,
    Impute,
    OneHot,
    TransformFitter,
    apply_all,
    check_components,
)
from prudent.training.engines.local.column_statistics import covariance, mean_and_deviation
from prudent.training.engines.local.shared_dataset import SharedDataset


class LocalTransformFitter(TransformFitter):
    """Fits transforms on a matrix, and tracks which columns are categories.

    `others_miss` says that values are missing in rows which the model will meet, if not in these.
    """

    def __init__(self, X: Matrix, columns: Sequence[Column], others_miss: bool = False) -> None:
        super().__init__()
        self.X = X
        self._may_miss = others_miss or has_missing(X)
        self._categorical = np.array([column.kind == CATEGORICAL for column in columns], dtype=bool)
        self._sizes = [len(column.categories) for column in columns]

    def finish(self, max_categories: int | None = None) -> None:
        """What no model can do without: values for missing ones, columns for categories.

        `max_categories` makes categories of the columns with at most so many different values, as Spark's
        VectorIndexer does.
        """
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
        self._categorical = np.zeros(k, dtype=bool)

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
        categorical = self._categorical[kept]
        self._append(OneHot(kept, sources.astype(np.int64), values))
        self._categorical = np.concatenate([categorical, np.zeros(len(sources), dtype=bool)])

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


@dataclass(frozen=True, eq=False)
class PreparedFeatures:
    """Training rows and held-out rows after the transforms that were fitted on the former."""

    rows: PreparedRows
    held_out: PreparedRows | None
    transforms: tuple[FittedTransform, ...]

    @property
    def size(self) -> int:
        return int(self.rows.X.nbytes + (self.held_out.X.nbytes if self.held_out else 0))


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
        self, split: int, fraction: float, transforms: Mapping[str, Any], max_categories: int | None
    ) -> PreparedFeatures:
        key = json.dumps([split, fraction, list(transforms.items()), max_categories], default=str)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        found = self._prepare(split, fraction, transforms, max_categories)
        self._kept[key] = found
        while len(self._kept) > 1 and sum(kept.size for kept in self._kept.values()) > self._most_bytes:
            self._kept.popitem(last=False)
        return found

    def _prepare(
        self, split: int, fraction: float, transforms: Mapping[str, Any], max_categories: int | None
    ) -> PreparedFeatures:
        data = self._data
        chosen = np.arange(len(data.X)) if split == ALL_ROWS else data.splits[split].train
        chosen = subsample(chosen, data.y, fraction, self._seed)
        fitter = LocalTransformFitter(data.X[chosen], data.columns, self._some_missing)
        for name, settings in transforms.items():
            fitter.add(name, settings)
        fitter.finish(max_categories)
        fitted = tuple(fitter.transforms)
        rows = PreparedRows(fitter.X, self._target(chosen))
        if split == ALL_ROWS:
            return PreparedFeatures(rows, None, fitted)
        others = data.splits[split].validation
        return PreparedFeatures(
            rows, PreparedRows(apply_all(fitted, data.X[others]), self._target(others)), fitted
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
