"""Trees as ONNX: all of them in one node of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.onnx_export import OnnxGraph

LEAF = -1


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree as arrays over its nodes, the root first.

    A row goes left where its feature is at most the threshold; `left` and `right` are LEAF in leaves.
    `values` (nodes, outputs) is what a leaf adds to the sum over all trees.
    """

    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    values: NDArray[np.float64]


def rounded_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest float32 that is not above: it parts float32 features exactly as the double did."""
    near = thresholds.astype(np.float32)
    return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near)


def sum_of_trees(graph: OnnxGraph, rows: str, trees: Sequence[Tree], base: Sequence[float] = ()) -> str:
    """The sum of all trees' answers and `base` (outputs), as a matrix (rows, outputs)."""
    sizes = [len(tree.left) for tree in trees]
    number = np.repeat(np.arange(len(trees)), sizes)
    node = np.concatenate([np.arange(size) for size in sizes])
    left, right = _joined(trees, "left"), _joined(trees, "right")
    is_leaf = left == LEAF
    values = np.concatenate([tree.values for tree in trees])
    outputs = values.shape[1]
    leaves = np.flatnonzero(is_leaf)
    attributes: dict[str, Any] = {
        "n_targets": outputs,
        "aggregate_function": "SUM",
        "nodes_treeids": number,
        "nodes_nodeids": node,
        "nodes_featureids": np.where(is_leaf, 0, _joined(trees, "feature")),
        "nodes_values": np.where(is_leaf, 0.0, rounded_down(_joined(trees, "threshold"))),
        "nodes_modes": np.where(is_leaf, b"LEAF", b"BRANCH_LEQ"),
        "nodes_truenodeids": np.where(is_leaf, 0, left),
        "nodes_falsenodeids": np.where(is_leaf, 0, right),
        "target_treeids": np.repeat(number[leaves], outputs),
        "target_nodeids": np.repeat(node[leaves], outputs),
        "target_ids": np.tile(np.arange(outputs), len(leaves)),
        "target_weights": values[leaves].ravel(),
    }
    if len(base):
        attributes["base_values"] = [float(value) for value in base]
    return graph.add("TreeEnsembleRegressor", rows, **attributes)


def _joined(trees: Sequence[Tree], name: str) -> NDArray[Any]:
    return np.concatenate([getattr(tree, name) for tree in trees])
