"""One trial from beginning to end: fit, judge, export, check, write down."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.algorithm import CLUSTERING
from prudent.training.algorithms.registry import algorithm
from prudent.training.engines.delivery import TrainedPipeline, deliver, mean_value
from prudent.training.engines.engine import ModelFacts, TrialSpec
from prudent.training.engines.figures import importance_figure
from prudent.training.engines.fit_task import ReportProgress, fold_progress, unreported
from prudent.training.engines.fitted_transforms import apply_all
from prudent.training.engines.model_files import library_versions
from prudent.training.engines.onnx_export import ExportCheck, check_export
from prudent.training.engines.spark.dataset import FEATURES, ROW, SparkDataset, SparkSplit
from prudent.training.engines.spark.evaluation import (
    MOST_CELLS,
    PREDICTION,
    CollectedPredictions,
    SparkScorer,
    ValidationResult,
    can_collect,
    collect_predictions,
)
from prudent.training.engines.spark.features import SparkTransformFitter
from prudent.training.engines.spark.perceptron import PERCEPTRON
from prudent.training.engines.spark.pipeline import FittedPipeline, fit
from prudent.training.engines.spark.translation import as_local_model

_SAMPLE = 10_000
_TIE = 1e-6  # ONNX sums trees in single precision


@dataclass(frozen=True, eq=False)
class SparkTrialContext:
    """What all trials of a session share."""

    dataset: SparkDataset
    split: SparkSplit
    scorer: SparkScorer
    own_form: bool = True
    """Whether Spark can write its own form of a model to where the others are: its machines write it."""
    pmml: bool = False
    """Whether PMML was asked for as well."""

    def standardised(self, raw: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """Rows by the standardised features of all, where clusterings are compared; None for others."""
        if self.scorer.task != CLUSTERING:
            return None
        return apply_all(self._standard.transforms, raw)

    def standardised_frame(self, predicted: Any) -> tuple[Any, str]:
        """The same for a frame of predictions, with the name of its column of vectors."""
        from pyspark.ml import PipelineModel

        if self.scorer.task != CLUSTERING:
            return predicted, FEATURES
        rows = predicted.select(ROW, PREDICTION, *self.dataset.inputs)
        return PipelineModel(self._standard.stages).transform(rows), self._standard.output

    @cached_property
    def _standard(self) -> SparkTransformFitter:
        fitter = SparkTransformFitter(self.split.train(None, 1.0), self.dataset)
        fitter.standardise()
        return fitter


def train(context: SparkTrialContext, spec: TrialSpec, report: ReportProgress) -> ModelFacts:
    """Train what the spec says, and leave `model.onnx`, Spark's own form and `facts.json` in its folder."""
    settings = algorithm(spec.algorithm).complete(spec.hyperparameters)
    dataset, split, scorer = context.dataset, context.split, context.scorer
    began_s = time.perf_counter()
    until_s = math.inf if spec.soft_s is None else time.monotonic() + spec.soft_s
    measured, results, predictions, tree_counts = _folds(context, spec, settings, report, until_s)
    value = mean_value(scorer, [result.value for result in results])
    fitted = measured
    if split.folds > 1:
        final = _final(settings, tree_counts)
        fitted = fit(spec, final, split.train(None, spec.fraction), None, dataset, scorer, unreported)
    library = "torch" if spec.algorithm == PERCEPTRON else None
    facts = ModelFacts(
        metric=scorer.metric,
        value=value,
        score=scorer.to_score(value),
        train_s=time.perf_counter() - began_s,
        predict_ms=0.0,
        export_difference=None,
        rows_trained=split.size(0 if split.folds == 1 else None, spec.fraction),
        rows_validated=sum(result.rows for result in results),
        versions=library_versions(library) | library_versions("pyspark"),
        picture={**results[-1].figures, **measured.figures, **_importance(measured, dataset)},
    )
    if predictions is None or split.folds > 1:
        predictions = collect_predictions(fitted.predict(_sampled_rows(context)), dataset)
    return deliver(
        trained_pipeline(fitted, dataset),
        facts,
        spec.folder,
        partial(compare_export, predictions),
        context.pmml,
        partial(_write_own_form, fitted) if context.own_form else None,
    )


def trained_pipeline(fitted: FittedPipeline, dataset: SparkDataset) -> TrainedPipeline:
    """What Spark has fitted in the form that is exported."""
    model = as_local_model(fitted.model, fitted.categories)
    return TrainedPipeline(model, fitted.transforms, dataset.columns, dataset.target, dataset.classes)


def _write_own_form(fitted: FittedPipeline, folder: Path) -> None:
    fitted.pipeline.write().overwrite().save(folder.resolve().as_uri())


def compare_export(predictions: CollectedPredictions, onnx: bytes) -> ExportCheck:
    """The exported model beside what Spark predicted."""
    expected = predictions.predicted, predictions.probabilities
    return check_export(onnx, predictions.raw, lambda: expected, ties=_ties(predictions))


def _ties(predictions: CollectedPredictions) -> NDArray[np.bool_]:
    """Rows whose two best classes score the same but for the last digits: either one is right."""
    if predictions.scores is None:
        return np.zeros(len(predictions.predicted), dtype=np.bool_)
    two = np.sort(predictions.scores, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0] <= _TIE * np.maximum(1.0, np.abs(two[:, 1])))


def _folds(
    context: SparkTrialContext,
    spec: TrialSpec,
    settings: Mapping[str, Any],
    report: ReportProgress,
    until_s: float,
) -> tuple[FittedPipeline, list[ValidationResult], CollectedPredictions | None, list[int]]:
    """Fit and judge in every fold; the model of the last one, what it said if that is little, and how many
    trees boosting ended with in each."""
    dataset, split, scorer = context.dataset, context.split, context.scorer
    results: list[ValidationResult] = []
    tree_counts: list[int] = []
    predictions: CollectedPredictions | None = None
    for fold in range(split.folds):
        held_out = split.held_out(fold)
        told = fold_progress(report, fold, split.folds)
        train_rows = split.train(fold, spec.fraction)
        fitted = fit(spec, settings, train_rows, held_out, dataset, scorer, told, until_s)
        tree_counts += [] if fitted.trees is None else [fitted.trees]
        predicted = fitted.predict(held_out)
        if can_collect(dataset.rows // split.folds, dataset):
            predictions = collect_predictions(predicted, dataset)
            results.append(scorer.of_collected(predictions, context.standardised(predictions.raw)))
        else:
            results.append(scorer.of_frame(*context.standardised_frame(predicted)))
        if fold + 1 < split.folds:
            report(
                scorer.to_score(float(np.mean([result.value for result in results]))),
                (fold + 1) / split.folds,
            )
    return fitted, results, predictions, tree_counts


def _final(settings: Mapping[str, Any], tree_counts: list[int]) -> Mapping[str, Any]:
    """Settings of the final fit: it has no rows to find out how many trees are enough, but the folds did."""
    return {**settings, "maxIter": round(float(np.mean(tree_counts)))} if tree_counts else settings


def _sampled_rows(context: SparkTrialContext) -> Any:
    """Held-out rows enough to see a difference or take the time."""
    most = max(1, min(_SAMPLE, MOST_CELLS // (len(context.dataset.columns) + 8)))
    return context.split.held_out(context.split.folds - 1).orderBy(ROW).limit(most)


def _importance(fitted: FittedPipeline, dataset: SparkDataset) -> dict[str, Any]:
    if fitted.importance is None:
        return {}
    return importance_figure(fitted.importance, fitted.transforms, [each.name for each in dataset.columns])
