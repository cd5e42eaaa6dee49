"""The dead-man's switch is plain shell: run as a machine would run it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from prudent.cloud.leases import dead_mans_switch
from prudent.cloud.processes import ProcessIdentity

from ..providers.conformance import eventually

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder as a machine has it; its name, in the environment, is what its processes carry."""
    folder = tmp_path / f"m-{uuid.uuid4().hex[:8]}"
    (folder / "workspace").mkdir(parents=True)
    (folder / "switch.sh").write_text(dead_mans_switch.script())
    return folder


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    several: list[subprocess.Popen[bytes]] = []
    yield several
    for one in several:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


class Clock:
    """A `date` and a `sleep` of our own for the switch: the test tells the time, and nobody waits for it."""

    def __init__(self, folder: Path) -> None:
        self._now, self.looks = folder / "now", folder / "looks"
        self.tools = folder / "bin"
        self.tools.mkdir(parents=True)
        self.looks.touch()
        self.tool("date", f"echo >> {self.looks}; cat {self._now}")
        self.tool("sleep", f"exec {shutil.which('sleep')} 0.02")
        self.set(1000)

    def tool(self, name: str, script: str) -> None:
        (self.tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.tools / name).chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}"}

    def set(self, now_s: int) -> None:
        fresh = self._now.with_suffix(".new")
        fresh.write_text(f"{now_s}\n")
        fresh.replace(self._now)

    def looked_at(self, times: int = 3) -> None:
        """Wait until the switch has looked at it: by then it would have acted."""
        until = self.looks.stat().st_size + times
        assert eventually(lambda: self.looks.stat().st_size >= until), "nobody looks at the clock"


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


def lease(machine: Path, left_s: float, clock: Clock) -> None:
    command = dead_mans_switch.renew_command(str(machine), left_s)
    subprocess.run(["/bin/sh", "-c", command], check=True, env=clock.environment)


def word(machine: Path) -> str:
    return f"{dead_mans_switch.MACHINE}={machine.name}"


def begin(
    started: list[subprocess.Popen[bytes]], marked: str, command: str = "sleep 300"
) -> subprocess.Popen[bytes]:
    name, _, value = marked.partition("=")
    environment = {**os.environ, name: value}
    one = subprocess.Popen(
        ["/bin/sh", "-c", command], env=environment, start_new_session=True, stdout=subprocess.PIPE
    )
    started.append(one)
    return one


def is_ready(one: subprocess.Popen[bytes]) -> None:
    """It has said so: before, it may not have set its traps."""
    assert one.stdout is not None
    assert one.stdout.readline() == b"ready\n"


def end(machine: Path, *also: str, shell: str = "sh", grace_s: str = "1") -> None:
    words = [
        shell,
        "-c",
        dead_mans_switch.script(),
        "switch.sh",
        "end",
        str(machine),
        word(machine),
        dead_mans_switch.CLEAN,
    ]
    if shell == "busybox":
        words.insert(1, "sh")
    environment = {**os.environ, "PRUDENT_SWITCH_GRACE_S": grace_s}
    subprocess.run([*words, *also], check=True, env=environment, timeout=120)


@pytest.mark.parametrize("shell", SHELLS)
def test_it_ends_everything_that_carries_the_word_and_nothing_else(
    machine: Path, started: list[subprocess.Popen[bytes]], shell: str
) -> None:
    plain = begin(started, word(machine))
    stubborn = begin(started, word(machine), "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    stopped = begin(started, word(machine))
    os.kill(stopped.pid, signal.SIGSTOP)
    nested = begin(started, f"{word(machine)}:another")
    stranger = begin(started, f"{word(machine)}0")
    prefixed = begin(started, f"{dead_mans_switch.MACHINE}=x{machine.name}")
    other = begin(started, f"PRUDENT_OTHER={machine.name}")
    is_ready(stubborn)
    end(machine, shell=shell)
    assert [one.poll() is not None for one in (plain, stubborn, stopped, nested)] == [True] * 4
    assert [one.poll() for one in (stranger, prefixed, other)] == [None] * 3
    assert not machine.exists()


def test_locks_go_last_and_with_everything_in_them(machine: Path, tmp_path: Path) -> None:
    lock, beside = tmp_path / "lock dir", tmp_path / "beside"
    for folder in (lock, beside, machine / "workspace" / "a" / "b"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    (machine / "workspace" / "a" / "b").chmod(0o500)
    end(machine, str(lock))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside"]


def test_programs_get_time_to_clean_up(
    machine: Path, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    note = tmp_path / "note"
    saving = begin(
        started,
        word(machine),
        f"trap 'sleep 0.3; echo saved > {note}; exit' TERM; echo ready; while :; do sleep 0.05; done",
    )
    is_ready(saving)
    end(machine, grace_s="60")
    assert note.read_text() == "saved\n"


def test_it_is_over_when_nobody_renews_and_not_before(
    machine: Path, started: list[subprocess.Popen[bytes]], clock: Clock
) -> None:
    lease(machine, 2, clock)
    one = begin(started, word(machine))
    _watch(machine, clock)
    clock.set(1001)
    clock.looked_at()
    assert one.poll() is None
    clock.set(1002)
    assert one.wait(timeout=60) is not None
    assert eventually(lambda: not machine.exists())


def test_it_goes_on_while_somebody_does(
    machine: Path, started: list[subprocess.Popen[bytes]], clock: Clock
) -> None:
    lease(machine, 3, clock)
    one = begin(started, word(machine))
    _watch(machine, clock)
    for now_s in (1002, 1004):
        clock.set(now_s)
        lease(machine, 3, clock)
    clock.set(1006)
    clock.looked_at()
    assert one.poll() is None
    lease(machine, 0, clock)
    assert one.wait(timeout=60) is not None


def test_a_lease_renewed_while_it_looks_at_the_clock_counts(
    machine: Path, started: list[subprocess.Popen[bytes]], clock: Clock
) -> None:
    lease(machine, 3, clock)
    one = begin(started, word(machine))
    renewed = machine / "lease_end"
    clock.tool("date", f"echo >> {clock.looks}; [ -e {renewed} ] && echo 1010 > {renewed}; echo 1005")
    watching = _watch(machine, clock)
    clock.looked_at()
    assert one.poll() is None
    shutil.rmtree(machine)
    assert eventually(lambda: not watching.alive)


def test_a_lease_that_is_over_already_is_over_now(machine: Path, clock: Clock) -> None:
    lease(machine, -5, clock)
    assert (machine / "lease_end").read_text() == "1000\n"
    lease(machine, 1.2, clock)
    assert (machine / "lease_end").read_text() == "1002\n", "whole seconds, and none too few"


@pytest.mark.parametrize("damage", ["", "soon\n", "12x\n"])
def test_a_damaged_lease_makes_nothing_immortal(
    machine: Path, started: list[subprocess.Popen[bytes]], damage: str, clock: Clock
) -> None:
    lease(machine, 2, clock)
    one = begin(started, word(machine))
    _watch(machine, clock)
    clock.looked_at()
    (machine / "lease_end").write_text(damage)
    clock.set(1001)
    clock.looked_at()
    assert one.poll() is None
    clock.set(1002)
    assert one.wait(timeout=60) is not None


def test_a_machine_that_was_given_back_needs_no_switch(
    machine: Path, started: list[subprocess.Popen[bytes]], clock: Clock
) -> None:
    lease(machine, 60, clock)
    keeper = _watch(machine, clock)
    stays = begin(started, word(machine))
    clock.looked_at()
    shutil.rmtree(machine)
    assert eventually(lambda: not keeper.alive)
    assert stays.poll() is None


def test_on_a_rented_machine_it_powers_off(machine: Path, tmp_path: Path, clock: Clock) -> None:
    """With a `shutdown` of our own in the way: the real one would end this computer."""
    note = tmp_path / "note"
    clock.tool("shutdown", f'echo "$@" > {note}.new; mv {note}.new {note}')
    lease(machine, 1, clock)
    _watch(machine, clock, dead_mans_switch.POWER_OFF)
    clock.looked_at()
    assert not note.exists()
    clock.set(1001)
    assert eventually(note.exists)
    assert note.read_text() == "-h now\n"
    assert machine.exists()


def test_a_switch_is_not_ended_by_itself_and_carries_its_word(machine: Path, clock: Clock) -> None:
    """Its word is how others find it; a session of its own is how it tells itself from what it ends."""
    lease(machine, 60, clock)
    keeper = _watch(machine, clock)
    environ = Path(f"/proc/{keeper.pid}/environ").read_bytes().split(b"\0")
    assert word(machine).encode() in environ
    assert eventually(lambda: os.getsid(keeper.pid) == keeper.pid)
    clock.set(2000)
    assert eventually(lambda: not machine.exists())
    assert eventually(lambda: not keeper.alive)


def test_what_goes_last_is_told_to_both(machine: Path, tmp_path: Path, clock: Clock) -> None:
    lock = tmp_path / "lock dir"
    lock.mkdir()
    lease(machine, 0, clock)
    command = dead_mans_switch.watch_command(
        "switch.sh", "folder", "A=b c", dead_mans_switch.CLEAN, "lock dir"
    )
    assert "A='b c' setsid sh switch.sh watch folder 'A=b c' clean 'lock dir' </dev/null" in command
    _watch(machine, clock, dead_mans_switch.CLEAN, str(lock))
    assert eventually(lambda: not lock.exists())


def _watch(machine: Path, clock: Clock, ending: str = dead_mans_switch.CLEAN, *also: str) -> ProcessIdentity:
    command = dead_mans_switch.watch_command(
        str(machine / "switch.sh"), str(machine), word(machine), ending, *also
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command}; echo $!"], check=True, capture_output=True, env=clock.environment
    )
    pid = int(done.stdout)
    return ProcessIdentity.of(pid) or ProcessIdentity(pid, "")
