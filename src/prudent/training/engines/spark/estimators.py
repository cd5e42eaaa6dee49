"""Spark's estimators by the names of our algorithms."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prudent.core.errors import unknown
from prudent.training.algorithms.algorithm import CLASSIFICATION
from prudent.training.engines.scoring import Scorer
from prudent.training.engines.spark.boosting import BoostingMonitor, grow
from prudent.training.engines.spark.dataset import LABEL

_OWN_SETTINGS = frozenset({"maxCategories"})
"""Settings that Spark does not know: Prudent applies them."""


@dataclass(frozen=True)
class EstimatorSpec:
    """What an estimator is made from."""

    settings: Mapping[str, Any]
    features: str
    classes: int
    seed: int


def estimator(algorithm: str, spec: EstimatorSpec) -> Any:
    """The estimator of an algorithm, with its settings, ready to fit."""
    if algorithm not in _ESTIMATORS:
        raise unknown("algorithm on Spark", algorithm, _ESTIMATORS)
    module, _, name = _ESTIMATORS[algorithm].partition(".")
    made = getattr(importlib.import_module(f"pyspark.ml.{module}"), name)()
    settings = dict(spec.settings)
    if algorithm.endswith("logistic-regression"):
        settings["family"] = algorithm.partition("-")[0]
    if name == "LinearRegression" and settings.get("loss") != "huber":
        settings.pop("epsilon", None)
    if name == "GeneralizedLinearRegression" and settings.get("family") != "tweedie":
        settings.pop("variancePower", None)
        settings.pop("linkPower", None)
    _configure(made, settings, spec)
    return OneVsRestEstimator(made, spec) if name in _OF_TWO and spec.classes > 2 else made


def takes_categories(algorithm: str) -> bool:
    """Whether an algorithm can ask for a category at once, instead of comparing numbers."""
    return "tree" in algorithm or "forest" in algorithm


def _configure(made: Any, settings: Mapping[str, Any], spec: EstimatorSpec) -> None:
    """Give an estimator the settings that it knows; what the data or Spark decide is left to them."""
    made.setFeaturesCol(spec.features)
    if made.hasParam("labelCol"):
        made.setLabelCol(LABEL)
    if made.hasParam("seed"):
        made.setSeed(spec.seed)
    for name, value in settings.items():
        if value is not None and name not in _OWN_SETTINGS:
            made.set(made.getParam(name), _typed(name, value))


def _typed(name: str, value: Any) -> Any:
    if name != "featureSubsetStrategy" or isinstance(value, str):
        return value
    return str(int(value)) if value > 1 and float(value).is_integer() else str(float(value))


class OneVsRestEstimator:
    """Fits a model for each class, one after the other.

    Spark's own estimator for this leaves a pool of threads behind every time; its model is used.
    """

    def __init__(self, classifier: Any, spec: EstimatorSpec) -> None:
        self._classifier, self._spec = classifier, spec

    def fit(self, rows: Any, held_out: Any = None, until_s: float = math.inf) -> Any:
        """Fit all; boosted trees end where they are best on the held-out rows, if there are some.

        Each class gets an equal part of the time that is left until `until_s`.
        """
        from pyspark.ml.classification import OneVsRestModel
        from pyspark.sql import functions as sf

        rows = rows.persist()
        try:
            models = []
            for number in range(self._spec.classes):
                two = sf.when(sf.col(LABEL) == number, 1.0).otherwise(0.0)
                known = {"ml_attr": {"type": "nominal", "name": LABEL, "num_vals": 2}}
                of_one = rows.withColumn(LABEL, two.alias(LABEL, metadata=known))
                others = None if held_out is None else held_out.withColumn(LABEL, two)
                now_s, classes_left = time.monotonic(), self._spec.classes - number
                models.append(self._fit(of_one, others, now_s + (until_s - now_s) / classes_left))
        finally:
            rows.unpersist()
        whole = OneVsRestModel(models)
        whole._set(featuresCol=self._spec.features, labelCol=LABEL, classifier=self._classifier)
        return whole

    def _fit(self, rows: Any, held_out: Any, until_s: float) -> Any:
        made, seed = self._classifier, self._spec.seed
        if type(made).__name__ != "GBTClassifier":
            return made.fit(rows)
        if held_out is None:
            return grow(made, rows, seed)
        scorer = Scorer(CLASSIFICATION, "mcc", 2)
        most, features = made.getMaxIter(), self._spec.features
        with BoostingMonitor(rows, held_out, features, scorer, most, until_s=until_s) as monitor:
            return grow(made, rows, seed, monitor)


_ESTIMATORS = {
    "linear-regression": "regression.LinearRegression",
    "generalized-linear-regression": "regression.GeneralizedLinearRegression",
    "decision-tree-regression": "regression.DecisionTreeRegressor",
    "random-forest-regression": "regression.RandomForestRegressor",
    "gradient-boosted-tree-regression": "regression.GBTRegressor",
    "linear-support-vector-machine": "classification.LinearSVC",
    "binomial-logistic-regression": "classification.LogisticRegression",
    "multinomial-logistic-regression": "classification.LogisticRegression",
    "naive-bayes": "classification.NaiveBayes",
    "decision-tree-classification": "classification.DecisionTreeClassifier",
    "random-forest-classification": "classification.RandomForestClassifier",
    "gradient-boosted-tree-classification": "classification.GBTClassifier",
    "k-means": "clustering.KMeans",
    "gaussian-mixture-model": "clustering.GaussianMixture",
}
_OF_TWO = ("LinearSVC", "GBTClassifier")
"""Estimators that tell only two classes apart: more get a model each against all others."""
