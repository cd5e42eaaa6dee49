"""`prudent demo` really trains, keeps to its money, cleans up after itself, and says what it needs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cli import demo as demo_module
from prudent.cli.demo_job import Digits, Task, packed, train, unpacked
from prudent.cli.demo_workers import MACHINE, Workers, digits_job, price, space
from prudent.core.errors import BadInput

pytest.importorskip("sklearn")

QUICK: dict[str, Any] = {
    "cluster": f"1*{MACHINE}",
    "fraction": 1.0,
    "members": 4,
    "hidden": 16,
    "learning_rate": 0.03,
    "batch": 256,
    "epochs": 4,
}
COMMAND = [
    *(sys.executable, "-c", "from prudent.cli.main import main; main()"),
    *("demo", "--no-training", "--no-workflow", "--no-service"),
]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers() as up:
        yield up


def accuracies(workers: Workers, configuration: dict[str, Any]) -> list[float]:
    """What a run shows, epoch by epoch."""
    return [said["accuracy"] for said in workers.train(configuration) if "accuracy" in said]


def test_a_network_learns_from_epoch_to_epoch() -> None:
    digits = Digits.load()
    task = Task(1, (0, 1), hidden=16, learning_rate=0.03, batch=256, epochs=6, fraction=1.0)
    right = [float((votes.argmax(axis=1) == digits.test_y).mean()) for votes in train(task, digits)]
    assert len(right) == 6
    assert right[-1] > 0.85
    assert right[-1] > right[0] + 0.2


def test_tasks_and_votes_survive_the_wire() -> None:
    task = Task(3, (0, 2), hidden=64, learning_rate=0.01, batch=16, epochs=4, fraction=0.5)
    assert Task.parse(task.line()) == task
    votes = next(train(Task(1, (0,), 16, 0.03, 256, 1, 0.25), Digits.load()))
    assert (unpacked(packed(votes)) == votes).all()


def test_two_workers_are_the_same_committee(workers: Workers) -> None:
    alone = accuracies(workers, QUICK)
    together = accuracies(workers, {**QUICK, "cluster": f"2*{MACHINE}"})
    assert len(alone) == 4
    assert together == pytest.approx(alone, abs=0.005)  # votes are added up in another order


def test_a_run_tells_how_far_it_is_after_every_member(workers: Workers) -> None:
    for cluster in (f"1*{MACHINE}", f"2*{MACHINE}"):
        done = [said["progress"] for said in workers.train({**QUICK, "cluster": cluster})]
        assert len(done) == QUICK["members"] * QUICK["epochs"] + QUICK["epochs"]
        assert done == sorted(done)
        assert done[-1] == 1.0


def test_training_can_be_ended_within_an_epoch() -> None:
    asked: list[None] = []
    task = Task(1, (0, 1, 2, 3), hidden=16, learning_rate=0.03, batch=256, epochs=3, fraction=0.25)
    shown = list(train(task, Digits.load(), lambda: asked.append(None) or len(asked) < 6))
    assert (len(shown), len(asked)) == (1, 6)


def test_a_run_that_is_cut_leaves_the_workers_idle(workers: Workers) -> None:
    long = workers.train({**QUICK, "members": 16, "hidden": 256, "batch": 16, "epochs": 32})
    next(long)
    long.close()
    before = accuracies(workers, QUICK)
    assert before == accuracies(workers, QUICK)


def test_a_job_of_the_demo_is_billed_by_the_second(workers: Workers) -> None:
    job = digits_job(workers)
    assert job.price(QUICK).minimum_s == 0
    assert job.price({**QUICK, "cluster": f"2*{MACHINE}"}).usd_per_h == 2 * price(QUICK).usd_per_h
    assert price(QUICK).date
    run = job.start(QUICK, 1)
    events = []
    while not events or not hasattr(events[-1], "status"):
        event = run.next(60.0)
        assert event is not None
        events.append(event)
    assert events[-1].status == "finished"
    assert 0 < events[-1].time_s < 60


def test_the_space_holds_what_was_promised() -> None:
    assert {"cluster", "fraction", "hidden", "learning_rate"} <= set(space().names)


def test_a_short_demo_for_real(workers: Workers, tmp_path: Path) -> None:
    begun = time.monotonic()
    list(workers.train(QUICK))
    # Money is time: on a machine that others use too, a run takes longer and costs more.
    quick_s = max(time.monotonic() - begun, 0.1)
    budget = price(QUICK).cost_usd(24 * quick_s)
    goal = f"minimise cost_usd subject to accuracy >= 0.6 and time_s <= {8 * quick_s:.2f} s"
    done = subprocess.run(
        [*COMMAND, "--budget", f"${budget}", "--json", "--seed", "2", "--goal", goal],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.returncode == 0
    said = json.loads(done.stdout)
    assert said["training"] is None, "it was not asked for"
    for strategy in ("lynceus", "random"):
        result = said[strategy]
        assert result["strategy"] == strategy
        assert result["spent_usd"] <= budget + 1e-9
        assert len(result["trials"]) >= 2
        assert all(charge["price"]["minimum_s"] == 0 for charge in result["charges"])
    best = said["lynceus"]["best"]
    assert best["measures"]["accuracy"] >= 0.6
    report = (tmp_path / "prudent-demo" / "report.html").read_text(encoding="utf-8")
    assert "Next to random" in report
    assert repr(best["cost_usd"]) in report


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_cleanly_with_what_is_known(tmp_path: Path) -> None:
    command = [*COMMAND, "--budget", "$5", "--folder", str(tmp_path / "out")]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if " finished " in line or " cut " in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "Interrupted" in out
    assert (tmp_path / "out" / "report.html").exists()
    assert not _left_over(process.pid)


def _left_over(session: int) -> list[int]:
    """Processes of a session that still live; a moment is given to those that are ending."""
    give_up = time.monotonic() + 5
    while True:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(folder.name))
        if not found or time.monotonic() > give_up:
            return found
        time.sleep(0.05)


def test_without_scikit_learn_one_sentence_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_module, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r'pip install "prudent\[demo\]"'):
        demo_module.demo()


@pytest.mark.parametrize(
    ("option", "remedy"), [("--budget=5 min", "money"), ("--goal=minimise cosst_usd", "cost_usd")]
)
def test_a_wrong_request_is_refused(option: str, remedy: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, option], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
