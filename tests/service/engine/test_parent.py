"""A worker does not outlive its service, whenever that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.timeout(600)
MAIN = [sys.executable, "-m", "prudent.cli.main"]


def test_a_worker_whose_service_is_gone_does_not_begin(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    command = [*MAIN, "worker", "--home", str(tmp_path / "home"), "--attached", str(gone.pid)]
    assert subprocess.run(command, timeout=300, check=False).returncode == -signal.SIGTERM
    assert not (tmp_path / "home").exists()


def test_a_service_killed_while_its_worker_loads_leaves_none(
    tmp_path: Path, nobody_left: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    command = [*MAIN, "serve", "--home", str(home), "--port", "0"]
    environment = {**os.environ, "PRUDENT_HOME": str(home), "PRUDENT_WARM": "no"}
    with (tmp_path / "log").open("wb") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    with service:
        until_s = time.monotonic() + 300
        while not any("worker" in each.cmdline() for each in psutil.Process(service.pid).children()):
            assert service.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < until_s
            time.sleep(0.005)
        service.kill()  # the worker has only just begun to load its libraries
    nobody_left(home)
