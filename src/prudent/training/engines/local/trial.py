"""One trial from beginning to end, in a worker: prepare, fit, measure, export, check, write down."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
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
    learning_curve_figures,
    prediction_figures,
)
from prudent.training.engines.fit_task import (
    FitTask,
    FittedModel,
    ReportProgress,
    fold_progress,
    unreported,
)
from prudent.training.engines.fitted_transforms import apply_all
from prudent.training.engines.local.features import ALL_ROWS, FeatureCache, PreparedFeatures
from prudent.training.engines.local.learners.registry import fit_function, library_of
from prudent.training.engines.local.shared_dataset import SharedDataset
from prudent.training.engines.model_files import library_versions
from prudent.training.engines.onnx_export import ExportCheck, check_export
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
    """A model with what it was made from and how it did."""

    model: FittedModel
    prepared: PreparedFeatures
    predicted: NDArray[Any]
    value: float
    compared: Matrix | None = None
    """The judged rows where clusterings are compared."""


def train(context: TrialContext, spec: TrialSpec, report: ReportProgress) -> ModelFacts:
    """Train what the spec says, and leave `model.onnx` and `facts.json` in its folder."""
    params = algorithm(spec.algorithm).complete(spec.hyperparameters)
    data = context.data
    began_s = time.perf_counter()
    until_s = math.inf if spec.soft_s is None else time.monotonic() + spec.soft_s
    values, best_steps = [], []
    for number in range(len(data.splits)):
        told = fold_progress(report, number, len(data.splits))
        measured = _fit(context, spec, params, number, told, until_s)
        values.append(measured.value)
        if measured.model.learning_curve is not None:
            best_steps.append(measured.model.learning_curve.best_step)
    value = mean_value(context.scorer, values)
    fitted = measured
    if len(values) > 1:
        # It has no rows to find out how many steps are enough, but the folds did.
        steps = round(float(np.mean(best_steps))) if best_steps else None
        fitted = _fit(context, spec, params, ALL_ROWS, unreported, iterations=steps)
    facts = ModelFacts(
        metric=context.scorer.metric,
        value=value,
        score=context.scorer.to_score(value),
        train_s=time.perf_counter() - began_s,
        predict_ms=0.0,
        export_difference=None,
        rows_trained=len(fitted.prepared.rows.X),
        rows_validated=sum(len(split.validation) for split in data.splits),
        versions=library_versions(library_of(spec.algorithm)),
        picture=_figures(context, measured),
    )
    trained = TrainedPipeline(
        fitted.model, fitted.prepared.transforms, data.columns, context.target, data.classes
    )
    return deliver(trained, facts, spec.folder, partial(_compare, context, fitted), context.pmml)


def _compare(context: TrialContext, fitted: FitResult, onnx: bytes) -> ExportCheck:
    raw = np.ascontiguousarray(context.data.sample, dtype=np.float32)

    def expect() -> tuple[NDArray[Any], NDArray[np.float64] | None]:
        prepared = apply_all(fitted.prepared.transforms, raw)
        return fitted.model.predict(prepared), fitted.model.probabilities(prepared)

    return check_export(onnx, raw, expect, context.threads)


def _fit(
    context: TrialContext,
    spec: TrialSpec,
    params: Mapping[str, Any],
    split: int,
    report: ReportProgress,
    until_s: float = math.inf,
    iterations: int | None = None,
) -> FitResult:
    prepared = context.feature_cache.prepare(
        split, spec.fraction, spec.transforms, params.get("maxCategories")
    )
    fit_task = FitTask(
        prepared.rows,
        prepared.held_out,
        context.scorer,
        spec.fit_seed,
        context.threads,
        report,
        iterations,
        until_s,
    )
    model = fit_function(spec.algorithm)(fit_task, params)
    if prepared.held_out is None:
        return FitResult(model, prepared, np.empty(0), math.nan)
    predicted = model.predict(prepared.held_out.X)
    compared = None
    if context.scorer.task == CLUSTERING:
        compared = context.feature_cache.standardised(context.data.splits[split].validation)
    value = context.scorer.value(prepared.held_out.y, predicted, compared)
    return FitResult(model, prepared, predicted, value, compared)


def _figures(context: TrialContext, fitted: FitResult) -> dict[str, Any]:
    """Everything there is to draw of a model that was measured."""
    held_out, model = fitted.prepared.held_out, fitted.model
    assert held_out is not None
    classes = context.data.classes
    figures = prediction_figures(context.scorer, fitted.predicted, held_out.y, fitted.compared, classes)
    if model.importance is not None:
        names = [column.name for column in context.data.columns]
        figures |= importance_figure(model.importance, fitted.prepared.transforms, names)
    if model.learning_curve is not None:
        figures |= learning_curve_figures(model.learning_curve)
    return figures
