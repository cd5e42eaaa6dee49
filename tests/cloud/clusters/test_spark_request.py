"""A request on a cluster of its own, from the command line: it grows, loses a worker, is stopped and resumed.

Spark has one context in a process: the requests here run in processes of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.leases.register import Register
from prudent.cloud.providers.local import LocalProvider

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(1800)
DATA = Path(pyspark.__file__).parent / "data" / "mllib" / "sample_linear_regression_data.txt"
OWN, MOST = "mine.small", 2


def begun(folder: Path, budget: str, *more: str) -> subprocess.Popen[str]:
    asked: dict[str, Any] = {
        "domain": "regression",
        "methods": [{"algorithm": "linear-regression"}],
        "dataset": {"path": str(DATA), "format": "libsvm"},
        "parameterSearch": "random",
        "budget": budget,
        "parallelism": 3,
        "computationalResources": {
            "instances": [{"ec2Instance": OWN}],
            "minTotalInstances": 1,
            "maxTotalInstances": MOST,
        },
    }
    (folder / "request.json").write_text(json.dumps(asked))
    (folder / "prices.csv").write_text(f"name,price_usd_per_h,vcpus,memory_gb\n{OWN},0.1,1,4\n")
    words = ["train", "request.json", "--engine", "spark", "--where", "local:prices.csv", "--out", "models"]
    return subprocess.Popen(
        [sys.executable, "-m", "prudent.cli.main", *words, *more],
        cwd=folder,
        env={**os.environ, "PRUDENT_HOME": str(folder / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(happened: Callable[[], Any], what: str, wait_s: float = 600.0) -> Any:
    end_s = time.monotonic() + wait_s
    while not (found := happened()):
        assert time.monotonic() < end_s, f"It did not happen: {what}."
        time.sleep(0.05)
    return found


def processes(home: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "cwd").startswith(str(home / "machines")):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def assert_gone(home: Path) -> None:
    until(lambda: not processes(home) and not LocalProvider(home).list(), "everything is gone", 60)
    assert {lease.state for lease in Register(home).leases()} == {"released"}


def executors(worker: int) -> list[int]:
    """The executors that a worker of Spark has started; it starts other things for a moment."""
    children = [
        int(word)
        for path in Path(f"/proc/{worker}/task").glob("*/children")
        for word in path.read_text().split()
    ]
    return [pid for pid in children if b"ExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_request_grows_survives_a_killed_worker_stops_at_ctrl_c_and_is_resumed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    provider = LocalProvider(home)
    run = begun(tmp_path, "500 trials")
    assert run.stdout is not None
    assert run.stderr is not None
    said: list[str] = []
    complaint: list[str] = []
    readers = [
        threading.Thread(target=lambda: said.extend(run.stdout or ())),
        threading.Thread(target=lambda: complaint.extend(run.stderr or ())),
    ]
    for reader in readers:
        reader.start()

    def trained() -> int:
        assert run.poll() is None, (said, complaint)
        assert len(provider.list()) <= MOST
        return sum(line.startswith("#") for line in said)

    def second() -> Path | None:
        """The note of the worker that runs beside no master, once it has an executor."""
        trained()
        for noted in home.glob("machines/*/workspace/spark/worker.pid"):
            if not (noted.parent / "master.pid").exists() and (pid := noted.read_text().strip()):
                with contextlib.suppress(OSError):  # it has just ended, or its child
                    return noted if executors(int(pid)) else None
        return None

    try:
        # It began with one machine; three trials at a time are too many for that one.
        noted = until(second, "a second machine works")
        assert len(Register(home).leases()) == MOST
        machines, pid = {one.id for one in provider.list()}, noted.read_text()
        for each in [int(pid), *executors(int(pid))]:
            os.kill(each, signal.SIGKILL)
        before = trained()
        until(lambda: trained() > before + 3, "trials end after a worker was killed")
        until(lambda: trained() and noted.read_text() not in ("", pid), "the worker is started again")
        assert {one.id for one in provider.list()} == machines
        run.send_signal(signal.SIGINT)
        assert run.wait(300) == 130, (said, complaint)
    finally:
        if run.poll() is None:  # it failed: also then no machine is left
            run.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(120)
        run.kill()
        for reader in readers:
            reader.join(60)
        run.wait()
        run.stdout.close()
        run.stderr.close()
    assert_gone(home)
    assert "it was interrupted" in " ".join(" ".join(said).split())
    assert f"Spark runs on 1*{OWN} (local)" in "".join(complaint)
    assert "see http://127.0.0.1:" in "".join(complaint)
    board = json.loads((tmp_path / "models" / "leaderboard.json").read_text())
    done = len(board["entries"])
    assert done > 3
    assert board["failures"] == []  # the loss of a worker is nothing that a trial notices

    again = begun(tmp_path, f"{done + 1} trials", "--resume", "--json")
    answer, told = again.communicate(timeout=600)
    assert_gone(home)
    assert again.returncode == 0, told
    board = json.loads(answer)
    assert len(board["entries"]) == done + 1
    assert len(list(tmp_path.glob("models/*/model.onnx"))) == done + 1
    paid_usd = sum(lease.cost_usd(time.time()) for lease in Register(home).leases())
    assert board["spent_usd"] == pytest.approx(paid_usd, rel=0.01)
