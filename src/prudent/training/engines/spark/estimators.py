"""Spark's estimators by the names of our algorithms."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prudent.core.errors import unknown
from prudent.training.algorithms.algorithm import CLASSIFICATION
from prudent.training.engines.fit_task import unreported
from prudent.training.engines.scoring import Scorer
from prudent.training.engines.spark.boosting import BoostingMonitor, grow
from prudent.training.engines.spark.dataset import LABEL
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

    Spark's own estimator for this leaves a pool of threads behind every time; its model is used. Boosted
    trees end where they are best on the held-out rows, if there are some. Each class gets an equal part of
    the time that is left.
    """
    from pyspark.ml.classification import OneVsRestModel
    from pyspark.sql import functions as sf

    rows, held_out, classes = task.rows.persist(), task.held_out, task.scorer.classes
    try:
        models = []
        for number in range(classes):
            two = sf.when(sf.col(LABEL) == number, 1.0).otherwise(0.0)
            now_s = time.monotonic()
            of_one = replace(
                task,
                rows=with_classes(rows.withColumn(LABEL, two), 2),
                held_out=None if held_out is None else held_out.withColumn(LABEL, two),
                scorer=Scorer(CLASSIFICATION, "mcc", 2),
                report=unreported,
                until_s=now_s + (task.until_s - now_s) / (classes - number),
            )
            models.append(_fit_of_two(of_one, classifier))
    finally:
        rows.unpersist()
    whole = OneVsRestModel(models)
    whole._set(featuresCol=task.features, labelCol=LABEL, classifier=classifier)
    return whole


def _fit_of_two(task: SparkFitTask, classifier: Any) -> Any:
    if type(classifier).__name__ != "GBTClassifier":
        return classifier.fit(task.rows)
    if task.held_out is None:
        return grow(classifier, task.rows, task.seed)
    with BoostingMonitor(task, classifier.getMaxIter()) as monitor:
        return grow(classifier, task.rows, task.seed, monitor)


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
OF_TWO_CLASSES = ("LinearSVC", "GBTClassifier")
"""Estimators that tell only two classes apart: more get a model each against all others."""
