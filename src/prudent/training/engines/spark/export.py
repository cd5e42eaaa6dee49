"""A pipeline of Spark's as ONNX, and whether the file says what Spark said."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.engines.local.graph import INPUT, Graph
from prudent.training.engines.spark.fitting import Fitted
from prudent.training.engines.spark.judging import PREDICTION
from prudent.training.engines.spark.onnx_models import model_answer
from prudent.training.engines.spark.table import ROW, Table, raw_rows

_SAMPLE = 10_000  # rows; enough to see a difference or take the time
_QUIET = 3  # onnxruntime's level for errors
_PROBABILITY = "probability"


@dataclass(frozen=True)
class Check:
    """How far the exported model is from Spark's, and how long it takes for a row."""

    difference: float
    predict_ms: float


def export(fitted: Fitted, columns: int) -> bytes:
    """The whole pipeline as an ONNX file."""
    graph = Graph(columns)
    rows = INPUT
    for step in fitted.steps:
        rows = step.graph(graph, rows)
    return graph.finish(model_answer(fitted.model, graph, rows, fitted.categories))


def check(onnx: bytes, fitted: Fitted, table: Table, held_out: Any, threads: int = 1) -> Check:
    """Predict rows as users have them with both, and compare.

    The difference is of probabilities where there are some, else of predictions; of values it is relative to
    the largest.
    """
    import onnxruntime
    from pyspark.ml.functions import vector_to_array
    from pyspark.sql import functions as sf

    frame = fitted.predict(held_out.orderBy(ROW).limit(_SAMPLE))
    likely = _PROBABILITY in frame.columns
    if likely:
        frame = frame.withColumn(_PROBABILITY, vector_to_array(sf.col(_PROBABILITY)))
    raw, said = raw_rows(frame, table, [PREDICTION, *([_PROBABILITY] if likely else [])])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = _QUIET
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    session.run(None, {INPUT: raw[:1]})
    began_s = time.perf_counter()
    answers = session.run(None, {INPUT: raw})
    predict_ms = (time.perf_counter() - began_s) * 1000.0 / max(len(raw), 1)
    if likely and len(answers) > 1:
        return Check(_largest(np.stack(list(said[1])), answers[1]), predict_ms)
    if answers[0].dtype.kind == "i":
        return Check(float((said[0].astype(np.int64) != answers[0]).any()), predict_ms)
    return Check(_largest(said[0], answers[0]) / max(1.0, float(np.abs(said[0]).max())), predict_ms)


def _largest(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.abs(one - other).max()) if len(one) else 0.0
