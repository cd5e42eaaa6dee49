"""`prudent demo` really trains, keeps to its money, cleans up after itself, and says what it needs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cli import demo as demo_module
from prudent.cli.demo import tuning
from prudent.cli.demo.digits_worker import CommitteeTask, DigitsData, packed, train, unpacked
from prudent.cli.demo.tuning import MACHINE, DigitsWorkers, digits_job, price, space
from prudent.core.errors import BadInput
from prudent.core.space import Space

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
MANY = {
    **{name: [value] for name, value in QUICK.items()},
    "cluster": [f"{count}*{MACHINE}" for count in (1, 2)],
    "learning_rate": [n / 10_000 for n in range(1, 501)],
}
"""So many short runs that they do not come to an end by themselves."""
COMMAND = [
    *(sys.executable, "-c"),
    "from prudent.cli import demo_workers, main\nfrom prudent.core.space import Space\n"
    f"demo_workers.space = lambda: Space.parse({MANY!r})\nmain.main()",
    *("demo", "--no-training", "--no-workflow", "--no-service"),
]


@pytest.fixture(scope="module")
def workers() -> Iterator[DigitsWorkers]:
    with DigitsWorkers() as up:
        yield up


def accuracies(workers: DigitsWorkers, configuration: dict[str, Any]) -> list[float]:
    """What a run shows, epoch by epoch."""
    return [said["accuracy"] for said in workers.train(configuration) if "accuracy" in said]


def test_a_network_learns_from_epoch_to_epoch() -> None:
    digits = DigitsData.load()
    task = CommitteeTask(1, (0, 1), hidden=16, learning_rate=0.03, batch=256, epochs=6, fraction=1.0)
    right = [float((votes.argmax(axis=1) == digits.test_y).mean()) for votes in train(task, digits)]
    assert len(right) == 6
    assert right[-1] > 0.85
    assert right[-1] > right[0] + 0.2


def test_tasks_and_votes_survive_the_wire() -> None:
    task = CommitteeTask(3, (0, 2), hidden=64, learning_rate=0.01, batch=16, epochs=4, fraction=0.5)
    assert CommitteeTask.parse(task.line()) == task
    votes = next(train(CommitteeTask(1, (0,), 16, 0.03, 256, 1, 0.25), DigitsData.load()))
    assert (unpacked(packed(votes)) == votes).all()


def test_two_workers_are_the_same_committee(workers: DigitsWorkers) -> None:
    alone = accuracies(workers, QUICK)
    together = accuracies(workers, {**QUICK, "cluster": f"2*{MACHINE}"})
    assert len(alone) == 4
    assert together == pytest.approx(alone, abs=0.005)  # votes are added up in another order


def test_a_run_tells_how_far_it_is_after_every_member(workers: DigitsWorkers) -> None:
    for cluster in (f"1*{MACHINE}", f"2*{MACHINE}"):
        done = [said["progress"] for said in workers.train({**QUICK, "cluster": cluster})]
        assert len(done) == QUICK["members"] * QUICK["epochs"] + QUICK["epochs"]
        assert done == sorted(done)
        assert done[-1] == 1.0


def test_training_can_be_ended_within_an_epoch() -> None:
    asked: list[None] = []
    task = CommitteeTask(1, (0, 1, 2, 3), hidden=16, learning_rate=0.03, batch=256, epochs=3, fraction=0.25)
    shown = list(train(task, DigitsData.load(), lambda: asked.append(None) or len(asked) < 6))
    assert (len(shown), len(asked)) == (1, 6)


def test_a_run_that_is_cut_leaves_the_workers_idle(workers: DigitsWorkers) -> None:
    long = workers.train({**QUICK, "members": 16, "hidden": 256, "batch": 16, "epochs": 32})
    next(long)
    long.close()
    before = accuracies(workers, QUICK)
    assert before == accuracies(workers, QUICK)


def test_a_job_of_the_demo_is_billed_by_the_second(workers: DigitsWorkers) -> None:
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
    assert events[-1].time_s > 0


def test_the_space_holds_what_was_promised() -> None:
    assert {"cluster", "fraction", "hidden", "learning_rate"} <= set(space().names)


def test_a_short_demo_for_real(
    prudent: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: DigitsWorkers
) -> None:
    """Of a space so small that all of it is tried, which takes as many runs on any machine.

    By the workers that all tests here share; that a demo starts its own is seen where Ctrl-C ends them.
    """
    few = {name: [value] for name, value in QUICK.items()}
    few |= {"cluster": [f"{count}*{MACHINE}" for count in (1, 2)], "fraction": [0.5, 1.0]}
    monkeypatch.setattr(tuning, "space", lambda: Space.parse(few))
    monkeypatch.setattr(tuning, "DigitsWorkers", lambda: contextlib.nullcontext(workers))
    monkeypatch.chdir(tmp_path)
    words = ("--no-training", "--no-workflow", "--no-service", "--budget", "$20", "--seed", 2, "--json")
    done = prudent("demo", *words, "--goal", "minimise cost_usd subject to accuracy >= 0.6")
    assert done.err == ""
    assert done.code == 0
    said = done.json
    assert said["training"] is None, "it was not asked for"
    for strategy in ("lynceus", "random"):
        result = said[strategy]
        assert result["strategy"] == strategy
        assert result["spent_usd"] <= 20
        assert 2 <= len(result["trials"]) <= 4
        assert all(charge["price"]["minimum_s"] == 0 for charge in result["charges"])
    best = said["lynceus"]["best"]
    assert best["measures"]["accuracy"] >= 0.6
    report = (tmp_path / "prudent-demo" / "report.html").read_text(encoding="utf-8")
    assert "Next to random" in report
    assert repr(best["cost_usd"]) in report


@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.soak  # `prudent tune` ends at Ctrl-C with what is known in test_tune.py
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
        out, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "Interrupted" in out
    assert (tmp_path / "out" / "report.html").exists()
    assert not _left_over(process.pid)


def _left_over(session: int) -> list[int]:
    """Processes of a session that still live; a moment is given to those that are ending."""
    give_up = time.monotonic() + 60
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
def test_a_wrong_request_is_refused(
    prudent: Callable[..., Any], option: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = prudent("demo", "--no-training", "--no-workflow", "--no-service", option)
    assert done.code == 2
    assert remedy in done.err
    assert not list(tmp_path.iterdir())
