"""What every engine does with a trained model: export it, compare the export with it, write its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from prudent.core.errors import RunFailed
from prudent.training.data.dataset import Column
from prudent.training.engines.engine import ModelFacts
from prudent.training.engines.fitted_transforms import FittedTransform
from prudent.training.engines.model_files import PMML, SPARKS_OWN, write_model
from prudent.training.engines.onnx_export import (
    DOUBLE,
    FLOAT,
    ExportCheck,
    GraphOutputs,
    OnnxGraph,
    export_pipeline,
)
from prudent.training.engines.scoring import Scorer
from prudent.training.models.description import write_facts


class Exportable(Protocol):
    """A model that knows its ONNX form; PMML is written from what kind of model it is."""

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs: ...


@dataclass(frozen=True, eq=False)
class TrainedPipeline:
    """A model with what happens to raw rows before it, and what those rows are."""

    model: Exportable
    transforms: Sequence[FittedTransform]
    columns: Sequence[Column]
    target: str | None
    classes: Sequence[Any]
    wide: bool = False
    """Whether raw rows have more digits than single precision keeps."""


def mean_value(scorer: Scorer, values: Sequence[float]) -> float:
    """The metric over all folds; RunFailed if it is not a number."""
    value = float(np.mean(values))
    if not np.isfinite(value):
        raise RunFailed(f"The {scorer.metric} is {value}; try a smaller step or a larger regParam.")
    return value


def deliver(
    trained: TrainedPipeline,
    facts: ModelFacts,
    folder: Path,
    check: Callable[[bytes], ExportCheck],
    pmml: bool,
    write_own_form: Callable[[Path], None] | None = None,
) -> ModelFacts:
    """Write the model's files into its folder, the facts last, and complete those by what the export tells.

    `check` compares the ONNX form with the model; `write_own_form` writes the engine's own form too.
    """
    kind = DOUBLE if trained.wide else FLOAT
    onnx = export_pipeline(trained.transforms, trained.model.graph, len(trained.columns), kind)
    found = check(onnx)
    document, notes = _pmml(trained) if pmml else (None, ())
    others = {PMML: document is not None, SPARKS_OWN: write_own_form is not None}
    facts = replace(
        facts,
        predict_ms=found.predict_ms,
        export_difference=found.difference,
        extra_files=tuple(name for name, written in others.items() if written),
        notes=notes,
    )
    write_model(folder, onnx, document)
    if write_own_form is not None:
        write_own_form(folder / SPARKS_OWN)
    write_facts(folder, facts)
    return facts


def _pmml(trained: TrainedPipeline) -> tuple[bytes | None, tuple[str, ...]]:
    """The document, or none and a note that says what PMML cannot express."""
    from prudent.training.engines.pmml.document import document
    from prudent.training.engines.pmml.fields import NotExpressible

    try:
        return document(
            trained.model,
            trained.transforms,
            trained.columns,
            trained.target,
            trained.classes,
            trained.wide,
        ), ()
    except NotExpressible as error:
        return None, (f"No PMML: it has no words for {error}; use the model's ONNX form.",)
