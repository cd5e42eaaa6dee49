"""Spark's estimators by the names of our algorithms."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
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
    if algorithm not in _MAKERS:
        raise unknown("algorithm on Spark", algorithm, _MAKERS)
    return _MAKERS[algorithm](spec)


def takes_categories(algorithm: str) -> bool:
    """Whether an algorithm can ask for a category at once, instead of comparing numbers."""
    return "tree" in algorithm or "forest" in algorithm


def _configured(made: Any, spec: EstimatorSpec, **more: Any) -> Any:
    """Give an estimator the settings that it knows; what the data or Spark decide is left to them."""
    settings = {**spec.settings, **more}
    made.setFeaturesCol(spec.features)
    if made.hasParam("labelCol"):
        made.setLabelCol(LABEL)
    if made.hasParam("seed"):
        made.setSeed(spec.seed)
    for name, value in settings.items():
        if value is None or name in _OWN_SETTINGS:
            continue
        made.set(made.getParam(name), _typed(name, value))
    return made


def _typed(name: str, value: Any) -> Any:
    if name != "featureSubsetStrategy" or isinstance(value, str):
        return value
    return str(int(value)) if value > 1 and float(value).is_integer() else str(float(value))


def _linear(spec: EstimatorSpec) -> Any:
    from pyspark.ml.regression import LinearRegression

    if spec.settings.get("loss") != "huber":
        spec = _without(spec, "epsilon")
    return _configured(LinearRegression(), spec)


def _generalized(spec: EstimatorSpec) -> Any:
    from pyspark.ml.regression import GeneralizedLinearRegression

    if spec.settings.get("family") != "tweedie":
        spec = _without(spec, "variancePower", "linkPower")
    return _configured(GeneralizedLinearRegression(), spec)


def _tree_regression(spec: EstimatorSpec) -> Any:
    from pyspark.ml.regression import DecisionTreeRegressor

    return _configured(DecisionTreeRegressor(), spec)


def _forest_regression(spec: EstimatorSpec) -> Any:
    from pyspark.ml.regression import RandomForestRegressor

    return _configured(RandomForestRegressor(), spec)


def _boosted_regression(spec: EstimatorSpec) -> Any:
    from pyspark.ml.regression import GBTRegressor

    return _configured(GBTRegressor(), spec)


def _support_vectors(spec: EstimatorSpec) -> Any:
    from pyspark.ml.classification import LinearSVC

    return _multiclass(_configured(LinearSVC(), spec), spec)


def _logistic(family: str) -> Callable[[EstimatorSpec], Any]:
    def make(spec: EstimatorSpec) -> Any:
        from pyspark.ml.classification import LogisticRegression

        return _configured(LogisticRegression(), spec, family=family)

    return make


def _bayes(spec: EstimatorSpec) -> Any:
    from pyspark.ml.classification import NaiveBayes

    return _configured(NaiveBayes(), spec)


def _tree_classification(spec: EstimatorSpec) -> Any:
    from pyspark.ml.classification import DecisionTreeClassifier

    return _configured(DecisionTreeClassifier(), spec)


def _forest_classification(spec: EstimatorSpec) -> Any:
    from pyspark.ml.classification import RandomForestClassifier

    return _configured(RandomForestClassifier(), spec)


def _boosted_classification(spec: EstimatorSpec) -> Any:
    from pyspark.ml.classification import GBTClassifier

    return _multiclass(_configured(GBTClassifier(), spec), spec)


def _multiclass(made: Any, spec: EstimatorSpec) -> Any:
    """One model for each class against all others, where Spark's own tells only two apart."""
    if spec.classes <= 2:
        return made
    return OneVsRestEstimator(made, spec)


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


def _k_means(spec: EstimatorSpec) -> Any:
    from pyspark.ml.clustering import KMeans

    return _configured(KMeans(), spec)


def _mixture(spec: EstimatorSpec) -> Any:
    from pyspark.ml.clustering import GaussianMixture

    return _configured(GaussianMixture(), spec)


def _without(spec: EstimatorSpec, *names: str) -> EstimatorSpec:
    kept = {name: value for name, value in spec.settings.items() if name not in names}
    return EstimatorSpec(kept, spec.features, spec.classes, spec.seed)


_MAKERS: dict[str, Callable[[EstimatorSpec], Any]] = {
    "linear-regression": _linear,
    "generalized-linear-regression": _generalized,
    "decision-tree-regression": _tree_regression,
    "random-forest-regression": _forest_regression,
    "gradient-boosted-tree-regression": _boosted_regression,
    "linear-support-vector-machine": _support_vectors,
    "binomial-logistic-regression": _logistic("binomial"),
    "multinomial-logistic-regression": _logistic("multinomial"),
    "naive-bayes": _bayes,
    "decision-tree-classification": _tree_classification,
    "random-forest-classification": _forest_classification,
    "gradient-boosted-tree-classification": _boosted_classification,
    "k-means": _k_means,
    "gaussian-mixture-model": _mixture,
}
