"""Real workers, really killed: one outcome for each run, nothing done or paid twice."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.service.intake import door
from prudent.service.settings import Settings, environment_of
from prudent.service.store import charges, events, runs, trials, workers
from prudent.service.store.runs import Run
from prudent.service.store.store import Store
from prudent.service.store.users import LOCAL

pytestmark = pytest.mark.timeout(600)


class Team:
    """Worker processes on one store."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, **others: str) -> None:
        command = [sys.executable, "-m", "prudent.cli.main", "worker", "--name", name]
        environment = {**os.environ, **environment_of(self.settings), **others}
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(command, env=environment, stderr=log, stdout=log)

    def signal(self, name: str, number: int) -> None:
        os.kill(self.processes[name].pid, number)

    def logs(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self.processes.values():
            process.wait()


@pytest.fixture
def place(url: str, tmp_path: Path) -> Settings:
    made = Settings(
        tmp_path / "home",
        database_url=url,
        concurrency=1,
        heartbeat_s=0.5,
        takeover_s=5.0,
        grace_s=1.0,
    )
    made.create()
    return made


@pytest.fixture
def store(place: Settings) -> Iterator[Store]:
    with Store(place.database) as opened:
        yield opened


@pytest.fixture
def team(place: Settings, tmp_path: Path) -> Iterator[Team]:
    made = Team(place, tmp_path)
    yield made
    made.close()


def until(team: Team, happened: Callable[[], Any], wait_s: float = 180.0) -> Any:
    end_s = time.monotonic() + wait_s
    while time.monotonic() < end_s:
        found = happened()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"It did not happen.\n{team.logs()}")


def sleepy(tmp_path: Path, sleep_s: float = 0.7, count: int = 6) -> dict[str, Any]:
    """A study whose trials say when they begin and end."""
    command = f"echo begin-{{n}} >> {tmp_path}/said; sleep {sleep_s}; echo end-{{n}} >> {tmp_path}/said"
    return {
        "command": command,
        "parameters": {"n": list(range(count))},
        "goal": "minimise time_s",
        "price": "$3.6/h",
        "strategy": "grid",
        "early_stop": False,
        "max_trials": count,
    }


def submit(store: Store, place: Settings, document: dict[str, Any], kind: str = "tune") -> str:
    return door.submit(store, place, kind, document, LOCAL, "rest").run.id


def the_run(store: Store, run_id: str) -> Run:
    found = store.read(runs.get, run_id)
    assert found is not None
    return found


def ended(store: Store, run_id: str) -> Callable[[], Run | None]:
    return lambda: run if (run := the_run(store, run_id)).ended else None


def some_trials(store: Store, run_id: str, count: int) -> Callable[[], bool]:
    return lambda: len(store.read(trials.ended, run_id)) >= count


def both(team: Team, store: Store) -> tuple[str, str]:
    """Two workers that are up."""
    team.start("first")
    team.start("second")
    until(team, lambda: len(store.read(workers.all_)) == 2)
    return "first", "second"


def stop_between_writes(team: Team, name: str) -> None:
    """Stop a worker that holds no lock of SQLite: nobody could break that of one which hangs in a write."""
    for _ in range(50):
        team.signal(name, signal.SIGSTOP)
        if all(_free(Path(url[10:])) for url in (team.settings.database, team.settings.engine_database)):
            return
        team.signal(name, signal.SIGCONT)
        time.sleep(0.3)
    raise AssertionError("It writes all the time.")


def _free(path: Path) -> bool:
    with contextlib.closing(sqlite3.connect(path, timeout=3.0, isolation_level=None)) as file:
        try:
            file.execute("BEGIN IMMEDIATE")
            file.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
    return True


def check_done_once(store: Store, run_id: str, said: Path, count: int, killed: int) -> None:
    """Every trial ended once and was charged once; at most what was under way was begun again."""
    lines = Counter(said.read_text().split())
    assert all(lines[f"end-{n}"] >= 1 for n in range(count)), lines
    for word in ("begin", "end"):  # what was under way may have ended in the very moment, unheard
        assert sum(lines[f"{word}-{n}"] for n in range(count)) <= count + killed, lines
    recorded = store.read(trials.of_run, run_id)
    assert [trial.status for trial in recorded] == ["finished"] * count
    paid = store.read(charges.of_run, run_id)
    assert sorted(charge.label for charge in paid) == sorted(f"trial {trial.number}" for trial in recorded)
    assert the_run(store, run_id).spent_usd == pytest.approx(sum(trial.spent_usd for trial in recorded))


def test_a_killed_worker_is_taken_over(store: Store, place: Settings, team: Team, tmp_path: Path) -> None:
    first, second = both(team, store)
    run_id = submit(store, place, sleepy(tmp_path))
    until(team, some_trials(store, run_id, 2))
    if the_run(store, run_id).worker == second:
        first, second = second, first
    team.signal(first, signal.SIGKILL)
    killed_s = time.monotonic()
    until(team, lambda: the_run(store, run_id).worker == second or the_run(store, run_id).ended)
    assert time.monotonic() - killed_s < 60
    run = until(team, ended(store, run_id))
    assert (run.status, run.attempts, run.error) == ("succeeded", 2, "")
    check_done_once(store, run_id, tmp_path / "said", 6, killed=1)
    kinds = [event.kind for event in store.read(events.since, run_id)]
    assert kinds.count("taken over") == 1
    assert kinds.count("succeeded") == 1
    assert (place.folder_of(run_id) / "result.json").is_file()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_worker_that_hung_and_came_back_changes_nothing(
    store: Store, place: Settings, team: Team, tmp_path: Path
) -> None:
    first, second = both(team, store)
    run_id = submit(store, place, sleepy(tmp_path, sleep_s=1.0))
    until(team, some_trials(store, run_id, 1))
    if the_run(store, run_id).worker == second:
        first, second = second, first
    stop_between_writes(team, first)
    until(team, lambda: the_run(store, run_id).worker == second)
    team.signal(first, signal.SIGCONT)
    run = until(team, ended(store, run_id))
    assert run.status == "succeeded"
    check_done_once(store, run_id, tmp_path / "said", 6, killed=1)
    until(team, lambda: len(store.read(workers.all_)) == 2)  # it goes on with other work
    other = submit(store, place, sleepy(tmp_path / "..", sleep_s=0.1, count=1))
    assert until(team, ended(store, other)).status == "succeeded"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_worker_that_is_told_to_leave_hands_over(
    store: Store, place: Settings, team: Team, tmp_path: Path
) -> None:
    run_id = submit(store, place, sleepy(tmp_path))
    team.start("first")
    until(team, some_trials(store, run_id, 2))
    team.signal("first", signal.SIGTERM)
    assert team.processes["first"].wait(60) == 0
    waiting = the_run(store, run_id)
    assert (waiting.status, waiting.attempts) == ("queued", 0)
    assert store.read(workers.all_) == []
    team.start("second")
    run = until(team, ended(store, run_id))
    assert (run.status, run.attempts) == ("succeeded", 1)
    check_done_once(store, run_id, tmp_path / "said", 6, killed=1)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_cancel_stops_the_command_at_once(store: Store, place: Settings, team: Team, tmp_path: Path) -> None:
    slow = {**sleepy(tmp_path), "command": f"echo $$ > {tmp_path}/pid; exec sleep 600"}
    run_id = submit(store, place, slow)
    team.start("first")
    until(team, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    pid = int((tmp_path / "pid").read_text())
    store.write(runs.cancel, run_id)
    run = until(team, ended(store, run_id), 30)
    assert run.status == "cancelled"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    after = submit(store, place, sleepy(tmp_path, 0.1, 1))
    assert until(team, ended(store, after)).status == "succeeded"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_what_is_cancelled_while_its_worker_is_dead_is_not_begun_again(
    store: Store, place: Settings, team: Team, tmp_path: Path
) -> None:
    first, second = both(team, store)
    run_id = submit(store, place, sleepy(tmp_path))
    until(team, some_trials(store, run_id, 1))
    if the_run(store, run_id).worker == second:
        first, second = second, first
    team.signal(first, signal.SIGKILL)
    store.write(runs.cancel, run_id)
    run = until(team, ended(store, run_id))
    assert (run.status, run.attempts) == ("cancelled", 1)
    begun = (tmp_path / "said").read_text().count("begin")
    time.sleep(place.takeover_s + 2)  # by then its workflow was taken up, and has ended
    assert (tmp_path / "said").read_text().count("begin") == begun
    after = submit(store, place, sleepy(tmp_path / "..", 0.1, 1))
    assert until(team, ended(store, after)).status == "succeeded"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_poison_is_given_up_after_three_tries(
    store: Store, place: Settings, team: Team, tmp_path: Path
) -> None:
    run_id = submit(store, place, {**sleepy(tmp_path), "command": "kill -9 $PPID; sleep 5"})
    team.start("first")
    run = until(team, ended(store, run_id))
    assert (run.status, run.attempts) == ("failed", 3)
    assert "3 times" in run.error
    after = submit(store, place, sleepy(tmp_path, 0.1, 1))
    assert until(team, ended(store, after)).status == "succeeded"


def test_a_bad_request_fails_at_once_and_says_why(store: Store, place: Settings, team: Team) -> None:
    table = {"table": {"csv": "vm,time_s\na,1\n"}, "parameters": ["vm"], "goal": "minimise cost_usd"}
    run_id = submit(store, place, table)
    team.start("first")
    run = until(team, ended(store, run_id))
    assert (run.status, run.attempts) == ("failed", 1)
    assert "price_usd_per_h" in run.error
