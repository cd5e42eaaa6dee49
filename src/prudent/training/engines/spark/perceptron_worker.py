"""What each process of a distributed perceptron does; it is sent to the executors whole."""

from __future__ import annotations

import hmac
import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prudent.training.engines.optimisers import plain
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
        torch.manual_seed(seed)
        network = _network(torch, layers)
        for value in network.parameters():
            dist.broadcast(value.detach(), 0)
        rows, labels = _partition(torch)
        rows = _scaled(torch, rows, mean, factor)
        X = None if X is None else _scaled(torch, X, mean, factor)

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


def _network(torch: Any, layers: list[int]) -> Any:
    parts: list[Any] = []
    for width, following in itertools.pairwise(layers):
        layer = torch.nn.Linear(width, following)
        torch.nn.init.xavier_uniform_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        parts += [layer, torch.nn.Sigmoid()]
    return torch.nn.Sequential(*parts[:-1])


def _scaled(torch: Any, rows: Any, mean: Any, factor: Any) -> Any:
    import numpy as np

    return torch.from_numpy(((np.asarray(rows) - mean) * factor).astype(np.float32))


def _partition(torch: Any) -> tuple[Any, Any]:
    """The rows that Spark left for this process."""
    import numpy as np
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
    loss_of = torch.nn.CrossEntropyLoss()
    step = _stepper(torch, dist, network, loss_of, rows, labels, settings, seed)
    most, tol, last = int(settings["maxIter"]), float(settings["tol"]), float("inf")
    judged_s = time.monotonic()
    for epoch in range(most):
        loss = step(epoch)
        done = abs(last - loss) < tol or epoch + 1 == most or _time_is_up(torch, dist, until_s)
        if dist.get_rank() == 0 and (done or time.monotonic() - judged_s > 0.5):
            judged_s = time.monotonic()
            report((epoch + 1) / most)
        if done:
            return
        last = loss


def _time_is_up(torch: Any, dist: Any, until_s: float) -> bool:
    """Whether the time is up for one of the processes: all must end at the same step."""
    if until_s == float("inf"):
        return False
    late = torch.tensor(float(time.monotonic() >= until_s))
    dist.all_reduce(late, op=dist.ReduceOp.MAX)
    return bool(late > 0)


def _stepper(
    torch: Any,
    dist: Any,
    network: Any,
    loss_of: Any,
    rows: Any,
    labels: Any,
    settings: Mapping[str, Any],
    seed: int,
) -> Any:
    """A function that goes once through the data and answers the mean loss of all processes.

    Gradients are averaged here: torch's own way to do so loads its compiler first.
    """
    rate, decay = float(settings["stepSize"]), float(settings.get("regParam", 0.0))
    world, solver = dist.get_world_size(), settings.get("solver", "adam")

    def mean(value: Any) -> Any:
        dist.all_reduce(value)
        return value / world

    def average_gradients() -> None:
        if world == 1:
            return
        gradients = [value.grad for value in network.parameters()]
        every = torch.cat([gradient.reshape(-1) for gradient in gradients]) / world
        dist.all_reduce(every)
        parts = torch.split(every, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.reshape(gradient.shape))

    if solver == "l-bfgs":
        weights = list(network.parameters())
        moved = plain(torch.optim.LBFGS)(weights, lr=1.0, max_iter=1, line_search_fn="strong_wolfe")

        def closure() -> Any:
            moved.zero_grad()
            loss = loss_of(network(rows), labels)
            loss = loss + 0.5 * decay * sum((p**2).sum() for p in network.parameters())
            loss.backward()
            average_gradients()
            # The line search looks at the loss: every process must see the same one.
            return mean(loss.detach().clone())

        def whole(epoch: int) -> float:
            with torch.no_grad():
                return float(moved.step(closure))

        return whole
    made = torch.optim.Adam if solver == "adam" else torch.optim.SGD
    moved = plain(made)(network.parameters(), lr=rate, weight_decay=decay)
    share = max(1, int(settings["blockSize"]) // world)
    most = torch.tensor(len(rows))
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    steps = -(-int(most) // share)

    def once(epoch: int) -> float:
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed + epoch))
        total = torch.zeros(())
        for number in range(steps):
            # A process with a row less than others begins again: all must take part in every step.
            places = torch.arange(number * share, (number + 1) * share)
            places = places[places < int(most)] % len(rows)
            chosen = order[places]
            moved.zero_grad()
            loss = loss_of(network(rows[chosen]), labels[chosen])
            loss.backward()
            average_gradients()
            with torch.no_grad():
                moved.step()
            total += loss.detach()
        return float(mean(total) / steps)

    return once


def _report_progress(
    torch: Any, network: Any, X: Any, y: Any, classes: int, done: float, secret: bytes
) -> None:
    """Say how the rows set aside are classified so far, as counts by class."""
    import numpy as np

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
