"""One trial from beginning to end: fit, judge, export, check, write down."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prudent.core.errors import RunFailed
from prudent.training.algorithms.registry import algorithm
from prudent.training.engine import Facts, TrialSpec
from prudent.training.engines.local.versions import versions
from prudent.training.engines.spark.export import check, export
from prudent.training.engines.spark.fitting import Fitted, Report, fit
from prudent.training.engines.spark.judging import Judge, Verdict, short
from prudent.training.engines.spark.perceptron import PERCEPTRON
from prudent.training.engines.spark.split import Rows
from prudent.training.engines.spark.table import Table

FACTS, MODEL, SPARKS_OWN = "facts.json", "model.onnx", "spark"
_FEATURES = 30  # bars that a chart can show


@dataclass(frozen=True, eq=False)
class Workshop:
    """What all trials of a session share."""

    table: Table
    rows: Rows
    judge: Judge


def train(workshop: Workshop, spec: TrialSpec, report: Report) -> Facts:
    """Train what the spec says, and leave `model.onnx`, Spark's own form and `facts.json` in its folder."""
    settings = algorithm(spec.algorithm).complete(spec.hyperparameters)
    folds = workshop.rows.folds
    began_s = time.perf_counter()
    verdicts: list[Verdict] = []
    for fold in range(folds):
        fitted, verdict = _fold(workshop, spec, settings, fold, _share(report, fold, folds))
        verdicts.append(verdict)
        value = float(np.mean([found.value for found in verdicts]))
        if fold + 1 < folds:
            report(workshop.judge.score(value), (fold + 1) / folds)
    measured = fitted
    if folds > 1:
        rows = workshop.rows.train(None, spec.fraction)
        fitted = fit(spec, settings, rows, None, workshop.table, workshop.judge, _silent)
    train_s = time.perf_counter() - began_s
    if not np.isfinite(value):
        raise RunFailed(f"The {workshop.judge.metric} is {value}; try a smaller step or a larger regParam.")
    model = export(fitted, len(workshop.table.columns))
    found = check(model, fitted, workshop.table, workshop.rows.held_out(folds - 1))
    facts = Facts(
        metric=workshop.judge.metric,
        value=value,
        score=workshop.judge.score(value),
        train_s=train_s,
        predict_ms=found.predict_ms,
        export_difference=found.difference,
        rows_trained=int(workshop.rows.train(0 if folds == 1 else None, spec.fraction).count()),
        rows_validated=sum(verdict.rows for verdict in verdicts),
        versions=versions("torch" if spec.algorithm == PERCEPTRON else None) | versions("pyspark"),
        extra_files=(SPARKS_OWN,),
        picture={**verdicts[-1].picture, **_importance(measured, workshop.table)},
    )
    _write(spec.folder, fitted, model, facts)
    return facts


def forget(folder: Path) -> None:
    """Remove what an unfinished trial may have written: where there are facts, there is a model."""
    for name in (FACTS, f".{FACTS}", MODEL):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / SPARKS_OWN, ignore_errors=True)


def _fold(
    workshop: Workshop, spec: TrialSpec, settings: Mapping[str, Any], fold: int, report: Report
) -> tuple[Fitted, Verdict]:
    held_out = workshop.rows.held_out(fold)
    rows = workshop.rows.train(fold, spec.fraction)
    fitted = fit(spec, settings, rows, held_out, workshop.table, workshop.judge, report)
    return fitted, workshop.judge.judge(fitted.predict(held_out), fitted.features)


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


def _write(folder: Path, fitted: Fitted, model: bytes, facts: Facts) -> None:
    """The facts last: where they are, the model is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(model)
    fitted.pipeline.write().overwrite().save((folder / SPARKS_OWN).resolve().as_uri())
    unfinished = folder / f".{FACTS}"
    unfinished.write_text(json.dumps(asdict(facts)))
    unfinished.rename(folder / FACTS)
