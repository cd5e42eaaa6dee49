"""One trial from beginning to end, in a worker: prepare, fit, measure, export, check, write down."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.algorithms.algorithm import CLUSTERING
from prudent.training.algorithms.registry import algorithm
from prudent.training.data.dataset import Matrix
from prudent.training.engines.delivery import TrainedPipeline, deliver, mean_value
from prudent.training.engines.engine import ModelFacts, TrialSpec
from prudent.training.engines.figures import (
    importance_figure,
    judged_figures,
    learning_curve_figures,
    prediction_figures,
)
from prudent.training.engines.fit_task import (
    FitTask,
    FittedModel,
    LearningCurve,
    ReportProgress,
    fold_progress,
    unreported,
)
from prudent.training.engines.fitted_transforms import apply_all
from prudent.training.engines.local.features import (
    ALL_ROWS,
    INNER_FIT_ROWS,
    FeatureCache,
    PreparedFeatures,
)
from prudent.training.engines.local.learners.registry import fit_function, library_of
from prudent.training.engines.local.shared_dataset import SharedDataset
from prudent.training.engines.model_files import library_versions
from prudent.training.engines.onnx_export import ExportCheck, check_export
from prudent.training.engines.predictions import Predictions, kept_places
from prudent.training.engines.racing import is_behind, score_behind
from prudent.training.engines.scoring import Scorer


@dataclass(frozen=True, eq=False)
class TrialContext:
    """What a worker keeps between trials: the data, how to measure, how many threads it may use."""

    data: SharedDataset
    feature_cache: FeatureCache
    scorer: Scorer
    threads: int
    target: str | None = None
    pmml: bool = False


@dataclass(frozen=True, eq=False)
class FitResult:
    """A model with what it was made from, what it said of held-out rows, and how it learned."""

    model: FittedModel
    prepared: PreparedFeatures
    predicted: NDArray[Any]
    value: float
    learning_curve: LearningCurve | None = None
    probabilities: NDArray[np.float64] | None = None
    compared: Matrix | None = None
    """The judged rows where clusterings are compared."""


def train(context: TrialContext, spec: TrialSpec, report: ReportProgress) -> ModelFacts:
    """Train what the spec says, and leave `model.onnx` and `facts.json` in its folder.

    Every split trains a model and judges it by rows that this model has not seen, and that had no say in how
    long it was trained. The model of the last split is kept.
    """
    params = algorithm(spec.algorithm).complete(spec.hyperparameters)
    began_s = time.perf_counter()
    if spec.refit:
        fitted = _refit(context, spec, params)
        return _deliver(context, spec, fitted, _facts(context, spec, fitted, began_s, refitted=True))
    until_s = math.inf if spec.soft_s is None else time.monotonic() + spec.soft_s
    judged = _judge(context, spec, params, report, until_s)
    value = mean_value(context.scorer, [each.value for each in judged])
    scores = tuple(context.scorer.to_score(each.value) for each in judged)
    if len(scores) < len(context.data.splits):  # what it is behind in some splits, it is behind in all
        value = context.scorer.to_score(score_behind(spec.bar, scores))
    told = _predictions(context, judged)
    steps = [each.learning_curve.best_step for each in judged if each.learning_curve is not None]
    facts = replace(
        _facts(context, spec, judged[-1], began_s),
        value=value,
        score=context.scorer.to_score(value),
        rows_validated=len({*chain(*(split.validation for split in context.data.splits[: len(judged)]))}),
        picture={**_figures(context, judged[-1]), **_of_folds(context, told)},
        iterations=max(1, round(float(np.mean(steps)))) if steps else None,
        split_scores=scores,
    )
    spec.folder.mkdir(parents=True, exist_ok=True)
    told.write(spec.folder)
    return _deliver(context, spec, judged[-1], facts)


def _judge(
    context: TrialContext,
    spec: TrialSpec,
    params: Mapping[str, Any],
    report: ReportProgress,
    until_s: float,
) -> list[FitResult]:
    """A model of every split, or of the first ones where it is clearly behind the best by then."""
    splits = len(context.data.splits)
    judged: list[FitResult] = []
    for number in range(splits):
        now_s = time.monotonic()
        own_until_s = now_s + (until_s - now_s) / (splits - number)
        told = fold_progress(report, number, splits)
        judged.append(_fit_split(context, spec, params, number, told, own_until_s))
        if number + 1 < splits and is_behind(
            spec.bar, [context.scorer.to_score(each.value) for each in judged]
        ):
            break
    return judged


def _facts(
    context: TrialContext, spec: TrialSpec, fitted: FitResult, began_s: float, refitted: bool = False
) -> ModelFacts:
    """What is known of a model but how good it is."""
    return ModelFacts(
        metric=context.scorer.metric,
        value=0.0,
        score=0.0,
        train_s=time.perf_counter() - began_s,
        predict_ms=0.0,
        export_difference=None,
        rows_trained=fitted.prepared.trained,
        rows_validated=0,
        versions=library_versions(library_of(spec.algorithm)),
        refitted=refitted,
    )


def _deliver(context: TrialContext, spec: TrialSpec, fitted: FitResult, facts: ModelFacts) -> ModelFacts:
    data = context.data
    trained = TrainedPipeline(
        fitted.model,
        fitted.prepared.transforms,
        data.columns,
        context.target,
        data.classes,
        wide=data.X.dtype == np.float64,
    )
    return deliver(trained, facts, spec.folder, partial(_compare, context, fitted), context.pmml)


def _compare(context: TrialContext, fitted: FitResult, onnx: bytes) -> ExportCheck:
    raw = np.ascontiguousarray(context.data.sample)

    def expect() -> tuple[NDArray[Any], NDArray[np.float64] | None]:
        prepared = apply_all(fitted.prepared.transforms, raw)
        return fitted.model.predict(prepared), fitted.model.probabilities(prepared)

    return check_export(onnx, raw, expect, context.threads)


def _fit_split(
    context: TrialContext,
    spec: TrialSpec,
    params: Mapping[str, Any],
    split: int,
    report: ReportProgress,
    until_s: float,
) -> FitResult:
    """Train on a split and judge; an iterative algorithm first finds out how many steps are enough."""
    if not algorithm(spec.algorithm).iterative:
        return _judged(context, split, *_fit(context, spec, params, split, report, until_s))
    now_s = time.monotonic()
    again = len(context.data.splits[split].train) * spec.fraction <= INNER_FIT_ROWS
    inner_until_s = now_s + (until_s - now_s) / 2 if again else until_s
    model, prepared = _fit(context, spec, params, split, report, inner_until_s, inner=True)
    curve = model.learning_curve
    if prepared.held_out is None:
        steps = None if curve is None else max(curve.best_step, 1)
        model, prepared = _fit(context, spec, params, split, unreported, iterations=steps)
    return replace(_judged(context, split, model, prepared), learning_curve=curve)


def _refit(context: TrialContext, spec: TrialSpec, params: Mapping[str, Any]) -> FitResult:
    found = _fit(context, spec, params, ALL_ROWS, unreported, iterations=spec.iterations)
    return FitResult(*found, np.empty(0), math.nan)


def _fit(
    context: TrialContext,
    spec: TrialSpec,
    params: Mapping[str, Any],
    split: int,
    report: ReportProgress,
    until_s: float = math.inf,
    inner: bool = False,
    iterations: int | None = None,
) -> tuple[FittedModel, PreparedFeatures]:
    native = algorithm(spec.algorithm).native
    prepared = context.feature_cache.prepare(
        split, spec.fraction, spec.transforms, params.get("maxCategories"), native, inner
    )
    fit_task = FitTask(
        prepared.rows,
        prepared.watched,
        context.scorer.of_classes,
        spec.fit_seed,
        context.threads,
        report,
        iterations,
        until_s,
        by_loss=context.scorer.needs_probabilities,
        categories=prepared.categories,
    )
    return fit_function(spec.algorithm)(fit_task, params), prepared


def _judged(context: TrialContext, split: int, model: FittedModel, prepared: PreparedFeatures) -> FitResult:
    assert prepared.held_out is not None
    X, compared = prepared.held_out.X, None
    if context.scorer.task == CLUSTERING:
        compared = context.feature_cache.standardised(context.data.splits[split].validation)
    predicted = model.predict(X)
    probabilities = model.probabilities(X)
    value = context.scorer.value(prepared.held_out.y, predicted, compared, probabilities)
    return FitResult(model, prepared, predicted, value, None, probabilities, compared)


def _predictions(context: TrialContext, judged: Sequence[FitResult]) -> Predictions:
    """What the models said of rows that they had not seen, of as many rows as are kept."""
    splits = context.data.splits
    all_rows = sum(len(split.validation) for split in splits)
    parts = []
    for number, fitted in enumerate(judged):
        rows = splits[number].validation
        kept = kept_places(len(rows), all_rows, len(context.data.classes))
        held_out = fitted.prepared.held_out
        assert held_out is not None
        parts.append(
            Predictions(
                np.asarray(rows[kept], np.int64),
                np.full(len(kept), number),
                fitted.predicted[kept],
                None if held_out.y is None else held_out.y[kept],
                None if fitted.probabilities is None else fitted.probabilities[kept].astype(np.float32),
            )
        )
    return Predictions.joined(parts)


def _of_folds(context: TrialContext, told: Predictions) -> dict[str, Any]:
    """What is drawn of all folds; nothing where there is one split, of which all rows are drawn."""
    if len(context.data.splits) == 1:
        return {}
    return judged_figures(context.scorer, told, context.data.classes)


def _figures(context: TrialContext, fitted: FitResult) -> dict[str, Any]:
    """Everything there is to draw of a model that was measured."""
    held_out, model = fitted.prepared.held_out, fitted.model
    assert held_out is not None
    classes = context.data.classes
    figures = prediction_figures(context.scorer, fitted.predicted, held_out.y, fitted.compared, classes)
    if model.importance is not None:
        names = [column.name for column in context.data.columns]
        figures |= importance_figure(model.importance, fitted.prepared.transforms, names)
    if fitted.learning_curve is not None:
        figures |= learning_curve_figures(fitted.learning_curve)
    return figures
