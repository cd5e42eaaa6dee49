"""What each process of a distributed perceptron does; it is sent to the executors whole."""

from __future__ import annotations

import hmac
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

PROGRESS = "prudent-progress "
Task = Callable[[Iterator[Any]], Iterator[Any]]


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
    left_s: float,
) -> list[float]:
    """Train on this process's partition together with the others; the first one's answer counts.

    The secret is what the processes of one training know each other by. Features are taken less their mean
    and times a factor. X and y are rows to measure progress on, or None. After `left_s` seconds it ends with
    what it has learned. The weights come back as Spark keeps them: layer by layer, a matrix by columns, then
    the shifts.
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

        def report(done: float) -> None:
            if X is not None:
                _report_progress(torch, network, X, y, layers[-1], done, secret)

        _train(torch, dist, network, rows, labels, settings, seed, report, until_s)
        parts = [
            values
            for layer in network
            if isinstance(layer, torch.nn.Linear)
            for values in (layer.weight.detach().T.reshape(-1), layer.bias.detach())
        ]
        return [float(value) for value in torch.cat(parts).double()]


def _partition(torch: Any) -> tuple[Any, Any]:
    """The rows that Spark left for this process."""
    import pyarrow as pa

    with pa.OSFile(os.environ["SPARK_PARTITION_ARROW_DATA_FILE"]) as file:
        table = pa.ipc.open_stream(file).read_all()
    flat = table.column("x").combine_chunks().flatten().to_numpy(zero_copy_only=False)
    rows = np.array(flat, dtype=np.float32).reshape(table.num_rows, -1)
    labels = np.array(table.column("y").to_numpy(), dtype=np.int64)
    # Partitions arrive in any order: one order for the same rows, whoever sent them first.
    order = np.lexsort((*rows.T[::-1], labels)) if rows.shape[1] <= 64 else np.argsort(labels, kind="stable")
    return torch.from_numpy(rows[order]), torch.from_numpy(labels[order])


def _train(
    torch: Any,
    dist: Any,
    network: Any,
    rows: Any,
    labels: Any,
    settings: Mapping[str, Any],
    seed: int,
    report: Callable[[float], None],
    until_s: float,
) -> None:
    def order(number: int) -> Any:
        return torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed + number))

    group = _TorchGroup(torch, dist)
    trainer = NetworkTrainer(torch, network, rows, labels, settings, order, group)
    most, tol, last = int(settings["maxIter"]), float(settings["tol"]), float("inf")
    judged_s = time.monotonic()
    for epoch in range(most):
        loss = trainer.run_pass(epoch)
        # All must end at the same step: the time is up for all when it is for one.
        late = until_s < float("inf") and group.most(float(time.monotonic() >= until_s)) > 0
        done = abs(last - loss) < tol or epoch + 1 == most or late
        if dist.get_rank() == 0 and (done or time.monotonic() - judged_s > 0.5):
            judged_s = time.monotonic()
            report((epoch + 1) / most)
        if done:
            return
        last = loss


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


def _report_progress(
    torch: Any, network: Any, X: Any, y: Any, classes: int, done: float, secret: bytes
) -> None:
    """Say how the rows set aside are classified so far, as counts by class."""
    with torch.no_grad():
        predicted = network(X).argmax(1).numpy()
    counts = np.bincount(y * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    said = json.dumps({"counts": counts.tolist(), "done": done})
    sys.stdout.write(f"{sign_line(said, secret)}\n")
    sys.stdout.flush()


def sign_line(said: str, secret: bytes) -> str:
    """A line of progress, as the driver believes it: anybody can send lines there."""
    return f"{PROGRESS}{hmac.digest(secret, said.encode(), 'sha256').hex()} {said}"


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
