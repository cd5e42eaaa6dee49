"""One trial from beginning to end: fit, judge, export, check, write down."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.algorithm import CLUSTERING
from prudent.training.algorithms.registry import algorithm
from prudent.training.engines.delivery import TrainedPipeline, deliver, mean_value
from prudent.training.engines.engine import ModelFacts, TrialSpec
from prudent.training.engines.figures import importance_figure, learning_curve_figures
from prudent.training.engines.fit_task import ReportProgress, fold_progress, unreported
from prudent.training.engines.model_files import library_versions
from prudent.training.engines.onnx_export import ExportCheck, check_export
from prudent.training.engines.spark.dataset import MOST_ON_DRIVER, ROW, SparkDataset, SparkSplit
from prudent.training.engines.spark.evaluation import (
    MOST_CELLS,
    CollectedPredictions,
    SparkScorer,
    ValidationResult,
    can_collect,
    collect_predictions,
)
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


def train(context: SparkTrialContext, spec: TrialSpec, report: ReportProgress) -> ModelFacts:
    """Train what the spec says, and leave `model.onnx`, Spark's own form and `facts.json` in its folder."""
    settings = algorithm(spec.algorithm).complete(spec.hyperparameters)
    dataset, split, scorer = context.dataset, context.split, context.scorer
    began_s = time.perf_counter()
    until_s = math.inf if spec.soft_s is None else time.monotonic() + spec.soft_s
    measured, results, predictions, steps = _folds(context, spec, settings, report, until_s)
    value = mean_value(scorer, [result.value for result in results])
    fitted = measured
    if split.folds > 1:
        every = split.train(None, spec.fraction)
        # It watches no rows to find out how many steps are enough, but the folds did.
        iterations = round(float(np.mean(steps))) if steps else None
        fitted = fit(spec, settings, every, None, dataset, scorer, unreported, iterations=iterations)
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
        picture={**results[-1].figures, **_learning(measured), **_importance(measured, dataset)},
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
    """Fit and judge in every fold; the model of the last one, what it said if that is little, and in how many
    steps each learned that learns in steps."""
    dataset, split, scorer = context.dataset, context.split, context.scorer
    results: list[ValidationResult] = []
    steps: list[int] = []
    predictions: CollectedPredictions | None = None
    for fold in range(split.folds):
        held_out = split.held_out(fold)
        told = fold_progress(report, fold, split.folds)
        fitted = _fit_split(context, spec, settings, fold, told, until_s)
        steps += [] if fitted.curve is None else [fitted.curve.best_step]
        predicted = fitted.predict(held_out)
        if can_collect(dataset.rows // split.folds, dataset):
            prepared = fitted.features if scorer.task == CLUSTERING else None
            predictions = collect_predictions(predicted, dataset, prepared)
            results.append(scorer.of_collected(predictions))
        else:
            results.append(scorer.of_frame(predicted, fitted.features))
        if fold + 1 < split.folds:
            report(
                scorer.to_score(float(np.mean([result.value for result in results]))),
                (fold + 1) / split.folds,
            )
    return fitted, results, predictions, steps


def _fit_split(
    context: SparkTrialContext,
    spec: TrialSpec,
    settings: Mapping[str, Any],
    fold: int,
    report: ReportProgress,
    until_s: float,
) -> FittedPipeline:
    """Fit on the training rows of a fold.

    What learns in steps watches an inner part of them first, and then learns for as many steps from all;
    where they are so many that the inner part is not missed, or time is up, the first fit is the one.
    """
    dataset, split, scorer = context.dataset, context.split, context.scorer
    if not algorithm(spec.algorithm).iterative:
        every = split.train(fold, spec.fraction)
        return fit(spec, settings, every, None, dataset, scorer, report, until_s)
    rows, watched = split.inner(fold, spec.fraction)
    found = fit(spec, settings, rows, watched, dataset, scorer, report, until_s)
    assert found.curve is not None
    if time.monotonic() >= until_s or spec.fraction * dataset.rows > MOST_ON_DRIVER:
        return found
    every, steps = split.train(fold, spec.fraction), found.curve.best_step
    again = fit(spec, settings, every, None, dataset, scorer, unreported, until_s, steps)
    return replace(again, curve=found.curve)


def _sampled_rows(context: SparkTrialContext) -> Any:
    """Held-out rows enough to see a difference or take the time."""
    most = max(1, min(_SAMPLE, MOST_CELLS // (len(context.dataset.columns) + 8)))
    return context.split.held_out(context.split.folds - 1).orderBy(ROW).limit(most)


def _learning(fitted: FittedPipeline) -> dict[str, Any]:
    return {} if fitted.curve is None else learning_curve_figures(fitted.curve)


def _importance(fitted: FittedPipeline, dataset: SparkDataset) -> dict[str, Any]:
    if fitted.importance is None:
        return {}
    return importance_figure(fitted.importance, fitted.transforms, [each.name for each in dataset.columns])
