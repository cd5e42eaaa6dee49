"""Boosted trees that end where they were best on the held-out rows.

Spark trains all trees in one go, and its own early stopping gives up at the first small step. So the trees
are judged afterwards, each number of them in the same pass, and those beyond the best are left off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BOOSTED = ("GBTRegressionModel", "GBTClassificationModel")


def losses(model: Any, rows: Any) -> list[float]:
    """The loss on some rows after each tree."""
    if type(model).__name__ == "GBTRegressionModel":
        return [float(loss) for loss in model.evaluateEachIteration(rows, model.getLossType())]
    return [float(loss) for loss in model.evaluateEachIteration(rows)]


def trimmed(model: Any, held_out: Any) -> Any:
    """The model with as many of its first trees as do best on the held-out rows."""
    return first_trees(model, int(np.argmin(losses(model, held_out))) + 1)


def first_trees(model: Any, number: int) -> Any:
    """The model that boosting would have been after so many trees."""
    from pyspark import SparkContext

    java = model._java_obj
    if number >= len(model.treeWeights):
        return model
    jvm: Any = SparkContext._jvm
    tree = jvm.org.apache.spark.ml.regression.DecisionTreeRegressionModel
    trees = _array(tree, java.trees(), number)
    weights = _array(jvm.double, java.treeWeights(), number)
    classes = [2] if type(model).__name__ == "GBTClassificationModel" else []
    package = jvm.org.apache.spark.ml.classification if classes else jvm.org.apache.spark.ml.regression
    kind = getattr(package, type(model).__name__)
    shorter = kind(java.uid(), trees, weights, java.numFeatures(), *classes)
    java.copyValues(shorter, jvm.org.apache.spark.ml.param.ParamMap())
    made = type(model)(shorter)
    made._transfer_params_from_java()
    return made


def _array(kind: Any, values: Any, number: int) -> Any:
    """The first values of a Java array, as another one."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    made = gateway.new_array(kind, number)
    for place in range(number):
        made[place] = values[place]
    return made
