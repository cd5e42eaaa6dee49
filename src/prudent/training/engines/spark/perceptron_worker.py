"""What each process of a distributed perceptron does; it is sent to the executors whole."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from prudent.training.engines.networks import NetworkTrainer, scaled_rows, sigmoid_network
from prudent.training.engines.spark.perceptron_group import process_group
from prudent.training.engines.spark.progress import sign_line

Task = Callable[[Iterator[Any]], Iterator[Any]]
_MOST = 2000
"""Training rows that are looked at after every pass."""
_POINTS = 200  # of a learning curve


def with_temporary_folder(task: Task) -> Task:
    """The task, with a folder of its own for temporary files.

    Torch leaves folders behind. This one goes with the task; if that is killed, with the files of Spark that
    it lies among.
    """

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import SparkFiles

        before = os.environ.get("TMPDIR")
        with tempfile.TemporaryDirectory(prefix="torch-", dir=SparkFiles.getRootDirectory()) as folder:
            os.environ["TMPDIR"], tempfile.tempdir = folder, None
            try:
                yield from task(batches)
            finally:
                tempfile.tempdir = None
                del os.environ["TMPDIR"]
                if before is not None:
                    os.environ["TMPDIR"] = before

    return run


def run_training_script(asked: Mapping[str, Any], script: str) -> None:
    """Run Spark's script that learns; the environment says which of how many it is and where the first is."""
    from pyspark.ml.torch.distributor import TorchDistributor

    TorchDistributor._execute_command(
        [sys.executable, script], log_streaming_client=asked["log_streaming_client"]
    )


def train_worker(
    secret: bytes,
    layers: list[int],
    settings: Mapping[str, Any],
    seed: int,
    mean: Any,
    factor: Any,
    X: Any,
    y: Any,
    patience: int,
    steps: int,
    left_s: float,
    class_weights: list[float],
) -> dict[str, Any]:
    """Train on this process's partition together with the others; the first one's answer counts.

    The secret is what the processes of one training know each other by. Features are taken less their mean
    and times a factor. X and y are watched rows, or None: without a better pass over them for as long as
    `patience` it ends, at the latest after so many `steps`, or `left_s` seconds, and what was learned up to
    the best pass comes back. `class_weights` are those of a `NetworkTrainer`. The weights are as Spark keeps
    them: layer by layer, a matrix by columns, then the shifts. With them come the number of that pass, and
    points of the learning curve.
    """
    import torch
    import torch.distributed as dist

    until_s = time.monotonic() + left_s
    _end_with_parent()
    torch.set_num_threads(1)
    with process_group(secret):
        network = sigmoid_network(torch, layers, np.random.default_rng(seed))
        for value in network.parameters():
            dist.broadcast(value.detach(), 0)
        rows, labels = _partition(torch)
        rows = scaled_rows(torch, rows, mean, factor)
        X = None if X is None else scaled_rows(torch, X, mean, factor)

        course = Course(torch, network, None if X is None else (X, y), (rows, labels), patience, secret)
        order = _shuffled(torch, len(rows), seed)
        group = _TorchGroup(torch, dist)
        trainer = NetworkTrainer(torch, network, rows, labels, settings, order, group, class_weights)
        _train(dist, trainer, group, float(settings["tol"]), course, steps, until_s)
        return course.outcome()


def _partition(torch: Any) -> tuple[Any, Any]:
    """The rows that Spark left for this process."""
    import pyarrow as pa

    with pa.OSFile(os.environ["SPARK_PARTITION_ARROW_DATA_FILE"]) as file:
        table = pa.ipc.open_stream(file).read_all()
    flat = table.column("x").combine_chunks().flatten().to_numpy(zero_copy_only=False)
    rows = np.array(flat).reshape(table.num_rows, -1)
    labels = np.array(table.column("y").to_numpy(), dtype=np.int64)
    # Partitions arrive in any order: one order for the same rows, whoever sent them first.
    order = np.lexsort((*rows.T[::-1], labels)) if rows.shape[1] <= 64 else np.argsort(labels, kind="stable")
    return rows[order], torch.from_numpy(labels[order])


def _shuffled(torch: Any, rows: int, seed: int) -> Callable[[int], Any]:
    """The order of so many rows in each pass."""

    def order(number: int) -> Any:
        return torch.randperm(rows, generator=torch.Generator().manual_seed(seed + number))

    return order


def _train(
    dist: Any,
    trainer: NetworkTrainer,
    group: _TorchGroup,
    tol: float,
    course: Course,
    steps: int,
    until_s: float,
) -> None:
    last = float("inf")
    for epoch in range(steps):
        loss = trainer.run_pass(epoch)
        stuck = dist.get_rank() == 0 and course.step(steps)
        # All must end at the same step: the time is up for all when it is for one.
        late = time.monotonic() >= until_s
        if group.most(float(stuck or late)) > 0:
            course.why = course.why or "the time was up"
            break
        if abs(last - loss) < tol:
            break
        last = loss
    if dist.get_rank() == 0:
        course.finish()


class _TorchGroup:
    """Torch's process group; it averages gradients itself, for torch's own way loads its compiler first."""

    def __init__(self, torch: Any, dist: Any) -> None:
        self._torch, self._dist = torch, dist
        self.size = int(dist.get_world_size())

    def average_gradients(self, network: Any) -> None:
        if self.size == 1:
            return
        gradients = [value.grad for value in network.parameters()]
        every = self.mean(self._torch.cat([gradient.reshape(-1) for gradient in gradients]))
        parts = self._torch.split(every, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.reshape(gradient.shape))

    def mean(self, value: Any) -> Any:
        self._dist.all_reduce(value)
        return value / self.size

    def most(self, value: float) -> float:
        largest = self._torch.tensor(value, dtype=self._torch.float64)
        self._dist.all_reduce(largest, op=self._dist.ReduceOp.MAX)
        return float(largest)


class Course:
    """What the first process knows of how training goes: it classifies the watched rows after every pass."""

    def __init__(
        self, torch: Any, network: Any, watched: Any, trained: Any, patience: int, secret: bytes
    ) -> None:
        self._torch, self._network, self._watched, self._trained = torch, network, watched, trained
        self._patience, self._secret = patience, secret
        self._least, self._best_weights, self._told_s = float("inf"), None, time.monotonic()
        self.step_number, self.best_step, self.why = 0, 0, ""
        self.points: list[dict[str, Any]] = []

    def step(self, steps: int) -> bool:
        """Look at the network after a pass; whether it has not become better for too long."""
        self.step_number += 1
        if self._watched is None:
            self.best_step = self.step_number
            return False
        loss, watched = self._judge(*self._watched)
        if loss < self._least:
            self._least, self.best_step, self._best_weights = loss, self.step_number, self._now()
        X, y = self._trained
        point = {
            "step": self.step_number,
            "watched": watched,
            "training": self._judge(X[:_MOST], y[:_MOST])[1],
        }
        if (self.step_number - 1) % max(1, steps // _POINTS) == 0 or self.best_step == self.step_number:
            self.points.append(point)
        if time.monotonic() - self._told_s > 0.5:
            self._tell(point, self.step_number / steps)
        if self.step_number - self.best_step >= self._patience and self.step_number < steps:
            self.why = f"no better for {self._patience} steps"
        return bool(self.why)

    def finish(self) -> None:
        """Tell the state at the best pass, which is the one that counts."""
        best = [point for point in self.points if point["step"] == self.best_step]
        if best:
            self._tell(best[0], 1.0)

    def outcome(self) -> dict[str, Any]:
        """What has come of the training."""
        return {"weights": self.weights(), "best": self.best_step, "points": self.points, "why": self.why}

    def weights(self) -> list[float]:
        found = self._now() if self._best_weights is None else self._best_weights
        return [float(value) for value in found.double()]

    def _now(self) -> Any:
        layers = [layer for layer in self._network if isinstance(layer, self._torch.nn.Linear)]
        parts = [
            values
            for layer in layers
            for values in (layer.weight.detach().T.reshape(-1), layer.bias.detach())
        ]
        return self._torch.cat(parts) if parts else self._torch.empty(0)

    def _judge(self, X: Any, y: Any) -> tuple[float, list[list[int]]]:
        """The mean loss on rows, and how they are classified, as counts by class."""
        with self._torch.no_grad():
            raw = self._network(X)
            loss = float(self._torch.nn.functional.cross_entropy(raw, self._torch.as_tensor(y)))
        classes = raw.shape[1]
        cells = np.asarray(y) * classes + raw.argmax(1).numpy()
        counts = np.bincount(cells, minlength=classes * classes).reshape(classes, classes)
        found: list[list[int]] = counts.tolist()
        return loss, found

    def _tell(self, point: Mapping[str, Any], done: float) -> None:
        self._told_s = time.monotonic()
        said = json.dumps({"counts": point["watched"], "done": done})
        sys.stdout.write(f"{sign_line(said, self._secret)}\n")
        sys.stdout.flush()


def _end_with_parent() -> None:
    """End when the task that started this does: a cancelled job kills its Python, not that one's children."""
    starter = os.getppid()
    above = _parent_of(starter)

    def end_with_parent() -> None:
        while os.getppid() == starter and _parent_of(starter) == above:
            time.sleep(0.5)
        os.kill(starter, 9) if os.getppid() == starter else None
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _parent_of(process: int) -> int:
    try:
        with open(f"/proc/{process}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return -1
