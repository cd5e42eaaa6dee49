"""What models have in common that give each class a score, and what scores become."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.training.data.dataset import Matrix
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph

Vector = NDArray[np.float64]


class ScoredClasses(ABC):
    """Base of models that give each class or cluster a score: the highest wins."""

    probable = True
    """Whether the softmax of the scores is a probability."""

    @abstractmethod
    def scores(self, X: Matrix) -> Vector:
        """(rows, classes)"""

    @abstractmethod
    def scores_graph(self, graph: OnnxGraph, rows: str) -> str:
        """The same as part of a graph."""

    def predict(self, X: Matrix) -> NDArray[Any]:
        return np.asarray(self.scores(X).argmax(axis=1))

    def probabilities(self, X: Matrix) -> Vector | None:
        return softmax(self.scores(X)) if self.probable else None

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        return graph.highest_class(self.scores_graph(graph, rows), self.probable)


def sigmoid(raw: Vector) -> Vector:
    from scipy.special import expit

    return np.asarray(expit(raw))


def softmax(raw: Vector) -> Vector:
    weights = np.exp(raw - raw.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
