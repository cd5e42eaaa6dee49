"""Memory that processes hold, and limits that the kernel keeps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from prudent.core import memory
from prudent.core.memory import exact_used_mb, limit_mb, limit_memory, process_tree, total_mb, used_mb


def test_a_limit_holds_here_and_below() -> None:
    code = """
import subprocess, sys
from prudent.core.memory import limit_mb, limit_memory
limit_memory(200)
assert limit_mb() == 200
kept = bytearray(100 << 20)
try:
    bytearray(300 << 20)
except MemoryError:
    print("here")
sys.stdout.flush()
subprocess.run([sys.executable, "-c", "bytearray(300 << 20)"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "here\n"
    assert "MemoryError" in done.stderr


def test_no_limit_is_none() -> None:
    before_mb = limit_mb()
    limit_memory(float("inf"))
    assert limit_mb() == before_mb
    assert total_mb() > 100


def test_all_that_a_process_started_is_counted() -> None:
    """A grandchild that holds 100 MB, and shares them with one that it forked."""
    inner = (
        "import os, sys, time; kept = bytearray(b'x') * (100 << 20); os.fork(); "
        "sys.stdout.write('x'); sys.stdout.flush(); time.sleep(600)"
    )
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.read(2) == b"xx"
            assert len(list(process_tree(process.pid))) == 3
            assert used_mb(process.pid) > 200
            assert 100 < exact_used_mb(process.pid) < 200
        finally:
            for pid in [*process_tree(process.pid)][::-1]:
                os.kill(pid, 9)
    until_s = time.monotonic() + 60
    while used_mb(process.pid):
        assert time.monotonic() < until_s


def test_a_process_that_is_gone_holds_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert used_mb(process.pid) == 0 == pytest.approx(exact_used_mb(process.pid))


def test_files_in_memory_that_only_others_see_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Device 1 is ours, 2 is seen by both processes below, 3 cannot be looked at."""
    seen = {"self": [("1", "/shm")], "7": [("1", "/shm"), ("2", "/a")], "8": [("2", "/b"), ("3", "/c")]}
    monkeypatch.setattr(memory, "process_tree", lambda pid: iter([pid, pid + 1]))
    monkeypatch.setattr(memory, "_in_memory", lambda pid: seen[pid])

    def looked_at(path: str) -> object:
        if Path(path).parts[1:] != ("proc", "7", "root", "a"):
            raise PermissionError(path)
        return SimpleNamespace(f_blocks=600, f_bfree=88, f_frsize=4096)

    monkeypatch.setattr(memory.os, "statvfs", looked_at)
    assert memory.tmpfs_mb(7) == 2.0


def test_file_systems_in_memory_are_told_by_device_and_place() -> None:
    """Beside what the system's own list of mounts says of this process."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    expected = sorted(place for _, place, kind, *_ in mounts if kind == "tmpfs")
    found = list(memory._in_memory("self"))
    assert sorted(place for _, place in found) == expected
    # A place that is mounted over by another one tells the device of the upper one only.
    assert {device for device, _ in found} >= {_device(place) for place in expected}


def _device(place: str) -> str:
    number = os.stat(place).st_dev
    return f"{os.major(number)}:{os.minor(number)}"
