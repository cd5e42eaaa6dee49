"""What a worker process does: trains one trial after the other and sends messages about it."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
import warnings
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from prudent.core.errors import PrudentError
from prudent.core.memory import limit_mb, limit_memory
from prudent.training.engines.engine import TrialSpec
from prudent.training.engines.local.features import FeatureCache
from prudent.training.engines.local.shared_dataset import SharedDataset
from prudent.training.engines.local.trial import TrialContext, train
from prudent.training.engines.scoring import Scorer

PROGRESS, FINISHED, FAILED = "progress", "finished", "failed"
_MB = 1 << 20


@dataclass(frozen=True)
class TrialMessage:
    """A message from a worker; `at_s` is on the machine's monotonic clock, which all its processes share.

    `ends_worker` says that the worker ends now: after running out of memory nothing in it can be trusted.
    """

    kind: str
    at_s: float
    measures: dict[str, float] = field(default_factory=dict)
    done: float | None = None
    why: str = ""
    ends_worker: bool = False


def run_worker(handle: int, setup: dict[str, Any]) -> None:
    """Take trials from the connection until it is closed."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    limit_worker_memory(setup["memory_mb"])
    connection = Connection(handle)
    context = open_context(setup)
    while True:
        try:
            spec: TrialSpec = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        # The kernel ends this process at its limit, whatever library it is deep in.
        signal.setitimer(signal.ITIMER_REAL, spec.limit_s or 0.0)
        message = run_trial(context, spec, connection)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        connection.send(message)
        if message.ends_worker:
            return


def open_context(setup: dict[str, Any]) -> TrialContext:
    """What all trials of this worker share, from its setup."""
    data = SharedDataset.read(Path(setup["data_folder"]))
    kept_bytes = int(setup["memory_mb"] * _MB / 8)
    feature_cache = FeatureCache(data, setup["seed"], kept_bytes)
    scorer = Scorer(**setup["scorer"])
    return TrialContext(data, feature_cache, scorer, setup["threads"], setup["target"], setup["pmml"])


def run_trial(context: TrialContext, spec: TrialSpec, connection: Connection) -> TrialMessage:
    """Train, and turn whatever goes wrong into a reason."""

    def report(score: float, done: float) -> None:
        connection.send(TrialMessage(PROGRESS, time.monotonic(), {"score": score}, done))

    try:
        facts = train(context, spec, report)
    except Exception as error:  # noqa: BLE001 - whatever a library raises ends its trial only
        starved = isinstance(error, MemoryError) or "alloc" in str(error)
        why = "It ran out of memory; use less data or a smaller model." if starved else failure_reason(error)
        return TrialMessage(FAILED, time.monotonic(), why=why, ends_worker=starved)
    return TrialMessage(FINISHED, time.monotonic(), facts.measures)


def failure_reason(error: Exception) -> str:
    """Why a trial failed, in one line."""
    said = " ".join(str(error).split())
    if isinstance(error, PrudentError):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def limit_worker_memory(most_mb: float) -> None:
    """Let allocations beyond `most_mb` fail, in this process and while it is still able to say so.

    The limit is on private memory, so neither libraries nor the shared data count. And if the whole machine
    runs short, this process is the one to be sacrificed.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    used = 0
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        used = pages * resource.getpagesize()
    limit_memory(min(used / _MB + most_mb, limit_mb()))
