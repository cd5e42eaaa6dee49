"""Spark's models as the local engine has them, from their coefficients: PMML is written from that form."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.fitted_transforms import Affine, FittedTransform
from prudent.training.engines.local.learners.clusters import GaussianMixtureModel, KMeansModel
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
from prudent.training.engines.local.learners.tree_arrays import LEAF
from prudent.training.engines.pmml.models import AveragedTrees, CategoricalTree, SummedTrees
from prudent.training.engines.spark.nodes import SparkTreeNode, read_trees
from prudent.training.engines.spark.onnx_models import root_of_inverse
from prudent.training.engines.spark.onnx_trees import asked_values, leaf_values
from prudent.training.engines.spark.stages import Rescale

Categories = Mapping[int, Mapping[float, int]]


def translation(model: Any, categories: Categories) -> Any:
    """The model of the local engine, or its trees, that answers as Spark's does; else the model itself."""
    name = type(model).__name__
    if name == "OneVsRestModel":
        return _rivals(model.models, categories)
    if name.startswith(("DecisionTree", "RandomForest")):
        return _forest(model, name, categories)
    if name.startswith("GBT"):
        classifies = name == "GBTClassificationModel"
        # Spark's margin is half the log-odds.
        grown = _weighed(model, categories, 2.0 if classifies else 1.0)
        return SummedTrees([(0, tree) for tree in grown], np.zeros(1), classifies)
    return _FORMS[name](model) if name in _FORMS else model


def translated_steps(steps: Sequence[FittedTransform]) -> list[FittedTransform]:
    """The preparation in the local engine's steps alone."""
    found: list[FittedTransform] = []
    for step in steps:
        if not isinstance(step, Rescale):
            found.append(step)
            continue
        found.append(Affine(step.shift, step.factor))
        if step.offset.any():
            found.append(Affine(-step.offset, np.ones(len(step.offset))))
    return found


# Lines


def _line(model: Any) -> LinearFunction:
    return LinearFunction(model.coefficients.toArray().reshape(-1, 1), np.array([float(model.intercept)]))


def _generalized(model: Any) -> GeneralizedLinearModel:
    family = str(model.getFamily()).lower()
    power = float(model.getVariancePower()) if family == "tweedie" else 0.0
    raised = float(model.getLinkPower()) if model.isDefined("linkPower") else None
    link = str(model.getLink()).lower() if model.isDefined("link") else None
    return GeneralizedLinearModel(
        _line(model), link_of(family, link, power, raised), family_of(family, power)
    )


def _logistic(model: Any) -> BinaryLinearClassifier | SoftmaxClassifier:
    line = LinearFunction(model.coefficientMatrix.toArray().T, model.interceptVector.toArray())
    if line.weights.shape[1] > 1:
        return SoftmaxClassifier(line)
    share = float(model.getThreshold())
    with np.errstate(divide="ignore"):
        return BinaryLinearClassifier(line, threshold=float(np.log(share) - np.log1p(-share)), logistic=True)


def _bayes(model: Any) -> SoftmaxClassifier | GaussianNaiveBayes:
    kind, theta, prior = model.getModelType(), model.theta.toArray(), model.pi.toArray()
    if kind == "gaussian":
        return GaussianNaiveBayes(theta, model.sigma.toArray(), prior)
    if kind == "bernoulli":
        never = np.log1p(-np.exp(theta))
        return SoftmaxClassifier(LinearFunction((theta - never).T, prior + never.sum(axis=1)))
    return SoftmaxClassifier(LinearFunction(theta.T, np.zeros(len(theta)) if kind == "complement" else prior))


def _rivals(models: Sequence[Any], categories: Categories) -> OneVsRest | SummedTrees:
    """A model for each class, which tells it from all others."""
    if all(type(each).__name__ == "LinearSVCModel" for each in models):
        lines = [_line(each) for each in models]
        weights = np.concatenate([line.weights for line in lines], axis=1)
        return OneVsRest(LinearFunction(weights, np.concatenate([line.intercepts for line in lines])))
    trees = [(output, tree) for output, each in enumerate(models) for tree in _weighed(each, categories, 1.0)]
    return SummedTrees(trees, np.zeros(len(models)), classifies=True, probable=False)


def _network(model: Any) -> MultilayerPerceptron:
    layers, numbers, at = list(model.getLayers()), model.weights.toArray(), 0
    lines = []
    for width, following in itertools.pairwise(layers):
        weights = numbers[at : at + width * following].reshape(width, following)
        at += width * following
        lines.append(LinearFunction(weights, numbers[at : at + following]))
        at += following
    return MultilayerPerceptron(tuple(lines))


# Clusters


def _centres(model: Any) -> KMeansModel:
    return KMeansModel(np.array(model.clusterCenters()), cosine=model.getDistanceMeasure() == "cosine")


def _mixture(model: Any) -> GaussianMixtureModel:
    roots, constants = zip(*(root_of_inverse(each.cov.toArray()) for each in model.gaussians), strict=True)
    means = np.stack([each.mean.toArray() for each in model.gaussians])
    return GaussianMixtureModel(means, np.stack(roots), np.log(np.array(model.weights)) + np.array(constants))


# Trees


def _forest(model: Any, name: str, categories: Categories) -> AveragedTrees:
    classifies = name.endswith("ClassificationModel")
    classes = int(model.numClasses) if classifies else 0
    trees = read_trees(model, not name.startswith("DecisionTree"))
    return AveragedTrees([_tree(nodes, classes, 1.0, categories) for nodes in trees], classifies)


def _weighed(model: Any, categories: Categories, factor: float) -> list[CategoricalTree]:
    """The trees of boosting, each with its weight in its leaves."""
    pairs = zip(read_trees(model, True), model.treeWeights, strict=True)
    return [_tree(nodes, 0, float(weight) * factor, categories) for nodes, weight in pairs]


def _tree(
    nodes: Sequence[SparkTreeNode], classes: int, weight: float, categories: Categories
) -> CategoricalTree:
    width = max(classes, 1)
    sets = {
        node.number: asked_values(node.feature, node.cut, node.categories, categories)
        for node in nodes
        if not node.is_leaf and node.categories >= 0
    }
    cuts = [node.cut[0] if not node.is_leaf and node.categories < 0 else 0.0 for node in nodes]
    return CategoricalTree(
        feature=np.array([max(node.feature, 0) for node in nodes], dtype=np.int64),
        threshold=np.array(cuts, dtype=np.float64),
        left=_children([node.left for node in nodes]),
        right=_children([node.right for node in nodes]),
        values=np.array([leaf_values(node, classes, weight) or [0.0] * width for node in nodes]),
        sets=sets,
    )


def _children(numbers: Sequence[int]) -> NDArray[np.int64]:
    return np.array([LEAF if number < 0 else number for number in numbers], dtype=np.int64)


_FORMS: dict[str, Callable[[Any], Any]] = {
    "LinearRegressionModel": lambda model: LinearRegressor(_line(model)),
    "GeneralizedLinearRegressionModel": _generalized,
    "LinearSVCModel": lambda model: BinaryLinearClassifier(
        _line(model), threshold=float(model.getThreshold())
    ),
    "LogisticRegressionModel": _logistic,
    "NaiveBayesModel": _bayes,
    "KMeansModel": _centres,
    "GaussianMixtureModel": _mixture,
    "MultilayerPerceptronClassificationModel": _network,
}
