"""Networks of sigmoid layers, made and moved by torch: in a local process, or in several of Spark's.

This module is sent to the processes of Spark whole, so it uses nothing else of Prudent.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

_CHUNK = 1 << 14


def plain(kind: Any) -> Any:
    """One of torch's optimisers without its ties to torch's compiler; call its `step` within `no_grad`.

    Loading that takes longer than many a training, and leaves a folder in the temporary directory.
    """
    found = {name: getattr(kind, name) for name in ("add_param_group", "zero_grad", "step")}
    return type(kind.__name__, (kind,), {name: getattr(m, "__wrapped__", m) for name, m in found.items()})


def sigmoid_network(torch: Any, widths: Sequence[int], rng: np.random.Generator) -> Any:
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


def scaled_rows(torch: Any, X: Any, mean: Any, factor: Any) -> Any:
    """Rows less the mean and times the factor, as a tensor of float32."""
    scaled = np.empty(np.shape(X), dtype=np.float32)
    for start in range(0, len(X), _CHUNK):
        scaled[start : start + _CHUNK] = (np.asarray(X[start : start + _CHUNK]) - mean) * factor
    return torch.from_numpy(scaled)


class ProcessGroup(Protocol):
    """The processes that train a network together, each on rows of its own."""

    @property
    def size(self) -> int: ...

    def average_gradients(self, network: Any) -> None:
        """Give all processes the mean of their gradients."""

    def mean(self, value: Any) -> Any:
        """The mean of a tensor over all processes."""

    def most(self, value: float) -> float:
        """The largest of the values that the processes give."""


class SingleProcess:
    """A process that trains alone."""

    size = 1

    def average_gradients(self, network: Any) -> None:
        """They are the mean already."""

    def mean(self, value: Any) -> Any:
        return value

    def most(self, value: float) -> float:
        return value


class NetworkTrainer:
    """Moves a network's weights pass by pass: with l-bfgs by all rows at once, else block by block.

    `order` answers the order of this process's rows in a pass. `class_weights` say how much the rows of each
    class count, on average 1; none where all count the same.
    """

    def __init__(
        self,
        torch: Any,
        network: Any,
        rows: Any,
        labels: Any,
        settings: Mapping[str, Any],
        order: Callable[[int], Any],
        group: ProcessGroup,
        class_weights: Sequence[float] = (),
    ) -> None:
        self._torch, self._network, self._rows, self._labels = torch, network, rows, labels
        self._order, self._group = order, group
        self._decay = float(settings.get("regParam", 0.0))
        self._block = max(1, int(settings["blockSize"]) // group.size)
        self._most_rows = int(group.most(len(rows)))
        self._loss = torch.nn.CrossEntropyLoss()
        if class_weights:
            # The sum by the number of rows: by their weights, a block of one class would count as any other.
            weighed = torch.nn.CrossEntropyLoss(weight=torch.tensor(class_weights), reduction="sum")
            self._loss = lambda raw, labels: weighed(raw, labels) / len(labels)
        weights, solver = list(network.parameters()), settings.get("solver", "adam")
        self._at_once = solver == "l-bfgs"
        if self._at_once:
            kind, chosen = torch.optim.LBFGS, {"lr": 1.0, "max_iter": 1, "line_search_fn": "strong_wolfe"}
        else:
            kind = torch.optim.Adam if solver == "adam" else torch.optim.SGD
            chosen = {"lr": float(settings["stepSize"]), "weight_decay": self._decay}
        self._optimiser = plain(kind)(weights, **chosen)

    def run_pass(self, number: int) -> float:
        """Go through the rows once; returns the mean loss of all processes."""
        if not self._at_once:
            return self._run_blocks(number)
        with self._torch.no_grad():
            return float(self._optimiser.step(self._loss_of_all))

    def _loss_of_all(self) -> Any:
        self._optimiser.zero_grad()
        loss = self._loss(self._network(self._rows), self._labels)
        loss = loss + 0.5 * self._decay * sum((value**2).sum() for value in self._network.parameters())
        loss.backward()
        self._group.average_gradients(self._network)
        # The line search looks at the loss: every process must see the same one.
        return self._group.mean(loss.detach().clone())

    def _run_blocks(self, number: int) -> float:
        torch, order, total = self._torch, self._order(number), 0.0
        for start in range(0, self._most_rows, self._block):
            # A process with a row less than others begins again: all must take part in every step.
            end = min(start + self._block, self._most_rows)
            block = order[torch.arange(start, end) % len(order)]
            self._optimiser.zero_grad()
            loss = self._loss(self._network(self._rows[block]), self._labels[block])
            loss.backward()
            self._group.average_gradients(self._network)
            with torch.no_grad():
                self._optimiser.step()
            total += float(loss.detach()) * len(block)
        return float(self._group.mean(torch.tensor(total / self._most_rows, dtype=torch.float64)))
