"""Ending what runs: children, grand-children, daemons, the deaf and the left over; never a stranger."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prudent.cloud.process_guard import process_guard
from prudent.cloud.processes import ProcessIdentity, ProcessInfo, processes_of_run
from prudent.core.space import Space
from prudent.tuning.jobs import pid_files as leftovers
from prudent.tuning.jobs.command import CommandJob, CommandRun
from prudent.tuning.jobs.pid_files import PidFile
from prudent.tuning.study.limits import OUT_OF_MONEY
from prudent.tuning.trial import CUT, FAILED, FINISHED, Outcome, Progress

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")

Follow = Callable[..., tuple[list[Progress], Outcome]]

SPACE = Space.parse({"depth": [1, 2]})

REGROUP = (
    "import os; os.setpgid(0, 0); os.system(f'echo other-group {{os.getpid()}} >> pids'); "
    "os.execvp('sleep', ['sleep', '1000'])"
)
FAMILY = f"""
# A child that does not hear SIGTERM, a grand-child, one in another group, and one that is a daemon.
sh -c "trap '' TERM; echo deaf \\$\\$ >> pids; while :; do sleep 0.05; done" &
sh -c 'sh -c "echo grandchild \\$\\$ >> pids; exec sleep 1000" & wait' &
{sys.executable} -S -c "{REGROUP}" &
setsid sh -c 'echo daemon $$ >> pids; exec sleep 1000' &
echo leader $$ >> pids
echo PRUDENT '{{{{"ready": 1}}}}'
wait
"""


def job(command: str, folder: Path, **more: Any) -> CommandJob:
    return CommandJob(command, SPACE, ["ready"], directory=folder, logs=folder / "logs", **more)


def start(command: str, folder: Path, **more: Any) -> CommandRun:
    return job(command, folder, **more).start({"depth": 1}, 3)


def wait_for(what: Callable[[], Any], limit_s: float = 60.0) -> Any:
    give_up_s = time.monotonic() + limit_s
    while not (answer := what()):
        assert time.monotonic() < give_up_s, "waited too long"
        time.sleep(0.01)
    return answer


def pids(folder: Path, count: int) -> dict[str, int]:
    """The processes that wrote their numbers down, once there are that many."""

    def read() -> dict[str, int] | None:
        path = folder / "pids"
        found = dict(line.split() for line in path.read_text().splitlines()) if path.exists() else {}
        return {name: int(pid) for name, pid in found.items()} if len(found) == count else None

    answer: dict[str, int] = wait_for(read)
    return answer


@pytest.fixture(autouse=True)
def _nothing_left_running(tmp_path: Path) -> Iterator[None]:
    """Whatever a test that fails could leave behind."""
    yield
    noted = (tmp_path / "pids").read_text().split()[1::2] if (tmp_path / "pids").exists() else []
    for pid in noted:
        process = ProcessInfo.read(int(pid))
        if process is not None and process.carries("PRUDENT_RUN="):
            os.kill(process.pid, signal.SIGKILL)


def alive(numbers: dict[str, int]) -> list[str]:
    return [name for name, pid in numbers.items() if ProcessInfo.read(pid) is not None]


def gone(numbers: dict[str, int]) -> bool:
    """Whether all have ended; one that was killed may take a moment to go on a busy machine."""
    return bool(wait_for(lambda: not alive(numbers)))


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody may touch."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        assert process.poll() is None, "a stranger was killed"
        process.kill()


def test_a_cut_ends_the_whole_family(tmp_path: Path, stranger: Any) -> None:
    run = start(FAMILY, tmp_path, grace_s=0.3)
    family = pids(tmp_path, 5)
    assert isinstance(run.next(60), Progress)
    assert len(alive(family)) == 5
    began_s = time.monotonic()
    outcome = run.cut(1.0, "too dear")
    assert (outcome.status, outcome.measures, outcome.why) == (CUT, {"ready": 1}, "too dear")
    assert gone(family)
    assert time.monotonic() - began_s >= 0.3
    assert not list((tmp_path / "logs").glob("*.pid"))


def test_the_grace_time_ends_when_nothing_runs_any_more(tmp_path: Path) -> None:
    run = start("echo leader $$ >> pids; sleep 1000", tmp_path, grace_s=150.0)
    family = pids(tmp_path, 1)
    began_s = time.monotonic()
    run.cut(1.0, "")
    assert time.monotonic() - began_s < 120
    assert gone(family)


def test_children_have_the_grace_time_to_end_well(tmp_path: Path) -> None:
    child = (
        "trap 'sleep 0.2; echo saved > saved; exit' TERM; echo child $$ >> pids; while :; do sleep 0.02; done"
    )
    run = start(f'sh -c "{child}" & wait'.replace("$$", "\\$\\$"), tmp_path, grace_s=120.0)
    family = pids(tmp_path, 1)
    run.cut(1.0, "")
    assert (tmp_path / "saved").read_text() == "saved\n"
    assert gone(family)


def test_sigterm_comes_once(tmp_path: Path) -> None:
    code = (
        "import os, signal, time\n"
        "def note(*_): open('heard', 'a').write('x')\n"
        "signal.signal(signal.SIGTERM, note)\n"
        "open('up', 'w').close()\n"
        "while not os.path.exists('heard'): time.sleep(0.01)\n"
        "end = time.monotonic() + 0.3\n"
        "while time.monotonic() < end: time.sleep(0.01)\n"
    )
    (tmp_path / "work.py").write_text(code)
    run = start(f"{sys.executable} -S work.py", tmp_path, grace_s=120.0)
    wait_for((tmp_path / "up").exists)
    run.cut(1.0, "")
    assert (tmp_path / "heard").read_text() == "x"


def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    run = start("echo leader $$ >> pids; kill -STOP $$; sleep 1000", tmp_path, grace_s=150.0)
    family = pids(tmp_path, 1)
    began_s = time.monotonic()
    run.cut(1.0, "")
    assert gone(family)
    assert time.monotonic() - began_s < 120


def test_what_a_finished_command_leaves_behind_is_ended(
    tmp_path: Path, follow: Follow, stranger: Any
) -> None:
    # The child holds the pipes open, which must not keep the run from ending either.
    command = "sh -c 'trap \"\" TERM; echo child $$ >> pids; while :; do sleep 0.1; done' & " + (
        "while [ ! -e pids ]; do sleep 0.01; done; echo PRUDENT '{{\"ready\": 1}}'"
    )
    _, outcome = follow(start(command, tmp_path))
    assert outcome.status == FINISHED
    assert gone(pids(tmp_path, 1))


def test_a_run_that_escaped_completely_does_not_hold_the_study(tmp_path: Path, follow: Follow) -> None:
    escape = "env -i setsid sh -c 'echo lost $$ >> pids; exec sleep 1000' &"
    command = f"echo PRUDENT '{{{{\"ready\": 1}}}}'; {escape} while [ ! -e pids ]; do sleep 0.01; done"
    run = start(command, tmp_path)
    lost = pids(tmp_path, 1)
    try:
        _, outcome = follow(run)
        assert outcome.status == FINISHED
        assert alive(lost) == ["lost"]
    finally:
        os.kill(lost["lost"], signal.SIGKILL)


def test_an_interrupt_while_cutting_kills_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    run = start("trap '' TERM; echo leader $$ >> pids; while :; do sleep 0.05; done", tmp_path, grace_s=60.0)
    family = pids(tmp_path, 1)
    sleep, here = time.sleep, threading.current_thread()

    def interrupted(seconds: float) -> None:
        if threading.current_thread() is not here:  # of other tests in this process, such as Spark's
            return sleep(seconds)
        monkeypatch.setattr(time, "sleep", sleep)
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.cut(1.0, "")
    wait_for(lambda: alive(family) == [])


LEFT = """
import os, sys, time
from pathlib import Path
from prudent.cloud.process_guard import process_guard
from prudent.core.space import Space
from prudent.tuning.jobs.command import CommandJob
job = CommandJob(sys.argv[1], Space.parse({"depth": [1, 2]}), ["ready"], logs="logs")
run = job.start({"depth": 1}, 3)
if sys.argv[2] == "raise":
    print("begun", flush=True)
run.next(200)
if sys.argv[2] == "wait":
    print("up", flush=True)
    time.sleep(100)
elif sys.argv[2] == "raise":
    raise SystemExit(1)
while Path("pids").read_text().count("\\n") < int(sys.argv[3]):
    time.sleep(0.01)
process = process_guard()._popen
if sys.argv[2] == "all die":
    process.kill()
    process.wait()
elif sys.argv[2] == "guard is slow":
    process.send_signal(19)
    print(process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def study(command: str, folder: Path, how: str, count: int = 5) -> subprocess.Popen[str]:
    asked = [sys.executable, "-c", LEFT, command, how, str(count)]
    return subprocess.Popen(asked, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_a_resumed_study_ends_what_was_left_by_one_killed_with_its_guard(
    tmp_path: Path, stranger: Any
) -> None:
    with study(FAMILY, tmp_path, "all die") as killed:
        assert killed.wait(120) == -signal.SIGKILL
    family = pids(tmp_path, 5)
    assert len(alive(family)) == 5
    noted = json.loads((tmp_path / "logs" / "trial-0003.pid").read_text())
    assert noted["pid"] == family["leader"]
    assert ProcessIdentity(noted["pid"], noted["started"]).alive
    assert job("true", tmp_path, grace_s=0.2).reap() == (3,)
    assert gone(family)
    assert not list((tmp_path / "logs").glob("*.pid"))
    assert job("true", tmp_path).reap() == ()


def test_a_killed_study_takes_its_whole_family_along(tmp_path: Path, stranger: Any) -> None:
    """Also those that are in another group, or a daemon."""
    with study(FAMILY, tmp_path, "die") as killed:
        assert killed.wait(120) == -signal.SIGKILL
    assert gone(pids(tmp_path, 5))
    wait_for((tmp_path / "logs" / "trial-0003.ended").exists)
    assert job("true", tmp_path).reap() == (3,)
    assert not list((tmp_path / "logs").glob("*.pid"))


def test_what_died_with_its_study_is_known_to_have_lasted_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticking = "while :; do date +%s.%N > clock.new; mv clock.new clock; sleep 0.01; done"
    # The study dies when it hears that the command is ready: the clock must have ticked before that.
    begun = "echo leader $$ >> pids; date +%s.%N > began; cp began clock"
    command = f"{begun}; echo PRUDENT '{{{{\"ready\": 1}}}}'; {ticking}"
    with study(command, tmp_path, "die", count=1) as killed:
        assert killed.wait(120) == -signal.SIGKILL
    assert gone(pids(tmp_path, 1))
    wait_for((tmp_path / "logs" / "trial-0003.ended").exists)
    lived_s = float((tmp_path / "clock").read_text()) - float((tmp_path / "began").read_text())
    later_s = time.time() + 1e6
    clock = SimpleNamespace(time=lambda: later_s, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(leftovers, "time", clock)
    again = job("true", tmp_path)
    again.reap()
    assert lived_s <= again.outlived_s[3] < 1e5
    assert not list((tmp_path / "logs").glob("*.ended"))


def test_a_guard_that_is_slow_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy computer it may take a while to write down when it ended what was left."""
    with study(
        "echo leader $$ >> pids; echo PRUDENT '{{\"ready\": 1}}'; sleep 1000", tmp_path, "guard is slow", 1
    ) as killed:
        assert killed.stdout is not None
        slow = int(killed.stdout.readline())
        assert killed.wait(120) == -signal.SIGKILL
    os.killpg(pids(tmp_path, 1)["leader"], signal.SIGKILL)
    note = PidFile.read(PidFile.path(tmp_path / "logs", 3))
    assert note is not None
    wait_for(lambda: not note.members())  # or there would be something left to end, and nobody to wait for
    looks = 0

    def look(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 40:
            os.kill(slow, signal.SIGCONT)
        time.sleep(seconds)

    clock = SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=look)
    monkeypatch.setattr(leftovers, "time", clock)
    try:
        assert job("true", tmp_path).reap() == (3,)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(slow, signal.SIGCONT)
    assert looks >= 40


def test_a_run_is_killed_when_its_time_is_over_whoever_looks(tmp_path: Path, stranger: Any) -> None:
    run = start(FAMILY, tmp_path)
    family = pids(tmp_path, 5)
    stop_s = run.elapsed_s() + 0.2
    run.stop_by(stop_s)
    assert gone(family), "nobody has asked the run for anything"
    outcomes = []
    while not isinstance(event := run.next(600.0), Outcome):
        outcomes.append(event)
    assert (event.status, event.why, event.measures) == (CUT, OUT_OF_MONEY, {"ready": 1.0})
    assert event.time_s >= stop_s


def test_a_later_moment_counts_instead(tmp_path: Path, follow: Follow) -> None:
    run = start("while [ ! -e go ]; do sleep 0.02; done; echo PRUDENT '{{\"ready\": 1}}'", tmp_path)
    soon_s = run.elapsed_s() + 0.3
    run.stop_by(soon_s)
    run.stop_by(soon_s + 1000.0)
    wait_for(lambda: run.elapsed_s() > soon_s + 0.3)
    (tmp_path / "go").touch()
    assert follow(run)[1].status == FINISHED


def test_a_command_that_is_killed_by_others_before_that_has_failed(tmp_path: Path, follow: Follow) -> None:
    run = start("kill -9 $$", tmp_path)
    run.stop_by(1000.0)
    assert follow(run)[1].status == FAILED


def test_a_guard_that_takes_over_keeps_the_moments(tmp_path: Path) -> None:
    run = start(FAMILY, tmp_path)
    family = pids(tmp_path, 5)
    run.stop_by(run.elapsed_s() + 1.0)
    killed = process_guard()
    killed._popen.kill()
    killed._popen.wait()
    assert process_guard() is not killed
    assert gone(family)


def test_the_runs_of_a_living_study_are_left_alone(tmp_path: Path) -> None:
    with study(FAMILY, tmp_path, "wait") as living:
        assert living.stdout is not None
        assert living.stdout.readline() == "up\n"
        assert job("true", tmp_path).reap() == ()
        assert len(alive(pids(tmp_path, 5))) == 5
        living.kill()
    wait_for((tmp_path / "logs" / "trial-0003.ended").exists)
    assert job("true", tmp_path, grace_s=0.2).reap() == (3,)


def test_its_own_runs_are_not_left_over(tmp_path: Path) -> None:
    running = job("echo leader $$ >> pids; sleep 1000", tmp_path)
    run = running.start({"depth": 1}, 3)
    family = pids(tmp_path, 1)
    assert running.reap() == ()
    assert alive(family) == ["leader"]
    run.cut(1.0, "")


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_a_program_that_ends_takes_its_runs_along(tmp_path: Path) -> None:
    with study("echo leader $$ >> pids; sleep 1000", tmp_path, "raise") as ended:
        # It waits for a report that never comes; so it is told to end instead.
        assert ended.stdout is not None
        assert ended.stdout.readline() == "begun\n"
        family = pids(tmp_path, 1)
        ended.send_signal(signal.SIGINT)
        assert ended.wait(120) != 0
    wait_for(lambda: alive(family) == [])


@pytest.mark.parametrize("started", ["", "other boot:1"])
def test_a_number_that_was_given_away_is_nobody_we_know(
    started: str, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    PidFile(7, "0" * 32, None, ProcessIdentity(stranger.pid, started)).write(tmp_path)
    torn = PidFile.path(tmp_path, 8)
    torn.write_text('{"trial": 8, "cook')
    assert CommandJob("true", SPACE, logs=tmp_path).reap() == ()
    assert not list(tmp_path.glob("*.pid"))


def test_a_note_without_a_cookie_finds_nobody(tmp_path: Path, stranger: Any) -> None:
    note = {"trial": 1, "cookie": "", "owner": None}
    (tmp_path / "trial-0001.pid").write_text(json.dumps(note))
    assert CommandJob("true", SPACE, logs=tmp_path).reap() == ()


def test_reaping_without_logs_is_no_work(tmp_path: Path) -> None:
    assert CommandJob("true", SPACE).reap() == ()
    assert CommandJob("true", SPACE, logs=tmp_path / "none").reap() == ()


def test_a_run_inside_a_run_carries_both_cookies(tmp_path: Path, follow: Follow, monkeypatch: Any) -> None:
    monkeypatch.setenv("PRUDENT_RUN", "outer")
    follow(start("echo $PRUDENT_RUN; echo PRUDENT '{{\"ready\": 1}}'", tmp_path))
    first = (tmp_path / "logs" / "trial-0003.out").read_text().splitlines()[0]
    assert first.startswith("outer:")
    assert len(first) > len("outer:") + 16


def test_a_process_is_known_by_its_number_and_start() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    assert me.alive
    assert not ProcessIdentity(me.pid, me.started + "0").alive
    assert ProcessIdentity.of(2**22 + 1) is None


def test_a_zombie_is_gone() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert ProcessInfo.read(process.pid) is None
    process.wait()


def test_nobody_belongs_to_an_unknown_cookie() -> None:
    assert processes_of_run("f" * 32) == []
