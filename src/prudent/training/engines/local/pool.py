"""The pool of worker processes, kept between trials, and the memory that they may use."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import prudent
from prudent.core.errors import RunFailed
from prudent.core.memory import limit_mb
from prudent.core.processes import lower_session_priority
from prudent.training.engines.local.fork_server import PACKET_BYTES
from prudent.training.engines.scoring import Scorer

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_SERVER = "import sys; from prudent.training.engines.local.fork_server import main; main(sys.argv[1:])"
LIMIT = "limit"
_SHUTDOWN_S = 30.0


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker must know before its first trial."""

    data_folder: str
    scorer: Scorer
    seed: int
    threads: int
    memory_mb: float
    target: str | None = None
    pmml: bool = False


@dataclass(frozen=True, eq=False)
class PoolWorker:
    """A process that trains, its setup, and the connection to it."""

    pid: int
    connection: Connection
    setup: WorkerSetup


class WorkerPool:
    """A fork server, and the workers that are idle.

    The server starts at once and loads `libraries` while the caller reads data. Sessions may share a pool: a
    worker that knows the data of one is not used for another's.
    """

    def __init__(self, size: int, threads: int, libraries: Sequence[str], log: Path) -> None:
        self.size = size
        self.threads = threads
        self._lock = threading.Lock()
        self._idle: list[PoolWorker] = []
        self._forked = False
        self._server_socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, log.open("ab") as sink:
            self._server = subprocess.Popen(
                [sys.executable, "-P", "-c", _SERVER, str(theirs.fileno())],
                env={**os.environ, **_environment(threads)},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        lower_session_priority(self._server.pid, os.nice(0))  # as far as we do ourselves
        self._log = log
        self.load(libraries)

    def load(self, libraries: Sequence[str]) -> None:
        """Import libraries in the fork server, so that new workers have them."""
        self._server_socket.send(json.dumps({"load": list(libraries)}).encode())

    def acquire(self, setup: WorkerSetup) -> PoolWorker:
        """An idle worker with this setup, a new one if there is none."""
        with self._lock:
            free = next((worker for worker in reversed(self._idle) if worker.setup == setup), None)
            if free is None:
                return self._fork(setup)
            self._idle.remove(free)
            return free

    def release(self, worker: PoolWorker) -> None:
        """Make a worker idle; if there is one too many, the one that was idle for longest ends."""
        with self._lock:
            self._idle.append(worker)
            if len(self._idle) <= self.size:
                return
            longest = self._idle.pop(0)
        self.end(longest)

    def end(self, worker: PoolWorker) -> str:
        """Kill a worker, whatever it is doing; returns what it died of if it had ended before."""
        worker.connection.close()
        with self._lock:
            answer = self._request({"end": worker.pid})
        return _cause_of_death(int(answer["status"]))

    def close(self) -> None:
        """End everything; the server takes its workers with it."""
        for worker in self._idle:
            worker.connection.close()
        self._idle.clear()
        self._server_socket.close()
        if not self._forked:  # it may still load libraries, and has no workers to wait for
            self._server.kill()
        try:
            self._server.wait(_SHUTDOWN_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fork(self, setup: WorkerSetup) -> PoolWorker:
        self._forked = True
        ours, theirs = socket.socketpair()
        with theirs:
            answer = self._request({"fork": asdict(setup)}, [theirs.fileno()])
        return PoolWorker(int(answer["pid"]), Connection(ours.detach()), setup)

    def _request(self, request: dict[str, Any], handles: Sequence[int] = ()) -> dict[str, Any]:
        packet = b""
        with contextlib.suppress(ConnectionError):
            socket.send_fds(self._server_socket, [json.dumps(request).encode()], list(handles))
            packet = self._server_socket.recv(PACKET_BYTES)
        if not packet:
            raise RunFailed(f"The process that starts workers has ended; see {self._log}.")
        answer: dict[str, Any] = json.loads(packet)
        return answer


def _environment(threads: int) -> dict[str, str]:
    """Threads as many as each worker has cores, and this very package whatever the path says.

    A thread that waits for another one sleeps: spinning on a machine that others use too makes boosting ten
    times slower, and sleeping costs nothing on one that is free.
    """
    home = str(Path(prudent.__file__).parents[1])
    path = os.pathsep.join(part for part in (home, os.environ.get("PYTHONPATH", "")) if part)
    return {**dict.fromkeys(_THREADS, str(threads)), "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": path}


def _cause_of_death(status: int) -> str:
    """What a process died of, for people."""
    number = os.waitstatus_to_exitcode(status)
    if number == -signal.SIGALRM:
        return LIMIT
    if number == -signal.SIGKILL:
        return "It was killed, most likely for lack of memory; use less data or parallelism 1."
    if number < 0:
        return f"It crashed ({signal.Signals(-number).name}); leave this combination out."
    return f"It ended by itself with code {number}; leave this combination out."


_MB = 1 << 20
_ENOUGH_MB = 1 << 20  # when nobody says: as good as no limit
_SHARE = 0.8
"""Of what a process may use, for what it starts; the rest is for itself."""
_GROUP = Path("/sys/fs/cgroup")


def available_mb() -> float:
    """Memory that is free now, within the limits of a container or of this process if there are some."""
    found = [_ENOUGH_MB, *_free_on_machine(), *_free_in_container(), _SHARE * limit_mb()]
    return max(min(found), 64.0)


def _free_on_machine() -> list[float]:
    with contextlib.suppress(OSError, ValueError):
        for connection in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = connection.partition(":")
            if name == "MemAvailable":
                return [int(rest.split()[0]) / 1024]
    return []


def _free_in_container() -> list[float]:
    with contextlib.suppress(OSError, ValueError):
        most = (_GROUP / "memory.max").read_text().strip()
        used = int((_GROUP / "memory.current").read_text())
        # Files kept in memory are given up when something else needs the room.
        stat = dict(connection.split() for connection in (_GROUP / "memory.stat").read_text().splitlines())
        if most != "max":
            return [(int(most) - used + int(stat.get("file", 0))) / _MB]
    return []
