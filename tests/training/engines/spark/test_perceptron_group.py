"""Processes that train together let nobody else in."""

from __future__ import annotations

import math
import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from multiprocessing import AuthenticationError
from typing import Any

import pytest

from prudent.training.engines.networks import NetworkTrainer
from prudent.training.engines.spark.perceptron_group import RendezvousServer, _authenticate, rendezvous_store
from prudent.training.engines.spark.perceptron_worker import Course, _shuffled, _TorchGroup, _train
from prudent.training.engines.spark.progress import LineServer, sign_line, verified_progress

# Imported where it is used: every process of the tests reads this file, and one of them runs it.
pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
SECRET, OTHER = b"s" * 32, b"o" * 32


@pytest.fixture
def place() -> Iterator[RendezvousServer]:
    made = RendezvousServer("127.0.0.1", 0, SECRET)
    yield made
    made.close()


def test_the_meeting_place_keeps_what_torch_leaves_there(place: RendezvousServer) -> None:
    """One store writes what the other reads, as torch itself calls them: through its own wrapper."""
    from torch.distributed import PrefixStore

    stores = [rendezvous_store("127.0.0.1", place.port, SECRET) for _ in range(2)]
    one, other = (PrefixStore("p", store) for store in stores)
    threading.Timer(0.05, lambda: one.set("key", "value")).start()
    assert other.get("key") == b"value"  # it waits
    assert (one.add("count", 2), other.add("count", 3)) == (2, 5)
    assert (one.check(["key", "count"]), one.check(["none"])) == (True, False)
    assert other.compare_set("key", "value", "new") == b"new"
    assert one.compare_set("key", "value", "newer") == b"new"


def test_nobody_meets_there_without_the_secret(place: RendezvousServer) -> None:
    with socket.create_connection(("127.0.0.1", place.port)):  # says nothing, and holds up nobody
        with pytest.raises(AuthenticationError):
            rendezvous_store("127.0.0.1", place.port, OTHER)
        with socket.create_connection(("127.0.0.1", place.port), timeout=60) as line:
            line.recv(1 << 10)  # the question
            line.sendall(struct.pack(">i", 20) + b'["set", "key", "00"]')
            said = line.recv(1 << 10)
            assert b"FAILURE" in said or said == b""
        assert rendezvous_store("127.0.0.1", place.port, SECRET).check(["key"]) is False


class _Sent:
    def wait(self) -> None:
        pass


class _Lines:
    """What `torch.distributed` does with messages between two processes, here between two threads."""

    def __init__(self, sent: queue.Queue[Any], got: queue.Queue[Any]) -> None:
        self._sent, self._got = sent, got

    def isend(self, words: Any, other: int) -> _Sent:
        self._sent.put(words)
        return _Sent()

    def recv(self, words: Any, other: int) -> None:
        words.copy_(self._got.get(timeout=60))


@pytest.mark.parametrize(("theirs", "outcome"), [(SECRET, None), (OTHER, "the place of process")])
def test_a_peer_must_prove_that_it_knows_the_secret(theirs: bytes, outcome: str | None) -> None:
    import torch

    to_one, to_zero = queue.Queue[Any](), queue.Queue[Any]()
    with ThreadPoolExecutor() as threads:
        tries = [
            threads.submit(_authenticate, torch, _Lines(to_one, to_zero), 0, 2, SECRET),
            threads.submit(_authenticate, torch, _Lines(to_zero, to_one), 1, 2, theirs),
        ]
        for one in tries:
            found = one.exception(60)
            assert found is None if outcome is None else outcome in str(found)


def test_a_line_too_long_ends_the_talk_and_others_are_heard() -> None:
    heard: queue.Queue[str] = queue.Queue()
    with LineServer("127.0.0.1", heard.put) as ear:
        for size in (-1, 2**31 - 1):
            with socket.create_connection(("127.0.0.1", ear.port), timeout=60) as line:
                line.sendall(struct.pack(">i", size))
                assert line.recv(1) == b""
        with socket.create_connection(("127.0.0.1", ear.port)) as line:
            line.sendall(struct.pack(">i", 5) + b"hello")
            assert heard.get(timeout=60) == "hello"


def test_only_progress_that_is_signed_is_believed() -> None:
    line = sign_line('{"done": 0.5}', SECRET)
    assert verified_progress(line, SECRET) == {"done": 0.5}
    assert verified_progress(line, OTHER) is None
    for forged in (
        line.replace("0.5", "1.0"),
        'prudent-progress {"done": 0.5}',
        "",
        "{",
        "a warning of torch\u2026",
    ):
        assert verified_progress(forged, SECRET) is None


@pytest.mark.parametrize(("left_s", "epochs"), [(math.inf, 7), (0.0, 1)])
def test_a_network_ends_with_what_it_has_learned_when_its_time_is_up(left_s: float, epochs: int) -> None:
    class Alone:
        """One process, which agrees with itself."""

        class ReduceOp:
            MAX = "max"

        def get_rank(self) -> int:
            return 0

        def get_world_size(self) -> int:
            return 1

        def all_reduce(self, value: Any, op: Any = None) -> None:
            """It is the same for all."""

    import torch

    rows, labels = torch.eye(4), torch.arange(4)
    settings = {"tol": 0.0, "stepSize": 0.1, "blockSize": 4}
    until_s = time.monotonic() + left_s
    network = torch.nn.Sequential(torch.nn.Linear(4, 4))
    course = Course(torch, network, (rows, labels), (rows, labels), 5, SECRET)
    alone = Alone()
    group, order = _TorchGroup(torch, alone), _shuffled(torch, len(rows), 1)
    trainer = NetworkTrainer(torch, network, rows, labels, settings, order, group)
    _train(alone, trainer, group, settings["tol"], course, 7, until_s)
    assert [point["step"] for point in course.points] == list(range(1, epochs + 1))
    assert course.why == ("the time was up" if epochs == 1 else "")

    class Worse(torch.nn.Sequential):
        """Sure of the wrong class, and more so with every pass."""

        def forward(self, input: Any) -> Any:  # noqa: A002 - torch calls it so
            return -input * float(course.step_number + 1)

    course = Course(torch, Worse(), (rows, labels), (rows, labels), 5, SECRET)
    assert [course.step(20) for _ in range(6)] == [False] * 5 + [True]
    assert (course.best_step, course.why) == (1, "no better for 5 steps")
