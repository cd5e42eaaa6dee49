"""The multilayer perceptron: sigmoid layers and a softmax at the end, as Spark's, trained by torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prudent.core.errors import BadInput, RunFailed
from prudent.core.seeds import rng_for
from prudent.training.data.dataset import Matrix
from prudent.training.engines.fit_task import EarlyStopping, FitTask, LearningCurve
from prudent.training.engines.local.column_statistics import mean_and_deviation
from prudent.training.engines.local.learners.scored_classes import ScoredClasses, sigmoid
from prudent.training.engines.local.learners.solver import LinearFunction
from prudent.training.engines.networks import (
    NetworkTrainer,
    SingleProcess,
    scaled_rows,
    sigmoid_network,
)
from prudent.training.engines.onnx_export import OnnxGraph

_CHUNK = 1 << 14
_TRAIN_SAMPLE = 2_000  # training rows that are scored after every step


@dataclass(frozen=True, eq=False)
class MultilayerPerceptron(ScoredClasses):
    """Linear functions with sigmoids between them."""

    layers: tuple[LinearFunction, ...]
    importance: NDArray[np.float64] | None = None
    learning_curve: LearningCurve | None = None

    def scores(self, X: Matrix) -> NDArray[np.float64]:
        raw = np.empty((len(X), len(self.layers[-1].intercepts)))
        for start in range(0, len(X), _CHUNK):
            part: NDArray[Any] = X[start : start + _CHUNK]
            for layer in self.layers[:-1]:
                part = sigmoid(layer.apply(part))
            raw[start : start + _CHUNK] = self.layers[-1].apply(part)
        return raw

    def scores_graph(self, graph: OnnxGraph, rows: str) -> str:
        for layer in self.layers[:-1]:
            rows = graph.add("Sigmoid", graph.affine(rows, layer.weights, layer.intercepts))
        return graph.affine(rows, self.layers[-1].weights, self.layers[-1].intercepts)


def perceptron(fit_task: FitTask, params: Mapping[str, Any]) -> MultilayerPerceptron:
    """Train epoch by epoch (step by step with l-bfgs); the weights of the best one are kept."""
    try:
        import torch
    except ImportError:
        raise BadInput('The perceptron needs torch; install it with pip install "prudent[torch]".') from None
    torch.set_num_threads(fit_task.threads)
    mean, spread = mean_and_deviation(fit_task.rows.X)
    factor = 1.0 / np.where(spread > 0, spread, 1.0)
    widths = layer_widths(params, fit_task.rows.X.shape[1], fit_task.classes)
    network = sigmoid_network(torch, widths, rng_for(fit_task.seed, "weights"))
    trainer = PerceptronTrainer(torch, network, fit_task, params, mean, factor)
    learning_curve = trainer.train()
    layers = [_linear_of(layer) for layer in network if hasattr(layer, "weight")]
    # Features are scaled within the first layer, so that the network takes them as they are.
    first = layers[0].weights * factor[:, None]
    layers[0] = LinearFunction(first, layers[0].intercepts - mean @ first)
    importance = np.abs(first).sum(axis=1) * spread
    return MultilayerPerceptron(tuple(layers), importance, learning_curve)


def layer_widths(params: Mapping[str, Any], features: int, classes: int) -> list[int]:
    """The widths of all layers; those of the ends must be what the data have.

    >>> layer_widths({"numHiddenLayers": 2, "hiddenLayersWidth": 8}, 4, 3)
    [4, 8, 8, 3]
    """
    for name, there, what in (
        ("inputLayerWidth", features, "features"),
        ("outputLayerWidth", classes, "classes"),
    ):
        said = params.get(name)
        if said is not None and int(said) != there:
            raise BadInput(
                f"{name} is {said}, but the data have {there} {what}; set it to {there} or leave it out."
            )
    return [features, *[int(params["hiddenLayersWidth"])] * int(params["numHiddenLayers"]), classes]


class PerceptronTrainer:
    """Trains a network pass by pass, and scores it after each."""

    def __init__(
        self,
        torch: Any,
        network: Any,
        fit_task: FitTask,
        params: Mapping[str, Any],
        mean: NDArray[np.float64],
        factor: NDArray[np.float64],
    ) -> None:
        self._torch = torch
        self._network = network
        self._fit_task = fit_task
        self._params = params
        self._rows = scaled_rows(torch, fit_task.rows.X, mean, factor)
        watched = fit_task.watched
        self._watched = None if watched is None else scaled_rows(torch, watched.X, mean, factor)
        labels = torch.from_numpy(fit_task.rows.target.astype(np.int64))
        rng = rng_for(fit_task.seed, "order of rows")

        def order(number: int) -> Any:
            return torch.from_numpy(rng.permutation(len(labels)))

        self._trainer = NetworkTrainer(torch, network, self._rows, labels, params, order, SingleProcess())

    def train(self) -> LearningCurve | None:
        """Until nothing gets better, or `maxIter` passes are made; how it went, if rows were watched."""
        steps = self._params["maxIter"] if self._fit_task.iterations is None else self._fit_task.iterations
        stopping = None if self._watched is None else EarlyStopping(self._fit_task, max(steps, 1))
        last, best = np.inf, None
        for number in range(steps):
            loss = self._trainer.run_pass(number)
            if not np.isfinite(loss):
                raise RunFailed("The weights grew without bounds; set a smaller stepSize.")
            stop = stopping is not None and self._evaluate(stopping)
            if stopping is not None and stopping.is_best:
                best = [value.detach().clone() for value in self._network.parameters()]
            if stop or abs(last - loss) < self._params["tol"]:
                break
            last = loss
        if best is not None:
            with self._torch.no_grad():
                for value, kept in zip(self._network.parameters(), best, strict=True):
                    value.copy_(kept)
        return None if stopping is None else stopping.learning_curve()

    def _evaluate(self, stopping: EarlyStopping) -> bool:
        torch, fit_task = self._torch, self._fit_task
        assert fit_task.watched is not None
        with torch.no_grad():
            raw = self._network(self._watched)
            wanted = torch.from_numpy(fit_task.watched.target.astype(np.int64))
            loss = torch.nn.functional.cross_entropy(raw, wanted)
            some = self._network(self._rows[:_TRAIN_SAMPLE]).argmax(1).numpy()
        known = fit_task.scorer.score(fit_task.rows.target[:_TRAIN_SAMPLE], some, fit_task.rows.X[:0])
        return stopping.step(raw.argmax(1).numpy(), float(loss), known)


def _linear_of(layer: Any) -> LinearFunction:
    weights = layer.weight.detach().numpy().astype(np.float64)
    return LinearFunction(weights.T.copy(), layer.bias.detach().numpy().astype(np.float64))
