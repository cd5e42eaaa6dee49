"""One trial from beginning to end, in a worker: prepare, fit, measure, export, check, write down."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import RunFailed
from prudent.training.algorithms.registry import algorithm
from prudent.training.engines.engine import ModelFacts, TrialSpec
from prudent.training.engines.figures import report_figures
from prudent.training.engines.fit_task import (
    FitTask,
    FittedModel,
    LearningCurve,
    ReportProgress,
    fold_progress,
    unreported,
)
from prudent.training.engines.fitted_transforms import apply_all
from prudent.training.engines.local.features import ALL_ROWS, FeatureCache, PreparedFeatures
from prudent.training.engines.local.learners.registry import fit_function, library_of
from prudent.training.engines.local.shared_dataset import SharedDataset
from prudent.training.engines.model_files import PMML, library_versions, write_model
from prudent.training.engines.onnx_export import check_export, export_pipeline
from prudent.training.engines.scoring import Scorer
from prudent.training.models.description import write_facts


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


def train(context: TrialContext, spec: TrialSpec, report: ReportProgress) -> ModelFacts:
    """Train what the spec says, and leave `model.onnx` and `facts.json` in its folder."""
    params = algorithm(spec.algorithm).complete(spec.hyperparameters)
    splits = context.data.splits
    began_s = time.perf_counter()
    until_s = math.inf if spec.soft_s is None else time.monotonic() + spec.soft_s
    values: list[float] = []
    learning_curves: list[LearningCurve] = []
    for number in range(len(splits)):
        measured = _fit(context, spec, params, number, fold_progress(report, number, len(splits)), until_s)
        values.append(measured.value)
        learning_curves += (
            [measured.model.learning_curve] if measured.model.learning_curve is not None else []
        )
    value = float(np.mean(values))
    delivered = measured
    if len(splits) > 1:
        delivered = _fit(
            context, spec, params, ALL_ROWS, unreported, iterations=_mean_best_step(learning_curves)
        )
    train_s = time.perf_counter() - began_s
    if not np.isfinite(value):
        raise RunFailed(f"The {context.scorer.metric} is {value}; try a smaller step or a larger regParam.")
    transforms = delivered.prepared.transforms
    model = export_pipeline(transforms, delivered.model.graph, context.data.X.shape[1])
    raw = np.ascontiguousarray(context.data.sample, dtype=np.float32)

    def expect() -> tuple[NDArray[Any], NDArray[np.float64] | None]:
        prepared = apply_all(transforms, raw)
        return delivered.model.predict(prepared), delivered.model.probabilities(prepared)

    found = check_export(model, raw, expect, context.threads)
    other, notes = _pmml(context, delivered) if context.pmml else (None, ())
    facts = ModelFacts(
        metric=context.scorer.metric,
        value=value,
        score=context.scorer.to_score(value),
        train_s=train_s,
        predict_ms=found.predict_ms,
        export_difference=found.difference,
        rows_trained=len(delivered.prepared.rows.X),
        rows_validated=sum(len(split.validation) for split in splits),
        versions=library_versions(library_of(spec.algorithm)),
        extra_files=() if other is None else (PMML,),
        notes=notes,
        picture=_figures(context, measured, spec.seed),
    )
    write_model(spec.folder, model, other)
    write_facts(spec.folder, facts)
    return facts


def _pmml(context: TrialContext, fitted: FitResult) -> tuple[bytes | None, tuple[str, ...]]:
    from prudent.training.engines.pmml.document import document_or_note

    data = context.data
    return document_or_note(
        fitted.model, fitted.prepared.transforms, data.columns, context.target, data.classes
    )


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
    X = prepared.held_out.X
    predicted = model.predict(X)
    return FitResult(model, prepared, predicted, context.scorer.value(prepared.held_out.y, predicted, X))


def _figures(context: TrialContext, fitted: FitResult, seed: int) -> dict[str, Any]:
    assert fitted.prepared.held_out is not None
    return report_figures(
        context.scorer,
        fitted.model,
        fitted.prepared.held_out,
        fitted.predicted,
        fitted.prepared.transforms,
        [column.name for column in context.data.columns],
        context.data.classes,
        seed,
    )


def _mean_best_step(learning_curves: Sequence[LearningCurve]) -> int | None:
    """How many steps were best in the folds, on average: the final fit has no rows to find out."""
    return (
        round(float(np.mean([learning_curve.best_step for learning_curve in learning_curves])))
        if learning_curves
        else None
    )
