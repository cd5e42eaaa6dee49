"""The multilayer perceptron: layers of logistic curves and shares at the end, as Spark's, taught by torch."""

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
from prudent.training.engines.local.learners.linear import sigmoid, softmax
from prudent.training.engines.local.learners.solver import LinearFunction
from prudent.training.engines.onnx_export import GraphOutputs, OnnxGraph
from prudent.training.engines.optimisers import plain

_CHUNK = 1 << 14
_TRAIN_SAMPLE = 2_000  # training rows that are scored after every step


@dataclass(frozen=True, eq=False)
class MultilayerPerceptron:
    """Lines with logistic curves between them."""

    layers: tuple[LinearFunction, ...]
    importance: NDArray[np.float64] | None = None
    learning_curve: LearningCurve | None = None

    def predict(self, X: Matrix) -> NDArray[Any]:
        return np.asarray(self._raw(X).argmax(axis=1))

    def probabilities(self, X: Matrix) -> NDArray[np.float64]:
        return softmax(self._raw(X))

    def graph(self, graph: OnnxGraph, rows: str) -> GraphOutputs:
        for layer in self.layers[:-1]:
            rows = graph.add("Sigmoid", graph.affine(rows, layer.weights, layer.intercepts))
        raw = graph.affine(rows, self.layers[-1].weights, self.layers[-1].intercepts)
        return GraphOutputs(graph.largest(raw), graph.add("Softmax", raw, axis=1))

    def _raw(self, X: Matrix) -> NDArray[np.float64]:
        raw = np.empty((len(X), len(self.layers[-1].intercepts)))
        for start in range(0, len(X), _CHUNK):
            part: NDArray[Any] = X[start : start + _CHUNK]
            for layer in self.layers[:-1]:
                part = sigmoid(layer.of(part))
            raw[start : start + _CHUNK] = self.layers[-1].of(part)
        return raw


def perceptron(fit_task: FitTask, chosen: Mapping[str, Any]) -> MultilayerPerceptron:
    """Train epoch by epoch (step by step with l-bfgs); the weights of the best one are kept."""
    try:
        import torch
    except ImportError:
        raise BadInput('The perceptron needs torch; install it with pip install "prudent[torch]".') from None
    torch.set_num_threads(fit_task.threads)
    mean, spread = mean_and_deviation(fit_task.rows.X)
    factor = 1.0 / np.where(spread > 0, spread, 1.0)
    widths = widths_of(chosen, fit_task.rows.X.shape[1], fit_task.classes)
    network = _network(torch, widths, rng_for(fit_task.seed, "weights"))
    teacher = PerceptronTrainer(torch, network, fit_task, chosen, mean, factor)
    learning_curve = teacher.teach()
    layers = [_line(layer) for layer in network if hasattr(layer, "weight")]
    # Features are scaled within the first layer, so that the network takes them as they are.
    first = layers[0].weights * factor[:, None]
    layers[0] = LinearFunction(first, layers[0].intercepts - mean @ first)
    importance = np.abs(first).sum(axis=1) * spread
    return MultilayerPerceptron(tuple(layers), importance, learning_curve)


def widths_of(chosen: Mapping[str, Any], features: int, classes: int) -> list[int]:
    """The widths of all layers; those of the ends must be what the data have.

    >>> widths_of({"numHiddenLayers": 2, "hiddenLayersWidth": 8}, 4, 3)
    [4, 8, 8, 3]
    """
    for name, there, what in (
        ("inputLayerWidth", features, "features"),
        ("outputLayerWidth", classes, "classes"),
    ):
        said = chosen.get(name)
        if said is not None and said != there:
            raise BadInput(
                f"{name} is {said}, but the data have {there} {what}; set it to {there} or leave it out."
            )
    return [features, *[chosen["hiddenLayersWidth"]] * chosen["numHiddenLayers"], classes]


class PerceptronTrainer:
    """Moves a network's weights, one pass over the rows at a time, and looks how it does."""

    def __init__(
        self,
        torch: Any,
        network: Any,
        fit_task: FitTask,
        chosen: Mapping[str, Any],
        mean: NDArray[np.float64],
        factor: NDArray[np.float64],
    ) -> None:
        self._torch = torch
        self._network = network
        self._lesson = fit_task
        self._chosen = chosen
        self._rows = self._scaled(fit_task.rows.X, mean, factor)
        self._labels = torch.from_numpy(fit_task.rows.target.astype(np.int64))
        self._loss_of = torch.nn.CrossEntropyLoss()
        held_out = fit_task.held_out
        self._others = None if held_out is None else self._scaled(held_out.X, mean, factor)
        self._order = rng_for(fit_task.seed, "order of rows")

    def teach(self) -> LearningCurve | None:
        """Until nothing gets better, or `maxIter` passes are made; how it went, if rows were held out."""
        steps = self._chosen["maxIter"] if self._lesson.steps is None else self._lesson.steps
        watch = None if self._others is None else EarlyStopping(self._lesson, max(steps, 1))
        forward, last, best = self._stepper(), np.inf, None
        for _ in range(steps):
            loss = forward()
            if not np.isfinite(loss):
                raise RunFailed("The weights grew without bounds; set a smaller stepSize.")
            stop = watch is not None and self._look(watch)
            if watch is not None and watch.is_best:
                best = [value.detach().clone() for value in self._network.parameters()]
            if stop or abs(last - loss) < self._chosen["tol"]:
                break
            last = loss
        if best is not None:
            with self._torch.no_grad():
                for value, kept in zip(self._network.parameters(), best, strict=True):
                    value.copy_(kept)
        return None if watch is None else watch.learning_curve()

    def _stepper(self) -> Callable[[], float]:
        """A function that goes once through the rows and answers the mean loss."""
        torch, chosen = self._torch, self._chosen
        weights = list(self._network.parameters())
        if chosen["solver"] == "l-bfgs":
            mover = plain(torch.optim.LBFGS)(weights, lr=1.0, max_iter=1, line_search_fn="strong_wolfe")
            return lambda: self._whole(mover)
        kind = torch.optim.Adam if chosen["solver"] == "adam" else torch.optim.SGD
        mover = plain(kind)(weights, lr=chosen["stepSize"], weight_decay=chosen["regParam"])
        return lambda: self._once(mover)

    def _once(self, mover: Any) -> float:
        rows, size = len(self._rows), self._chosen["blockSize"]
        order = self._torch.from_numpy(self._order.permutation(rows))
        total = 0.0
        for start in range(0, rows, size):
            block = order[start : start + size]
            mover.zero_grad()
            loss = self._loss_of(self._network(self._rows[block]), self._labels[block])
            loss.backward()
            with self._torch.no_grad():
                mover.step()
            total += float(loss.detach()) * len(block)
        return total / rows

    def _whole(self, mover: Any) -> float:
        with self._torch.no_grad():
            return float(mover.step(lambda: self._whole_loss(mover)).detach())

    def _whole_loss(self, mover: Any) -> Any:
        mover.zero_grad()
        loss = self._loss_of(self._network(self._rows), self._labels)
        squares = sum((value**2).sum() for value in self._network.parameters())
        loss = loss + 0.5 * self._chosen["regParam"] * squares
        loss.backward()
        return loss

    def _look(self, watch: EarlyStopping) -> bool:
        torch, fit_task = self._torch, self._lesson
        assert fit_task.held_out is not None
        with torch.no_grad():
            raw = self._network(self._others)
            loss = self._loss_of(raw, torch.from_numpy(fit_task.held_out.target.astype(np.int64)))
            some = self._network(self._rows[:_TRAIN_SAMPLE]).argmax(1).numpy()
        known = fit_task.scorer.score(fit_task.rows.target[:_TRAIN_SAMPLE], some, fit_task.rows.X[:0])
        return watch.step(raw.argmax(1).numpy(), float(loss), known)

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


def _line(layer: Any) -> LinearFunction:
    weights = layer.weight.detach().numpy().astype(np.float64)
    return LinearFunction(weights.T.copy(), layer.bias.detach().numpy().astype(np.float64))
