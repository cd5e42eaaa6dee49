"""A worker does not outlive its service, whenever that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prudent.core.processes import HELPER_NICE

pytestmark = pytest.mark.timeout(600)
STARTS = """
import sys
from pathlib import Path
from prudent.service.worker.supervisor import WorkerSupervisor
from prudent.service.settings import Settings
crew = WorkerSupervisor(Settings(Path(sys.argv[1]), warm=False), 1)
crew.start()
print(*(process.pid for process in crew._processes), flush=True)
sys.stdin.read()
"""
"""What `prudent serve` does to have a worker, without what it loads to answer requests."""


def test_a_worker_whose_service_is_gone_does_not_begin(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    words = ["worker", "--home", str(tmp_path / "home"), "--attached", str(gone.pid)]
    command = [sys.executable, "-m", "prudent.cli.main", *words]
    assert subprocess.run(command, timeout=300, check=False).returncode == -signal.SIGTERM
    assert not (tmp_path / "home").exists()


def test_a_service_killed_while_its_worker_loads_leaves_none(
    tmp_path: Path, nobody_left: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    environment = {**os.environ, "PRUDENT_HOME": str(home)}
    with subprocess.Popen(
        [sys.executable, "-c", STARTS, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as service:
        assert service.stdout is not None
        worker = int(service.stdout.readline())
        assert os.getpriority(os.PRIO_PROCESS, worker) == HELPER_NICE, "it gives way to who answers"
        service.kill()  # the worker has only just begun to load its libraries
    nobody_left(home)
