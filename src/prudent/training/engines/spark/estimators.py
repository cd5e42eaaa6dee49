"""Spark's estimators by the names of our algorithms."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from prudent.core.errors import unknown
from prudent.training.engines.spark.dataset import LABEL, WEIGHT
from prudent.training.engines.spark.fit_task import SparkFitTask

_OWN_SETTINGS = frozenset({"maxCategories", "seed"})
"""Settings that Prudent applies: Spark does not know the one, and not every estimator the other."""


def estimator(task: SparkFitTask) -> Any:
    """The estimator of the task's algorithm, with its settings, ready to fit."""
    algorithm, settings = task.algorithm, dict(task.settings)
    if algorithm not in _ESTIMATORS:
        raise unknown("algorithm on Spark", algorithm, _ESTIMATORS)
    module, _, name = _ESTIMATORS[algorithm].partition(".")
    made = getattr(importlib.import_module(f"pyspark.ml.{module}"), name)()
    if algorithm.endswith("logistic-regression"):
        settings["family"] = algorithm.partition("-")[0]
    if name == "LinearRegression" and settings.get("loss") != "huber":
        settings.pop("epsilon", None)
    if name == "GeneralizedLinearRegression" and settings.get("family") != "tweedie":
        settings.pop("variancePower", None)
        settings.pop("linkPower", None)
    _configure(made, settings, task)
    return made


def takes_categories(algorithm: str) -> bool:
    """Whether an algorithm can ask for a category at once, instead of comparing numbers."""
    return "tree" in algorithm or "forest" in algorithm


def _configure(made: Any, settings: Mapping[str, Any], task: SparkFitTask) -> None:
    """Give an estimator the settings that it knows; what the data or Spark decide is left to them."""
    made.setFeaturesCol(task.features)
    if made.hasParam("labelCol"):
        made.setLabelCol(LABEL)
    if task.class_weights:
        made.setWeightCol(WEIGHT)
    if made.hasParam("seed"):
        made.setSeed(task.seed)
    for name, value in settings.items():
        if value is not None and name not in _OWN_SETTINGS:
            made.set(made.getParam(name), _typed(name, value))


def _typed(name: str, value: Any) -> Any:
    if name != "featureSubsetStrategy" or isinstance(value, str):
        return value
    return str(int(value)) if value > 1 and float(value).is_integer() else str(float(value))


def fit_one_vs_rest(task: SparkFitTask, classifier: Any) -> Any:
    """A model for each class against all others, fitted one after the other.

    Spark's own estimator for this leaves a pool of threads behind every time; its model is used.
    """
    from pyspark.ml.classification import OneVsRestModel
    from pyspark.sql import functions as sf

    rows = task.rows.persist()
    try:
        models = []
        for number in range(task.scorer.classes):
            two = sf.when(sf.col(LABEL) == number, 1.0).otherwise(0.0)
            models.append(classifier.fit(with_classes(rows.withColumn(LABEL, two), 2)))
    finally:
        rows.unpersist()
    whole = OneVsRestModel(models)
    whole._set(featuresCol=task.features, labelCol=LABEL, classifier=classifier)
    return whole


def with_classes(rows: Any, classes: int) -> Any:
    """Tell Spark how many classes there are: a sub-sample may not show the last of them."""
    if not classes:
        return rows
    from pyspark.sql import functions as sf

    known = {"ml_attr": {"type": "nominal", "name": LABEL, "num_vals": classes}}
    return rows.withColumn(LABEL, sf.col(LABEL).alias(LABEL, metadata=known))


_ESTIMATORS = {
    "linear-regression": "regression.LinearRegression",
    "generalized-linear-regression": "regression.GeneralizedLinearRegression",
    "decision-tree-regression": "regression.DecisionTreeRegressor",
    "random-forest-regression": "regression.RandomForestRegressor",
    "linear-support-vector-machine": "classification.LinearSVC",
    "binomial-logistic-regression": "classification.LogisticRegression",
    "multinomial-logistic-regression": "classification.LogisticRegression",
    "naive-bayes": "classification.NaiveBayes",
    "decision-tree-classification": "classification.DecisionTreeClassifier",
    "random-forest-classification": "classification.RandomForestClassifier",
    "k-means": "clustering.KMeans",
    "gaussian-mixture-model": "clustering.GaussianMixture",
}
OF_TWO_CLASSES = ("LinearSVC",)
"""Estimators that tell only two classes apart: more get a model each against all others."""
