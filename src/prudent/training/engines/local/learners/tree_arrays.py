"""Trees as arrays, ensembles of them, and their ONNX form: all trees in one node of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import Matrix
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph

LEAF = -1
ValueSet = tuple[tuple[float, ...], bool]
"""The values that a split by a set asks for, and whether they lead left."""


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree as arrays over its nodes, the root first.

    A row goes left where its feature is at most the threshold, or, for a node in `sets`, as that set says;
    `left` and `right` are LEAF in leaves. `values` (nodes, outputs) is what a leaf says. A missing value goes
    left where `missing_left` says so, and right elsewhere; without it none is expected.
    """

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    values: NDArray[np.float64]
    sets: Mapping[int, ValueSet] = field(default_factory=dict)
    missing_left: NDArray[np.bool_] | None = None

    def answers(self, X: Matrix) -> NDArray[np.float64]:
        """(rows, outputs): what the tree says to each row that has all values; it has no `sets`."""
        node = np.zeros(len(X), dtype=np.int64)
        while len(rows := np.flatnonzero(self.left[node] != LEAF)):
            at = node[rows]
            is_left = X[rows, self.feature[at]] <= self.threshold[at]
            node[rows] = np.where(is_left, self.left[at], self.right[at])
        return self.values[node]


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
    grown = [_without_sets(tree) for tree in trees]
    sizes = [len(nodes.left) for nodes in grown]
    number = np.repeat(np.arange(len(grown)), sizes)
    node = np.concatenate([np.arange(size) for size in sizes])
    left, right = _joined(grown, "left"), _joined(grown, "right")
    is_leaf = left == LEAF
    values = np.concatenate([tree.values for tree in trees])
    width = values.shape[1]
    # Nodes that stand for a set come after those of the tree, which keep their numbers.
    leaf_rows = np.concatenate([tree.left == LEAF for tree in trees])
    leaves = np.flatnonzero(is_leaf)
    every = np.tile(np.arange(width), len(leaves))
    attributes: dict[str, Any] = {
        "n_targets": count or width,
        "aggregate_function": "SUM",
        "nodes_treeids": number,
        "nodes_nodeids": node,
        "nodes_featureids": np.where(is_leaf, 0, _joined(grown, "feature")),
        "nodes_values_as_tensor": np.where(is_leaf, 0.0, _joined(grown, "threshold")),
        "nodes_modes": np.where(
            is_leaf, b"LEAF", np.where(_joined(grown, "asks_equal"), b"BRANCH_EQ", b"BRANCH_LEQ")
        ),
        "nodes_truenodeids": np.where(is_leaf, 0, left),
        "nodes_falsenodeids": np.where(is_leaf, 0, right),
        "target_treeids": np.repeat(number[leaves], width),
        "target_nodeids": np.repeat(node[leaves], width),
        "target_ids": np.asarray(outputs)[number[leaves]] if outputs else every,
        "target_weights_as_tensor": values[leaf_rows].ravel(),
    }
    missing = _joined(grown, "missing_true")
    if missing.any():
        attributes["nodes_missing_value_tracks_true"] = missing.astype(np.int64)
    return graph.add("TreeEnsembleRegressor", graph.to_double(rows), **attributes)


@dataclass(frozen=True, eq=False)
class _OperatorNodes:
    """A tree's nodes as the operator knows them: at most a threshold, or equal to it, leads left."""

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    asks_equal: NDArray[np.bool_]
    missing_true: NDArray[np.bool_]


def _joined(trees: Sequence[_OperatorNodes], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(tree, name) for tree in trees])


def _without_sets(tree: Tree) -> _OperatorNodes:
    """A split by a set, which the operator does not know, as a chain of questions for each of its values.

    Whichever of them is answered with yes leads to the same child.
    """
    size = len(tree.left)
    missing = np.zeros(size, dtype=bool) if tree.missing_left is None else tree.missing_left
    chains = sum(max(len(values) - 1, 0) for values, _ in tree.sets.values())
    grown = _OperatorNodes(
        np.concatenate([tree.feature, np.zeros(chains, dtype=np.int64)]),
        np.concatenate([tree.threshold, np.zeros(chains)]),
        np.concatenate([tree.left, np.zeros(chains, dtype=np.int64)]),
        np.concatenate([tree.right, np.zeros(chains, dtype=np.int64)]),
        np.zeros(size + chains, dtype=bool),
        np.concatenate([missing, np.zeros(chains, dtype=bool)]),
    )
    following = size
    for at, (values, leads_left) in tree.sets.items():
        inside, outside = tree.left[at], tree.right[at]
        if not leads_left:
            inside, outside = outside, inside
        places = [at, *range(following, following + len(values) - 1)]
        following += len(values) - 1
        grown.feature[places], grown.threshold[places] = tree.feature[at], values
        grown.left[places], grown.right[places] = inside, [*places[1:], outside]
        grown.asks_equal[places] = True
        grown.missing_true[at] = missing[at] == leads_left if tree.missing_left is not None else False
    return grown
