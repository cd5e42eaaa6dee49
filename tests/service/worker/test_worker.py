"""Real workers, really killed: one outcome for each run, nothing done or paid twice.

Dead is who has not been heard of for `takeover_s`. That is minutes here, so that no busy computer makes a
worker look dead that lives; where one must be dead, the test ends it and dates its last heartbeat back.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from prudent.service.intake import admission
from prudent.service.settings import Settings, environment_of
from prudent.service.store import charges, events, runs, trials, workers
from prudent.service.store.runs import RunRow
from prudent.service.store.store import Store
from prudent.service.store.tables import workers as table
from prudent.service.store.users import LOCAL
from prudent.service.worker import durable, heartbeat
from prudent.service.worker.worker import Worker

pytestmark = pytest.mark.timeout(600)
COUNT = 4


class Team:
    """Two workers on one store, also after one of them was ended."""

    def __init__(self, settings: Settings, store: Store, folder: Path) -> None:
        self.settings, self.store, self.folder = settings, store, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def fill(self) -> None:
        """Start workers that are lacking, and wait until all are up."""
        for name in [name for name, process in self.processes.items() if process.poll() is not None]:
            del self.processes[name]
        number = len(list(self.folder.glob("*.log")))
        for fresh in range(number, number + 2 - len(self.processes)):
            command = [sys.executable, "-m", "prudent.cli.main", "worker", "--name", f"worker-{fresh}"]
            environment = {**os.environ, **environment_of(self.settings)}
            with (self.folder / f"worker-{fresh}.log").open("wb") as log:
                process = subprocess.Popen(command, env=environment, stderr=log, stdout=log)
            self.processes[f"worker-{fresh}"] = process
        self.until(lambda: set(self.processes) <= {worker.id for worker in self.store.read(workers.all_)})

    def until(self, happened: Callable[[], Any], wait_s: float = 240.0) -> Any:
        end_s = time.monotonic() + wait_s
        while time.monotonic() < end_s:
            if found := happened():
                return found
            time.sleep(0.05)
        logs = [path.read_text()[-3000:] for path in sorted(self.folder.glob("*.log"))]
        raise AssertionError("\n".join(["It did not happen.", *logs]))

    def signal(self, name: str, number: int) -> None:
        os.kill(self.processes[name].pid, number)

    def other(self, name: str) -> str:
        (found,) = set(self.processes) - {name}
        return found

    def kill(self, name: str) -> None:
        """The processes in which it did its runs end by themselves."""
        theirs = _children(self.processes[name].pid)
        self.processes[name].kill()
        self.processes[name].wait()
        self.until(lambda: all(map(_ended, theirs)))

    def end_work_of(self, name: str) -> None:
        """The processes of a worker that hangs have ended before anybody else may take its runs over."""
        theirs = _children(self.processes[name].pid)
        for pid in theirs:
            os.kill(pid, signal.SIGKILL)
        self.until(lambda: all(map(_ended, theirs)))

    def long_silent(self, name: str) -> None:
        """As if its last heartbeat had been long ago."""
        change = table.update().where(table.c.id == name).values(beat_s=0.0)
        self.store.write(lambda connection: connection.execute(change))

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def _children(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.NoSuchProcess:
        return []


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextlib.contextmanager
def working(url: str | None, folder: Path, nobody_left: Callable[[Path], None]) -> Iterator[Team]:
    settings = Settings(
        folder / "home",
        database_url=url,
        concurrency=1,
        tries=2,
        nice=0,
        heartbeat_s=0.5,
        poll_s=0.25,
        takeover_s=300.0,
        grace_s=0.5,
        warm=False,
        bubblewrap=False,  # commands and tests share files
        memory_mb=600.0,
    )
    settings.create()
    with Store(settings.database) as store:
        made = Team(settings, store, folder)
        try:
            yield made
        finally:
            made.close()
            nobody_left(settings.home)


@pytest.fixture(scope="module")
def sqlite_team(
    tmp_path_factory: pytest.TempPathFactory, nobody_left: Callable[[Path], None]
) -> Iterator[Team]:
    with working(None, tmp_path_factory.mktemp("sqlite"), nobody_left) as made:
        yield made


@pytest.fixture
def postgres_team(
    postgres: Any, tmp_path_factory: pytest.TempPathFactory, nobody_left: Callable[[Path], None]
) -> Iterator[Team]:
    with working(postgres.database("team"), tmp_path_factory.mktemp("postgres"), nobody_left) as made:
        yield made


@pytest.fixture
def team(request: pytest.FixtureRequest) -> Team:
    """Two workers that are up and have nothing to do."""
    found: Team = request.getfixturevalue(f"{getattr(request, 'param', 'sqlite')}_team")
    found.fill()
    return found


def gated(tmp_path: Path, count: int = COUNT, open_: int = 2) -> dict[str, Any]:
    """A study whose trials say when they begin and end; those after the first `open_` wait for a file."""
    said, go = tmp_path / "said", tmp_path / "go"
    said.touch()
    wait = f"until [ -e {go} ] || [ $(grep -c end {said}) -lt {open_} ]; do sleep 0.05; done"
    return {
        "command": f"echo begin-{{n}} >> {said}; {wait}; echo end-{{n}} >> {said}",
        "parameters": {"n": list(range(count))},
        "goal": "minimise time_s",
        "price": "$3.6/h",
        "strategy": "grid",
        "early_stop": False,
        "max_trials": count,
    }


def begun(tmp_path: Path) -> int:
    return (tmp_path / "said").read_text().count("begin")


def submit(team: Team, document: dict[str, Any]) -> str:
    return admission.submit(
        team.store, admission.prepare(team.settings, "tune", document, LOCAL, "rest")
    ).run.id


def the_run(team: Team, run_id: str) -> RunRow:
    found = team.store.read(runs.get, run_id)
    assert found is not None
    return found


def end_of(team: Team, run_id: str) -> RunRow:
    found: RunRow = team.until(lambda: run if (run := the_run(team, run_id)).ended else None)
    return found


def _trials_ended(team: Team, run_id: str) -> int:
    return sum(trial.status != trials.RUNNING for trial in team.store.read(trials.of_run, run_id))


def under_way(team: Team, tmp_path: Path) -> tuple[str, str]:
    """A run of which two trials have ended and one waits, and the worker that does it."""
    run_id = submit(team, gated(tmp_path))
    team.until(lambda: begun(tmp_path) == 3 and _trials_ended(team, run_id) == 2)
    worker = the_run(team, run_id).worker
    assert worker is not None
    return run_id, worker


def stop_between_writes(team: Team, name: str) -> None:
    """Stop a worker that holds no lock of SQLite: nobody could break that of one which hangs in a write."""
    settings = team.settings
    for _ in range(100):
        team.signal(name, signal.SIGSTOP)
        if all(_free(Path(url[10:])) for url in (settings.database, settings.engine_database)):
            return
        team.signal(name, signal.SIGCONT)
        time.sleep(0.1)
    raise AssertionError("It writes all the time.")


def _free(path: Path) -> bool:
    with contextlib.closing(sqlite3.connect(path, timeout=3.0, isolation_level=None)) as file:
        try:
            file.execute("BEGIN IMMEDIATE")
            file.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
    return True


def check_done_once(team: Team, run_id: str, tmp_path: Path) -> None:
    """Every trial ended once and was charged once; only what was under way was begun again."""
    lines = Counter((tmp_path / "said").read_text().split())
    assert [lines[f"end-{n}"] for n in range(COUNT)] == [1] * COUNT, lines
    assert sorted(lines[f"begin-{n}"] for n in range(COUNT)) == [1] * (COUNT - 1) + [2], lines
    recorded = team.store.read(trials.of_run, run_id)
    assert [trial.status for trial in recorded] == ["finished"] * COUNT
    paid = team.store.read(charges.of_run, run_id)
    assert sorted(charge.label for charge in paid) == sorted(f"trial {trial.number}" for trial in recorded)
    spent_usd = the_run(team, run_id).spent_usd
    assert spent_usd > 0
    assert spent_usd == pytest.approx(sum(trial.spent_usd for trial in recorded))


@pytest.mark.parametrize(
    "team",
    # On SQLite, workers that hang, leave or die for good are taken over below.
    [pytest.param("sqlite", marks=pytest.mark.soak), "postgres"],
    indirect=True,
)
def test_a_killed_worker_is_taken_over(team: Team, tmp_path: Path) -> None:
    run_id, first = under_way(team, tmp_path)
    second = team.other(first)
    team.kill(first)
    team.long_silent(first)
    team.until(lambda: the_run(team, run_id).worker == second)
    (tmp_path / "go").touch()
    run = end_of(team, run_id)
    assert (run.status, run.attempts, run.error, run.worker) == ("succeeded", 2, "", second)
    check_done_once(team, run_id, tmp_path)
    kinds = [event.kind for event in team.store.read(events.since, run_id)]
    assert kinds.count("taken over") == 1
    assert kinds.count("succeeded") == 1
    assert (team.settings.folder_of(run_id) / "result.json").is_file()


def test_a_worker_that_hung_and_came_back_changes_nothing(team: Team, tmp_path: Path) -> None:
    run_id, first = under_way(team, tmp_path)
    second = team.other(first)
    stop_between_writes(team, first)
    team.end_work_of(first)
    team.long_silent(first)
    team.until(lambda: the_run(team, run_id).worker == second)
    team.signal(first, signal.SIGCONT)
    team.until(
        lambda: (first, 0) in [(one.id, one.busy) for one in team.store.read(workers.all_)]
    )  # it is back
    (tmp_path / "go").touch()
    run = end_of(team, run_id)
    assert (run.status, run.worker) == ("succeeded", second)
    check_done_once(team, run_id, tmp_path)
    others = []
    for name in ("one", "two"):  # it goes on with other work: each worker does one at a time
        (tmp_path / name).mkdir()
        others.append(submit(team, gated(tmp_path / name, 1, open_=0)))
    team.until(lambda: all(the_run(team, each).status == "running" for each in others))
    assert {the_run(team, each).worker for each in others} == {first, second}
    for name, each in zip(("one", "two"), others, strict=True):
        (tmp_path / name / "go").touch()
        assert end_of(team, each).status == "succeeded"


def test_a_process_gives_up_before_its_run_can_be_anothers(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    settings.create()
    with Store(settings.database) as store:
        assert Worker(settings, store).options.lease_s < settings.takeover_s


def test_a_worker_that_is_told_to_leave_hands_over(team: Team, tmp_path: Path) -> None:
    run_id, first = under_way(team, tmp_path)
    second = team.other(first)
    team.signal(first, signal.SIGTERM)
    assert team.processes[first].wait(240) == 0
    assert first not in [worker.id for worker in team.store.read(workers.all_)]
    team.until(lambda: the_run(team, run_id).worker == second)
    (tmp_path / "go").touch()
    run = end_of(team, run_id)
    assert (run.status, run.attempts) == ("succeeded", 1)  # leaving is nobody's fault
    check_done_once(team, run_id, tmp_path)
    waited = [event.data["why"] for event in team.store.read(events.since, run_id) if event.kind == "waiting"]
    assert waited == [f"{first} is leaving; another goes on."]
    engine = Path(team.settings.engine_database.removeprefix("sqlite:///"))
    check_no_pickles(engine)
    with contextlib.closing(sqlite3.connect(engine, timeout=60.0)) as file:
        queues = dict(file.execute("SELECT name, polling_interval_sec FROM queues").fetchall())
    assert queues[f"worker-{second}"] >= 1.0, "it is read often although it is nearly always empty"
    assert f"worker-{first}" not in queues, "nothing is left of it"


class Engine:
    """What DBOS says of its queues."""

    def __init__(self) -> None:
        self.queues = ["worker-me", "worker-dead", "another"]

    def list_workflows(self, **_: Any) -> list[Any]:
        return []

    def list_queues(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.queues]

    def delete_queue(self, name: str) -> None:
        self.queues.remove(name)


def test_queues_of_workers_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    for module in (heartbeat, durable):
        monkeypatch.setattr(module, "DBOS", engine)
    settings = Settings(tmp_path, takeover_s=6.0, nice=0)
    settings.create()
    with Store(settings.database) as store:
        worker = Worker(settings, store, "me")
        worker.heartbeat.send_heartbeat()
        worker.heartbeat.finish_orphaned_workflows()
        engine.queues.append("worker-new")  # it has a queue, and no heartbeat yet
        worker.heartbeat._swept_s = -math.inf
        worker.heartbeat.finish_orphaned_workflows()
        assert engine.queues == ["worker-me", "another", "worker-new"]


def check_no_pickles(path: Path) -> None:
    """What the engine remembers of all runs until now is JSON; pickles begin so, in base64."""
    with contextlib.closing(sqlite3.connect(path, timeout=60.0)) as file:
        text = "\n".join(file.iterdump())
    assert '"outcome":' in text
    assert not any(sign in text for sign in ("gASV", "gAWV", "gARL", "gAJ"))


def test_cancel_stops_the_command_at_once(team: Team, tmp_path: Path) -> None:
    slow = {**gated(tmp_path), "command": f"echo $$ > {tmp_path}/pid; exec sleep 600"}
    run_id = submit(team, slow)
    team.until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    pid = int((tmp_path / "pid").read_text())
    team.store.write(runs.cancel, run_id)
    assert end_of(team, run_id).status == "cancelled"
    assert _ended(pid)


def test_what_is_cancelled_while_its_worker_is_dead_is_not_begun_again(team: Team, tmp_path: Path) -> None:
    run_id, first = under_way(team, tmp_path)
    team.kill(first)
    team.store.write(runs.cancel, run_id)
    team.long_silent(first)
    run = end_of(team, run_id)
    assert (run.status, run.attempts) == ("cancelled", 1)
    team.until(lambda: _workflow(team, run_id) == "SUCCESS")  # the other worker took it up, to its end
    assert begun(tmp_path) == 3


def _workflow(team: Team, run_id: str) -> str:
    path = team.settings.engine_database.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path, timeout=60.0)) as file:
        question = "SELECT status FROM workflow_status WHERE workflow_uuid = ?"
        return str(file.execute(question, (run_id,)).fetchone()[0])


def test_poison_is_given_up_and_harms_no_other_run(team: Team, tmp_path: Path) -> None:
    run_id = submit(team, {**gated(tmp_path), "command": "kill -9 $PPID; sleep 5"})
    run = end_of(team, run_id)
    assert (run.status, run.attempts) == ("failed", 2)
    assert "2 times" in run.error
    assert all(process.poll() is None for process in team.processes.values())
    assert end_of(team, submit(team, gated(tmp_path, 1))).status == "succeeded"


HOG = "import time; kept = bytearray(b'x') * (300 << 20); time.sleep(600)"


def test_a_run_that_needs_too_much_memory_is_ended_and_says_so(team: Team, tmp_path: Path) -> None:
    """Each of its processes is within the limit; together they are not."""
    hogs = f'echo $$ > {tmp_path}/pid; {sys.executable} -c "{HOG}" & {sys.executable} -c "{HOG}"'
    run_id = submit(team, {**gated(tmp_path), "command": hogs})
    run = end_of(team, run_id)
    assert (run.status, run.attempts) == ("failed", 1)  # it would only need as much again
    assert "more than the 600 MB of memory that a run may use here" in run.error
    assert "memory_mb" in run.error
    team.until(lambda: _ended(int((tmp_path / "pid").read_text())))
    assert end_of(team, submit(team, gated(tmp_path, 1))).status == "succeeded"


def test_workers_begin_without_what_work_may_need(team: Team) -> None:
    """Compilers and libraries of learning take seconds to load: not before somebody asks for them."""
    heavy = ("llvmlite", "scipy", "sklearn", "onnx", "torch", "xgboost")
    for process in team.processes.values():
        loaded = Path(f"/proc/{process.pid}/maps").read_text()
        assert not [name for name in heavy if f"/{name}/" in loaded]


def test_a_bad_request_fails_at_once_and_says_why(team: Team) -> None:
    bad = {"table": {"csv": "vm,time_s\na,1\n"}, "parameters": ["vm"], "goal": "minimise cost_usd"}
    run = end_of(team, submit(team, bad))
    assert (run.status, run.attempts) == ("failed", 1)
    assert "price_usd_per_h" in run.error
