"""One trial from beginning to end: fit, judge, export, check, write down."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prudent.core.errors import RunFailed
from prudent.training.algorithms.algorithm import CLUSTERING
from prudent.training.algorithms.registry import algorithm
from prudent.training.engines.engine import ModelFacts, TrialSpec
from prudent.training.engines.model_files import versions
from prudent.training.engines.spark.answers import MOST_CELLS, CollectedPredictions, collected, fits
from prudent.training.engines.spark.export import check, export
from prudent.training.engines.spark.fitting import FittedPipeline, ReportProgress, fit
from prudent.training.engines.spark.judging import Judge, ValidationResult, short
from prudent.training.engines.spark.perceptron import PERCEPTRON
from prudent.training.engines.spark.split import SparkSplit
from prudent.training.engines.spark.table import ROW, SparkDataset

FACTS, MODEL, PMML, SPARKS_OWN = "facts.json", "model.onnx", "model.pmml", "spark"
_SAMPLE = 10_000
_FEATURES = 30  # bars that a chart can show


@dataclass(frozen=True, eq=False)
class SparkTrialContext:
    """What all trials of a session share."""

    table: SparkDataset
    rows: SparkSplit
    scorer: Judge
    own_form: bool = True
    """Whether Spark can write its own form of a model to where the others are: its machines write it."""
    pmml: bool = False
    """Whether PMML was asked for as well."""


def train(context: SparkTrialContext, spec: TrialSpec, report: ReportProgress) -> ModelFacts:
    """Train what the spec says, and leave `model.onnx`, Spark's own form and `facts.json` in its folder."""
    settings = algorithm(spec.algorithm).complete(spec.hyperparameters)
    table, rows, scorer = context.table, context.rows, context.scorer
    began_s = time.perf_counter()
    until_s = math.inf if spec.soft_s is None else time.monotonic() + spec.soft_s
    measured, results, answers, trees = _folds(context, spec, settings, report, until_s)
    value = _mean(results)
    if not np.isfinite(value):
        raise RunFailed(f"The {scorer.metric} is {value}; try a smaller step or a larger regParam.")
    fitted = measured
    if rows.folds > 1:
        final = _final(settings, trees)
        fitted = fit(spec, final, rows.train(None, spec.fraction), None, table, scorer, _silent)
    train_s = time.perf_counter() - began_s
    model = export(fitted, len(table.columns))
    if answers is None or rows.folds > 1:
        answers = collected(fitted.predict(_few(context)), table)
    found = check(model, answers)
    other, notes = _pmml(fitted, table) if context.pmml else (None, ())
    facts = ModelFacts(
        metric=scorer.metric,
        value=value,
        score=scorer.score(value),
        train_s=train_s,
        predict_ms=found.predict_ms,
        export_difference=found.difference,
        rows_trained=rows.size(0 if rows.folds == 1 else None, spec.fraction),
        rows_validated=sum(result.rows for result in results),
        versions=versions("torch" if spec.algorithm == PERCEPTRON else None) | versions("pyspark"),
        extra_files=(*([] if other is None else [PMML]), *([SPARKS_OWN] if context.own_form else [])),
        notes=notes,
        picture={**results[-1].picture, **measured.picture, **_importance(measured, table)},
    )
    spec.folder.mkdir(parents=True, exist_ok=True)
    (spec.folder / MODEL).write_bytes(model)
    if other is not None:
        (spec.folder / PMML).write_bytes(other)
    _write(spec.folder, fitted, facts, context.own_form)
    return facts


def forget(folder: Path) -> None:
    """Remove what an unfinished trial may have written: where there are facts, there is a model."""
    for name in (FACTS, f".{FACTS}", MODEL, PMML):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / SPARKS_OWN, ignore_errors=True)


def _folds(
    context: SparkTrialContext,
    spec: TrialSpec,
    settings: Mapping[str, Any],
    report: ReportProgress,
    until_s: float,
) -> tuple[FittedPipeline, list[ValidationResult], CollectedPredictions | None, list[int]]:
    """Fit and judge in every fold; the model of the last one, what it said if that is little, and how many
    trees boosting ended with in each."""
    table, rows, scorer = context.table, context.rows, context.scorer
    results: list[ValidationResult] = []
    trees: list[int] = []
    answers: CollectedPredictions | None = None
    for fold in range(rows.folds):
        held_out = rows.held_out(fold)
        told = _share(report, fold, rows.folds)
        train_rows = rows.train(fold, spec.fraction)
        fitted = fit(spec, settings, train_rows, held_out, table, scorer, told, until_s)
        trees += [] if fitted.trees is None else [fitted.trees]
        predicted = fitted.predict(held_out)
        if fits(table.rows // rows.folds, table):
            prepared = fitted.features if scorer.task == CLUSTERING else None
            answers = collected(predicted, table, prepared)
            results.append(scorer.of_answers(answers))
        else:
            results.append(scorer.of_frame(predicted, fitted.features))
        if fold + 1 < rows.folds:
            report(scorer.score(_mean(results)), (fold + 1) / rows.folds)
    return fitted, results, answers, trees


def _final(settings: Mapping[str, Any], trees: list[int]) -> Mapping[str, Any]:
    """Settings of the final fit: it has no rows to find out how many trees are enough, but the folds did."""
    return {**settings, "maxIter": round(float(np.mean(trees)))} if trees else settings


def _mean(results: list[ValidationResult]) -> float:
    return float(np.mean([result.value for result in results]))


def _few(context: SparkTrialContext) -> Any:
    """Held-out rows enough to see a difference or take the time."""
    most = max(1, min(_SAMPLE, MOST_CELLS // (len(context.table.columns) + 8)))
    return context.rows.held_out(context.rows.folds - 1).orderBy(ROW).limit(most)


def _silent(score: float, done: float) -> None:
    """Nobody is told of the final fit: its score so far is not measured."""


def _share(report: ReportProgress, fold: int, folds: int) -> ReportProgress:
    """Progress of one fold as progress of all."""
    return lambda score, done: report(score, (fold + done) / folds)


def _importance(fitted: FittedPipeline, table: SparkDataset) -> dict[str, Any]:
    """The features that weigh most, as shares of the whole."""
    weights = fitted.importance
    if weights is None:
        return {}
    names = [column.name for column in table.columns]
    for step in fitted.steps:
        names = step.names(names)
    total = float(weights.sum())
    shares = weights / total if total > 0 else weights
    first = np.argsort(-shares, kind="stable")[:_FEATURES]
    return {"importance": {"feature": [names[place] for place in first], "value": short(shares[first])}}


def _pmml(fitted: FittedPipeline, table: SparkDataset) -> tuple[bytes | None, tuple[str, ...]]:
    from prudent.training.engines.pmml.document import document_or_why
    from prudent.training.engines.spark.translation import translated_steps, translation

    model = translation(fitted.model, fitted.categories)
    return document_or_why(model, translated_steps(fitted.steps), table.columns, table.target, table.classes)


def _write(folder: Path, fitted: FittedPipeline, facts: ModelFacts, own_form: bool) -> None:
    """Spark's own form, then the facts: where they are, the model is whole."""
    if own_form:
        fitted.pipeline.write().overwrite().save((folder / SPARKS_OWN).resolve().as_uri())
    unfinished = folder / f".{FACTS}"
    unfinished.write_text(json.dumps(asdict(facts)))
    unfinished.rename(folder / FACTS)
