"""The multilayer perceptron: sigmoid layers and a softmax at the end, as Spark's, trained by torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
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
from prudent.training.engines.onnx_export import OnnxGraph
from prudent.training.engines.optimisers import plain

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
    network = _network(torch, widths, rng_for(fit_task.seed, "weights"))
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
    """Moves a network's weights, one pass over the rows at a time, and scores it after each."""

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
        self._rows = self._scaled(fit_task.rows.X, mean, factor)
        self._labels = torch.from_numpy(fit_task.rows.target.astype(np.int64))
        self._loss_of = torch.nn.CrossEntropyLoss()
        held_out = fit_task.held_out
        self._held_out = None if held_out is None else self._scaled(held_out.X, mean, factor)
        self._order = rng_for(fit_task.seed, "order of rows")

    def train(self) -> LearningCurve | None:
        """Until nothing gets better, or `maxIter` passes are made; how it went, if rows were held out."""
        steps = self._params["maxIter"] if self._fit_task.iterations is None else self._fit_task.iterations
        stopping = None if self._held_out is None else EarlyStopping(self._fit_task, max(steps, 1))
        forward, last, best = self._step_function(), np.inf, None
        for _ in range(steps):
            loss = forward()
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

    def _step_function(self) -> Callable[[], float]:
        """A function that goes once through the rows and answers the mean loss."""
        torch, params = self._torch, self._params
        weights = list(self._network.parameters())
        if params["solver"] == "l-bfgs":
            optimiser = plain(torch.optim.LBFGS)(weights, lr=1.0, max_iter=1, line_search_fn="strong_wolfe")
            return lambda: self._full_batch_step(optimiser)
        kind = torch.optim.Adam if params["solver"] == "adam" else torch.optim.SGD
        optimiser = plain(kind)(weights, lr=params["stepSize"], weight_decay=params["regParam"])
        return lambda: self._epoch(optimiser)

    def _epoch(self, optimiser: Any) -> float:
        rows, size = len(self._rows), self._params["blockSize"]
        order = self._torch.from_numpy(self._order.permutation(rows))
        total = 0.0
        for start in range(0, rows, size):
            block = order[start : start + size]
            optimiser.zero_grad()
            loss = self._loss_of(self._network(self._rows[block]), self._labels[block])
            loss.backward()
            with self._torch.no_grad():
                optimiser.step()
            total += float(loss.detach()) * len(block)
        return total / rows

    def _full_batch_step(self, optimiser: Any) -> float:
        with self._torch.no_grad():
            return float(optimiser.step(lambda: self._full_batch_loss(optimiser)).detach())

    def _full_batch_loss(self, optimiser: Any) -> Any:
        optimiser.zero_grad()
        loss = self._loss_of(self._network(self._rows), self._labels)
        squares = sum((value**2).sum() for value in self._network.parameters())
        loss = loss + 0.5 * self._params["regParam"] * squares
        loss.backward()
        return loss

    def _evaluate(self, stopping: EarlyStopping) -> bool:
        torch, fit_task = self._torch, self._fit_task
        assert fit_task.held_out is not None
        with torch.no_grad():
            raw = self._network(self._held_out)
            loss = self._loss_of(raw, torch.from_numpy(fit_task.held_out.target.astype(np.int64)))
            some = self._network(self._rows[:_TRAIN_SAMPLE]).argmax(1).numpy()
        known = fit_task.scorer.score(fit_task.rows.target[:_TRAIN_SAMPLE], some, fit_task.rows.X[:0])
        return stopping.step(raw.argmax(1).numpy(), float(loss), known)

    def _scaled(self, X: Matrix, mean: NDArray[np.float64], factor: NDArray[np.float64]) -> Any:
        scaled = np.empty(X.shape, dtype=np.float32)
        for start in range(0, len(X), _CHUNK):
            scaled[start : start + _CHUNK] = (X[start : start + _CHUNK] - mean) * factor
        return self._torch.from_numpy(scaled)


def _network(torch: Any, widths: Sequence[int], rng: np.random.Generator) -> Any:
    """Weights at random, no larger than lets a signal pass through a logistic curve (Glorot)."""
    parts: list[Any] = []
    for width, following in itertools.pairwise(widths):
        layer = torch.nn.Linear(width, following)
        most = np.sqrt(6.0 / (width + following))
        drawn = rng.uniform(-most, most, (following, width)).astype(np.float32)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(drawn))
            layer.bias.zero_()
        parts += [layer, torch.nn.Sigmoid()]
    return torch.nn.Sequential(*parts[:-1])


def _linear_of(layer: Any) -> LinearFunction:
    weights = layer.weight.detach().numpy().astype(np.float64)
    return LinearFunction(weights.T.copy(), layer.bias.detach().numpy().astype(np.float64))
