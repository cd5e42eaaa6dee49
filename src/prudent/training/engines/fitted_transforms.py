"""Transforms that were fitted on training rows: missing values, categories, scaling, projection.

Every transform takes float32 and gives float32 (float64 where the data have more digits), and computes in
double between, here and in the exported graph: so the model meets the same numbers in both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.algorithms.registry import complete_transform
from prudent.training.data.dataset import Matrix
from prudent.training.engines.onnx_export import INT64, OnnxGraph
from prudent.training.engines.target_encoding import SMOOTHING

Numbers = NDArray[Any]
_CHUNK = 1 << 16  # rows taken to double precision at a time


class FittedTransform(Protocol):
    """One transformation, fitted already."""

    def apply(self, X: Matrix) -> Matrix: ...

    def graph(self, graph: OnnxGraph, rows: str) -> str:
        """Add it to a graph; `rows` names what it transforms."""

    def names(self, names: Sequence[str]) -> list[str]:
        """What the columns are called afterwards."""


@dataclass(frozen=True, eq=False)
class Impute:
    """A missing value becomes its column's fill."""

    fills: Numbers

    def apply(self, X: Matrix) -> Matrix:
        return np.where(np.isnan(X), self.fills.astype(X.dtype), X)

    def graph(self, graph: OnnxGraph, rows: str) -> str:
        return graph.add("Where", graph.add("IsNaN", rows), graph.narrow(self.fills), rows)

    def names(self, names: Sequence[str]) -> list[str]:
        return list(names)


@dataclass(frozen=True, eq=False)
class OneHot:
    """A column of categories becomes a column of 0 and 1 for each; one never seen, or missing, is all 0.

    `sources` and `values` have an entry for every new column; `kept` are the columns that stay.
    """

    kept: NDArray[np.int64]
    sources: NDArray[np.int64]
    values: Numbers

    def apply(self, X: Matrix) -> Matrix:
        out = np.empty((len(X), len(self.kept) + len(self.sources)), dtype=X.dtype)
        out[:, : len(self.kept)] = X[:, self.kept]
        np.equal(X[:, self.sources], self.values.astype(X.dtype), out=out[:, len(self.kept) :])
        return out

    def graph(self, graph: OnnxGraph, rows: str) -> str:
        chosen = graph.add("Gather", rows, graph.constant(self.sources, np.int64), axis=1)
        hits = graph.cast(graph.add("Equal", chosen, graph.narrow(self.values)), graph.kind)
        if not len(self.kept):
            return hits
        rest = graph.add("Gather", rows, graph.constant(self.kept, np.int64), axis=1)
        return graph.add("Concat", rest, hits, axis=1)

    def names(self, names: Sequence[str]) -> list[str]:
        new = [f"{names[s]}={value:g}" for s, value in zip(self.sources, self.values, strict=True)]
        return [*(names[column] for column in self.kept), *new]


@dataclass(frozen=True, eq=False)
class TargetEncode:
    """A column of categories becomes what the target is on average in each of them.

    For several classes these are the shares of each class, one column for each. `kept` are the columns that
    stay. `tables` has one of (categories + 1, outputs) for each of `sources`; its last row is for a missing
    category and one never seen.
    """

    kept: NDArray[np.int64]
    sources: NDArray[np.int64]
    tables: tuple[Numbers, ...]

    def apply(self, X: Matrix) -> Matrix:
        pairs = zip(self.sources, self.tables, strict=True)
        means = [table[category_rows(X[:, source], len(table) - 1)] for source, table in pairs]
        return np.concatenate([X[:, self.kept], *means], axis=1, dtype=X.dtype)

    def graph(self, graph: OnnxGraph, rows: str) -> str:
        parts = []
        if len(self.kept):
            parts.append(graph.add("Gather", rows, graph.constant(self.kept, np.int64), axis=1))
        for source, table in zip(self.sources, self.tables, strict=True):
            code = graph.to_double(graph.add("Gather", rows, graph.constant(source, np.int64), axis=1))
            last = graph.constant(float(len(table) - 1))
            below, above = graph.add("LessOrEqual", code, last), graph.add("Less", code, graph.constant(0.0))
            known = graph.add("And", below, graph.add("Not", above))  # a missing value is not below the last
            place = graph.cast(graph.add("Where", known, code, last), INT64)
            parts.append(graph.add("Gather", graph.narrow(table), place, axis=0))
        return graph.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]

    def names(self, names: Sequence[str]) -> list[str]:
        new = []
        for source, table in zip(self.sources, self.tables, strict=True):
            width = table.shape[1]
            new += [f"mean by {names[source]}" + (f" ({k + 1})" if width > 1 else "") for k in range(width)]
        return [*(names[column] for column in self.kept), *new]


def category_rows(codes: Numbers, categories: int) -> NDArray[np.int64]:
    """Which row of a category's table is meant; the last where the category is missing or out of range."""
    known = (codes >= 0) & (codes < categories)
    return np.where(known, codes, categories).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Affine:
    """Rows minus a shift, times a matrix, or a factor for each column where `weights` is a vector."""

    shift: Numbers
    weights: Numbers
    prefix: str = ""

    def apply(self, X: Matrix) -> Matrix:
        width = self.weights.shape[-1]
        out = np.empty((len(X), width), dtype=X.dtype)
        for start in range(0, len(X), _CHUNK):
            moved = X[start : start + _CHUNK] - self.shift
            out[start : start + _CHUNK] = moved @ self.weights if self._projects else moved * self.weights
        return out

    def graph(self, graph: OnnxGraph, rows: str) -> str:
        moved = graph.add("Sub", graph.to_double(rows), graph.constant(self.shift))
        weights = graph.constant(self.weights)
        return graph.cast(graph.add("MatMul" if self._projects else "Mul", moved, weights), graph.kind)

    def names(self, names: Sequence[str]) -> list[str]:
        if not self._projects:
            return list(names)
        return [f"{self.prefix}{number + 1}" for number in range(self.weights.shape[1])]

    @property
    def _projects(self) -> bool:
        return self.weights.ndim == 2


class TransformFitter(ABC):
    """Base of what fits transforms one after the other on training rows, each on what the last one gave."""

    def __init__(self) -> None:
        self.transforms: list[FittedTransform] = []

    def add(self, name: str, settings: Mapping[str, Any]) -> None:
        """Fit one transformation by its name and settings."""
        chosen = complete_transform(name, settings)
        if name == "impute":
            self.impute(chosen["strategy"])
        elif name == "target-encode":
            self.target_encode(chosen["smoothing"])
        elif name == "one-hot":
            self.one_hot(chosen["maxCategories"])
        elif name == "pca":
            self.pca(chosen["k"])
        elif chosen["method"] != "none":
            self.scale(chosen["method"])

    def standardise(self) -> None:
        """Fit the features in which all clusterings are compared, whatever else their trials made of them."""
        self.scale("standard")
        self.finish()

    @abstractmethod
    def finish(self) -> None:
        """Fit what no model can do without: values for missing ones, columns for categories."""

    @abstractmethod
    def impute(self, strategy: str = "mean") -> None:
        """Fill in missing values: mean, median, or most_frequent, as categories always are."""

    @abstractmethod
    def target_encode(self, smoothing: float = SMOOTHING) -> None:
        """The target's mean, or the classes' shares, in place of each category."""

    @abstractmethod
    def one_hot(self, most: int = 32) -> None:
        """Columns for the most frequent categories; a row of another one is 0 in all of them."""

    @abstractmethod
    def scale(self, method: str) -> None:
        """Bring columns to one scale, standard or minmax; category codes are names, not quantities."""

    @abstractmethod
    def pca(self, k: int) -> None:
        """Turn the columns into so many principal components."""


NO_TARGET = "target-encode needs a target, which a clustering has not; use one-hot."


def check_components(k: int, width: int) -> None:
    if k > width:
        raise BadInput(f"pca cannot give {k} of {width} columns; give k from 1 to their number.")


def apply_all(transforms: Sequence[FittedTransform], X: Matrix) -> Matrix:
    for transform in transforms:
        X = transform.apply(X)
    return X
