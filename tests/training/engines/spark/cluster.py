"""A standalone Spark cluster on loopback, of real processes from the pip install."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prudent.training.engines.spark.java import java_home

_HOST = "127.0.0.1"


@dataclass
class Cluster:
    """A master and its workers; `kill` ends a worker with its executors, as a machine that is lost."""

    master: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kill(self, number: int) -> None:
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait(30)


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start one, and end it with everything that it started."""
    port = _free_port()
    started: list[subprocess.Popen[bytes]] = []
    made = Cluster(f"spark://{_HOST}:{port}")
    try:
        started.append(_start(folder, "master.Master", "--port", str(port), "--webui-port", "0"))
        _wait_for(port)
        for number in range(workers):
            place = folder / f"worker{number}"
            one = _start(
                folder, "worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0",
                "--work-dir", str(place), made.master,
            )  # fmt: skip
            started.append(one)
            made.workers.append(one)
        yield made
    finally:
        for process in reversed(started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)


def _start(folder: Path, what: str, *arguments: str) -> subprocess.Popen[bytes]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home(folder)),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with (folder / "cluster.log").open("ab") as log:
        return subprocess.Popen(
            [
                str(home / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{what}",
                "--host",
                _HOST,
                *arguments,
            ],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((_HOST, 0))
        return int(one.getsockname()[1])


def _wait_for(port: int, longest_s: float = 60.0) -> None:
    until = time.monotonic() + longest_s
    while time.monotonic() < until:
        with socket.socket() as one:
            one.settimeout(1)
            if one.connect_ex((_HOST, port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"no master at port {port}")
