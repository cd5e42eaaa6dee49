"""Boosted trees by XGBoost, in as many processes of the cluster as the rows are worth (`xgboost.spark`).

It is the learner behind `xgboost-*` and, with settings that come nearest, behind `gradient-boosted-tree-*`.
All processes of a training run at the same time (Spark's barrier mode), each with its part of the rows; for
every level of a tree they add up their histograms. How many trees are enough is found out on watched rows,
which are an inner part of the training rows.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput
from prudent.training.algorithms.algorithm import CLASSIFICATION
from prudent.training.algorithms.hyperparameter import SEED
from prudent.training.engines.fit_task import LearningCurve, patience_of
from prudent.training.engines.local.learners.trees import features_tried
from prudent.training.engines.scoring import Scorer
from prudent.training.engines.spark import listening, progress
from prudent.training.engines.spark.dataset import LABEL, WEIGHT
from prudent.training.engines.spark.evaluation import sample_columns
from prudent.training.engines.spark.fit_task import SparkFitTask
from prudent.training.engines.spark.progress import LineServer, verified_progress
from prudent.training.models.metrics import value_of_counts

BOOSTED = ("SparkXGBClassifierModel", "SparkXGBRegressorModel")
_NAMES = {
    "numRound": "n_estimators",
    "maxDepth": "max_depth",
    "learningRate": "learning_rate",
    "minChildWeight": "min_child_weight",
    "subsample": "subsample",
    "colsampleBytree": "colsample_bytree",
    "regAlpha": "reg_alpha",
    "regLambda": "reg_lambda",
    "gamma": "gamma",
    "maxBin": "max_bin",
}
"""XGBoost's hyper-parameters as requests name them, and as it does."""
_ROWS_EACH = 50_000
"""Rows that make another process worth starting."""
_WATCHED = "watched"
_NEVER = 1e30  # a gain that no split has
_CURVATURE = 0.1
"""What a row of classes weighs in a leaf, on average: a quarter at first, little once it is learnt."""


@dataclass(frozen=True, eq=False)
class WatchedSample:
    """Some watched rows and after them some training rows, few enough to be asked about after every tree."""

    X: NDArray[np.float32]
    y: NDArray[Any]
    watched: int


def is_boosting(algorithm: str) -> bool:
    """Whether XGBoost trains an algorithm's models here."""
    return algorithm.startswith(("xgboost-", "gradient-boosted-tree-"))


def fit_boosted(task: SparkFitTask) -> tuple[Any, LearningCurve | None]:
    """A model of `xgboost.spark`, and how training went where there were rows to watch."""
    if find_spec("xgboost") is None:
        raise BadInput("XGBoost is not installed; `pip install prudent[spark]`, or choose a random forest.")
    rows = _marked(task)
    count = int(task.rows.count())
    settings = _settings(task, count)
    session = rows.sparkSession
    processes = max(1, min(session.sparkContext.defaultParallelism, -(-count // _ROWS_EACH)))
    sample = None if task.watched is None else _sample(task)
    secret = secrets.token_bytes(32)

    def on_line(line: str) -> None:
        if (said := verified_progress(line, secret)) is not None:
            task.report(_score(task.scorer, said["watched"], sample), float(said["done"]))

    host = str(session.conf.get("spark.driver.host"))
    with LineServer(str(session.conf.get("spark.driver.bindAddress", host)), on_line) as server:
        monitor = _monitor(task, settings["n_estimators"], sample, (host, server.port, secret))
        model = _estimator(task, settings, processes, monitor).fit(rows)
    # What ended the training has no business in a model, which is sent to all who predict with it.
    model.clear(model.getParam("callbacks"))
    model._xgb_sklearn_model.set_params(callbacks=None)
    return model, None if sample is None else _learning_curve(model, task, settings["n_estimators"], sample)


def steps(model: Any) -> int:
    """After how many trees (for each class, if there are more than two) boosting ended."""
    return int(model.get_booster().num_boosted_rounds())


def gains(model: Any) -> NDArray[np.float64]:
    """What the trees' questions about each feature have gained."""
    booster = model.get_booster()
    found = np.zeros(booster.num_features())
    for name, gain in booster.get_score(importance_type="total_gain").items():
        found[int(name[1:])] = gain
    return found


# What it is given


def _estimator(task: SparkFitTask, settings: Mapping[str, Any], processes: int, monitor: Any) -> Any:
    from xgboost.spark import SparkXGBClassifier, SparkXGBRegressor

    kind = SparkXGBClassifier if task.scorer.task == CLASSIFICATION else SparkXGBRegressor
    for name in (kind.__name__, "XGBoost-PySpark"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return kind(
        features_col=task.features,
        label_col=LABEL,
        weight_col=WEIGHT,
        num_workers=processes,
        force_repartition=True,
        # In the first executor, where it ends with the training, however that ends.
        launch_tracker_on_driver=False,
        random_state=task.seed,
        tree_method="hist",
        verbosity=0,
        verbose=False,
        callbacks=[monitor],
        **({} if task.watched is None else {"validation_indicator_col": _WATCHED}),
        **settings,
    )


def _marked(task: SparkFitTask) -> Any:
    """Training rows and watched ones in one frame, which says which is which and how much each counts.

    A class that no row shows gets one that counts nothing: XGBoost counts the classes that it meets.
    """
    from pyspark.sql import functions as sf

    def of(part: Any, watched: bool) -> Any:
        weight = sf.lit(1.0) if watched else task.weight
        return part.select(LABEL, task.features, sf.lit(watched).alias(_WATCHED), weight.alias(WEIGHT))

    rows = of(task.rows, False)
    if task.scorer.classes > 2:
        shown = {int(row[LABEL]) for row in task.rows.select(LABEL).distinct().collect()}
        for absent in sorted(set(range(task.scorer.classes)) - shown):
            one = of(task.rows.limit(1), False).withColumn(LABEL, sf.lit(float(absent)))
            rows = rows.unionByName(one.withColumn(WEIGHT, sf.lit(0.0)))
    return rows if task.watched is None else rows.unionByName(of(task.watched, True))


def _settings(task: SparkFitTask, count: int) -> dict[str, Any]:
    """XGBoost's hyper-parameters by its own names."""
    given = {name: value for name, value in task.settings.items() if value is not None and name != SEED.name}
    classifies = task.scorer.task == CLASSIFICATION
    width = int(task.rows.select(task.features).first()[0].size)
    if task.algorithm.startswith("xgboost-"):
        settings = {_NAMES[name]: value for name, value in given.items()}
    else:
        settings = _translated(given, classifies, count, width)
    if task.iterations is not None:
        settings["n_estimators"] = task.iterations
    if task.categories:
        settings["feature_types"] = ["c" if place in task.categories else "q" for place in range(width)]
    absolute = given.get("lossType") == "absolute"
    if classifies:
        settings["eval_metric"] = "logloss" if task.scorer.classes <= 2 else "mlogloss"
        settings["base_score"] = 0.5
    else:
        settings["eval_metric"] = "mae" if absolute or task.scorer.metric == "mae" else "rmse"
        settings["objective"] = "reg:absoluteerror" if absolute else "reg:squarederror"
        settings["base_score"] = float(task.rows.agg({LABEL: "avg"}).first()[0])
    return settings


def _translated(given: Mapping[str, Any], classifies: bool, count: int, width: int) -> dict[str, Any]:
    """Settings of Spark's boosting as those of XGBoost that come nearest.

    XGBoost does not count the rows of a leaf, but adds up their curvatures: 1 for each row of a regression.
    """
    if given["minInfoGain"] > 0:
        raise BadInput("Boosted trees on Spark have no minInfoGain; set it to 0.")
    least = max(given["minInstancesPerNode"], math.ceil(given["minWeightFractionPerNode"] * count))
    tried = features_tried(given["featureSubsetStrategy"], width, classifies, given["maxIter"])
    return {
        "n_estimators": given["maxIter"],
        "learning_rate": given["stepSize"],
        "max_depth": max(given["maxDepth"], 1),
        "gamma": 0.0 if given["maxDepth"] > 0 else _NEVER,
        "min_child_weight": least * (_CURVATURE if classifies else 1.0),
        "subsample": given["subsamplingRate"],
        "colsample_bynode": tried / width,
        "max_bin": given["maxBins"],
        "reg_lambda": 0.0,
    }


def _sample(task: SparkFitTask) -> WatchedSample:
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as sf

    x = vector_to_array(sf.col(task.features), "float32")
    found = [sample_columns(part.withColumn("x", x), ["x", LABEL]) for part in (task.watched, task.rows)]
    X = np.stack([row for part in found for row in part["x"]])
    y = np.concatenate([part[LABEL] for part in found])
    return WatchedSample(X, y, len(found[0][LABEL]))


def _monitor(
    task: SparkFitTask, most_steps: int, sample: WatchedSample | None, driver: tuple[str, int, bytes]
) -> Any:
    from pyspark import cloudpickle

    from prudent.training.engines.spark import boosting_worker

    # By value: the executors' Python need not have Prudent installed.
    register: Any = cloudpickle.register_pickle_by_value  # untyped in pyspark
    for module in (listening, progress, boosting_worker):
        register(module)
    asked = None
    if sample is not None and task.scorer.task == CLASSIFICATION:
        asked = sample.X, sample.y.astype(np.int64), sample.watched
    left_s = max(task.until_s - time.monotonic(), 0.0)
    return boosting_worker.TrainingMonitor(
        driver, patience_of(most_steps), most_steps, left_s, asked, task.scorer.classes
    )


# What it tells


def _learning_curve(model: Any, task: SparkFitTask, most_steps: int, sample: WatchedSample) -> LearningCurve:
    from prudent.training.engines.spark.boosting_worker import CURVE

    told = json.loads(model.get_booster().attr(CURVE))
    points = told["points"]
    train, watched = (
        tuple(_score(task.scorer, point[part], sample) for point in points)
        for part in ("training", "watched")
    )
    ran = tuple(point["step"] for point in points)
    return LearningCurve(ran, train, watched, steps(model), most_steps, told["why"])


def _score(scorer: Scorer, said: Mapping[str, Any], sample: WatchedSample | None) -> float:
    """The request's metric as a score, from what a worker measured; the loss where that does not tell it."""
    values = dict(said)
    if "counts" in said:
        with suppress(BadInput):  # a metric that asks for more than the classes
            values[scorer.metric] = value_of_counts(scorer.metric, np.array(said["counts"]))
    if "rmse" in values and sample is not None:
        values["mse"] = values["rmse"] ** 2
        values["r2"] = 1.0 - values["mse"] / max(float(np.var(sample.y)), 1e-300)
    if scorer.metric in values:
        return scorer.to_score(float(values[scorer.metric]))
    return -float(next(value for name, value in said.items() if name != "counts"))
