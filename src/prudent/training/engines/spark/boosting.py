"""Boosted trees as on the local engine, with every tree grown by Spark.

Spark's own boosting counts its first tree in full and takes steps of twice `stepSize` along the plain
gradient; with trees of some depth the first one has learnt the noise before the others can mend anything.
Here, as on the local engine, boosting begins with a constant and every tree counts `stepSize`. For classes a
tree is fitted to gradient / curvature with the curvature as weight, which makes its leaves Newton steps and
its splits the best ones for them. The trees become a model of Spark's: it predicts where the data are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prudent.training.engines.spark.table import LABEL
from prudent.training.engines.spark.watching import BoostingMonitor

BOOSTED = ("GBTRegressionModel", "GBTClassificationModel")
_RAW, _AIM, _WEIGHT, _ADDED = "raw", "aim", "weight", "added"
_LEAST_CURVATURE = 1e-3
"""A row that is sure of the wrong class asks for no more than a step of a thousand."""
_TOGETHER, _MOST_LAYERS = 10, 20
"""Trees that are added up anew for every further one before their sum is kept; Java cannot follow a history
of sums upon sums without end, so there are only so many of them."""


def grow(made: Any, rows: Any, seed: int, monitor: BoostingMonitor | None = None) -> Any:
    """The model of Spark's boosting estimator `made`, grown on rows of label and features.

    The first tree of the model is the constant, so there is one more than were grown. `monitor` says when
    to stop; what was grown after the best is left off.
    """
    classifies = type(made).__name__ == "GBTClassifier"
    # Spark's margin is half the log-odds.
    step = made.getStepSize() * (0.5 if classifies else 1.0)
    begin = _constant(rows, classifies)
    features = made.getFeaturesCol()
    sums = rows.select(LABEL, features).selectExpr("*", f"CAST({begin!r} AS DOUBLE) AS {_RAW}").persist()
    first = _estimator(made, seed, maxDepth=0).fit(_aimed(sums, classifies, features, whole=True)).trees[0]
    trees, kept = [first], 1
    if monitor is not None:
        monitor.begin(begin)
    together = max(_TOGETHER, -(-made.getMaxIter() // _MOST_LAYERS))
    try:
        for number in range(made.getMaxIter()):
            if len(trees) - kept == together:
                sums, kept = _folded(sums, _added(made, trees[kept:], step, sums)), len(trees)
            now = _added(made, trees[kept:], step, sums)
            grown = _estimator(made, seed + number).fit(_aimed(now, classifies, features))
            trees.append(grown.trees[0])
            if monitor is not None and monitor.look(trees[-1], step):
                break
    finally:
        sums.unpersist()
    if monitor is not None:
        del trees[1 + monitor.best :]
    return _ensemble(made, trees, [1.0, *[step] * (len(trees) - 1)])


def _constant(rows: Any, classifies: bool) -> float:
    mean = float(rows.agg({LABEL: "avg"}).first()[0])
    if not classifies:
        return mean
    share = min(max(mean, 1e-9), 1.0 - 1e-9)
    return float(0.5 * np.log(share / (1.0 - share)))


def _aimed(sums: Any, classifies: bool, features: str, whole: bool = False) -> Any:
    """What the next tree is to learn, and how much each row counts; `whole` is for the constant."""
    if whole:
        aim, weight = _RAW, "1.0D"
    elif not classifies:
        aim, weight = f"{LABEL} - {_RAW}", "1.0D"
    else:
        chance = f"1.0D / (1.0D + exp(-2.0D * {_RAW}))"
        weight = f"greatest({chance} * (1.0D - {chance}), {_LEAST_CURVATURE}D)"
        aim = f"({LABEL} - {chance}) / {weight}"
    return sums.selectExpr(features, f"{aim} AS {_AIM}", f"{weight} AS {_WEIGHT}")


def _estimator(made: Any, seed: int, **more: Any) -> Any:
    """One tree by the settings of the boosting estimator; a forest of one knows about samples."""
    from pyspark.ml.regression import RandomForestRegressor

    one = RandomForestRegressor(numTrees=1, bootstrap=False, seed=seed)
    names = (
        "maxDepth",
        "maxBins",
        "minInstancesPerNode",
        "minWeightFractionPerNode",
        "minInfoGain",
        "maxMemoryInMB",
        "cacheNodeIds",
        "checkpointInterval",
        "subsamplingRate",
        "featureSubsetStrategy",
        "featuresCol",
    )
    for name in names:
        one.set(one.getParam(name), more.get(name, made.getOrDefault(name)))
    if one.getFeatureSubsetStrategy() == "auto":
        one.setFeatureSubsetStrategy("all")
    if "maxDepth" in more:
        one.setSubsamplingRate(1.0)
    return one.setLabelCol(_AIM).setWeightCol(_WEIGHT)


def _added(made: Any, trees: Sequence[Any], step: float, sums: Any) -> Any:
    """The sums with some more trees in them."""
    if not trees:
        return sums
    block = _assembled("GBTRegressionModel", made, trees, [step] * len(trees))
    block.setFeaturesCol(made.getFeaturesCol()).setPredictionCol(_ADDED)
    return block.transform(sums).selectExpr(LABEL, made.getFeaturesCol(), f"{_RAW} + {_ADDED} AS {_RAW}")


def _folded(before: Any, now: Any) -> Any:
    """Keep the sums as they are now."""
    now = now.persist()
    now.count()
    before.unpersist()
    return now


def _ensemble(made: Any, trees: Sequence[Any], weights: Sequence[float]) -> Any:
    kind = "GBTClassificationModel" if type(made).__name__ == "GBTClassifier" else "GBTRegressionModel"
    model = _assembled(kind, made, trees, weights)
    made._transfer_params_to_java()
    made._java_obj.copyValues(model._java_obj, _jvm().org.apache.spark.ml.param.ParamMap())
    model._transfer_params_from_java()
    return model


def _assembled(kind: str, made: Any, trees: Sequence[Any], weights: Sequence[float]) -> Any:
    """A model of Spark's made of trees and weights."""
    from pyspark.ml import classification, regression

    jvm = _jvm()
    tree = jvm.org.apache.spark.ml.regression.DecisionTreeRegressionModel
    classes = [2] if kind == "GBTClassificationModel" else []
    module, package = (
        (classification, jvm.org.apache.spark.ml.classification)
        if classes
        else (regression, jvm.org.apache.spark.ml.regression)
    )
    java = getattr(package, kind)(
        made.uid,
        _array(tree, [each._java_obj for each in trees]),
        _array(jvm.double, [float(weight) for weight in weights]),
        trees[0].numFeatures,
        *classes,
    )
    model = getattr(module, kind)(java)
    model._resetUid(made.uid)
    return model


# Spark's own boosting: for the absolute loss, which asks for medians in the leaves


def trimmed(model: Any, held_out: Any) -> Any:
    """The model with as many of its first trees as do best on the held-out rows."""
    losses = model.evaluateEachIteration(held_out, model.getLossType())
    return first_trees(model, int(np.argmin(losses)) + 1)


def first_trees(model: Any, number: int) -> Any:
    """The model that boosting would have been after so many trees."""
    if number >= len(model.treeWeights):
        return model
    shorter = _assembled(type(model).__name__, model, model.trees[:number], model.treeWeights[:number])
    model._java_obj.copyValues(shorter._java_obj, _jvm().org.apache.spark.ml.param.ParamMap())
    shorter._transfer_params_from_java()
    return shorter


def rounds(model: Any) -> int:
    """How many trees were grown, without the constant before them."""
    return len(model.treeWeights) - int(model.trees[0].numNodes == 1 and len(model.treeWeights) > 1)


def _array(kind: Any, values: Sequence[Any]) -> Any:
    """A Java array."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    made = gateway.new_array(kind, len(values))
    for place, value in enumerate(values):
        made[place] = value
    return made


def _jvm() -> Any:
    from pyspark import SparkContext

    return SparkContext._jvm
