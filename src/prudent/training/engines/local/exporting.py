"""A model as ONNX, and whether the file says what the model said."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.dataset import Matrix
from prudent.training.engines.local.graph import INPUT, Graph
from prudent.training.engines.local.lesson import Model
from prudent.training.engines.local.steps import Step, apply_all

_QUIET = 3  # onnxruntime's level for errors


@dataclass(frozen=True)
class Check:
    """How far the exported model is from the trained one, and how long it takes for a row."""

    difference: float
    predict_ms: float


def export(model: Model, steps: Sequence[Step], columns: int) -> bytes:
    """The whole pipeline as an ONNX file."""
    graph = Graph(columns)
    rows = INPUT
    for step in steps:
        rows = step.graph(graph, rows)
    return graph.finish(model.graph(graph, rows))


def check(onnx: bytes, model: Model, steps: Sequence[Step], raw: Matrix, threads: int) -> Check:
    """Predict rows as users have them with both, and compare.

    The difference is of probabilities where there are some, else of predictions; of values it is relative
    to the largest, for 1e-3 is much for a rate and nothing for a salary.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _QUIET
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    raw = np.ascontiguousarray(raw, dtype=np.float32)
    session.run(None, {INPUT: raw[:1]})
    began_s = time.perf_counter()
    answers = session.run(None, {INPUT: raw})
    predict_ms = (time.perf_counter() - began_s) * 1000.0 / max(len(raw), 1)
    prepared = apply_all(steps, raw)
    probabilities = model.probabilities(prepared)
    if probabilities is not None:
        return Check(_largest(probabilities, answers[1]), predict_ms)
    expected = model.predict(prepared)
    if expected.dtype.kind == "i":
        return Check(float((expected != answers[0]).any()), predict_ms)
    return Check(_largest(expected, answers[0]) / max(1.0, float(np.abs(expected).max())), predict_ms)


def _largest(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.abs(one - other).max()) if len(one) else 0.0
