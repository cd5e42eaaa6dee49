"""A pipeline of Spark's as ONNX, and whether the file says what Spark said."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.onnx_export import INPUT, OnnxGraph
from prudent.training.engines.spark.answers import CollectedPredictions
from prudent.training.engines.spark.fitting import FittedPipeline
from prudent.training.engines.spark.onnx_models import model_answer

_TIE = 1e-6  # ONNX sums trees in single precision
_QUIET = 3  # onnxruntime's level for errors


@dataclass(frozen=True)
class ExportCheck:
    """How far the exported model is from Spark's, and how long it takes for a row."""

    difference: float
    predict_ms: float


def export(fitted: FittedPipeline, columns: int) -> bytes:
    """The whole pipeline as an ONNX file."""
    graph = OnnxGraph(columns)
    rows = INPUT
    for step in fitted.steps:
        rows = step.graph(graph, rows)
    return graph.finish(model_answer(fitted.model, graph, rows, fitted.categories))


def check(onnx: bytes, answers: CollectedPredictions, threads: int = 1) -> ExportCheck:
    """Predict the rows that Spark answered, and compare.

    The difference is of probabilities where there are some, else of predictions; of values it is relative to
    the largest.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _QUIET
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    raw = np.ascontiguousarray(answers.raw)
    session.run(None, {INPUT: raw[:1]})
    began_s = time.perf_counter()
    found = session.run(None, {INPUT: raw})
    predict_ms = (time.perf_counter() - began_s) * 1000.0 / max(len(raw), 1)
    if answers.probabilities is not None and len(found) > 1:
        return ExportCheck(_largest(answers.probabilities, found[1]), predict_ms)
    said = answers.predicted
    if found[0].dtype.kind == "i":
        wrong = (said.astype(np.int64) != found[0]) & ~_ties(answers)
        return ExportCheck(float(wrong.any()), predict_ms)
    return ExportCheck(_largest(said, found[0]) / max(1.0, float(np.abs(said).max())), predict_ms)


def _ties(answers: CollectedPredictions) -> NDArray[np.bool_]:
    """Rows whose two best classes score the same but for the last digits: either one is right."""
    if answers.scores is None:
        return np.zeros(len(answers.predicted), dtype=np.bool_)
    two = np.sort(answers.scores, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0] <= _TIE * np.maximum(1.0, np.abs(two[:, 1])))


def _largest(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.abs(one - other).max()) if len(one) else 0.0
