"""Spark's models as those of the local engine, from their coefficients and trees: what is exported.

Asking Spark for a forest node by node takes a call each; its own writer for the driver's disk gives them in
one file, at once and without a job on the cluster (so also where the cluster shares no disk with us).
"""

from __future__ import annotations

import itertools
import json
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import RunFailed
from prudent.training.engines.fit_task import FittedModel
from prudent.training.engines.local.learners.clusters import GaussianMixtureModel, KMeansModel, unit_rows
from prudent.training.engines.local.learners.generalized import GeneralizedLinearModel, family_of, link_of
from prudent.training.engines.local.learners.linear import (
    BinaryLinearClassifier,
    LinearRegressor,
    OneVsRest,
    SoftmaxClassifier,
)
from prudent.training.engines.local.learners.naive_bayes import GaussianNaiveBayes
from prudent.training.engines.local.learners.perceptron import MultilayerPerceptron
from prudent.training.engines.local.learners.solver import LinearFunction
from prudent.training.engines.local.learners.tree_arrays import LEAF, AveragedTrees, SummedTrees, Tree
from prudent.training.engines.local.learners.xgboost_trees import exported_trees
from prudent.training.engines.spark.boosting import BOOSTED

Vector = NDArray[np.float64]
_EPSILON = 2.220446049250313e-16  # Spark's own, which it adds to densities
Categories = Mapping[int, Mapping[float, int]]


def as_local_model(
    model: Any, categories: Categories, wide: bool = False
) -> FittedModel | AveragedTrees | SummedTrees:
    """The model of the local engine, or its trees, that answers as Spark's does.

    `categories` numbers the values of features that are categories, as Spark's trees ask for them. `wide`
    features have more digits than XGBoost looks at.
    """
    name = type(model).__name__
    if name == "OneVsRestModel":
        return _one_vs_rest(model.models)
    if name.startswith(("DecisionTree", "RandomForest")):
        return _averaged_trees(model, name, categories)
    if name in BOOSTED:
        return _boosted_trees(model, categories, wide)
    if name not in _FORMS:
        raise RunFailed(f"There is no ONNX form of {name}; export the model in Spark's own format.")
    return _FORMS[name](model)


# Linear models


def _linear_function(model: Any) -> LinearFunction:
    return LinearFunction(model.coefficients.toArray().reshape(-1, 1), np.array([float(model.intercept)]))


def _generalized(model: Any) -> GeneralizedLinearModel:
    family = str(model.getFamily()).lower()
    power = float(model.getVariancePower()) if family == "tweedie" else 0.0
    raised = float(model.getLinkPower()) if model.isDefined("linkPower") else None
    link = str(model.getLink()).lower() if model.isDefined("link") else None
    found = link_of(family, link, power, raised)
    if family == "tweedie" and found.name.startswith("power"):
        # A power of a negative number stays what it is; the local engine takes the least mean instead.
        exponent = 1.0 / (1.0 - power if raised is None else raised)
        found = replace(found, graph=lambda graph, raw: graph.add("Pow", raw, graph.constant(exponent)))
    return GeneralizedLinearModel(_linear_function(model), found, family_of(family, power))


def _logistic(model: Any) -> BinaryLinearClassifier | SoftmaxClassifier:
    linear = LinearFunction(model.coefficientMatrix.toArray().T, model.interceptVector.toArray())
    if linear.weights.shape[1] > 1:
        return SoftmaxClassifier(linear)
    share = float(model.getThreshold())
    with np.errstate(divide="ignore"):
        return BinaryLinearClassifier(
            linear, threshold=float(np.log(share) - np.log1p(-share)), probable=True
        )


def _bayes(model: Any) -> SoftmaxClassifier | GaussianNaiveBayes:
    kind, theta, prior = model.getModelType(), model.theta.toArray(), model.pi.toArray()
    if kind == "gaussian":
        return GaussianNaiveBayes(theta, model.sigma.toArray(), prior)
    if kind == "bernoulli":
        never = np.log1p(-np.exp(theta))
        return SoftmaxClassifier(LinearFunction((theta - never).T, prior + never.sum(axis=1)))
    return SoftmaxClassifier(LinearFunction(theta.T, np.zeros(len(theta)) if kind == "complement" else prior))


def _one_vs_rest(models: Sequence[Any]) -> OneVsRest:
    """A model for each class, which tells it from all others."""
    functions = [_linear_function(each) for each in models]
    weights = np.concatenate([linear.weights for linear in functions], axis=1)
    return OneVsRest(LinearFunction(weights, np.concatenate([linear.intercepts for linear in functions])))


def _network(model: Any) -> MultilayerPerceptron:
    layers, numbers, at = list(model.getLayers()), model.weights.toArray(), 0
    functions = []
    for width, following in itertools.pairwise(layers):
        weights = numbers[at : at + width * following].reshape(width, following)
        at += width * following
        functions.append(LinearFunction(weights, numbers[at : at + following]))
        at += following
    return MultilayerPerceptron(tuple(functions))


# Clusters


def _k_means(model: Any) -> KMeansModel:
    centres, cosine = np.array(model.clusterCenters()), model.getDistanceMeasure() == "cosine"
    return KMeansModel(unit_rows(centres) if cosine else centres, cosine)


def _mixture(model: Any) -> GaussianMixtureModel:
    roots, constants = zip(*(root_of_inverse(each.cov.toArray()) for each in model.gaussians), strict=True)
    means = np.stack([each.mean.toArray() for each in model.gaussians])
    offsets = np.log(np.array(model.weights)) + np.array(constants)
    return GaussianMixtureModel(means, np.stack(roots), offsets, least_density=_EPSILON)


# Trees


def _averaged_trees(model: Any, name: str, categories: Categories) -> AveragedTrees:
    classifies = name.endswith("ClassificationModel")
    classes = int(model.numClasses) if classifies else 0
    trees = read_trees(model, not name.startswith("DecisionTree"))
    return AveragedTrees([_tree(nodes, classes, categories) for nodes in trees], classifies)


def _boosted_trees(model: Any, categories: Categories, wide: bool) -> SummedTrees:
    """The trees of XGBoost; what it asks of a category is the number that Spark gave it."""
    booster = model.get_booster()
    said = json.loads(booster.save_raw("json"))["learner"]
    classifies = type(model).__name__ == "SparkXGBClassifierModel"
    begin = float(said["learner_model_param"]["base_score"].strip("[]").split(",")[0])
    outputs = max(int(said["learner_model_param"]["num_class"]), 1)
    # Of two classes, a half has no odds.
    base = np.full(outputs, 0.0 if classifies and outputs == 1 else begin)
    # Features are centred before they come here: what is left is that they are rounded.
    shift = np.zeros(booster.num_features()) if wide else None
    found = exported_trees(booster, base, np.arange(outputs), classifies, shift)
    return replace(found, trees=[(output, _with_values(tree, categories)) for output, tree in found.trees])


def _with_values(tree: Tree, categories: Categories) -> Tree:
    """A tree whose questions about categories are about their values, not about the numbers of those."""
    sets = {}
    for node, (codes, leads_left) in tree.sets.items():
        numbers = categories.get(int(tree.feature[node]))
        values = {float(code): value for value, code in numbers.items()} if numbers else {}
        sets[node] = tuple(values.get(code, code) for code in codes), leads_left
    return replace(tree, sets=sets)


def _tree(nodes: Sequence[SparkTreeNode], classes: int, categories: Categories) -> Tree:
    width = max(classes, 1)
    sets = {
        node.number: asked_values(node.feature, node.cut, node.categories, categories)
        for node in nodes
        if not node.is_leaf and node.categories >= 0
    }
    cuts = [node.cut[0] if not node.is_leaf and node.categories < 0 else 0.0 for node in nodes]
    return Tree(
        feature=np.array([max(node.feature, 0) for node in nodes], dtype=np.int64),
        threshold=np.array(cuts, dtype=np.float64),
        left=_children([node.left for node in nodes]),
        right=_children([node.right for node in nodes]),
        values=np.array([leaf_values(node, classes) or [0.0] * width for node in nodes]),
        sets=sets,
    )


def _children(numbers: Sequence[int]) -> NDArray[np.int64]:
    return np.array([LEAF if number < 0 else number for number in numbers], dtype=np.int64)


_FORMS: dict[str, Callable[[Any], FittedModel]] = {
    "LinearRegressionModel": lambda model: LinearRegressor(_linear_function(model)),
    "GeneralizedLinearRegressionModel": _generalized,
    "LinearSVCModel": lambda model: BinaryLinearClassifier(
        _linear_function(model), threshold=float(model.getThreshold())
    ),
    "LogisticRegressionModel": _logistic,
    "NaiveBayesModel": _bayes,
    "KMeansModel": _k_means,
    "GaussianMixtureModel": _mixture,
    "MultilayerPerceptronClassificationModel": _network,
}


@dataclass(frozen=True)
class SparkTreeNode:
    """A node as Spark stores it: `left` is -1 for a leaf; `counts` are what `prediction` was computed from.

    A split asks whether the feature is at most `cut[0]`, or, where `categories` is not negative, whether its
    category is one of `cut`.
    """

    number: int
    prediction: float
    counts: tuple[float, ...]
    left: int
    right: int
    feature: int
    cut: tuple[float, ...]
    categories: int

    @property
    def is_leaf(self) -> bool:
        return self.left < 0


def read_trees(model: Any, several: bool) -> list[list[SparkTreeNode]]:
    """The trees of a model, each as its nodes in the order of their numbers."""
    with tempfile.TemporaryDirectory(prefix="prudent-trees-") as folder:
        place = str(Path(folder) / "model")
        model.write()._jwrite.saveToLocal(place)
        reader = _JavaReader((Path(place) / "data").read_bytes())
    trees: dict[int, list[SparkTreeNode]] = {}
    for _ in range(reader.integer()):
        tree = reader.integer() if several else 0
        trees.setdefault(tree, []).append(_node(reader))
    return [sorted(trees[tree], key=lambda node: node.number) for tree in sorted(trees)]


def _node(reader: _JavaReader) -> SparkTreeNode:
    number, prediction, _ = reader.integer(), reader.double(), reader.double()  # impurity
    counts = reader.doubles()
    reader.skip(16)  # rows seen, gain
    left, right, feature = reader.integer(), reader.integer(), reader.integer()
    return SparkTreeNode(number, prediction, counts, left, right, feature, reader.doubles(), reader.integer())


class _JavaReader:
    """Numbers as Java's DataOutputStream writes them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def skip(self, size: int) -> None:
        self._at += size

    def integer(self) -> int:
        (value,) = struct.unpack_from(">i", self._data, self._at)
        self._at += 4
        return int(value)

    def double(self) -> float:
        (value,) = struct.unpack_from(">d", self._data, self._at)
        self._at += 8
        return float(value)

    def doubles(self) -> tuple[float, ...]:
        size = self.integer()
        values = struct.unpack_from(f">{size}d", self._data, self._at)
        self._at += 8 * size
        return values


def root_of_inverse(covariance: Vector) -> tuple[Vector, float]:
    """R with R Rᵀ = Σ⁻¹ on the directions that vary, and the logarithm of the density's constant."""
    values, vectors = np.linalg.eigh(covariance)
    least = _EPSILON * values.max() * len(values)
    used = values > least
    inverse = np.where(used, 1.0 / np.sqrt(np.where(used, values, 1.0)), 0.0)
    constant = -0.5 * (len(values) * np.log(2.0 * np.pi) + np.log(values[used]).sum())
    return vectors * inverse, float(constant)


def leaf_values(node: SparkTreeNode, classes: int) -> list[float]:
    """What a leaf says: its value, or shares of the classes; nothing elsewhere."""
    if not node.is_leaf:
        return []
    if not classes:
        return [node.prediction]
    counts = np.array(node.counts)
    total = counts.sum()
    return [float(share) for share in (counts / total if total > 0 else counts)]


def asked_values(
    feature: int, left: Sequence[float], number: int, categories: Categories
) -> tuple[tuple[float, ...], bool]:
    """The values that a split by categories asks for, and whether they lead left.

    A value never seen is in neither set; Spark keeps the smaller set and asks for that one.
    """
    numbers = categories.get(feature)
    every = {float(code): value for value, code in numbers.items()} if numbers else {}
    is_left = len(left) <= number / 2
    asked = set(left) if is_left else {float(code) for code in range(number)} - set(left)
    return tuple(float(every.get(code, code)) for code in sorted(asked)), is_left
