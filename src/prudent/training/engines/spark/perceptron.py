"""The multilayer perceptron: torch in every executor, gradients averaged among them, inside a Spark job.

The network is the one of Spark's own perceptron (sigmoid layers, a softmax at the end), so that what torch
has learnt becomes a model of Spark: it predicts where the data are, and is saved like any other.
"""

from __future__ import annotations

import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines import networks
from prudent.training.engines.fit_task import LearningCurve, patience_of
from prudent.training.engines.local.learners.perceptron import layer_widths
from prudent.training.engines.scoring import Scorer
from prudent.training.engines.spark import perceptron_group, perceptron_worker, progress
from prudent.training.engines.spark.dataset import LABEL, moments
from prudent.training.engines.spark.evaluation import sample_columns
from prudent.training.engines.spark.fit_task import SparkFitTask
from prudent.training.engines.spark.perceptron_worker import (
    run_training_script,
    train_worker,
    with_temporary_folder,
)
from prudent.training.engines.spark.progress import LineServer, verified_progress
from prudent.training.models.metrics import value_of_counts

Vector = NDArray[np.float64]
PERCEPTRON = "multilayer-perceptron-classifier"
_ROWS_EACH = 2000
"""Rows that make another process worth starting."""


def fit_perceptron(task: SparkFitTask) -> tuple[Any, LearningCurve | None]:
    """Train on a frame of labels and prepared vectors: a model of Spark's, and how training went where there
    were rows to watch."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as sf

    rows, scorer = task.rows, task.scorer
    count = int(rows.count())
    width = int(rows.select(task.features).first()[0].size)
    layers = layer_widths(task.settings, width, scorer.classes)
    context = rows.sparkSession.sparkContext
    processes = max(1, min(context.defaultParallelism, count // _ROWS_EACH))
    frame = rows.select(
        vector_to_array(sf.col(task.features), task.precision).alias("x"),
        sf.col(LABEL).cast("int").alias("y"),
    ).repartition(processes)
    X, y = _watched_sample(task)
    steps = int(task.settings["maxIter"]) if task.iterations is None else task.iterations

    secret = secrets.token_bytes(32)

    def on_line(line: str) -> None:
        if (said := verified_progress(line, secret)) is not None:
            value = value_of_counts(scorer.metric, np.array(said["counts"]))
            task.report(scorer.to_score(value), float(said["done"]))

    settings = {name: value for name, value in task.settings.items() if value is not None}
    mean, spread = moments(rows, task.features)
    factor = 1.0 / np.where(spread > 0, spread, 1.0)
    left_s = max(task.until_s - time.monotonic(), 0.0)  # other computers have other clocks
    arguments = (
        *(secret, layers, settings, task.seed, mean, factor, X, y, patience_of(steps), steps, left_s),
        _mean_one(task),
    )
    found = _distributed(processes, on_line, frame, arguments)
    weights = _unscaled(np.asarray(found["weights"]), layers, mean, factor)
    model = _spark_model(context, task.features, layers, weights)
    return model, None if X is None else _learning_curve(scorer, found, steps)


def _mean_one(task: SparkFitTask) -> list[float]:
    """The weights of the classes, such that the training rows weigh 1 on average; none where all do."""
    if not task.class_weights:
        return []
    mean = float(task.rows.select(task.weight.alias("w")).agg({"w": "avg"}).first()[0])
    return [weight / mean for weight in task.class_weights]


def _learning_curve(scorer: Scorer, found: Mapping[str, Any], steps: int) -> LearningCurve:
    points = found["points"]
    train, watched = (
        tuple(scorer.to_score(value_of_counts(scorer.metric, np.array(point[part]))) for point in points)
        for part in ("training", "watched")
    )
    passes = tuple(point["step"] for point in points)
    return LearningCurve(passes, train, watched, int(found["best"]), steps, found["why"])


def _unscaled(weights: Vector, layers: list[int], mean: Vector, factor: Vector) -> Vector:
    """Scaling put into the first layer, so that the network takes features as they are."""
    inputs, width = layers[:2]
    first = weights[: inputs * width].reshape(inputs, width) * factor[:, None]
    shifts = weights[inputs * width : (inputs + 1) * width] - mean @ first
    return np.concatenate([first.ravel(), shifts, weights[(inputs + 1) * width :]])


def _watched_sample(task: SparkFitTask) -> tuple[Any, Any]:
    """A few watched rows, to be classified after every pass."""
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as sf

    if task.watched is None:
        return None, None
    x = vector_to_array(sf.col(task.features), task.precision)
    found = sample_columns(task.watched.withColumn("x", x), ["x", LABEL])
    return np.stack(list(found["x"])), found[LABEL].astype(np.int64)


def _distributed(processes: int, on_line: Callable[[str], None], frame: Any, args: tuple[Any, ...]) -> Any:
    """Run `train_worker` in so many processes, each with its partition of the frame."""
    from pyspark import cloudpickle
    from pyspark.ml.torch.distributor import TorchDistributor

    class Distributor(TorchDistributor):  # type: ignore[misc]
        """Spark's own, but its workers' lines come to us, on the driver's address, instead of to stderr, and
        there is no launcher of torch's between Spark and a process: two more processes that load torch."""

        def _run_distributed_training(
            self,
            framework_wrapper_fn: Any,
            train_object: Any,
            run_pytorch_file_fn: Any,
            spark_dataframe: Any,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            self.driver_address = str(self.spark.conf.get("spark.driver.host"))
            bound = self.spark.conf.get("spark.driver.bindAddress", self.driver_address)
            with LineServer(str(bound), on_line) as ear:
                self.log_streaming_server_port = ear.port
                task = self._get_spark_task_function(
                    framework_wrapper_fn,
                    train_object,
                    run_training_script,
                    spark_dataframe,
                    *args,
                    **kwargs,
                )
                self._check_encryption()
                chunks = spark_dataframe.mapInArrow(
                    func=with_temporary_folder(task), schema="chunk binary", barrier=True
                ).collect()
            return cloudpickle.loads(b"".join(row.chunk for row in chunks))

    # By value: the executors' Python need not have Prudent installed.
    register: Any = cloudpickle.register_pickle_by_value  # untyped in pyspark
    for module in (networks, perceptron_group, perceptron_worker, progress):
        register(module)
    distributor = Distributor(num_processes=processes, local_mode=False, use_gpu=False)
    return distributor._train_on_dataframe(train_worker, frame, *args)


def _spark_model(context: Any, features: str, layers: list[int], weights: Any) -> Any:
    from pyspark.ml.classification import MultilayerPerceptronClassificationModel
    from pyspark.ml.common import _py2java
    from pyspark.ml.linalg import Vectors

    jvm = context._jvm
    uid = f"mlp_{uuid.uuid4().hex[:12]}"
    made = jvm.org.apache.spark.ml.classification.MultilayerPerceptronClassificationModel(
        uid, _py2java(context, Vectors.dense(weights))
    )
    widths = context._gateway.new_array(jvm.int, len(layers))
    for place, width in enumerate(layers):
        widths[place] = width
    made.set(made.layers(), widths)
    made.setFeaturesCol(features)
    model = MultilayerPerceptronClassificationModel(made)
    model._transfer_params_from_java()
    return model
