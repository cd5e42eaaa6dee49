"""Which function builds which algorithm; its module is loaded when it is first needed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from prudent.core.errors import unknown
from prudent.training.engines.fit_task import FitFunction

_HERE = "prudent.training.engines.local"
_BUILDERS: Mapping[str, tuple[str, str]] = {
    "linear-regression": ("linear", "linear_regression"),
    "linear-support-vector-machine": ("linear", "support_vectors"),
    "binomial-logistic-regression": ("linear", "logistic_regression"),
    "multinomial-logistic-regression": ("linear", "multinomial_regression"),
    "generalized-linear-regression": ("generalized", "generalized_regression"),
    "decision-tree-regression": ("trees", "tree"),
    "decision-tree-classification": ("trees", "tree"),
    "random-forest-regression": ("trees", "forest"),
    "random-forest-classification": ("trees", "forest"),
    "gradient-boosted-tree-regression": ("boosting", "boosted_trees"),
    "gradient-boosted-tree-classification": ("boosting", "boosted_trees"),
    "naive-bayes": ("bayes", "naive_bayes"),
    "k-means": ("clusters", "k_means"),
    "gaussian-mixture-model": ("clusters", "gaussian_mixture"),
    "multilayer-perceptron-classifier": ("perceptron", "perceptron"),
}
_LIBRARIES = {
    "trees": ("sklearn.tree", "sklearn.ensemble"),
    "boosting": ("sklearn.ensemble",),
    "clusters": ("sklearn.cluster", "sklearn.mixture"),
    "perceptron": ("torch",),
}
ALWAYS = ("onnx", "onnxruntime", "scipy.optimize", "scipy.special", f"{_HERE}.trial")


def builder(algorithm: str) -> FitFunction:
    """What trains an algorithm."""
    if algorithm not in _BUILDERS:
        raise unknown("algorithm of the local engine", algorithm, _BUILDERS)
    module, function = _BUILDERS[algorithm]
    found: FitFunction = getattr(importlib.import_module(f"{_HERE}.{module}"), function)
    return found


def libraries(algorithm: str) -> tuple[str, ...]:
    """What takes long to import before an algorithm can be trained."""
    module, _ = _BUILDERS.get(algorithm, ("", ""))
    return (*_LIBRARIES.get(module, ()), f"{_HERE}.{module}") if module else ()


def made_by(algorithm: str) -> str | None:
    """The library that fits the model, if it is not Prudent itself."""
    module, _ = _BUILDERS.get(algorithm, ("", ""))
    imported = _LIBRARIES.get(module, ("",))[0]
    return {"sklearn": "scikit-learn", "torch": "torch"}.get(imported.partition(".")[0])
