"""Trees as arrays, ensembles of them, and their ONNX form: all trees in one node of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.onnx_export import FLOAT, GraphOutputs, OnnxGraph

LEAF = -1
ValueSet = tuple[tuple[float, ...], bool]
"""The values that a split by a set asks for, and whether they lead left."""


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree as arrays over its nodes, the root first.

    A row goes left where its feature is at most the threshold, or, for a node in `sets`, as that set says;
    `left` and `right` are LEAF in leaves. `values` (nodes, outputs) is what a leaf says.
    """

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    values: NDArray[np.float64]
    sets: Mapping[int, ValueSet] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class AveragedTrees:
    """Trees whose outputs are averaged: shares of classes, or values."""

    trees: Sequence[Tree]
    classifies: bool

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        total = graph.to_double(sum_of_trees(graph, rows, self.trees))
        means = graph.add("Div", total, graph.constant(float(len(self.trees))))
        if not self.classifies:
            return GraphOutputs(graph.flatten(means), is_integer=False)
        return GraphOutputs(graph.argmax(total), means)


@dataclass(frozen=True, eq=False)
class SummedTrees:
    """A sum of trees for each output, beginning at `base`; `trees` are with the number of their output.

    The outputs are a value, the log-odds of the second of two classes, or a score for each class.
    """

    trees: Sequence[tuple[int, Tree]]
    base: NDArray[np.float64]
    classifies: bool
    probable: bool = True
    """Whether the softmax of the sums is a probability."""

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        outputs, trees = zip(*(self.trees or [(0, flat_tree())]), strict=True)
        total = graph.to_double(sum_of_trees(graph, rows, trees, outputs, len(self.base)))
        # Not as the operator's own: an output that no tree adds to would be without it.
        raw = graph.add("Add", total, graph.constant(self.base))
        if not self.classifies:
            return GraphOutputs(graph.flatten(raw), is_integer=False)
        if len(self.base) == 1:
            return graph.second_class(raw)
        return graph.highest_class(raw, self.probable)


def flat_tree() -> Tree:
    """A tree of one leaf that says nothing: both forms of export want at least one tree."""
    leaf, zero = np.full(1, LEAF), np.zeros(1, dtype=np.int64)
    return Tree(zero, np.zeros(1), leaf, leaf, np.zeros((1, 1)))


def rounded_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 that is not above: it parts float32 features exactly as the double did."""
    near = thresholds.astype(np.float32)
    return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near)


def sum_of_trees(
    graph: OnnxGraph, rows: str, trees: Sequence[Tree], outputs: Sequence[int] = (), count: int = 0
) -> str:
    """The sum of all trees' answers, as a matrix (rows, outputs).

    Each tree answers for all outputs, or for the one of `count` whose number `outputs` has for it. It is
    added up in double precision, as the models do, and rounded to single precision at the end.
    """
    rows, trees = _without_sets(graph, rows, trees)
    sizes = [len(tree.left) for tree in trees]
    number = np.repeat(np.arange(len(trees)), sizes)
    node = np.concatenate([np.arange(size) for size in sizes])
    left, right = _joined(trees, "left"), _joined(trees, "right")
    is_leaf = left == LEAF
    values = np.concatenate([tree.values for tree in trees])
    width = values.shape[1]
    leaves = np.flatnonzero(is_leaf)
    every = np.tile(np.arange(width), len(leaves))
    attributes: dict[str, Any] = {
        "n_targets": count or width,
        "aggregate_function": "SUM",
        "nodes_treeids": number,
        "nodes_nodeids": node,
        "nodes_featureids": np.where(is_leaf, 0, _joined(trees, "feature")),
        "nodes_values_as_tensor": np.where(is_leaf, 0.0, _joined(trees, "threshold")),
        "nodes_modes": np.where(is_leaf, b"LEAF", b"BRANCH_LEQ"),
        "nodes_truenodeids": np.where(is_leaf, 0, left),
        "nodes_falsenodeids": np.where(is_leaf, 0, right),
        "target_treeids": np.repeat(number[leaves], width),
        "target_nodeids": np.repeat(node[leaves], width),
        "target_ids": np.asarray(outputs)[number[leaves]] if outputs else every,
        "target_weights_as_tensor": values[leaves].ravel(),
    }
    return graph.add("TreeEnsembleRegressor", graph.to_double(rows), **attributes)


def _joined(trees: Sequence[Tree], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(tree, name) for tree in trees])


def _without_sets(graph: OnnxGraph, rows: str, trees: Sequence[Tree]) -> tuple[str, Sequence[Tree]]:
    """Rows and trees in which a split by a set, which the operator does not know, is one by a threshold.

    Each set becomes a column: 1 where the feature's value is in it. They are put before the features,
    however many there are of those.
    """
    columns: dict[tuple[int, tuple[float, ...]], int] = {}
    for tree in trees:
        for node, (values, _) in tree.sets.items():
            columns.setdefault((int(tree.feature[node]), values), len(columns))
    if not columns:
        return rows, trees
    hits = [_is_in(graph, rows, feature, values) for feature, values in columns]
    return graph.add("Concat", *hits, rows, axis=1), [_by_columns(tree, columns) for tree in trees]


def _is_in(graph: OnnxGraph, rows: str, feature: int, values: Sequence[float]) -> str:
    """(rows, 1)"""
    chosen = graph.add("Gather", rows, graph.constant([feature], np.int64), axis=1)
    hits = graph.cast(graph.add("Equal", chosen, graph.constant([values], np.float32)), FLOAT)
    return graph.add("ReduceMax", hits, axes=[1], keepdims=1)


def _by_columns(tree: Tree, columns: Mapping[tuple[int, tuple[float, ...]], int]) -> Tree:
    feature, threshold = tree.feature + len(columns), tree.threshold.copy()
    left, right = tree.left.copy(), tree.right.copy()
    for node, (values, leads_left) in tree.sets.items():
        feature[node], threshold[node] = columns[int(tree.feature[node]), values], 0.5
        if leads_left:  # "at most 0.5" leads those left that are not in the set
            left[node], right[node] = right[node], left[node]
    return replace(tree, feature=feature, threshold=threshold, left=left, right=right, sets={})
