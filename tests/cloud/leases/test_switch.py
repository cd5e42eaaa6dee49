"""The dead-man's switch is plain shell: run as a machine would run it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from prudent.cloud.leases import switch
from prudent.cloud.procfs import Identity

from ..providers.conformance import eventually

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder as a machine has it; its name, in the environment, is what its processes carry."""
    folder = tmp_path / f"m-{uuid.uuid4().hex[:8]}"
    (folder / "workspace").mkdir(parents=True)
    (folder / "switch.sh").write_text(switch.script())
    return folder


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    several: list[subprocess.Popen[bytes]] = []
    yield several
    for one in several:
        if one.poll() is None:
            one.kill()
        one.wait()


def lease(machine: Path, left_s: float) -> None:
    subprocess.run(["/bin/sh", "-c", switch.renew_command(str(machine), left_s)], check=True)


def word(machine: Path) -> str:
    return f"{switch.MACHINE}={machine.name}"


def begin(
    started: list[subprocess.Popen[bytes]], marked: str, command: str = "sleep 300"
) -> subprocess.Popen[bytes]:
    name, _, value = marked.partition("=")
    environment = {**os.environ, name: value}
    one = subprocess.Popen(["/bin/sh", "-c", command], env=environment, start_new_session=True)
    started.append(one)
    return one


def end(machine: Path, *also: str, shell: str = "sh", grace_s: str = "1") -> None:
    words = [shell, "-c", switch.script(), "switch.sh", "end", str(machine), word(machine), switch.CLEAN]
    if shell == "busybox":
        words.insert(1, "sh")
    environment = {**os.environ, "PRUDENT_SWITCH_GRACE_S": grace_s}
    subprocess.run([*words, *also], check=True, env=environment, timeout=30)


@pytest.mark.parametrize("shell", SHELLS)
def test_it_ends_everything_that_carries_the_word_and_nothing_else(
    machine: Path, started: list[subprocess.Popen[bytes]], shell: str
) -> None:
    plain = begin(started, word(machine))
    stubborn = begin(started, word(machine), "trap '' TERM; while :; do sleep 0.1; done")
    stopped = begin(started, word(machine))
    os.kill(stopped.pid, signal.SIGSTOP)
    nested = begin(started, f"{word(machine)}:another")
    stranger = begin(started, f"{word(machine)}0")
    prefixed = begin(started, f"{switch.MACHINE}=x{machine.name}")
    other = begin(started, f"PRUDENT_OTHER={machine.name}")
    time.sleep(0.2)
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
    begin(
        started,
        word(machine),
        f"trap 'sleep 0.3; echo saved > {note}; exit' TERM; while :; do sleep 0.05; done",
    )
    time.sleep(0.3)
    end(machine, grace_s="5")
    assert note.read_text() == "saved\n"


def test_it_is_over_when_nobody_renews(machine: Path, started: list[subprocess.Popen[bytes]]) -> None:
    lease(machine, 2)
    begun_s = time.time()
    one = begin(started, word(machine))
    _watch(machine)
    assert one.wait(timeout=20) is not None
    assert 1 <= time.time() - begun_s < 10
    assert eventually(lambda: not machine.exists())


def test_it_goes_on_while_somebody_does(machine: Path, started: list[subprocess.Popen[bytes]]) -> None:
    lease(machine, 3)
    one = begin(started, word(machine))
    _watch(machine)
    for _ in range(5):
        time.sleep(0.9)
        lease(machine, 3)
    assert one.poll() is None
    lease(machine, 0)
    assert one.wait(timeout=20) is not None


@pytest.mark.parametrize("damage", ["", "soon\n", "12x\n"])
def test_a_damaged_lease_makes_nothing_immortal(
    machine: Path, started: list[subprocess.Popen[bytes]], damage: str
) -> None:
    lease(machine, 2)
    one = begin(started, word(machine))
    _watch(machine)
    time.sleep(0.5)
    (machine / "lease_end").write_text(damage)
    assert one.wait(timeout=20) is not None


def test_a_machine_that_was_given_back_needs_no_switch(
    machine: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    lease(machine, 60)
    keeper = _watch(machine)
    stays = begin(started, word(machine))
    shutil.rmtree(machine)
    assert eventually(lambda: not keeper.alive, 60)
    assert stays.poll() is None


def test_on_a_rented_machine_it_powers_off(machine: Path, tmp_path: Path) -> None:
    """With a `shutdown` of our own in the way: the real one would end this computer."""
    tools, note = tmp_path / "bin", tmp_path / "note"
    tools.mkdir()
    (tools / "shutdown").write_text(f'#!/bin/sh\necho "$@" > {note}\n')
    (tools / "shutdown").chmod(0o755)
    lease(machine, 1)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    command = switch.watch_command(str(machine / "switch.sh"), str(machine), word(machine), switch.POWER_OFF)
    subprocess.run(["/bin/sh", "-c", command], check=True, env=environment)
    assert eventually(note.exists)
    assert note.read_text() == "-h now\n"
    assert machine.exists()


def _watch(machine: Path) -> Identity:
    command = switch.watch_command(str(machine / "switch.sh"), str(machine), word(machine))
    done = subprocess.run(["/bin/sh", "-c", f"{command}; echo $!"], check=True, capture_output=True)
    keeper = Identity.of(int(done.stdout))
    assert keeper is not None
    return keeper
