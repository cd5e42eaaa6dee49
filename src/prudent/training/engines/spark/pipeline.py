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
from prudent.training.engines.figures import learning_curve_figures
from prudent.training.engines.fit_task import ReportProgress
from prudent.training.engines.fitted_transforms import FittedTransform
from prudent.training.engines.scoring import Scorer
from prudent.training.engines.spark.boosting import BOOSTED, BoostingMonitor, grow, rounds, trim_to_best
from prudent.training.engines.spark.dataset import LABEL, SparkDataset, moments
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
    figures: Mapping[str, Any] = field(default_factory=dict)
    """How it learnt, for the report."""

    def predict(self, frame: Any) -> Any:
        return self.pipeline.transform(frame)

    @property
    def trees(self) -> int | None:
        """How many trees boosting ended with; None for other algorithms."""
        models = _models_of(self.model)
        if not all(type(each).__name__ in BOOSTED for each in models):
            return None
        return round(float(np.mean([rounds(each) for each in models])))

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
    held_out: Any,
    dataset: SparkDataset,
    scorer: Scorer,
    report: ReportProgress,
    until_s: float = math.inf,
) -> FittedPipeline:
    """Fit everything of a trial on some rows.

    `held_out` (or None) tells how it goes on the way, and where to end an algorithm that learns in steps; at
    `until_s` (on the monotonic clock) it ends with what it has learned.
    """
    from pyspark.ml import PipelineModel

    fitter = SparkTransformFitter(rows, dataset)
    for name, chosen in spec.transforms.items():
        fitter.add(name, chosen)
    fitter.finish()
    categories: Mapping[int, Mapping[float, int]] = {}
    most = settings.get("maxCategories")
    if most is not None and takes_categories(spec.algorithm):
        categories = fitter.index(int(most)).categoryMaps
    stages, features = fitter.stages, fitter.output
    ready = fitter.rows.select(*([LABEL] if dataset.target is not None else []), features)
    others = None
    if held_out is not None and algorithm(spec.algorithm).iterative:
        others = PipelineModel(stages).transform(held_out)
    task = SparkFitTask(
        spec.algorithm, settings, ready, others, features, scorer, spec.fit_seed, report, until_s
    )
    model, figures = _fit_model(task)
    has_weights = any(type(each).__name__ in _LINEAR for each in _models_of(model))
    spread = moments(ready, features)[1] if has_weights else None
    pipeline = PipelineModel([*stages, model])
    return FittedPipeline(pipeline, model, tuple(fitter.transforms), features, categories, spread, figures)


def _fit_model(task: SparkFitTask) -> tuple[Any, dict[str, Any]]:
    """The model on prepared rows, and what a report draws of how it learnt."""
    if task.algorithm == PERCEPTRON:
        return fit_perceptron(task), {}
    task = replace(task, rows=with_classes(task.rows, task.scorer.classes))
    made = estimator(task)
    if type(made).__name__ in OF_TWO_CLASSES and task.scorer.classes > 2:
        return fit_one_vs_rest(task, made), {}
    if algorithm(task.algorithm).iterative:
        return _boosted(task, made)
    return made.fit(task.rows), {}


def _boosted(task: SparkFitTask, made: Any) -> tuple[Any, dict[str, Any]]:
    """Boosted trees, no more of them than do good on the held-out rows, and what a report draws of that."""
    if task.settings.get("lossType") == "absolute":
        model = made.fit(task.rows)
        return model if task.held_out is None else trim_to_best(model, task.held_out), {}
    if task.held_out is None:
        return grow(made, task.rows, task.seed), {}
    with BoostingMonitor(task, made.getMaxIter()) as monitor:
        model = grow(made, task.rows, task.seed, monitor)
        return model, learning_curve_figures(monitor.learning_curve())


def _models_of(model: Any) -> list[Any]:
    """The model, or those of which there is one for each class."""
    return list(model.models) if type(model).__name__ == "OneVsRestModel" else [model]


def _weights(model: Any, spread: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Importances of trees as Spark has them; coefficients by what a usual change of the feature does."""
    name = type(model).__name__
    if "Tree" in name or "Forest" in name or name.startswith("GBT"):
        return np.asarray(model.featureImportances.toArray())
    if spread is None:
        return None
    if name == "LogisticRegressionModel":
        return np.asarray(np.abs(model.coefficientMatrix.toArray()).sum(axis=0) * spread)
    return np.asarray(np.abs(model.coefficients.toArray()) * spread)
