"""Boosted trees as on the local engine, with every tree grown by Spark.

Spark's own boosting counts its first tree in full and takes steps of twice `stepSize` along the plain
gradient; with trees of some depth the first one has learnt the noise before the others can mend anything.
Here, as on the local engine, boosting begins with a constant and every tree counts `stepSize`. For classes a
tree is fitted to gradient / curvature with the curvature as weight, which makes its leaves Newton steps and
its splits the best ones for them. The trees become a model of Spark's: it predicts where the data are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.algorithm import CLASSIFICATION
from prudent.training.engines.fit_task import EarlyStopping, FitTask, LearningCurve, PreparedRows
from prudent.training.engines.spark.dataset import LABEL
from prudent.training.engines.spark.fit_task import SparkFitTask

BOOSTED = ("GBTRegressionModel", "GBTClassificationModel")
_RAW, _TARGET, _WEIGHT, _ADDED = "raw", "aim", "weight", "added"
_LEAST_CURVATURE = 1e-3
"""A row that is sure of the wrong class asks for no more than a step of a thousand."""
_TREES_PER_CHECKPOINT, _MOST_CHECKPOINTS = 10, 20
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
    first = (
        _estimator(made, seed, maxDepth=0).fit(_with_targets(sums, classifies, features, whole=True)).trees[0]
    )
    trees, kept = [first], 1
    if monitor is not None:
        monitor.begin(begin)
    trees_per_checkpoint = max(_TREES_PER_CHECKPOINT, -(-made.getMaxIter() // _MOST_CHECKPOINTS))
    try:
        for number in range(made.getMaxIter()):
            if len(trees) - kept == trees_per_checkpoint:
                sums, kept = _checkpointed(sums, _with_trees(made, trees[kept:], step, sums)), len(trees)
            now = _with_trees(made, trees[kept:], step, sums)
            grown = _estimator(made, seed + number).fit(_with_targets(now, classifies, features))
            trees.append(grown.trees[0])
            if monitor is not None and monitor.add_tree(trees[-1], step):
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


def _with_targets(sums: Any, classifies: bool, features: str, whole: bool = False) -> Any:
    """What the next tree is to learn, and how much each row counts; `whole` is for the constant."""
    if whole:
        aim, weight = _RAW, "1.0D"
    elif not classifies:
        aim, weight = f"{LABEL} - {_RAW}", "1.0D"
    else:
        chance = f"1.0D / (1.0D + exp(-2.0D * {_RAW}))"
        weight = f"greatest({chance} * (1.0D - {chance}), {_LEAST_CURVATURE}D)"
        aim = f"({LABEL} - {chance}) / {weight}"
    return sums.selectExpr(features, f"{aim} AS {_TARGET}", f"{weight} AS {_WEIGHT}")


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
    return one.setLabelCol(_TARGET).setWeightCol(_WEIGHT)


def _with_trees(made: Any, trees: Sequence[Any], step: float, sums: Any) -> Any:
    """The sums with some more trees in them."""
    if not trees:
        return sums
    block = _java_ensemble("GBTRegressionModel", made, trees, [step] * len(trees))
    block.setFeaturesCol(made.getFeaturesCol()).setPredictionCol(_ADDED)
    return block.transform(sums).selectExpr(LABEL, made.getFeaturesCol(), f"{_RAW} + {_ADDED} AS {_RAW}")


def _checkpointed(before: Any, now: Any) -> Any:
    """Keep the sums as they are now."""
    now = now.persist()
    now.count()
    before.unpersist()
    return now


def _ensemble(made: Any, trees: Sequence[Any], weights: Sequence[float]) -> Any:
    kind = "GBTClassificationModel" if type(made).__name__ == "GBTClassifier" else "GBTRegressionModel"
    model = _java_ensemble(kind, made, trees, weights)
    made._transfer_params_to_java()
    made._java_obj.copyValues(model._java_obj, _jvm().org.apache.spark.ml.param.ParamMap())
    model._transfer_params_from_java()
    return model


def _java_ensemble(kind: str, made: Any, trees: Sequence[Any], weights: Sequence[float]) -> Any:
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


def trim_to_best(model: Any, held_out: Any) -> Any:
    """The model with as many of its first trees as do best on the held-out rows."""
    losses = model.evaluateEachIteration(held_out, model.getLossType())
    return first_trees(model, int(np.argmin(losses)) + 1)


def first_trees(model: Any, number: int) -> Any:
    """The model that boosting would have been after so many trees."""
    if number >= len(model.treeWeights):
        return model
    shorter = _java_ensemble(type(model).__name__, model, model.trees[:number], model.treeWeights[:number])
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


_MOST = 10_000
"""Rows of either kind: what is looked at after every tree must cost less than the tree."""
_IS_HELD_OUT, _HASH, _TREE_OUTPUT = "held", "hash", "said"


class BoostingMonitor:
    """A few held-out rows and a few training rows, with what the trees so far add up to on them.

    The rule is the local engine's own. Use it as a context: the rows are kept in the cluster's memory.
    """

    def __init__(self, task: SparkFitTask, most: int) -> None:
        features, scorer = task.features, task.scorer
        self._features, self._scorer = features, scorer
        self._frame = (
            _sampled_rows(task.held_out, features, 1)
            .unionByName(_sampled_rows(task.rows, features, 0))
            .coalesce(1)
            .persist()
        )
        arrow = self._frame.select(LABEL, _IS_HELD_OUT).toArrow()
        self._held = arrow.column(_IS_HELD_OUT).to_numpy() == 1
        y = arrow.column(LABEL).to_numpy().astype(np.float64)
        self._y = y.astype(np.int64) if scorer.task == CLASSIFICATION else y
        none = np.empty((0, 0), dtype=np.float32)
        held = PreparedRows(none, self._y[self._held])
        fit_task = FitTask(
            PreparedRows(none, None), held, scorer, 0, report=task.report, until_s=task.until_s
        )
        self._stopping = EarlyStopping(fit_task, most)
        self._sums: NDArray[np.float64] | None = None

    def begin(self, constant: float) -> None:
        self._sums = np.full(len(self._y), constant)

    def add_tree(self, tree: Any, weight: float) -> bool:
        """Take in a tree; returns whether it was the last one."""
        assert self._sums is not None
        tree.setFeaturesCol(self._features).setPredictionCol(_TREE_OUTPUT)
        outputs = tree.transform(self._frame).select(_TREE_OUTPUT).toArrow().column(_TREE_OUTPUT).to_numpy()
        self._sums = self._sums + weight * outputs
        sums, y = self._sums, self._y
        if self._scorer.task == CLASSIFICATION:
            predicted: NDArray[Any] = (sums > 0).astype(np.int64)
            every = np.logaddexp(0.0, 2.0 * sums) - y * 2.0 * sums
        else:
            predicted, every = sums, np.square(sums - y)
        held = self._held
        train = self._scorer.score(y[~held], predicted[~held], np.empty((0, 0), dtype=np.float32))
        return self._stopping.step(predicted[held], float(every[held].mean()), train)

    @property
    def best(self) -> int:
        """After how many trees it was best."""
        return max(self._stopping.best_step, 1)

    def learning_curve(self) -> LearningCurve:
        return self._stopping.learning_curve()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._frame.unpersist()


def _sampled_rows(rows: Any, features: str, held: int) -> Any:
    """The same rows each time, whichever way they come."""
    from pyspark.sql import functions as sf

    marked = rows.select(
        LABEL, features, sf.lit(held).alias(_IS_HELD_OUT), sf.xxhash64(LABEL, features).alias(_HASH)
    )
    return marked.orderBy(_HASH).limit(_MOST).drop(_HASH)
