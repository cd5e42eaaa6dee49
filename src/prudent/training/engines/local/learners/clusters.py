"""Clusters: k-means with Spark's ways to begin, and mixtures of Gaussians."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.core.seeds import rng_for
from prudent.training.data.dataset import Matrix
from prudent.training.engines.fit_task import FitTask, LearningCurve
from prudent.training.engines.local.learners.scored_classes import ScoredClasses
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph

Vector = NDArray[np.float64]
_CHUNK = 1 << 14


@dataclass(frozen=True, eq=False)
class KMeansModel:
    """A row belongs to the nearest centre; with `cosine`, rows are compared by direction only."""

    centres: Vector
    cosine: bool = False
    importance: NDArray[np.float64] | None = None
    learning_curve: LearningCurve | None = None

    def predict(self, X: Matrix) -> NDArray[Any]:
        # |x - c|² without |x|², which is the same for every centre.
        rows = unit_rows(X) if self.cosine else X.astype(np.float64)
        return np.asarray((rows @ (-2.0 * self.centres.T) + self._squares).argmin(axis=1))

    def probabilities(self, X: Matrix) -> None:
        return None

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        rows = graph.to_double(rows)
        if self.cosine:
            length = graph.add("Sqrt", graph.add("ReduceSumSquare", rows, axes=[1], keepdims=1))
            rows = graph.add("Div", rows, graph.add("Max", length, graph.constant(1e-300)))
        away = graph.affine(rows, -2.0 * self.centres.T, self._squares)
        return GraphOutputs(graph.add("ArgMin", away, axis=1, keepdims=0))

    @property
    def _squares(self) -> Vector:
        return np.asarray(np.square(self.centres).sum(axis=1))


@dataclass(frozen=True, eq=False)
class GaussianMixtureModel(ScoredClasses):
    """Normal distributions that overlap: (k, features) means, (k, features, features) whitening matrices.

    `least_density` is added to each; in Spark's it makes a row that is far from all belong to none more.
    """

    means: Vector
    whitening: Vector
    offsets: Vector
    importance: NDArray[np.float64] | None = None
    learning_curve: LearningCurve | None = None
    least_density: float = 0.0

    def scores(self, X: Matrix) -> Vector:
        raw = np.empty((len(X), len(self.means)))
        for number, (mean, turn) in enumerate(zip(self.means, self.whitening, strict=True)):
            for start in range(0, len(X), _CHUNK):
                white = (X[start : start + _CHUNK] - mean) @ turn
                raw[start : start + _CHUNK, number] = -0.5 * np.einsum("ij,ij->i", white, white)
        raw += self.offsets
        return np.asarray(np.log(np.exp(raw) + self.least_density)) if self.least_density else raw

    def scores_graph(self, graph: OnnxGraph, rows: str) -> str:
        # (1, rows, features) @ (k, features, features), less the means turned likewise.
        wide = graph.add("Unsqueeze", graph.to_double(rows), graph.constant([0], np.int64))
        away = graph.add("Sub", wide, graph.constant(self.means[:, None, :]))
        white = graph.add("MatMul", away, graph.constant(self.whitening))
        squares = graph.add("Mul", white, white)
        squares = graph.add("ReduceSum", squares, graph.constant([2], np.int64), keepdims=0)
        halves = graph.add("Mul", graph.add("Transpose", squares, perm=[1, 0]), graph.constant(-0.5))
        raw = graph.add("Add", halves, graph.constant(self.offsets))
        if not self.least_density:
            return raw
        return graph.add("Log", graph.add("Add", graph.add("Exp", raw), graph.constant(self.least_density)))


def k_means(fit_task: FitTask, params: Mapping[str, Any]) -> KMeansModel:
    """Lloyd's algorithm from centres that are drawn at random or by k-means||."""
    from sklearn.cluster import KMeans

    cosine = params["distanceMeasure"] == "cosine"
    X = unit_rows(fit_task.rows.X).astype(np.float32) if cosine else fit_task.rows.X
    k = _checked_k(params["k"], X)
    rng = rng_for(fit_task.seed, "centres")
    if params["initMode"] == "random":
        begin = X[rng.choice(len(X), k, replace=False)].astype(np.float64)
    else:
        begin = _kmeans_parallel(X, k, params["initSteps"], rng)
    spread = float(X.var(axis=0, dtype=np.float64).mean())
    found = KMeans(
        k,
        init=begin,
        n_init=1,
        max_iter=max(params["maxIter"], 1),
        # scikit-learn's is a share of the variance, Spark's a distance: no centre moved further.
        tol=params["tol"] ** 2 / spread if spread > 0 else 0.0,
        random_state=fit_task.seed,
    ).fit(X.astype(np.float64))
    centres = np.asarray(found.cluster_centers_)
    if cosine:
        centres = unit_rows(centres)
    return KMeansModel(centres, cosine, _separation(centres, X))


def gaussian_mixture(fit_task: FitTask, params: Mapping[str, Any]) -> GaussianMixtureModel:
    """Expectation and maximisation from means at random rows."""
    from sklearn.mixture import GaussianMixture

    X = fit_task.rows.X.astype(np.float64)
    k = _checked_k(params["k"], X)
    found = GaussianMixture(
        k,
        tol=params["tol"] / len(X),  # Spark's is of the likelihood of all rows, scikit-learn's of their mean
        max_iter=max(params["maxIter"], 1),
        init_params="k-means++",
        random_state=fit_task.seed,
    ).fit(X)
    whitening = np.asarray(found.precisions_cholesky_)
    width = X.shape[1]
    halves = np.log(np.diagonal(whitening, axis1=1, axis2=2)).sum(axis=1)
    offsets = np.log(found.weights_) + halves - 0.5 * width * np.log(2 * np.pi)
    means = np.asarray(found.means_)
    return GaussianMixtureModel(means, whitening, offsets, _separation(means, X))


def unit_rows(X: NDArray[Any]) -> Vector:
    """Rows of length 1; a row of nothing stays where it is."""
    rows = X.astype(np.float64)
    length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return np.asarray(rows / np.maximum(length, 1e-300)[:, None])


def _kmeans_parallel(X: Matrix, k: int, steps: int, rng: np.random.Generator) -> Vector:
    """k-means||: in each step many far rows at once become candidates; the best k of these are kept.

    Bahmani et al., Scalable k-means++, 2012, with 2k candidates a step on average, as in Spark.
    """
    from sklearn.cluster import KMeans

    rows = X.astype(np.float64)
    candidates = rows[rng.integers(len(rows), size=1)]
    away = _squared(rows, candidates)
    for _ in range(steps):
        total = away.sum()
        if total <= 0:
            break
        new = rows[rng.random(len(rows)) < 2.0 * k * away / total]
        if len(new):
            candidates = np.concatenate([candidates, new])
            away = np.minimum(away, _squared(rows, new))
    candidates = np.unique(candidates, axis=0)
    if len(candidates) <= k:
        others = rows[rng.choice(len(rows), k, replace=False)]
        return np.concatenate([candidates, others])[:k]
    nearest = np.concatenate(
        [
            ((candidates**2).sum(axis=1) - 2 * rows[start : start + _CHUNK] @ candidates.T).argmin(axis=1)
            for start in range(0, len(rows), _CHUNK)
        ]
    )
    weights = np.bincount(nearest, minlength=len(candidates)).astype(np.float64)
    number = int(rng.integers(2**31 - 1))
    refined = KMeans(k, n_init=1, random_state=number).fit(candidates, sample_weight=weights)
    return np.asarray(refined.cluster_centers_)


def _squared(rows: Vector, centres: Vector) -> Vector:
    """Squared distance to the nearest of some centres."""
    nearest = np.full(len(rows), np.inf)
    for centre in centres:
        moved = rows - centre
        np.minimum(nearest, np.einsum("ij,ij->i", moved, moved), out=nearest)
    return nearest


def _checked_k(k: int, X: NDArray[Any]) -> int:
    if k > len(X):
        raise BadInput(f"{len(X)} rows cannot be divided into {k} clusters; set a smaller k.")
    return k


def _separation(centres: Vector, X: NDArray[Any]) -> Vector:
    """How far each feature sets the clusters apart, beside how far it sets rows apart."""
    spread = X.std(axis=0, dtype=np.float64)
    return np.asarray(centres.std(axis=0) / np.where(spread > 0, spread, 1.0))
