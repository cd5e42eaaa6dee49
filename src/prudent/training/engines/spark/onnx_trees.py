"""Spark's trees, forests and boosted trees as one TreeEnsembleRegressor.

It sums, for each row, what the leaves say of each class (or the value); the rest is arithmetic. A split by a
set of categories has no counterpart there: its answer, 1 for left, becomes a column of its own beside the
features, and the node asks for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prudent.training.engines.onnx_export import FLOAT, GraphOutputs, OnnxGraph
from prudent.training.engines.spark.translation import (
    Categories,
    SparkTreeNode,
    asked_values,
    leaf_values,
    read_trees,
)


def tree_answer(model: Any, graph: OnnxGraph, rows: str, categories: Categories) -> GraphOutputs:
    """Add a model of trees to a graph; `categories` numbers the values of features that are categories."""
    name = type(model).__name__
    if name == "GBTClassificationModel":
        return _of_margin(graph, boosted_margin(model, graph, rows, categories))
    several = not name.startswith("DecisionTree")
    trees = read_trees(model, several)
    if name.endswith("ClassificationModel"):
        classes = int(model.numClasses)
        summed = _summed(graph, rows, trees, categories, classes)
        shares = graph.add("Div", graph.to_double(summed), graph.constant(float(len(trees))))
        return GraphOutputs(graph.argmax(summed), shares)
    weights = [float(weight) / _whole(model, name) for weight in _weights(model, name, len(trees))]
    return GraphOutputs(graph.flatten(_summed(graph, rows, trees, categories, 0, weights)), is_integer=False)


def boosted_margin(model: Any, graph: OnnxGraph, rows: str, categories: Categories) -> str:
    """(rows, 1): what boosted trees for two classes add up to; above 0 is the second class."""
    trees = read_trees(model, True)
    return _summed(graph, rows, trees, categories, 0, [float(weight) for weight in model.treeWeights])


def _of_margin(graph: OnnxGraph, margin: str) -> GraphOutputs:
    doubled = graph.add("Mul", graph.to_double(margin), graph.constant(2.0))
    second = graph.add("Sigmoid", doubled)
    first = graph.add("Sigmoid", graph.add("Neg", doubled))
    over = graph.add("Greater", graph.flatten(doubled), graph.constant(0.0))
    return GraphOutputs(over, graph.add("Concat", first, second, axis=1))


def _weights(model: Any, name: str, trees: int) -> Sequence[float]:
    return model.treeWeights if name == "GBTRegressionModel" else [1.0] * trees


def _whole(model: Any, name: str) -> float:
    """What a sum over trees is divided by: a forest averages, boosting does not."""
    return float(model.getNumTrees) if name == "RandomForestRegressionModel" else 1.0


@dataclass
class _Ensemble:
    """The attributes of the operator, filled in node by node."""

    width: int
    nodes: dict[str, list[Any]] = field(
        default_factory=lambda: {
            name: []
            for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
        }
    )
    targets: dict[str, list[Any]] = field(
        default_factory=lambda: {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    )
    sets: dict[tuple[int, tuple[float, ...], int], int] = field(default_factory=dict)
    """Splits by categories, each with the column that answers it."""

    def add(self, tree: int, node: SparkTreeNode, leaf: Sequence[float]) -> None:
        feature, value = 0, 0.0
        left, right = max(node.left, 0), max(node.right, 0)
        if not node.is_leaf and node.categories < 0:
            feature, value = node.feature, node.cut[0]
        elif not node.is_leaf:
            # The column is 1 for left, and the operator asks for "at most": the sides change places.
            key = (node.feature, node.cut, node.categories)
            feature, value = self.width + self.sets.setdefault(key, len(self.sets)), 0.5
            left, right = right, left
        mode = "LEAF" if node.is_leaf else "BRANCH_LEQ"
        facts = (tree, node.number, feature, mode, value, left, right)
        for name, fact in zip(self.nodes, facts, strict=True):
            self.nodes[name].append(fact)
        for number, weight in enumerate(leaf):
            for name, said in zip(self.targets, (tree, node.number, number, weight), strict=True):
                self.targets[name].append(said)


def _summed(
    graph: OnnxGraph,
    rows: str,
    trees: Sequence[Sequence[SparkTreeNode]],
    categories: Categories,
    classes: int,
    weights: Sequence[float] | None = None,
) -> str:
    """(rows, classes), or (rows, 1) where `classes` is 0: the leaves' values, weighted by tree."""
    from onnx import TensorProto, helper

    width = 1 + max((node.feature for tree in trees for node in tree), default=0)
    width = max(width, 1 + max(categories, default=-1))
    made = _Ensemble(width)
    for number, tree in enumerate(trees):
        for node in tree:
            made.add(
                number, node, leaf_values(node, classes, weights[number] if weights is not None else 1.0)
            )
    attributes: dict[str, Any] = {f"nodes_{name}": values for name, values in made.nodes.items()}
    attributes |= {f"target_{name}": values for name, values in made.targets.items()}
    for name in ("nodes_values", "target_weights"):
        values = attributes.pop(name)
        attributes[f"{name}_as_tensor"] = helper.make_tensor(name, TensorProto.DOUBLE, [len(values)], values)
    inputs = _with_sets(graph, graph.to_double(rows), made, categories)
    return graph.add("TreeEnsembleRegressor", inputs, n_targets=max(classes, 1), **attributes)


def _with_sets(graph: OnnxGraph, rows: str, made: _Ensemble, categories: Categories) -> str:
    """The features, and beside them a column for each split by categories: 1 where a row goes left."""
    if not made.sets:
        return rows
    first = graph.add(
        "Slice",
        rows,
        graph.constant([0], np.int64),
        graph.constant([made.width], np.int64),
        graph.constant([1], np.int64),
    )
    columns = [first, *(_goes_left(graph, rows, key, categories) for key in made.sets)]
    return graph.add("Concat", *columns, axis=1)


def _goes_left(
    graph: OnnxGraph, rows: str, key: tuple[int, tuple[float, ...], int], categories: Categories
) -> str:
    """(rows, 1)"""
    feature, left, number = key
    values, is_left = asked_values(feature, left, number, categories)
    chosen = graph.add("Gather", rows, graph.constant([feature], np.int64), axis=1)
    # As float32: what earlier steps of the graph computed was rounded to it.
    hits = graph.add("Equal", graph.cast(chosen, FLOAT), graph.constant([values], np.float32))
    hits = graph.to_double(hits)
    inside = graph.add("ReduceMax", hits, axes=[1], keepdims=1)
    return inside if is_left else graph.add("Sub", graph.constant(1.0), inside)
