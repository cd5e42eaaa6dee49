"""A standalone Spark cluster of this computer's own: a master and workers as they come with pyspark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOST = "127.0.0.1"


@contextmanager
def spark_cluster(folder: Path, workers: int, memory: str = "1g") -> Iterator[str]:
    """Start one with so many workers of one core each; gives the master's address."""
    with socket.socket() as one:
        one.bind((_HOST, 0))
        port = int(one.getsockname()[1])
    master = f"spark://{_HOST}:{port}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(folder, "master.Master", "--port", str(port)))
        _wait_for(port)
        for number in range(workers):
            given = ["--cores", "1", "--memory", memory, "--work-dir", str(folder / f"worker{number}")]
            started.append(_start(folder, "worker.Worker", *given, master))
        yield master
    finally:
        for process in reversed(started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)


def _start(folder: Path, what: str, *arguments: str) -> subprocess.Popen[bytes]:
    import pyspark

    from prudent.training.engines.spark.spark_session import java_home

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home(folder)),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _HOST,
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    program = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}"]
    with (folder / "cluster.log").open("ab") as log:
        return subprocess.Popen(
            [*program, "--host", _HOST, "--webui-port", "0", *arguments],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def _wait_for(port: int, longest_s: float = 300.0) -> None:
    until_s = time.monotonic() + longest_s
    while time.monotonic() < until_s:
        with socket.socket() as one:
            one.settimeout(1)
            if one.connect_ex((_HOST, port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"no master at port {port}")
