"""A pipeline fitted by Spark: transforms, categories, the estimator's model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.registry import algorithm
from prudent.training.engines.engine import TrialSpec
from prudent.training.engines.fit_task import LearningCurve, ReportProgress
from prudent.training.engines.fitted_transforms import FittedTransform
from prudent.training.engines.scoring import Scorer
from prudent.training.engines.spark.boosting import BOOSTED, fit_boosted, gains, is_boosting
from prudent.training.engines.spark.dataset import LABEL, ROW, WEIGHT, SparkDataset, moments
from prudent.training.engines.spark.estimators import (
    OF_TWO_CLASSES,
    estimator,
    fit_one_vs_rest,
    takes_categories,
    with_classes,
)
from prudent.training.engines.spark.features import SparkTransformFitter
from prudent.training.engines.spark.fit_task import SparkFitTask
from prudent.training.engines.spark.perceptron import PERCEPTRON, fit_perceptron

_LINEAR = (
    "LinearRegressionModel",
    "GeneralizedLinearRegressionModel",
    "LogisticRegressionModel",
    "LinearSVCModel",
)


@dataclass(frozen=True, eq=False)
class FittedPipeline:
    """A pipeline in Spark, and what its ONNX form is made from."""

    pipeline: Any
    model: Any
    transforms: tuple[FittedTransform, ...]
    features: str
    categories: Mapping[int, Mapping[float, int]] = field(default_factory=dict)
    spread: NDArray[np.float64] | None = None
    """Standard deviations of the prepared features, where the model's weights mean nothing without."""
    curve: LearningCurve | None = None
    """How an iterative algorithm learnt, where it watched rows."""

    def predict(self, frame: Any) -> Any:
        return self.pipeline.transform(frame)

    @property
    def importance(self) -> NDArray[np.float64] | None:
        """What each prepared feature weighs in the model; None where it does not say."""
        weighed = [_weights(each, self.spread) for each in _models_of(self.model)]
        known = [weights for weights in weighed if weights is not None]
        return np.asarray(np.sum(known, axis=0)) if known else None


def fit(
    spec: TrialSpec,
    settings: Mapping[str, Any],
    rows: Any,
    watched: Any,
    dataset: SparkDataset,
    scorer: Scorer,
    report: ReportProgress,
    until_s: float = math.inf,
    iterations: int | None = None,
) -> FittedPipeline:
    """Fit everything of a trial on some rows.

    `watched` (or None) tells an algorithm that learns in steps where to end, unless `iterations` does; at
    `until_s` (on the monotonic clock) it ends with what it has learned.
    """
    from pyspark.ml import PipelineModel

    fitter = SparkTransformFitter(rows, dataset, spec.seed)
    for name, chosen in spec.transforms.items():
        fitter.add(name, chosen)
    fitter.finish(algorithm(spec.algorithm).native, dataset.wide and is_boosting(spec.algorithm))
    categories: Mapping[int, Mapping[float, int]] = {place: {} for place in fitter.categories}
    most = settings.get("maxCategories")
    if most is not None and takes_categories(spec.algorithm):
        categories = fitter.index(int(most)).categoryMaps
    stages, features = fitter.stages, fitter.output
    ready = fitter.rows.select(ROW, *([LABEL] if dataset.target is not None else []), features)
    others = None if watched is None else PipelineModel(stages).transform(watched)
    task = SparkFitTask(
        spec.algorithm, settings, ready, others, features, scorer, spec.fit_seed, report, until_s
    )
    task = replace(
        task,
        iterations=iterations,
        categories=categories,
        class_weights=dataset.class_weights,
        precision=np.dtype(dataset.precision).name,
    )
    model, curve = _fit_model(task)
    has_weights = any(type(each).__name__ in _LINEAR for each in _models_of(model))
    spread = moments(ready, features)[1] if has_weights else None
    pipeline = PipelineModel([*stages, model])
    return FittedPipeline(pipeline, model, tuple(fitter.transforms), features, categories, spread, curve)


def _fit_model(task: SparkFitTask) -> tuple[Any, LearningCurve | None]:
    """The model on prepared rows, and how training went where it watched rows."""
    if task.algorithm == PERCEPTRON:
        return fit_perceptron(task)
    if is_boosting(task.algorithm):
        return fit_boosted(task)
    rows = task.rows.withColumn(WEIGHT, task.weight) if task.class_weights else task.rows
    task = replace(task, rows=with_classes(rows, task.scorer.classes))
    made = estimator(task)
    if type(made).__name__ in OF_TWO_CLASSES and task.scorer.classes > 2:
        return fit_one_vs_rest(task, made), None
    return made.fit(task.rows), None


def _models_of(model: Any) -> list[Any]:
    """The model, or those of which there is one for each class."""
    return list(model.models) if type(model).__name__ == "OneVsRestModel" else [model]


def _weights(model: Any, spread: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Importances of trees as Spark has them; coefficients by what a usual change of the feature does."""
    name = type(model).__name__
    if name in BOOSTED:
        return gains(model)
    if "Tree" in name or "Forest" in name:
        return np.asarray(model.featureImportances.toArray())
    if spread is None:
        return None
    if name == "LogisticRegressionModel":
        return np.asarray(np.abs(model.coefficientMatrix.toArray()).sum(axis=0) * spread)
    return np.asarray(np.abs(model.coefficients.toArray()) * spread)
