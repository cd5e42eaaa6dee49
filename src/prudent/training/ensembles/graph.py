"""Many models as one ONNX file: raw rows go to each member's graph, and their answers are averaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import Matrix
from prudent.training.engines.onnx_export import DOUBLE, FLOAT, GraphOutputs, OnnxGraph
from prudent.training.ensembles.selection import Outputs
from prudent.training.models.model import open_session, session_predictions


@dataclass(frozen=True, eq=False)
class EnsembleGraph:
    """Members as ONNX files with their weights; `classes` says how many, 0 where values are predicted.

    A member without probabilities votes: its class has all of them.
    """

    members: Sequence[bytes]
    weights: Sequence[float]
    classes: int

    def export(self, columns: int, kind: int = FLOAT) -> bytes:
        """The whole ensemble as one file, which takes the same raw rows as its members."""
        graph = OnnxGraph(columns, kind)
        parts = []
        for onnx, weight in zip(self.members, self.weights, strict=True):
            said = graph.embed(onnx)
            answer = self._votes(graph, said) if self.classes else said.prediction
            parts.append(graph.add("Mul", graph.cast(answer, DOUBLE), graph.constant(weight)))
        total = graph.add("Sum", *parts)
        if self.classes:
            return graph.finish(GraphOutputs(graph.argmax(total), total))
        return graph.finish(GraphOutputs(total, is_integer=False))

    def _votes(self, graph: OnnxGraph, said: GraphOutputs) -> str:
        if said.probabilities is not None:
            return said.probabilities
        depth, ends = graph.constant(self.classes, np.int64), graph.constant([0.0, 1.0], np.float32)
        return graph.add("OneHot", said.prediction, depth, ends, axis=-1)


def outputs_of(predicted: NDArray[Any], probabilities: NDArray[Any] | None, classes: int) -> Outputs:
    """What a model says, in the form that is averaged: probabilities, votes for a class, or values.

    >>> outputs_of(np.array([1, 0]), None, 2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    if probabilities is not None:
        return probabilities.astype(np.float64)
    if not classes:
        return predicted.astype(np.float64)
    return np.asarray(np.eye(classes)[predicted.astype(np.int64)])


def raw_predictor(folder: Path, classes: int) -> Callable[[Matrix], Outputs]:
    """What the model of a folder says of raw rows; its description is not needed."""
    session = open_session(folder)
    return lambda rows: outputs_of(*session_predictions(session, rows), classes)
