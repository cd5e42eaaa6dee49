"""Which function fits which algorithm; its module is imported when it is first needed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from prudent.core.errors import unknown
from prudent.training.engines.fit_task import FitFunction

_HERE = "prudent.training.engines.local.learners"
_FIT_FUNCTIONS: Mapping[str, tuple[str, str]] = {
    "linear-regression": ("linear", "linear_regression"),
    "linear-support-vector-machine": ("linear", "support_vectors"),
    "binomial-logistic-regression": ("linear", "logistic_regression"),
    "multinomial-logistic-regression": ("linear", "multinomial_regression"),
    "generalized-linear-regression": ("generalized", "generalized_regression"),
    "decision-tree-regression": ("trees", "decision_tree"),
    "decision-tree-classification": ("trees", "decision_tree"),
    "random-forest-regression": ("trees", "random_forest"),
    "random-forest-classification": ("trees", "random_forest"),
    "gradient-boosted-tree-regression": ("lightgbm_trees", "boosted_trees"),
    "gradient-boosted-tree-classification": ("lightgbm_trees", "boosted_trees"),
    "lightgbm-regression": ("lightgbm_trees", "lightgbm_trees"),
    "lightgbm-classification": ("lightgbm_trees", "lightgbm_trees"),
    "xgboost-regression": ("xgboost_trees", "xgboost_trees"),
    "xgboost-classification": ("xgboost_trees", "xgboost_trees"),
    "naive-bayes": ("naive_bayes", "naive_bayes"),
    "k-means": ("clusters", "k_means"),
    "gaussian-mixture-model": ("clusters", "gaussian_mixture"),
    "multilayer-perceptron-classifier": ("perceptron", "perceptron"),
}
_LIBRARIES = {
    "trees": ("sklearn.tree", "sklearn.ensemble"),
    "lightgbm_trees": ("lightgbm",),
    "xgboost_trees": ("xgboost",),
    "naive_bayes": ("sklearn.naive_bayes",),
    "clusters": ("sklearn.cluster", "sklearn.mixture"),
    "perceptron": ("torch",),
}
PRELOADED = ("onnx", "onnxruntime", "scipy.optimize", "scipy.special", "prudent.training.engines.local.trial")


def fit_function(algorithm: str) -> FitFunction:
    """The function that fits an algorithm's models."""
    if algorithm not in _FIT_FUNCTIONS:
        raise unknown("algorithm of the local engine", algorithm, _FIT_FUNCTIONS)
    module, function = _FIT_FUNCTIONS[algorithm]
    found: FitFunction = getattr(importlib.import_module(f"{_HERE}.{module}"), function)
    return found


def libraries_for(algorithm: str) -> tuple[str, ...]:
    """What takes long to import before an algorithm can be trained."""
    module, _ = _FIT_FUNCTIONS.get(algorithm, ("", ""))
    return (*_LIBRARIES.get(module, ()), f"{_HERE}.{module}") if module else ()


def library_of(algorithm: str) -> str | None:
    """The library that fits the model, if it is not Prudent itself."""
    module, _ = _FIT_FUNCTIONS.get(algorithm, ("", ""))
    imported = _LIBRARIES.get(module, ("",))[0]
    distributions = {"sklearn": "scikit-learn", "xgboost": "xgboost-cpu"}
    return distributions.get(imported.partition(".")[0], imported) or None
