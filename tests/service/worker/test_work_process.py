"""Work in processes of their own: done, told as it goes, stopped at once, taken up again, not left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prudent.service.intake.admission import policy_for
from prudent.service.settings import Settings
from prudent.service.worker.child import ProcessOptions
from prudent.service.worker.machines import NONE_HERE
from prudent.service.worker.messages import (
    DoneMessage,
    FailedMessage,
    InterruptedMessage,
    NoteMessage,
    ProcessMessage,
    ProgressMessage,
    RunTask,
    TrialEndMessage,
    TrialStartMessage,
)
from prudent.service.worker.work_process import LAST_WORDS, ProcessDied, WorkProcess, end_leftovers

TABLE = "vm,workers,time_s,price_usd_per_h\n" + "".join(
    f"{vm},{n},{100 / n + speed},{n * price}\n"
    for vm, speed, price in (("a", 30, 1), ("b", 10, 2), ("c", 50, 0.5))
    for n in (1, 2, 4, 8)
)
TUNE: dict[str, Any] = {
    "table": {"csv": TABLE},
    "parameters": ["vm", "workers"],
    "goal": "minimise cost_usd subject to time_s <= 100",
    "budget": "$1",
    "strategy": "random",
}
TASKS = [
    {"name": n, "id": n, "parents": p, "children": c, "inputFiles": [], "outputFiles": []}
    for n, p, c in (("a", [], ["b", "c"]), ("b", ["a"], []), ("c", ["a"], []))
]
WORKFLOW = {
    "name": "three",
    "schemaVersion": "1.5",
    "workflow": {
        "specification": {"tasks": TASKS, "files": []},
        "execution": {
            "makespanInSeconds": 1,
            "tasks": [{"id": t["id"], "runtimeInSeconds": 3} for t in TASKS],
        },
    },
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    found = Settings(tmp_path_factory.mktemp("home"))
    found.create()
    return found


@pytest.fixture(scope="module")
def terms(settings: Settings) -> ProcessOptions:
    """A lease that runs out in no test that does not want it to."""
    folders, policy = settings.data_folders, policy_for(settings, settings.data_folders)
    return ProcessOptions(
        1, 600.0, folders, policy, settings.home / "warm", settings.home, warm=False, nice=0
    )


@pytest.fixture(scope="module")
def hands() -> Iterator[list[WorkProcess]]:
    """Those that were made; the last one may be in order still."""
    made: list[WorkProcess] = []
    yield made
    for hand in made:
        hand.close()


@pytest.fixture
def hand(hands: list[WorkProcess], terms: ProcessOptions) -> WorkProcess:
    """The tests share one as long as it lives."""
    if not hands or not hands[-1].alive:
        hands.append(WorkProcess(terms))
    return hands[-1]


def done(hand: WorkProcess, task: RunTask, wait_s: float = 240.0) -> list[ProcessMessage]:
    """Everything it says about a task, the last word last."""
    hand.start_run(task)
    said: list[ProcessMessage] = []
    until_s = time.monotonic() + wait_s
    while not said or not isinstance(said[-1], LAST_WORDS):
        assert time.monotonic() < until_s, said
        hand.keep_alive()
        message = hand.receive(0.5)
        said += [message] if message is not None else []
    return said


def test_one_process_does_every_kind(terms: ProcessOptions, settings: Settings, tmp_path: Path) -> None:
    with closing(WorkProcess(replace(terms, warm=True))) as hand:
        _do_every_kind(hand, settings, tmp_path)


def _do_every_kind(hand: WorkProcess, settings: Settings, tmp_path: Path) -> None:
    said = done(hand, RunTask("t", "tune", TUNE, tmp_path / "tune"))
    assert isinstance(said[-1], DoneMessage), said[-1]
    assert hand.ready, "it had its first run before it was ready, and can have others"
    ended = [message for message in said if isinstance(message, TrialEndMessage)]
    result = json.loads((tmp_path / "tune" / "result.json").read_text())
    assert [message.number for message in ended] == [trial["number"] for trial in result["trials"]]
    assert sum(message.spent_usd for message in ended) == pytest.approx(result["spent_usd"])
    assert any(isinstance(message, ProgressMessage) and 0 < message.done < 1 for message in said)
    assert "<html" in (tmp_path / "tune" / "report.html").read_text()[:200]

    plan = {"workflow": WORKFLOW, "fleet": "2*m3.medium", "scheduler": "heft"}
    said = done(hand, RunTask("s", "schedule", plan, tmp_path / "s"))
    assert isinstance(said[-1], DoneMessage), said[-1]
    assert json.loads((tmp_path / "s" / "result.json").read_text())["makespan_s"] > 0
    assert (tmp_path / "s" / "plan.json").is_file()

    (failed,) = done(hand, RunTask("f", "tune", {**TUNE, "table": "gone.csv"}, tmp_path / "f"))[-1:]
    assert isinstance(failed, FailedMessage)
    assert "gone.csv" in failed.error

    # Last: training takes the warm processes, and new ones are started behind it.
    rows = "".join(f"{x},{x * x},{3 * x + 1}\n" for x in range(60))
    (settings.home / "data" / "rows.csv").write_text(f"a,b,y\n{rows}")
    request = {
        "domain": "regression",
        "dataset": {"path": "rows.csv", "target": "y"},
        "methods": [{"algorithm": "linear-regression"}, {"algorithm": "decision-tree-regression"}],
        "budget": "3 trials",
        "export": ["onnx", "pmml"],
        "computationalResources": {"instances": [{"ec2Instance": "m5.large"}], "maxTotalInstances": 2},
    }
    said = done(hand, RunTask("r", "train", request, tmp_path / "r"))
    last = said[-1]
    assert isinstance(last, DoneMessage), last
    assert len(last.models) == 3
    assert (tmp_path / "r" / "models" / last.models[0].folder / "model.onnx").is_file()
    assert (tmp_path / "r" / "models" / last.models[0].folder / "model.pmml").is_file()
    assert len([message for message in said if isinstance(message, TrialEndMessage)]) == 3
    # No place to rent machines at was named: it is done here, and says so.
    (noted,) = [message for message in said if isinstance(message, NoteMessage)]
    assert (noted.kind, noted.data["text"]) == ("machines", NONE_HERE)
    assert (tmp_path / "r" / "report.html").is_file()


def test_what_was_done_is_not_done_again(hand: WorkProcess, tmp_path: Path) -> None:
    few = {"domain": "misc-functions", "budget": "2 trials", "seed": 3}
    first = [m for m in done(hand, RunTask("r", "train", few, tmp_path)) if isinstance(m, TrialEndMessage)]
    said = done(hand, RunTask("r", "train", {**few, "budget": "4 trials"}, tmp_path))
    again = [m for m in said if isinstance(m, TrialEndMessage)]
    assert sorted(m.number for m in again)[: len(first)] == sorted(m.number for m in first)
    assert len(again) == 4
    assert len([m for m in said if isinstance(m, TrialStartMessage)]) == 2


def test_secrets_of_a_document_are_in_nothing_that_others_see(hand: WorkProcess, tmp_path: Path) -> None:
    document = {
        "command": "echo the key $KEY is refused >&2; exit 3",
        "environment": {"KEY": "hush-hush-hush"},
        "parameters": {"n": [1, 2]},
        "goal": "minimise time_s",
        "max_trials": 1,
    }
    said = done(hand, RunTask("r", "tune", document, tmp_path / "run"))
    assert "the key *** is refused" in str(said)
    assert "hush" not in str(said)
    for name in ("log.txt", "result.json", "report.html"):
        path = tmp_path / "run" / name
        assert not path.exists() or "hush-hush" not in path.read_text(), name


def endless(tmp_path: Path) -> dict[str, Any]:
    mark = f"echo $$ >> {tmp_path}/pids; exec sleep 1000"
    return {"command": mark, "parameters": {"n": [1, 2]}, "goal": "minimise time_s", "max_trials": 2}


def wait_for(path: Path, wait_s: float = 240.0) -> int:
    until_s = time.monotonic() + wait_s
    while not path.exists() or not path.read_text().strip():
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return int(path.read_text().split()[-1])


def gone(pid: int, wait_s: float = 240.0) -> bool:
    until_s = time.monotonic() + wait_s
    while time.monotonic() < until_s:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_stopping_ends_the_command_too(hand: WorkProcess, tmp_path: Path) -> None:
    hand.start_run(RunTask("r", "tune", endless(tmp_path), tmp_path / "run"))
    pid = wait_for(tmp_path / "pids")
    hand.interrupt()
    said: list[ProcessMessage] = []
    while not said or not isinstance(said[-1], LAST_WORDS):
        message = hand.receive(240)
        assert message is not None
        said.append(message)
    assert isinstance(said[-1], InterruptedMessage)
    hand.close()
    end_leftovers(tmp_path / "run")
    assert gone(pid)


def test_a_process_that_dies_is_noticed(hand: WorkProcess, tmp_path: Path) -> None:
    hand.start_run(RunTask("r", "tune", endless(tmp_path), tmp_path / "run"))
    command = wait_for(tmp_path / "pids")
    os.kill(hand.pid, signal.SIGKILL)
    with pytest.raises(ProcessDied, match="killed"):
        list(iter(lambda: hand.receive(5), "never said"))
    assert gone(command), "it outlived the process that started it"
    end_leftovers(tmp_path / "run")  # as whoever goes on with the run does


OWNER = """
import pickle, sys, time
from prudent.service.worker.work_process import WorkProcess
terms, task = pickle.loads(bytes.fromhex(sys.argv[1]))
process = WorkProcess(terms)
process.start_run(task)
print(process.pid, flush=True)
while True:
    process.keep_alive()
    time.sleep(0.2)
"""


@pytest.mark.parametrize(("number", "lease_s"), [(signal.SIGKILL, 600.0), (signal.SIGSTOP, 6.0)])
def test_nothing_outlives_a_worker_that_dies_or_hangs(
    terms: ProcessOptions, tmp_path: Path, number: int, lease_s: float
) -> None:
    import pickle

    task = RunTask("r", "tune", endless(tmp_path), tmp_path / "run")
    words = pickle.dumps((replace(terms, lease_s=lease_s), task)).hex()
    with subprocess.Popen([sys.executable, "-c", OWNER, words], stdout=subprocess.PIPE) as owner:
        try:
            assert owner.stdout is not None
            hand = int(owner.stdout.readline())
            command = wait_for(tmp_path / "pids")
            os.kill(owner.pid, number)
            assert gone(hand)
            end_leftovers(tmp_path / "run")  # as whoever takes the run over does
            assert gone(command)
        finally:
            owner.kill()
