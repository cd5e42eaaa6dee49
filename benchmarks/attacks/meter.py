"""How long answers take, and what processes hold meanwhile."""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from typing import Any

import psutil

from attacks.crowd import Target

NAMES = {
    "work.child": "run",
    "engines.local.fork_server": "trial",
    "web.checking": "check",
    "worker": "worker",
}
"""What a process is, by a word of its command; another one is "other", and that of the service "web"."""


@contextlib.contextmanager
def metered(pid: int) -> Iterator[dict[str, float]]:
    """The most that a process of each name has held, once the block is over.

    A process of its own reads what every process below the service holds, and knows nothing of Prudent's own
    limits. Were it a thread, whoever measures how long answers take would wait for it.
    """
    most_mb: dict[str, float] = {}
    ours, theirs = multiprocessing.Pipe()
    meter = multiprocessing.Process(target=_read, args=(pid, theirs))
    meter.start()
    try:
        yield most_mb
    finally:
        ours.send(None)
        most_mb.update(ours.recv())
        meter.join()


def _read(pid: int, line: Any) -> None:
    most_mb: dict[str, float] = {}
    while not line.poll(0.5):
        with contextlib.suppress(psutil.Error):
            for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    name, held = _name(process, pid), process.memory_info()
                    most_mb[name] = max(most_mb.get(name, 0.0), (held.rss - held.shared) / 1e6)
    line.send(most_mb)


def _name(process: psutil.Process, service: int) -> str:
    words = " ".join(process.cmdline())
    found = next((name for word, name in NAMES.items() if word in words), "other")
    return "web" if process.pid == service else found


def listing(target: Target) -> list[float]:
    """How long Alice waits for the list of runs, twenty times a second, until the time is over."""
    took_s = []
    with target.client("alice") as client:
        while target.going:
            began_s = time.perf_counter()
            assert client.get("/v1/runs").status_code == 200
            took_s.append(time.perf_counter() - began_s)
            time.sleep(max(0.05 - took_s[-1], 0))
    return took_s


def spread(values_s: list[float]) -> str:
    return (
        f"{len(values_s)} times, median {statistics.median(values_s) * 1e3:.0f} ms, 99 % "
        f"{percentile(values_s, 0.99) * 1e3:.0f} ms, worst {max(values_s) * 1e3:.0f} ms"
    )


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]
