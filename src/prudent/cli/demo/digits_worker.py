"""The program that `prudent demo` tunes: a worker that trains neural networks on handwritten digits.

`python -m prudent.cli.demo.digits_worker` reads one task a line on stdin. A task is a share of a committee
of small networks. It writes a line whenever a network has seen the data once more, and a line per epoch with
the votes of that share on the test images, so that the votes of several workers can be added up. An empty
task stops the current one.
"""

from __future__ import annotations

import base64
import json
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Votes = NDArray[np.float32]

CLASSES = 10
TEST_SHARE = 0.25


@dataclass(frozen=True)
class CommitteeTask:
    """Train the networks `members` (their seeds) on a share of the data, for so many epochs."""

    run: int
    members: tuple[int, ...]
    hidden: int
    learning_rate: float
    batch: int
    epochs: int
    fraction: float

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, line: str) -> CommitteeTask:
        said = json.loads(line)
        return cls(**{**said, "members": tuple(said["members"])})


@dataclass(frozen=True, eq=False)
class DigitsData:
    """scikit-learn's bundled images of digits, always split alike."""

    train_x: Any
    train_y: Any
    test_x: Any
    test_y: Any

    @classmethod
    def load(cls) -> DigitsData:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        x, y = load_digits(return_X_y=True)
        split = train_test_split(x / 16.0, y, test_size=TEST_SHARE, random_state=0, stratify=y)
        return cls(split[0], split[2], split[1], split[3])


def _always() -> bool:
    return True


def train(task: CommitteeTask, digits: DigitsData, go_on: Callable[[], bool] = _always) -> Iterator[Votes]:
    """After each epoch, the sum of the members' class probabilities on the test images.

    `go_on` is asked after each member: an epoch of a large committee is long, and a run that is cut should
    end soon.
    """
    import numpy as np
    from sklearn.neural_network import MLPClassifier

    count = max(int(task.fraction * len(digits.train_x)), task.batch)
    x, y = digits.train_x[:count], digits.train_y[:count]
    networks = [
        MLPClassifier(
            (task.hidden,), learning_rate_init=task.learning_rate, batch_size=task.batch, random_state=seed
        )
        for seed in task.members
    ]
    for _ in range(task.epochs):
        votes = np.zeros((len(digits.test_x), CLASSES), dtype=np.float32)
        for network in networks:
            network.partial_fit(x, y, classes=range(CLASSES))
            votes += network.predict_proba(digits.test_x)
            if not go_on():
                return
        yield votes


def packed(votes: Votes) -> str:
    """Votes as text; `unpacked` gives them back."""
    return base64.b64encode(votes.astype("<f4").tobytes()).decode()


def unpacked(text: str) -> Votes:
    import numpy as np

    return np.frombuffer(base64.b64decode(text), dtype="<f4").reshape(-1, CLASSES)


def serve(source: IO[str], target: IO[str]) -> None:
    """Work on tasks until the input ends; the newest line counts."""
    digits = DigitsData.load()
    tasks: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_listen, args=(source, tasks), daemon=True).start()
    _say(target, {"ready": digits.test_y.tolist()})
    while (line := tasks.get()) is not None:
        if not line.strip():
            _say(target, {"idle": True})
            continue
        task = CommitteeTask.parse(line)

        def go_on(run: int = task.run) -> bool:
            _say(target, {"run": run, "member": "done"})
            return tasks.empty()  # else there is something newer: this run was cut

        for epoch, votes in enumerate(train(task, digits, go_on), start=1):
            _say(target, {"run": task.run, "epoch": epoch, "votes": packed(votes)})


def _listen(source: IO[str], tasks: queue.Queue[str | None]) -> None:
    for line in source:
        tasks.put(line)
    tasks.put(None)


def _say(target: IO[str], said: dict[str, Any]) -> None:
    target.write(json.dumps(said) + "\n")
    target.flush()


if __name__ == "__main__":
    # Ctrl-C is for the program that asked; it ends its workers by closing their input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(sys.stdin, sys.stdout)
