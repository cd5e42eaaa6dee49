"""Spark's models as parts of an ONNX graph, from their coefficients; trees are in `onnx_trees`.

All arithmetic is in double precision, as in Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import RunFailed
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph
from prudent.training.engines.spark.onnx_trees import boosted_margin, tree_answer
from prudent.training.engines.spark.translation import Categories, root_of_inverse

Array = NDArray[np.float64]
_EPSILON = 2.220446049250313e-16  # Spark's own, which it adds to densities and keeps means above
_LIKELY = 1e-16
_LARGEST = float(np.finfo(np.float64).max)


def model_answer(model: Any, graph: OnnxGraph, rows: str, categories: Categories) -> GraphOutputs:
    """Add a fitted model to a graph; `rows` are the prepared features."""
    name = type(model).__name__
    if name in _TREES:
        return tree_answer(model, graph, rows, categories)
    if name == "OneVsRestModel":
        return _one_against_all(model, graph, rows, categories)
    if name not in _ANSWERS:
        raise RunFailed(f"There is no ONNX form of {name}; export the model in Spark's own format.")
    return _ANSWERS[name](model, graph, rows)


_TREES = frozenset(
    {
        "DecisionTreeClassificationModel",
        "DecisionTreeRegressionModel",
        "RandomForestClassificationModel",
        "RandomForestRegressionModel",
        "GBTClassificationModel",
        "GBTRegressionModel",
    }
)


# Values


def _linear(model: Any, graph: OnnxGraph, rows: str) -> GraphOutputs:
    return GraphOutputs(graph.flatten(_margin(model, graph, rows)), is_integer=False)


def _margin(model: Any, graph: OnnxGraph, rows: str) -> str:
    """(rows, 1)"""
    weights = model.coefficients.toArray().reshape(-1, 1)
    return graph.affine(rows, weights, [float(model.intercept)])


def _generalized(model: Any, graph: OnnxGraph, rows: str) -> GraphOutputs:
    predictor = graph.flatten(_margin(model, graph, rows))
    family = str(model.getFamily()).lower()
    if family == "tweedie":
        power = float(model.getVariancePower())
        link = float(model.getLinkPower()) if model.isDefined("linkPower") else 1.0 - power
        mean = _of_power(graph, predictor, link)
    else:
        power, mean = 0.0, _LINKS[_link_of(model, family)](graph, predictor)
    return GraphOutputs(_projected(graph, mean, family, power), is_integer=False)


def _link_of(model: Any, family: str) -> str:
    if model.isDefined("link"):
        return str(model.getLink()).lower()
    return {"gaussian": "identity", "binomial": "logit", "poisson": "log", "gamma": "inverse"}[family]


def _of_power(graph: OnnxGraph, predictor: str, power: float) -> str:
    if power == 0.0:
        return graph.add("Exp", predictor)
    return predictor if power == 1.0 else graph.add("Pow", predictor, graph.constant(1.0 / power))


def _probit(graph: OnnxGraph, predictor: str) -> str:
    """The normal distribution function; ONNX Runtime's error function is in single precision."""
    half = graph.cast(graph.add("Mul", predictor, graph.constant(np.sqrt(0.5))), 1)
    grown = graph.add("Add", graph.to_double(graph.add("Erf", half)), graph.constant(1.0))
    return graph.add("Mul", grown, graph.constant(0.5))


def _log_log(graph: OnnxGraph, predictor: str) -> str:
    decayed = graph.add("Exp", graph.add("Neg", graph.add("Exp", predictor)))
    return graph.add("Sub", graph.constant(1.0), decayed)


_LINKS: dict[str, Callable[[OnnxGraph, str], str]] = {
    "identity": lambda graph, x: x,
    "log": lambda graph, x: graph.add("Exp", x),
    "inverse": lambda graph, x: graph.add("Reciprocal", x),
    "logit": lambda graph, x: graph.add("Sigmoid", x),
    "probit": _probit,
    "cloglog": _log_log,
    "sqrt": lambda graph, x: graph.add("Mul", x, x),
}


def _projected(graph: OnnxGraph, mean: str, family: str, power: float) -> str:
    """The mean kept where its family has it, as Spark does."""
    low, high = -_LARGEST, _LARGEST
    if family == "binomial":
        low, high = _LIKELY, 1.0 - _LIKELY
    elif family in ("poisson", "gamma") or (family == "tweedie" and power >= 1.0):
        low = _LIKELY
    return graph.add("Clip", mean, graph.constant(low), graph.constant(high))


# Classes


def _support_vectors(model: Any, graph: OnnxGraph, rows: str) -> GraphOutputs:
    margin = graph.flatten(_margin(model, graph, rows))
    return GraphOutputs(graph.add("Greater", margin, graph.constant(float(model.getThreshold()))))


def _logistic(model: Any, graph: OnnxGraph, rows: str) -> GraphOutputs:
    weights = model.coefficientMatrix.toArray()
    shift = model.interceptVector.toArray()
    if len(weights) > 1:
        raw = graph.affine(rows, weights.T, shift)
        return GraphOutputs(graph.argmax(raw), graph.add("Softmax", raw, axis=1))
    margin = graph.affine(rows, weights.T, shift)
    second = graph.add("Sigmoid", margin)
    first = graph.add("Sigmoid", graph.add("Neg", margin))
    over = graph.add("Greater", graph.flatten(second), graph.constant(float(model.getThreshold())))
    return GraphOutputs(over, graph.add("Concat", first, second, axis=1))


def _bayes(model: Any, graph: OnnxGraph, rows: str) -> GraphOutputs:
    kind, theta, prior = model.getModelType(), model.theta.toArray(), model.pi.toArray()
    if kind == "gaussian":
        raw = _gaussian_bayes(graph, rows, theta, model.sigma.toArray(), prior)
    elif kind == "bernoulli":
        never = np.log(1.0 - np.exp(theta))
        raw = graph.affine(rows, (theta - never).T, prior + never.sum(axis=1))
    elif kind == "complement":
        raw = graph.affine(rows, theta.T, np.zeros(len(theta)))
    else:
        raw = graph.affine(rows, theta.T, prior)
    return GraphOutputs(graph.argmax(raw), graph.add("Softmax", raw, axis=1))


def _gaussian_bayes(graph: OnnxGraph, rows: str, mean: Array, variance: Array, prior: Array) -> str:
    """log prior - ½ Σ ((x - μ)²/σ² + log σ²), with the square written out so that it is two products."""
    x = graph.to_double(rows)
    squares = graph.add("MatMul", graph.add("Mul", x, x), graph.constant((1.0 / variance).T))
    crossed = graph.add("MatMul", x, graph.constant((2.0 * mean / variance).T))
    rest = prior - 0.5 * (np.log(variance) + mean**2 / variance).sum(axis=1)
    half = graph.add("Mul", graph.add("Sub", crossed, squares), graph.constant(0.5))
    return graph.add("Add", half, graph.constant(rest))


def _one_against_all(model: Any, graph: OnnxGraph, rows: str, categories: Categories) -> GraphOutputs:
    margins = []
    for each in model.models:
        if type(each).__name__ == "LinearSVCModel":
            margins.append(_margin(each, graph, rows))
        else:
            margins.append(boosted_margin(each, graph, rows, categories))
    return GraphOutputs(graph.argmax(graph.add("Concat", *margins, axis=1)))


def _perceptron(model: Any, graph: OnnxGraph, rows: str) -> GraphOutputs:
    """Layer after layer: a logistic curve on each, shares of one whole on the last."""
    layers, numbers = list(model.getLayers()), model.weights.toArray()
    at, values = 0, rows
    for width, following in itertools.pairwise(layers):
        # Spark keeps a layer's matrix by columns, then its shifts.
        weights = numbers[at : at + width * following].reshape(width, following)
        at += width * following
        values = graph.affine(values, weights, numbers[at : at + following])
        at += following
        if at < len(numbers):
            values = graph.add("Sigmoid", values)
    return GraphOutputs(graph.argmax(values), graph.add("Softmax", values, axis=1))


# Clusters


def _k_means(model: Any, graph: OnnxGraph, rows: str) -> GraphOutputs:
    """The nearest centre: |x - c|² without the part that is the same for all, or the largest cosine."""
    centres = np.array(model.clusterCenters())
    if model.getDistanceMeasure() == "cosine":
        length = np.linalg.norm(centres, axis=1, keepdims=True)
        scores = graph.add("MatMul", graph.to_double(rows), graph.constant((centres / length).T))
        return GraphOutputs(graph.argmax(scores))
    scores = graph.affine(rows, 2.0 * centres.T, -(centres**2).sum(axis=1))
    return GraphOutputs(graph.argmax(scores))


def _mixture(model: Any, graph: OnnxGraph, rows: str) -> GraphOutputs:
    """Densities of all components, in logarithms as far as possible: log w - ½ |R(x - μ)|² + u."""
    x, logs = graph.to_double(rows), []
    components = zip(model.weights, model.gaussians, strict=True)
    for weight, gaussian in components:
        root, constant = root_of_inverse(gaussian.cov.toArray())
        moved = graph.add("Sub", x, graph.constant(gaussian.mean.toArray()))
        cosine = graph.add("MatMul", moved, graph.constant(root))
        far = graph.add("ReduceSumSquare", cosine, axes=[1], keepdims=1)
        half = graph.add("Mul", far, graph.constant(-0.5))
        logs.append(graph.add("Add", half, graph.constant(np.log(weight) + constant)))
    densities = graph.add("Exp", graph.add("Concat", *logs, axis=1))
    kept = graph.add("Add", densities, graph.constant(_EPSILON))
    whole = graph.add("ReduceSum", kept, graph.constant([1], np.int64), keepdims=1)
    probabilities = graph.add("Div", kept, whole)
    return GraphOutputs(graph.argmax(probabilities), probabilities)


_ANSWERS: dict[str, Callable[[Any, OnnxGraph, str], GraphOutputs]] = {
    "LinearRegressionModel": _linear,
    "GeneralizedLinearRegressionModel": _generalized,
    "LinearSVCModel": _support_vectors,
    "LogisticRegressionModel": _logistic,
    "NaiveBayesModel": _bayes,
    "KMeansModel": _k_means,
    "GaussianMixtureModel": _mixture,
    "MultilayerPerceptronClassificationModel": _perceptron,
}
