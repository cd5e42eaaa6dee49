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
from prudent.training.algorithms.domains import CLUSTERING
from prudent.training.algorithms.registry import algorithm
from prudent.training.engine import Facts, TrialSpec
from prudent.training.engines.local.versions import versions
from prudent.training.engines.spark.answers import MOST_CELLS, Answers, collected, fits
from prudent.training.engines.spark.export import check, export
from prudent.training.engines.spark.fitting import Fitted, Report, fit
from prudent.training.engines.spark.judging import Judge, Verdict, short
from prudent.training.engines.spark.perceptron import PERCEPTRON
from prudent.training.engines.spark.split import Rows
from prudent.training.engines.spark.table import ROW, Table

FACTS, MODEL, PMML, SPARKS_OWN = "facts.json", "model.onnx", "model.pmml", "spark"
_SAMPLE = 10_000
_FEATURES = 30  # bars that a chart can show


@dataclass(frozen=True, eq=False)
class Workshop:
    """What all trials of a session share."""

    table: Table
    rows: Rows
    judge: Judge
    own_form: bool = True
    """Whether Spark can write its own form of a model to where the others are: its machines write it."""
    pmml: bool = False
    """Whether PMML was asked for as well."""


def train(workshop: Workshop, spec: TrialSpec, report: Report) -> Facts:
    """Train what the spec says, and leave `model.onnx`, Spark's own form and `facts.json` in its folder."""
    settings = algorithm(spec.algorithm).complete(spec.hyperparameters)
    table, rows, judge = workshop.table, workshop.rows, workshop.judge
    began_s = time.perf_counter()
    until_s = math.inf if spec.soft_s is None else time.monotonic() + spec.soft_s
    measured, verdicts, answers, trees = _folds(workshop, spec, settings, report, until_s)
    value = _mean(verdicts)
    if not np.isfinite(value):
        raise RunFailed(f"The {judge.metric} is {value}; try a smaller step or a larger regParam.")
    fitted = measured
    if rows.folds > 1:
        final = _final(settings, trees)
        fitted = fit(spec, final, rows.train(None, spec.fraction), None, table, judge, _silent)
    train_s = time.perf_counter() - began_s
    model = export(fitted, len(table.columns))
    if answers is None or rows.folds > 1:
        answers = collected(fitted.predict(_few(workshop)), table)
    found = check(model, answers)
    other, notes = _pmml(fitted, table) if workshop.pmml else (None, ())
    facts = Facts(
        metric=judge.metric,
        value=value,
        score=judge.score(value),
        train_s=train_s,
        predict_ms=found.predict_ms,
        export_difference=found.difference,
        rows_trained=rows.size(0 if rows.folds == 1 else None, spec.fraction),
        rows_validated=sum(verdict.rows for verdict in verdicts),
        versions=versions("torch" if spec.algorithm == PERCEPTRON else None) | versions("pyspark"),
        extra_files=(*([] if other is None else [PMML]), *([SPARKS_OWN] if workshop.own_form else [])),
        notes=notes,
        picture={**verdicts[-1].picture, **measured.picture, **_importance(measured, table)},
    )
    spec.folder.mkdir(parents=True, exist_ok=True)
    (spec.folder / MODEL).write_bytes(model)
    if other is not None:
        (spec.folder / PMML).write_bytes(other)
    _write(spec.folder, fitted, facts, workshop.own_form)
    return facts


def forget(folder: Path) -> None:
    """Remove what an unfinished trial may have written: where there are facts, there is a model."""
    for name in (FACTS, f".{FACTS}", MODEL, PMML):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / SPARKS_OWN, ignore_errors=True)


def _folds(
    workshop: Workshop, spec: TrialSpec, settings: Mapping[str, Any], report: Report, until_s: float
) -> tuple[Fitted, list[Verdict], Answers | None, list[int]]:
    """Fit and judge in every fold; the model of the last one, what it said if that is little, and how many
    trees boosting ended with in each."""
    table, rows, judge = workshop.table, workshop.rows, workshop.judge
    verdicts: list[Verdict] = []
    trees: list[int] = []
    answers: Answers | None = None
    for fold in range(rows.folds):
        held_out = rows.held_out(fold)
        told = _share(report, fold, rows.folds)
        train_rows = rows.train(fold, spec.fraction)
        fitted = fit(spec, settings, train_rows, held_out, table, judge, told, until_s)
        trees += [] if fitted.trees is None else [fitted.trees]
        predicted = fitted.predict(held_out)
        if fits(table.rows // rows.folds, table):
            prepared = fitted.features if judge.task == CLUSTERING else None
            answers = collected(predicted, table, prepared)
            verdicts.append(judge.of_answers(answers))
        else:
            verdicts.append(judge.of_frame(predicted, fitted.features))
        if fold + 1 < rows.folds:
            report(judge.score(_mean(verdicts)), (fold + 1) / rows.folds)
    return fitted, verdicts, answers, trees


def _final(settings: Mapping[str, Any], trees: list[int]) -> Mapping[str, Any]:
    """Settings of the final fit: it has no rows to find out how many trees are enough, but the folds did."""
    return {**settings, "maxIter": round(float(np.mean(trees)))} if trees else settings


def _mean(verdicts: list[Verdict]) -> float:
    return float(np.mean([verdict.value for verdict in verdicts]))


def _few(workshop: Workshop) -> Any:
    """Held-out rows enough to see a difference or take the time."""
    most = max(1, min(_SAMPLE, MOST_CELLS // (len(workshop.table.columns) + 8)))
    return workshop.rows.held_out(workshop.rows.folds - 1).orderBy(ROW).limit(most)


def _silent(score: float, done: float) -> None:
    """Nobody is told of the final fit: its score so far is not measured."""


def _share(report: Report, fold: int, folds: int) -> Report:
    """Progress of one fold as progress of all."""
    return lambda score, done: report(score, (fold + done) / folds)


def _importance(fitted: Fitted, table: Table) -> dict[str, Any]:
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


def _pmml(fitted: Fitted, table: Table) -> tuple[bytes | None, tuple[str, ...]]:
    from prudent.training.engines.pmml.document import document_or_why
    from prudent.training.engines.spark.translation import translated_steps, translation

    model = translation(fitted.model, fitted.categories)
    return document_or_why(model, translated_steps(fitted.steps), table.columns, table.target, table.classes)


def _write(folder: Path, fitted: Fitted, facts: Facts, own_form: bool) -> None:
    """Spark's own form, then the facts: where they are, the model is whole."""
    if own_form:
        fitted.pipeline.write().overwrite().save((folder / SPARKS_OWN).resolve().as_uri())
    unfinished = folder / f".{FACTS}"
    unfinished.write_text(json.dumps(asdict(facts)))
    unfinished.rename(folder / FACTS)
