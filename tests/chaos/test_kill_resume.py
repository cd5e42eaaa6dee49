"""A study killed with SIGKILL at random moments ends as one nobody touched, and leaves nothing running.

The moments are steps of the study, not of a clock: a killed study dies at one of the lines that it writes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).parents[1] / "tuning" / "tune_server.py"
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


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.communicate(timeout=240)


@pytest.fixture
def tune(server: subprocess.Popen[str], tmp_path: Path, own_home: Path) -> Callable[..., tuple[int, str]]:
    """`prudent tune` in a process of its own: its exit code, or minus the signal, and what it said."""

    def run(*words: object, **more: Any) -> tuple[int, str]:
        out = tmp_path / "out"
        asked = {
            "words": ["tune", *map(str, words)],
            "environment": {"PRUDENT_HOME": str(own_home)},
            "out": str(out),
            **more,
        }
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        return int(server.stdout.readline()), out.read_text()

    return run


def answer(done: tuple[int, str]) -> Any:
    code, out = done
    assert code in (0, 1), out
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


@pytest.mark.parametrize(
    ("strategy", "parallel", "trials", "kills"),
    [
        ("lynceus", 1, 8, 2),
        ("random", 3, 8, 2),
        pytest.param("lynceus", 1, 14, 5, marks=pytest.mark.soak),
        pytest.param("random", 3, 14, 5, marks=pytest.mark.soak),
    ],
)
def test_killed_at_random_points_it_decides_the_same_and_pays_once(
    tmp_path: Path,
    tune: Callable[..., tuple[int, str]],
    write_runs: Callable[..., object],
    strategy: str,
    parallel: int,
    trials: int,
    kills: int,
) -> None:
    write_runs(tmp_path)
    job = tmp_path / "chaos.yaml"
    job.write_text(TABLE)
    usual = (job, "--json", "--strategy", strategy, "--parallel", parallel, "--max-trials", trials)
    whole = answer(tune(*usual, "--journal", tmp_path / "whole.jsonl"))
    total = lines(tmp_path / "whole.jsonl")
    chance = random.Random(parallel)
    journal = tmp_path / "chaos.prudent" / "journal.jsonl"
    for number in range(kills):
        step = chance.randint(1, max((total - lines(journal)) // (kills - number + 1), 1))
        code, out = tune(*usual, "--resume", dies=[step, chance.choice([True, False])])
        assert code == -signal.SIGKILL, out
    assert 0 < lines(journal) < total
    resumed = answer(tune(*usual, "--resume"))
    assert facts(journal) == facts(tmp_path / "whole.jsonl")
    assert resumed["spent_usd"] == whole["spent_usd"]
    assert [charge["label"] for charge in resumed["charges"]] == [
        charge["label"] for charge in whole["charges"]
    ]


def wait_for(fact: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 120
    while not fact():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "it does not come so far"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_killed_study_takes_its_runs_along_and_pays_for_them_when_it_goes_on(tmp_path: Path) -> None:
    # The first run ends; the second waits for ever, until the study has died and goes on.
    (tmp_path / "work.sh").write_text(
        'echo $$ >> pids; [ "$1" = 1 ] || { [ ! -e died ] || exit 3; date +%s.%N > began; '
        "sleep 300 & echo $! >> pids; setsid sleep 300 & echo $! >> pids; wait; }; "
        'echo "PRUDENT {\\"error\\": $1}"\n'
    )
    job = tmp_path / "left.yaml"
    job.write_text(
        "command: sh work.sh {x}\nparameters: {x: [1, 2, 3]}\nmeasures: [error]\nprice: 0.1\n"
        "goal: minimise error\nbudget: $1\nstrategy: grid\ngrace: 1 s\n"
    )
    pids = tmp_path / "pids"
    process = start("tune", job)
    journal = tmp_path / "left.prudent" / "journal.jsonl"
    wait_for(lambda: lines(pids) >= 4, process)
    (tmp_path / "died").touch()
    lived_s = time.time() - float((tmp_path / "began").read_text())
    process.kill()
    process.communicate()
    left = [int(pid) for pid in pids.read_text().split()]
    until_s = time.monotonic() + 60
    while any(map(alive, left)) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not any(map(alive, left)), "they outlive their study"
    paid = [fact["trial"]["number"] for fact in facts(journal) if fact["fact"] == "told"]
    assert paid == [1]
    process = start("tune", job, "--resume", "--json")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    result = json.loads(out)
    # By its own clock: it is paid for until it was gone, not until the last sign that the study gave of it.
    assert lived_s * 0.1 / 3600 <= result["interrupted_usd"]
    assert [charge["label"] for charge in result["charges"]][1] == "trial 2, interrupted"
    assert [(trial["number"], trial["status"]) for trial in result["trials"]] == [
        (1, "finished"), (2, "failed"), (3, "failed")
    ]  # fmt: skip
    numbers = [fact["trial"]["number"] for fact in facts(journal) if fact["fact"] == "told"]
    assert numbers == [1, 2, 3]
    assert not any(alive(int(pid)) for pid in pids.read_text().split()), "left-over processes still run"
    assert not list((tmp_path / "left.prudent" / "logs").glob("*.pid"))
    assert os.path.exists(tmp_path / "left.prudent" / "logs" / "trial-0001.out")
