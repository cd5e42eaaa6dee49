"""A request on a cluster of its own, from the command line: it grows, keeps its limit, and is gone.

Spark has one context in a process: the requests here run in processes of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.leases.register import Register
from prudent.cloud.providers.local import LocalProvider

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(900)
DATA = Path(pyspark.__file__).parent / "data" / "mllib" / "sample_linear_regression_data.txt"
TYPE, MOST, OWN = "m3.medium", 3, "mine.small"
SOON_S = 20.0  # 2 s on a computer that has nothing else to do; the benchmark measures that


def begun(folder: Path, budget: str, *more: str, least: int = 0) -> subprocess.Popen[str]:
    asked: dict[str, Any] = {
        "domain": "regression",
        "methods": [{"algorithm": "linear-regression"}],
        "dataset": {"path": str(DATA), "format": "libsvm"},
        "parameterSearch": "random",
        "budget": budget,
        "parallelism": 4,
    }
    if least:
        asked["computationalResources"] = {
            "instances": [{"ec2Instance": TYPE}],
            "minTotalInstances": least,
            "maxTotalInstances": MOST,
        }
    (folder / "request.json").write_text(json.dumps(asked))
    words = ["train", "request.json", "--engine", "spark", "--out", "models", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "prudent.cli.main", *words],
        cwd=folder,
        env={**os.environ, "PRUDENT_HOME": str(folder / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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
    end_s = time.monotonic() + SOON_S
    while processes(home) or LocalProvider(home).list():
        assert time.monotonic() < end_s
        time.sleep(0.05)
    assert {lease.state for lease in Register(home).leases()} == {"released"}


def test_a_request_grows_to_its_limit_never_beyond_and_leaves_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    run = begun(tmp_path, "16 trials", "--json", least=1)
    provider, seen = LocalProvider(home), [0]
    while run.poll() is None:
        seen.append(len(provider.list()))
        time.sleep(0.05)
    said, complaint = run.communicate()
    assert_gone(home)
    assert run.returncode == 0, complaint
    assert 1 < max(seen) <= MOST
    assert f"Spark runs on 1*{TYPE} (local)" in complaint
    assert "see http://127.0.0.1:" in complaint
    board = json.loads(said)
    assert len(board["entries"]) == 16
    paid_usd = sum(lease.cost_usd(time.time()) for lease in Register(home).leases())
    assert board["spent_usd"] == pytest.approx(paid_usd, rel=0.01)
    assert Path(board["entries"][0]["model_path"], "model.onnx").exists() or list(
        tmp_path.glob("models/*/model.onnx")
    )


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_in_the_middle_of_a_trial_leaves_nothing_but_what_can_be_resumed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (tmp_path / "prices.csv").write_text(f"name,price_usd_per_h,vcpus,memory_gb\n{OWN},0.1,2,4\n")
    machines = ("--cluster", f"1*{OWN}", "--where", "local:prices.csv")
    run = begun(tmp_path, "500 trials", *machines)
    assert run.stdout is not None
    assert run.stdout.readline().startswith("#")  # others are under way now: there are always four
    [machine] = LocalProvider(home).list()
    assert machine.type == OWN
    run.send_signal(signal.SIGINT)
    said, complaint = run.communicate(timeout=300)
    assert_gone(home)
    assert run.returncode == 130, complaint + said
    assert "it was interrupted" in " ".join(said.split())
    done = len(json.loads((tmp_path / "models" / "leaderboard.json").read_text())["entries"])
    assert done >= 1

    again = begun(tmp_path, f"{done + 1} trials", *machines, "--resume", "--json")
    said, complaint = again.communicate(timeout=600)
    assert_gone(home)
    assert again.returncode == 0, complaint
    board = json.loads(said)
    assert len(board["entries"]) == done + 1
    paid_usd = sum(lease.cost_usd(time.time()) for lease in Register(home).leases())
    assert board["spent_usd"] == pytest.approx(paid_usd, rel=0.01)
