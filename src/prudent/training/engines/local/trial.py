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
from prudent.training.algorithms.domains import score_of
from prudent.training.algorithms.registry import algorithm
from prudent.training.engine import Facts, TrialSpec
from prudent.training.engines.local.builders import builder, made_by
from prudent.training.engines.local.exporting import check, export
from prudent.training.engines.local.lesson import Course, Judge, Lesson, Model, Report
from prudent.training.engines.local.pictures import picture
from prudent.training.engines.local.preparing import FINAL, Kitchen, Prepared
from prudent.training.engines.local.store import Store
from prudent.training.engines.local.versions import versions

FACTS, MODEL, PMML = "facts.json", "model.onnx", "model.pmml"


@dataclass(frozen=True, eq=False)
class Workshop:
    """What a worker keeps between trials: the data, how to measure, how many threads it may use."""

    store: Store
    kitchen: Kitchen
    judge: Judge
    threads: int
    target: str | None = None
    pmml: bool = False


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model with what it was made from and how it did."""

    model: Model
    prepared: Prepared
    predicted: NDArray[Any]
    value: float


def train(workshop: Workshop, spec: TrialSpec, report: Report) -> Facts:
    """Train what the spec says, and leave `model.onnx` and `facts.json` in its folder."""
    chosen = algorithm(spec.algorithm).complete(spec.hyperparameters)
    splits = workshop.store.splits
    began_s = time.perf_counter()
    until_s = math.inf if spec.soft_s is None else time.monotonic() + spec.soft_s
    values: list[float] = []
    courses: list[Course] = []
    for number in range(len(splits)):
        measured = _fit(workshop, spec, chosen, number, _share(report, number, len(splits)), until_s)
        values.append(measured.value)
        courses += [measured.model.course] if measured.model.course is not None else []
    value = float(np.mean(values))
    delivered = measured
    if len(splits) > 1:
        delivered = _fit(workshop, spec, chosen, FINAL, _silent, steps=_usual(courses))
    train_s = time.perf_counter() - began_s
    if not np.isfinite(value):
        raise RunFailed(f"The {workshop.judge.metric} is {value}; try a smaller step or a larger regParam.")
    steps = delivered.prepared.steps
    model = export(delivered.model, steps, workshop.store.X.shape[1])
    found = check(model, delivered.model, steps, workshop.store.sample, workshop.threads)
    other, notes = _pmml(workshop, delivered) if workshop.pmml else (None, ())
    facts = Facts(
        metric=workshop.judge.metric,
        value=value,
        score=score_of(workshop.judge.metric, value),
        train_s=train_s,
        predict_ms=found.predict_ms,
        export_difference=found.difference,
        rows_trained=len(delivered.prepared.rows.X),
        rows_validated=sum(len(split.validation) for split in splits),
        versions=versions(made_by(spec.algorithm)),
        extra_files=() if other is None else (PMML,),
        notes=notes,
        picture=_drawn(workshop, measured, spec.seed),
    )
    _write(spec.folder, model, other, facts)
    return facts


def _pmml(workshop: Workshop, fitted: Fitted) -> tuple[bytes | None, tuple[str, ...]]:
    from prudent.training.engines.pmml.document import document_or_why

    store = workshop.store
    return document_or_why(fitted.model, fitted.prepared.steps, store.columns, workshop.target, store.classes)


def _fit(
    workshop: Workshop,
    spec: TrialSpec,
    chosen: Mapping[str, Any],
    split: int,
    report: Report,
    until_s: float = math.inf,
    steps: int | None = None,
) -> Fitted:
    prepared = workshop.kitchen.prepare(split, spec.fraction, spec.transforms, chosen.get("maxCategories"))
    seed = int(rng_for(spec.seed, "fit", spec.algorithm).integers(2**31 - 1))
    lesson = Lesson(
        prepared.rows, prepared.held_out, workshop.judge, seed, workshop.threads, report, steps, until_s
    )
    model = builder(spec.algorithm)(lesson, chosen)
    if prepared.held_out is None:
        return Fitted(model, prepared, np.empty(0), math.nan)
    X = prepared.held_out.X
    predicted = model.predict(X)
    return Fitted(model, prepared, predicted, workshop.judge.value(prepared.held_out.y, predicted, X))


def _drawn(workshop: Workshop, fitted: Fitted, seed: int) -> dict[str, Any]:
    assert fitted.prepared.held_out is not None
    return picture(
        workshop.judge,
        fitted.model,
        fitted.prepared.held_out,
        fitted.predicted,
        fitted.prepared.steps,
        [column.name for column in workshop.store.columns],
        workshop.store.classes,
        seed,
    )


def _silent(score: float, done: float) -> None:
    """Nobody is told of the final fit: its score so far is not measured."""


def _share(report: Report, fold: int, folds: int) -> Report:
    """Progress of one fold as progress of all."""
    return lambda score, done: report(score, (fold + done) / folds)


def _usual(courses: Sequence[Course]) -> int | None:
    """How many steps were best in the folds, on average: the final fit has no rows to find out."""
    return round(float(np.mean([course.best for course in courses]))) if courses else None


def _write(folder: Path, model: bytes, other: bytes | None, facts: Facts) -> None:
    """The facts last: where they are, the model is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(model)
    if other is not None:
        (folder / PMML).write_bytes(other)
    unfinished = folder / f".{FACTS}"
    unfinished.write_text(json.dumps(asdict(facts)))
    unfinished.rename(folder / FACTS)
