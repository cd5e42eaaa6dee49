"""One trial from beginning to end, in a worker: prepare, fit, measure, export, check, write down."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import RunFailed
from prudent.core.seeds import rng_for
from prudent.training.algorithms.algorithm import score_of
from prudent.training.algorithms.registry import algorithm
from prudent.training.engines.engine import ModelFacts, TrialSpec
from prudent.training.engines.figures import picture
from prudent.training.engines.fit_task import FitTask, Judge, LearningCurve, Model, ReportProgress
from prudent.training.engines.local.features import FINAL, FeatureCache, PreparedFeatures
from prudent.training.engines.local.learners.registry import builder, made_by
from prudent.training.engines.local.shared_dataset import SharedDataset
from prudent.training.engines.model_files import versions
from prudent.training.engines.onnx_export import check, export

FACTS, MODEL, PMML = "facts.json", "model.onnx", "model.pmml"


@dataclass(frozen=True, eq=False)
class TrialContext:
    """What a worker keeps between trials: the data, how to measure, how many threads it may use."""

    store: SharedDataset
    feature_cache: FeatureCache
    scorer: Judge
    threads: int
    target: str | None = None
    pmml: bool = False


@dataclass(frozen=True, eq=False)
class FitResult:
    """A model with what it was made from and how it did."""

    model: Model
    prepared: PreparedFeatures
    predicted: NDArray[Any]
    value: float


def train(context: TrialContext, spec: TrialSpec, report: ReportProgress) -> ModelFacts:
    """Train what the spec says, and leave `model.onnx` and `facts.json` in its folder."""
    chosen = algorithm(spec.algorithm).complete(spec.hyperparameters)
    splits = context.store.splits
    began_s = time.perf_counter()
    until_s = math.inf if spec.soft_s is None else time.monotonic() + spec.soft_s
    values: list[float] = []
    learning_curves: list[LearningCurve] = []
    for number in range(len(splits)):
        measured = _fit(context, spec, chosen, number, _share(report, number, len(splits)), until_s)
        values.append(measured.value)
        learning_curves += (
            [measured.model.learning_curve] if measured.model.learning_curve is not None else []
        )
    value = float(np.mean(values))
    delivered = measured
    if len(splits) > 1:
        delivered = _fit(context, spec, chosen, FINAL, _silent, steps=_usual(learning_curves))
    train_s = time.perf_counter() - began_s
    if not np.isfinite(value):
        raise RunFailed(f"The {context.scorer.metric} is {value}; try a smaller step or a larger regParam.")
    steps = delivered.prepared.steps
    model = export(delivered.model, steps, context.store.X.shape[1])
    found = check(model, delivered.model, steps, context.store.sample, context.threads)
    other, notes = _pmml(context, delivered) if context.pmml else (None, ())
    facts = ModelFacts(
        metric=context.scorer.metric,
        value=value,
        score=score_of(context.scorer.metric, value),
        train_s=train_s,
        predict_ms=found.predict_ms,
        export_difference=found.difference,
        rows_trained=len(delivered.prepared.rows.X),
        rows_validated=sum(len(split.validation) for split in splits),
        versions=versions(made_by(spec.algorithm)),
        extra_files=() if other is None else (PMML,),
        notes=notes,
        picture=_drawn(context, measured, spec.seed),
    )
    _write(spec.folder, model, other, facts)
    return facts


def _pmml(context: TrialContext, fitted: FitResult) -> tuple[bytes | None, tuple[str, ...]]:
    from prudent.training.engines.pmml.document import document_or_why

    store = context.store
    return document_or_why(fitted.model, fitted.prepared.steps, store.columns, context.target, store.classes)


def _fit(
    context: TrialContext,
    spec: TrialSpec,
    chosen: Mapping[str, Any],
    split: int,
    report: ReportProgress,
    until_s: float = math.inf,
    steps: int | None = None,
) -> FitResult:
    prepared = context.feature_cache.prepare(
        split, spec.fraction, spec.transforms, chosen.get("maxCategories")
    )
    seed = int(rng_for(spec.seed, "fit", spec.algorithm).integers(2**31 - 1))
    fit_task = FitTask(
        prepared.rows, prepared.held_out, context.scorer, seed, context.threads, report, steps, until_s
    )
    model = builder(spec.algorithm)(fit_task, chosen)
    if prepared.held_out is None:
        return FitResult(model, prepared, np.empty(0), math.nan)
    X = prepared.held_out.X
    predicted = model.predict(X)
    return FitResult(model, prepared, predicted, context.scorer.value(prepared.held_out.y, predicted, X))


def _drawn(context: TrialContext, fitted: FitResult, seed: int) -> dict[str, Any]:
    assert fitted.prepared.held_out is not None
    return picture(
        context.scorer,
        fitted.model,
        fitted.prepared.held_out,
        fitted.predicted,
        fitted.prepared.steps,
        [column.name for column in context.store.columns],
        context.store.classes,
        seed,
    )


def _silent(score: float, done: float) -> None:
    """Nobody is told of the final fit: its score so far is not measured."""


def _share(report: ReportProgress, fold: int, folds: int) -> ReportProgress:
    """Progress of one fold as progress of all."""
    return lambda score, done: report(score, (fold + done) / folds)


def _usual(learning_curves: Sequence[LearningCurve]) -> int | None:
    """How many steps were best in the folds, on average: the final fit has no rows to find out."""
    return (
        round(float(np.mean([learning_curve.best for learning_curve in learning_curves])))
        if learning_curves
        else None
    )


def _write(folder: Path, model: bytes, other: bytes | None, facts: ModelFacts) -> None:
    """The facts last: where they are, the model is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(model)
    if other is not None:
        (folder / PMML).write_bytes(other)
    unfinished = folder / f".{FACTS}"
    unfinished.write_text(json.dumps(asdict(facts)))
    unfinished.rename(folder / FACTS)
