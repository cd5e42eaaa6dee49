"""A request on a cluster of its own, from the command line: it loses a worker, is stopped and resumed.

Spark has one context in a process: the requests here run in processes of their own. A cluster that loses a
machine and refuses strangers (`test_spark.py`), a whole request on one (`test_paper_flow.py`) and Ctrl-C with
rented machines (`test_cluster_command.py`) are also tested where it takes less.
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
from typing import Any, Self

import numpy as np
import psutil
import pytest

from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider

from ...running import strangers
from ...running.listening import Watch

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.timeout(1800)
DATA = Path(pyspark.__file__).parent / "data" / "mllib" / "sample_linear_regression_data.txt"
OWN = "mine.small"
PRICES = f"name,price_usd_per_h,vcpus,memory_gb\n{OWN},0.1,1,4\n"


def begun(
    folder: Path, most: int, budget: str, *more: str, prices: str = PRICES, **asked_for: Any
) -> subprocess.Popen[str]:
    asked: dict[str, Any] = {
        "domain": "regression",
        "methods": [{"algorithm": "linear-regression"}],
        "dataset": {"path": str(DATA), "format": "libsvm"},
        "parameterSearch": "random",
        "budget": budget,
        "validation": {"holdout": 0.3},
        "test": False,
        "parallelism": 2 * most - 1,
        "computationalResources": {
            "instances": [{"ec2Instance": OWN}],
            "minTotalInstances": 1,
            "maxTotalInstances": most,
        },
        **asked_for,
    }
    (folder / "request.json").write_text(json.dumps(asked))
    (folder / "prices.csv").write_text(prices)
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
    assert {lease.state for lease in LeaseRegister(home).leases()} == {"released"}


def executors(worker: int) -> list[int]:
    """The executors that a worker of Spark has started; it starts other things for a moment."""
    found = []
    for child in psutil.Process(worker).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("ExecutorBackend" in word for word in child.cmdline()):
                found.append(child.pid)
    return found


class UnderWay:
    """A request that would go on for long; at the end of the block it is stopped, also by an error."""

    def __init__(self, folder: Path, most: int) -> None:
        self.home, self.most = folder / "home", most
        self.provider = LocalProvider(self.home)
        self.said: list[str] = []
        self.complaint: list[str] = []
        self.process = begun(folder, most, "500 trials")
        self._readers = [
            threading.Thread(target=lambda: self.said.extend(self.process.stdout or ())),
            threading.Thread(target=lambda: self.complaint.extend(self.process.stderr or ())),
        ]

    def trained(self) -> int:
        """How many trials have ended."""
        assert self.process.poll() is None, (self.said, self.complaint)
        assert len(self.provider.list()) <= self.most
        return sum(line.startswith("#") for line in self.said)

    def worker(self, beside_master: bool) -> Path | None:
        """The note of a worker that has an executor."""
        self.trained()
        for noted in self.home.glob("machines/*/workspace/spark/worker.pid"):
            with_master = (noted.parent / "master.pid").exists()
            if with_master is beside_master and (pid := noted.read_text().strip()):
                with contextlib.suppress(OSError):  # it has just ended, or its child
                    return noted if executors(int(pid)) else None
        return None

    def lose(self, noted: Path) -> None:
        """Kill a worker with its executors: it is started again, and trials end as if nothing had been."""
        machines, pid = {one.id for one in self.provider.list()}, noted.read_text()
        for each in [int(pid), *executors(int(pid))]:
            os.kill(each, signal.SIGKILL)
        before, at_once = self.trained(), 2 * self.most - 1
        # More than were under way: others have begun since.
        until(lambda: self.trained() > before + at_once, "trials end after a worker was killed")
        until(lambda: self.trained() and noted.read_text() not in ("", pid), "the worker is started again")
        assert {one.id for one in self.provider.list()} == machines

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(300) == 130, (self.said, self.complaint)

    def __enter__(self) -> Self:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:  # it failed: also then no machine is left
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(120)
        self.process.kill()
        for reader in self._readers:
            reader.join(60)
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def trained_in(folder: Path, run: UnderWay) -> int:
    """How many models a stopped request has left, and that it has left nothing else."""
    assert_gone(run.home)
    assert "it was interrupted" in " ".join(" ".join(run.said).split())
    assert f"Spark runs on 1*{OWN} (local)" in "".join(run.complaint)
    assert "see http://127.0.0.1:" in "".join(run.complaint)
    board = json.loads((folder / "models" / "leaderboard.json").read_text())
    assert board["failures"] == []  # the loss of a worker is nothing that a trial notices
    bill_usd = sum(lease.cost_usd(time.time()) for lease in LeaseRegister(run.home).leases())
    assert board["spent_usd"] == pytest.approx(bill_usd)
    return len(board["entries"])


@pytest.mark.soak
@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_request_survives_a_killed_worker_and_ends_with_its_machine_at_ctrl_c(
    tmp_path: Path, only_loopback: Watch
) -> None:
    with UnderWay(tmp_path, most=1) as run:
        until(run.trained, "a trial ends")
        answers = list(strangers.spark_answers(only_loopback.look()).values())
        assert answers.count(strangers.SECRET_WANTED) >= 4, answers  # driver, master, worker, executor
        run.lose(until(lambda: run.worker(beside_master=True), "the machine works"))
        run.stop()
    assert len(LeaseRegister(run.home).leases()) == 1
    assert trained_in(tmp_path, run) > 1


def test_the_machine_is_given_back_while_spark_starts_when_the_money_is_gone(tmp_path: Path) -> None:
    """It costs a cent a second, and $0.08 are gone before Spark has read the data."""
    process = begun(tmp_path, 1, "$0.08", "--json", prices="name,price_usd_per_h,vcpus,memory_gb,minimum_s\n"
                    f"{OWN},36,1,4,0\n")  # fmt: skip
    said, told = process.communicate(timeout=600)
    assert_gone(tmp_path / "home")
    board = json.loads(said)
    assert board["entries"] == []
    assert "the budget of $0.08 was spent before its machines were ready" in board["ended"], told
    [lease] = LeaseRegister(tmp_path / "home").leases()
    bill_usd = lease.cost_usd(time.time())
    assert bill_usd == pytest.approx(board["spent_usd"])
    # On a computer that is too busy to end it in five seconds, that is told.
    assert process.returncode == (3 if bill_usd > 0.08 else 1)


def test_a_request_ends_as_a_local_one_before_its_machine_is_given_back(tmp_path: Path) -> None:
    """From 500 rows on there is a test part, which is asked of the machine when the trials have ended."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(600, 3))
    kinds = np.where(rows[:, 0] + 0.3 * rng.normal(size=600) > 0, "yes", "no")
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{kind}" for (a, b, c), kind in zip(rows, kinds, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,kind", *lines]))
    process = begun(
        tmp_path, 1, "$1", "--json", domain="binomial-classification", test=0.2, parameterSearch="grid",
        dataset={"path": "rows.csv", "target": "kind"}, validation={"folds": 2},
        methods=[
            {"algorithm": "binomial-logistic-regression", "hyperparameters": []},
            {"algorithm": "decision-tree-classification", "hyperparameters": []},
        ],
    )  # fmt: skip
    said, told = process.communicate(timeout=900)
    assert process.returncode == 0, told
    assert_gone(tmp_path / "home")
    board = json.loads(said)
    single = [entry for entry in board["entries"] if entry["algorithm"] != "ensemble"]
    assert [entry["refitted"] and entry["rows_trained"] for entry in single] == [600, 600]
    assert all(entry["test_score"] > 0.5 and entry["interval"] for entry in single)
    best = tmp_path / board["entries"][0]["model_path"]
    insight = json.loads((best / "insight.json").read_text())
    assert insight["importance"]["columns"][0]["column"] == "a"
    assert insight["reliability"] is not None
    assert not any("not trained on all rows" in note for note in board["notes"])
    bill_usd = sum(lease.cost_usd(time.time()) for lease in LeaseRegister(tmp_path / "home").leases())
    assert board["spent_usd"] == pytest.approx(bill_usd)


@pytest.mark.soak
@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_request_grows_survives_a_killed_worker_stops_at_ctrl_c_and_is_resumed(tmp_path: Path) -> None:
    with UnderWay(tmp_path, most=2) as run:
        # It began with one machine; three trials at a time are too many for that one.
        noted = until(lambda: run.worker(beside_master=False), "a second machine works")
        assert len(LeaseRegister(run.home).leases()) == 2
        run.lose(noted)
        run.stop()
    done = trained_in(tmp_path, run)
    assert done > 3

    again = begun(tmp_path, 2, f"{done + 1} trials", "--resume", "--json")
    answer, told = again.communicate(timeout=600)
    assert_gone(run.home)
    assert again.returncode == 0, told
    board = json.loads(answer)
    assert len(board["entries"]) == done + 1
    assert len(list(tmp_path.glob("models/*/model.onnx"))) == done + 1
    paid_usd = sum(lease.cost_usd(time.time()) for lease in LeaseRegister(run.home).leases())
    assert board["spent_usd"] == pytest.approx(paid_usd, rel=0.01)
