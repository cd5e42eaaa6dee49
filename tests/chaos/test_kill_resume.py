"""A study killed with SIGKILL at random moments ends as one nobody touched, and leaves nothing running."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = [sys.executable, "-m", "prudent.cli.main"]
TABLE = """
name: chaos
table: runs.csv
parameters: [vm, workers, rate]
measures: [accuracy]
progress: progress.csv
goal: minimise cost_usd subject to time_s <= 900 and accuracy >= 0.75
budget: $0.5
seed: 11
"""


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *(str(argument) for argument in arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(*arguments: object) -> Any:
    process = start(*arguments, "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode in (0, 1), err
    return json.loads(out)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def facts(path: Path) -> list[dict[str, Any]]:
    """What was decided and what came out; not how long it took to think."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for fact in found:
        fact.pop("decision_s", None)
        fact.get("trial", {}).pop("decision_s", None)
    return found


def kill_when(process: subprocess.Popen[str], ready: Callable[[], bool]) -> bool:
    """SIGKILL as soon as it is time; False if it had ended by itself before."""
    until = time.monotonic() + 60
    while not ready():
        if process.poll() is not None:
            process.communicate()
            return False
        assert time.monotonic() < until
        time.sleep(0.001)
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("strategy", "parallel"), [("lynceus", 1), ("random", 3)])
def test_killed_at_random_points_it_decides_the_same_and_pays_once(
    tmp_path: Path, write_runs: Callable[..., object], strategy: str, parallel: int
) -> None:
    write_runs(tmp_path)
    job = tmp_path / "chaos.yaml"
    job.write_text(TABLE)
    usual = ("tune", job, "--strategy", strategy, "--parallel", parallel, "--max-trials", 14)
    whole = finish(*usual, "--journal", tmp_path / "whole.jsonl")
    total = lines(tmp_path / "whole.jsonl")
    chance = random.Random(parallel)
    journal = tmp_path / "chaos.prudent" / "journal.jsonl"
    killed = 0
    for _ in range(4):
        target = lines(journal) + chance.randint(1, max(total // 5, 2))
        process = start(*usual, "--resume")
        killed += kill_when(process, lambda target=target: lines(journal) >= target)  # type: ignore[misc]
    assert killed >= 2
    resumed = finish(*usual, "--resume")
    assert facts(journal) == facts(tmp_path / "whole.jsonl")
    assert resumed["spent_usd"] == whole["spent_usd"]
    assert [charge["label"] for charge in resumed["charges"]] == [
        charge["label"] for charge in whole["charges"]
    ]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_what_a_killed_study_left_running_is_ended_before_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "work.sh").write_text(
        'echo $$ >> pids; [ "$1" = 1 ] || { sleep 300 & echo $! >> pids; wait; }; '
        'echo "PRUDENT {\\"error\\": $1}"\n'
    )
    job = tmp_path / "left.yaml"
    job.write_text(
        "command: sh work.sh {x}\nparameters: {x: [1, 2, 3]}\nmeasures: [error]\nprice: 0.1\n"
        "goal: minimise error\nbudget: $1\nstrategy: grid\ntimeout: 2 s\ngrace: 1 s\n"
    )
    pids = tmp_path / "pids"
    process = start("tune", job)
    assert kill_when(process, lambda: lines(pids) >= 3)
    left = [int(pid) for pid in pids.read_text().split()][1:]
    assert all(alive(pid) for pid in left), "a killed study cannot end its runs"
    journal = tmp_path / "left.prudent" / "journal.jsonl"
    paid = [fact["trial"]["number"] for fact in facts(journal) if fact["fact"] == "told"]
    assert paid == [1]
    process = start("tune", job, "--resume", "--json")
    kill_check = time.monotonic() + 30
    while any(alive(pid) for pid in left):
        assert time.monotonic() < kill_check, "left-over processes still run"
        time.sleep(0.05)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert [(trial["number"], trial["status"]) for trial in result["trials"]] == [
        (1, "finished"), (2, "failed"), (3, "failed")
    ]  # fmt: skip
    numbers = [fact["trial"]["number"] for fact in facts(journal) if fact["fact"] == "told"]
    assert numbers == [1, 2, 3]
    assert not any(alive(int(pid)) for pid in pids.read_text().split())
    assert not list((tmp_path / "left.prudent" / "logs").glob("*.pid"))
    assert os.path.exists(tmp_path / "left.prudent" / "logs" / "trial-0001.out")
