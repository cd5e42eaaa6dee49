"""One trial from beginning to end: fit, judge, export, check, write down."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.algorithm import CLUSTERING
from prudent.training.algorithms.registry import algorithm
from prudent.training.engines.delivery import TrainedPipeline, deliver, mean_value
from prudent.training.engines.engine import ModelFacts, TrialSpec
from prudent.training.engines.figures import importance_figure, judged_figures, learning_curve_figures
from prudent.training.engines.fit_task import ReportProgress, fold_progress, unreported
from prudent.training.engines.fitted_transforms import apply_all
from prudent.training.engines.model_files import library_versions
from prudent.training.engines.onnx_export import ExportCheck, check_export
from prudent.training.engines.predictions import Predictions
from prudent.training.engines.racing import is_behind, score_behind
from prudent.training.engines.spark.boosting import is_boosting
from prudent.training.engines.spark.dataset import FEATURES, ROW, SparkDataset
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
from prudent.training.engines.spark.splits import MOST_ON_DRIVER, SparkSplit
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

    def standardised(self, raw: NDArray[Any]) -> NDArray[Any] | None:
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
    """Train what the spec says, and leave `model.onnx`, Spark's own form and `facts.json` in its folder.

    Every split trains a model and judges it by rows that this model has not seen, and that had no say in how
    long it was trained. The model of the last split is kept.
    """
    settings = algorithm(spec.algorithm).complete(spec.hyperparameters)
    began_s = time.perf_counter()
    if spec.refit:
        return _refit(context, spec, settings, began_s)
    until_s = math.inf if spec.soft_s is None else time.monotonic() + spec.soft_s
    judged = _judge(context, spec, settings, report, until_s)
    scorer, last = context.scorer, judged[-1]
    value = mean_value(scorer, [each.result.value for each in judged])
    scores = tuple(scorer.to_score(each.result.value) for each in judged)
    if len(scores) < context.split.splits:  # what it is behind in some splits, it is behind in all
        value = scorer.to_score(score_behind(spec.bar, scores))
    told = Predictions.joined([each.kept for each in judged])
    steps = [each.fitted.curve.best_step for each in judged if each.fitted.curve is not None]
    size = context.split.size(len(judged) - 1, spec.fraction)
    facts = replace(
        _facts(context, spec, size, began_s),
        value=value,
        score=scorer.to_score(value),
        rows_validated=sum(each.result.rows for each in judged),
        picture={
            **last.result.figures,
            **_of_folds(context, told),
            **_learning(last.fitted),
            **_importance(last.fitted, context.dataset),
        },
        iterations=max(1, round(float(np.mean(steps)))) if steps else None,
        split_scores=scores,
    )
    spec.folder.mkdir(parents=True, exist_ok=True)
    told.write(spec.folder)
    collected = last.collected
    if collected is None:
        collected = collect_predictions(last.fitted.predict(_sampled_rows(context)), context.dataset)
    return _deliver(context, spec, last.fitted, collected, facts)


def _refit(
    context: SparkTrialContext, spec: TrialSpec, settings: Mapping[str, Any], began_s: float
) -> ModelFacts:
    """A model of all rows, those of the test part too, whose score was measured before."""
    dataset, scorer = context.dataset, context.scorer.of_classes
    every, steps = context.split.train(None, spec.fraction), spec.iterations
    fitted = fit(spec, settings, every, None, dataset, scorer, unreported, iterations=steps)
    said = collect_predictions(fitted.predict(_sampled_rows(context)), dataset)
    size = context.split.size(None, spec.fraction)
    return _deliver(context, spec, fitted, said, _facts(context, spec, size, began_s, refitted=True))


@dataclass(frozen=True, eq=False)
class _Judged:
    """A split's model, what it is worth, and what it said of held-out rows: of all, if those are few."""

    fitted: FittedPipeline
    result: ValidationResult
    kept: Predictions
    collected: CollectedPredictions | None


def _judge(
    context: SparkTrialContext,
    spec: TrialSpec,
    settings: Mapping[str, Any],
    report: ReportProgress,
    until_s: float,
) -> list[_Judged]:
    """A model of every split, or of the first ones where it is clearly behind the best by then."""
    splits, scorer = context.split.splits, context.scorer
    judged: list[_Judged] = []
    for number in range(splits):
        now_s = time.monotonic()
        told = fold_progress(report, number, splits)
        own_until_s = now_s + (until_s - now_s) / (splits - number)
        judged.append(
            _judge_split(
                context, spec, number, _fit_split(context, spec, settings, number, told, own_until_s)
            )
        )
        scores = [scorer.to_score(each.result.value) for each in judged]
        if number + 1 < splits:
            if is_behind(spec.bar, scores):
                break
            report(float(np.mean(scores)), (number + 1) / splits)
    return judged


def _judge_split(context: SparkTrialContext, spec: TrialSpec, number: int, fitted: FittedPipeline) -> _Judged:
    dataset, split, scorer = context.dataset, context.split, context.scorer
    predicted = fitted.predict(split.held_out(number))
    if can_collect(dataset.rows // split.splits, dataset):
        collected = collect_predictions(predicted, dataset)
        result = scorer.of_collected(collected, context.standardised(collected.raw))
        return _Judged(fitted, result, split.kept(number, collected), collected)
    few = collect_predictions(split.sampled(number, predicted), dataset)
    # Probabilities are not counted: those of some thousand rows tell as much.
    whole = not scorer.needs_probabilities
    rows, features = context.standardised_frame(predicted)
    result = scorer.of_frame(rows, features) if whole else scorer.of_collected(few)
    return _Judged(fitted, result, split.kept(number, few), None)


def _facts(
    context: SparkTrialContext, spec: TrialSpec, rows: int, began_s: float, refitted: bool = False
) -> ModelFacts:
    """What is known of a model but how good it is."""
    library = "torch" if spec.algorithm == PERCEPTRON else "xgboost" if is_boosting(spec.algorithm) else None
    return ModelFacts(
        metric=context.scorer.metric,
        value=0.0,
        score=0.0,
        train_s=time.perf_counter() - began_s,
        predict_ms=0.0,
        export_difference=None,
        rows_trained=rows,
        rows_validated=0,
        versions=library_versions(library) | library_versions("pyspark"),
        refitted=refitted,
    )


def _deliver(
    context: SparkTrialContext,
    spec: TrialSpec,
    fitted: FittedPipeline,
    predictions: CollectedPredictions,
    facts: ModelFacts,
) -> ModelFacts:
    return deliver(
        trained_pipeline(fitted, context.dataset),
        facts,
        spec.folder,
        partial(compare_export, predictions),
        context.pmml,
        partial(_write_own_form, fitted) if context.own_form else None,
    )


def trained_pipeline(fitted: FittedPipeline, dataset: SparkDataset) -> TrainedPipeline:
    """What Spark has fitted in the form that is exported."""
    model = as_local_model(fitted.model, fitted.categories, dataset.wide)
    return TrainedPipeline(
        model, fitted.transforms, dataset.columns, dataset.target, dataset.classes, dataset.wide
    )


def _write_own_form(fitted: FittedPipeline, folder: Path) -> None:
    fitted.pipeline.write().overwrite().save(folder.resolve().as_uri())


def compare_export(predictions: CollectedPredictions, onnx: bytes) -> ExportCheck:
    """The exported model beside what Spark predicted."""
    expected = predictions.predicted, predictions.probabilities
    return check_export(onnx, predictions.raw, lambda: expected, ties=_ties(predictions))


def _ties(predictions: CollectedPredictions) -> NDArray[np.bool_]:
    """Rows whose two best classes score the same but for the last digits: either one is right."""
    told = predictions.probabilities if predictions.scores is None else predictions.scores
    if told is None:
        return np.zeros(len(predictions.predicted), dtype=np.bool_)
    two = np.sort(told, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0] <= _TIE * np.maximum(1.0, np.abs(two[:, 1])))


def _fit_split(
    context: SparkTrialContext,
    spec: TrialSpec,
    settings: Mapping[str, Any],
    number: int,
    report: ReportProgress,
    until_s: float,
) -> FittedPipeline:
    """Fit on the training rows of a split.

    What learns in steps watches an inner part of them first, and then learns for as many steps from all;
    where they are so many that the inner part is not missed, the first fit is the one.
    """
    dataset, split, scorer = context.dataset, context.split, context.scorer.of_classes
    if not algorithm(spec.algorithm).iterative:
        every = split.train(number, spec.fraction)
        return fit(spec, settings, every, None, dataset, scorer, report, until_s)
    parted = split.inner(number, spec.fraction)
    if parted is None:
        every = split.train(number, spec.fraction)
        return fit(spec, settings, every, None, dataset, scorer, report, until_s)
    rows, watched = parted
    again = spec.fraction * dataset.rows <= MOST_ON_DRIVER
    now_s = time.monotonic()
    inner_until_s = now_s + (until_s - now_s) / 2 if again else until_s
    found = fit(spec, settings, rows, watched, dataset, scorer, report, inner_until_s)
    if not again:
        return found
    assert found.curve is not None
    every, steps = split.train(number, spec.fraction), max(found.curve.best_step, 1)
    whole = fit(spec, settings, every, None, dataset, scorer, unreported, iterations=steps)
    return replace(whole, curve=found.curve)


def _sampled_rows(context: SparkTrialContext) -> Any:
    """Held-out rows enough to see a difference or take the time."""
    most = max(1, min(_SAMPLE, MOST_CELLS // (len(context.dataset.columns) + 8)))
    return context.split.held_out(context.split.splits - 1).orderBy(ROW).limit(most)


def _of_folds(context: SparkTrialContext, told: Predictions) -> dict[str, Any]:
    """What is drawn of all folds; nothing where there is one split, of which all rows are drawn."""
    if context.split.splits == 1:
        return {}
    return judged_figures(context.scorer, told, range(context.scorer.classes))


def _learning(fitted: FittedPipeline) -> dict[str, Any]:
    return {} if fitted.curve is None else learning_curve_figures(fitted.curve)


def _importance(fitted: FittedPipeline, dataset: SparkDataset) -> dict[str, Any]:
    if fitted.importance is None:
        return {}
    return importance_figure(fitted.importance, fitted.transforms, [each.name for each in dataset.columns])
