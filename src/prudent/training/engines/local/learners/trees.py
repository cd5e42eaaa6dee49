"""Decision trees and random forests, grown by scikit-learn with Spark's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.seeds import rng_for
from prudent.training.algorithms.algorithm import CLASSIFICATION
from prudent.training.data.dataset import Matrix
from prudent.training.engines.fit_task import FitTask, LearningCurve
from prudent.training.engines.local.learners.tree_arrays import LEAF, AveragedTrees, Tree
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """Trees whose answers are averaged: shares of classes, or values.

    `present` are the classes that the training rows had, None where values are predicted.
    """

    sklearn_trees: tuple[Any, ...]
    present: NDArray[np.int64] | None
    classes: int
    importance: NDArray[np.float64] | None
    learning_curve: LearningCurve | None = None

    def predict(self, X: Matrix) -> NDArray[Any]:
        means = self._means(X)
        return means[:, 0] if self.present is None else np.asarray(means.argmax(axis=1))

    def probabilities(self, X: Matrix) -> NDArray[np.float64] | None:
        return None if self.present is None else self._means(X)

    @property
    def exported(self) -> AveragedTrees:
        """The trees with what each says by itself: a value, or shares of all classes."""
        trees = [_as_tree(one, self._for_all_classes(one.value[:, 0, :])) for one in self.sklearn_trees]
        return AveragedTrees(trees, self.present is not None)

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        return self.exported.graph(graph, rows)

    def _means(self, X: Matrix) -> NDArray[np.float64]:
        if X.dtype == np.float64:  # scikit-learn's trees would round it
            trees = self.exported.trees
            return np.asarray(sum(tree.answers(X) for tree in trees) / len(trees))
        total = sum(one.predict(X).reshape(len(X), -1) for one in self.sklearn_trees)
        return self._for_all_classes(np.asarray(total) / len(self.sklearn_trees))

    def _for_all_classes(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Columns for all classes from those of the classes that were present."""
        if self.present is None or len(self.present) == self.classes:
            return values
        out = np.zeros((len(values), self.classes))
        out[:, self.present] = values
        return out


def decision_tree(fit_task: FitTask, params: Mapping[str, Any]) -> TreeEnsemble:
    """One decision tree."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    classifies = fit_task.scorer.task == CLASSIFICATION
    grown = (DecisionTreeClassifier if classifies else DecisionTreeRegressor)(
        **_settings(params, classifies, len(fit_task.rows.X)), random_state=fit_task.seed
    )
    return _fit(grown, fit_task, params)


def random_forest(fit_task: FitTask, params: Mapping[str, Any]) -> TreeEnsemble:
    """A random forest: each tree sees some rows, each split some features."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    classifies = fit_task.scorer.task == CLASSIFICATION
    rows, features = fit_task.rows.X.shape
    trees = params["numTrees"]
    settings = {
        **_settings(params, classifies, rows),
        "n_estimators": trees,
        "max_features": features_tried(params["featureSubsetStrategy"], features, classifies, trees),
        # Spark draws rows for a single tree only when it is told to take fewer than all.
        "bootstrap": params["bootstrap"] and (trees > 1 or params["subsamplingRate"] < 1),
        "n_jobs": fit_task.threads,
    }
    if settings["bootstrap"]:
        settings["max_samples"] = max(1, round(params["subsamplingRate"] * rows))
    grown = (RandomForestClassifier if classifies else RandomForestRegressor)(
        **settings, random_state=fit_task.seed
    )
    return _fit(grown, fit_task, params)


def features_tried(strategy: str | float, features: int, classifies: bool, trees: int) -> int:
    """How many features a split looks at.

    >>> [features_tried(word, 100, True, 20) for word in ("auto", "onethird", "log2", "all", 0.2, 7.0)]
    [10, 34, 7, 100, 20, 7]
    """
    if strategy == "auto":
        strategy = "all" if trees == 1 else "sqrt" if classifies else "onethird"
    counts = {
        "all": features,
        "sqrt": np.sqrt(features),
        "log2": np.log2(features),
        "onethird": features / 3.0,
    }
    if isinstance(strategy, str):
        found = float(counts[strategy])
    elif strategy == 1 or strategy > 1:  # a number of features; below 1 it is a share of them
        found = float(strategy)
    else:
        found = strategy * features
    return int(min(max(np.ceil(found), 1), features))


def _settings(params: Mapping[str, Any], classifies: bool, rows: int) -> dict[str, Any]:
    depth = params["maxDepth"]
    least = max(params["minInstancesPerNode"], int(np.ceil(params["minWeightFractionPerNode"] * rows)))
    return {
        "criterion": params["impurity"] if classifies else "squared_error",
        "max_depth": max(depth, 1),
        "min_samples_leaf": least,
        "min_samples_split": max(2, 2 * least) if depth > 0 else rows + 1,
    }


def _fit(estimator: Any, fit_task: FitTask, params: Mapping[str, Any]) -> TreeEnsemble:
    """Fit on numbers of bins, then let the trees ask for values again."""
    X = fit_task.rows.X
    bins = FeatureBins.of(X, params["maxBins"], rng_for(fit_task.seed, "bins"))
    classifies = fit_task.scorer.task == CLASSIFICATION
    y = fit_task.rows.target
    estimator.fit(bins.numbers(X), y if classifies else y.astype(np.float64))
    grown = tuple(one.tree_ for one in getattr(estimator, "estimators_", [estimator]))
    importance = np.asarray(estimator.feature_importances_)
    for one in grown:
        _prune(one, params["minInfoGain"])
        _thresholds_to_values(one, bins)
    present = np.asarray(estimator.classes_, dtype=np.int64) if classifies else None
    return TreeEnsemble(grown, present, fit_task.classes, importance)


def _prune(grown: Any, least_gain: float) -> None:
    """Make leaves of the nodes whose split gains too little.

    scikit-learn weighs a gain by the node's share of all rows; Spark does not. Nodes are split independently
    of each other, so that taking splits back gives the tree that would have grown without them.
    """
    if least_gain <= 0:
        return
    weight, impurity = grown.weighted_n_node_samples, grown.impurity
    inner = np.flatnonzero(grown.children_left != LEAF)
    left, right = grown.children_left[inner], grown.children_right[inner]
    after = weight[left] * impurity[left] + weight[right] * impurity[right]
    taken_back = inner[impurity[inner] - after / weight[inner] < least_gain]
    grown.children_left[taken_back] = LEAF
    grown.children_right[taken_back] = LEAF


def _thresholds_to_values(grown: Any, bins: FeatureBins) -> None:
    """Let a tree that was grown on numbers of bins ask for values, where it is, without a copy."""
    for node in np.flatnonzero(grown.children_left != LEAF):
        grown.threshold[node] = bins.threshold(grown.feature[node], grown.threshold[node])


def _as_tree(grown: Any, values: NDArray[np.float64]) -> Tree:
    """Only what is reached from the root: leaves that were inner nodes have left their children behind."""
    left, right = np.array(grown.children_left), np.array(grown.children_right)
    reached = np.zeros(len(left), dtype=bool)
    reached[0] = True
    for node in range(len(left)):  # a child comes after its parent
        if reached[node] and left[node] != LEAF:
            reached[left[node]] = reached[right[node]] = True
    number = np.cumsum(reached) - 1
    left, right = left[reached], right[reached]
    return Tree(
        feature=np.asarray(grown.feature)[reached],
        threshold=np.asarray(grown.threshold)[reached],
        left=np.where(left == LEAF, LEAF, number[left]),
        right=np.where(right == LEAF, LEAF, number[right]),
        values=values[reached],
    )


_SAMPLE = 10_000  # rows, as in Spark, or the square of the number of bins


@dataclass(frozen=True, eq=False)
class FeatureBins:
    """For each feature the values between which its bins lie; bin b holds what is at most `edges[b]`."""

    edges: tuple[NDArray[np.float64], ...]

    @classmethod
    def of(cls, X: Matrix, most: int, rng: np.random.Generator) -> FeatureBins:
        """Quantiles of a sample; midpoints between neighbours where a feature has few values."""
        wanted = max(most * most, _SAMPLE)
        if len(X) > wanted:
            X = X[np.sort(rng.choice(len(X), wanted, replace=False))]
        return cls(tuple(_edges(column, most) for column in np.asarray(X.T, dtype=np.float64)))

    def numbers(self, X: Matrix) -> Matrix:
        """The number of each value's bin."""
        out = np.empty(X.shape, dtype=np.float32)
        for column, edges in enumerate(self.edges):
            out[:, column] = np.searchsorted(edges, X[:, column], side="left")
        return out

    def threshold(self, feature: int, number: float) -> float:
        """The value that parts the bins below `number` from those above."""
        return float(self.edges[feature][int(np.floor(number))])


def _edges(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    found, counts = np.unique(values, return_counts=True)
    between = (found[1:] + found[:-1]) / 2
    if len(found) <= most:
        return np.asarray(between)
    # As many rows in each bin as equal shares allow.
    share = len(values) / most
    reached = np.cumsum(counts)[:-1]
    places = np.unique(np.searchsorted(reached, share * np.arange(1, most), side="left"))
    return np.asarray(between[places[places < len(between)]])
