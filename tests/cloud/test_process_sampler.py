"""Real processes that work, fill memory or write, told apart from one that sleeps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prudent.cloud.process_sampler import ProcessSampler
from prudent.cloud.processes import OlderProcesses, ProcessTree, new_cookie
from prudent.cloud.readings import Readings

LIMIT_S = 120.0
UNTIL_TOLD = "import sys, time\nfrom pathlib import Path\n{work}\nPath('ready').touch()\n"
WAIT = "while not Path('enough').exists(): time.sleep(0.05)\n"


@contextmanager
def sampled(folder: Path, work: str) -> Iterator[tuple[ProcessTree, ProcessSampler]]:
    """A program that has done this and waits, below a shell, and who looks at it."""
    (folder / "work.py").write_text(UNTIL_TOLD.format(work=work) + WAIT)
    command = f"{sys.executable} -S work.py; true"
    tree = ProcessTree(command, folder, dict(os.environ), new_cookie())
    try:
        sampler = ProcessSampler(tree.pid, tree.members)
        wait_for(folder / "ready")
        yield tree, sampler
    finally:
        tree.end(0.0)
        tree.close()
        tree.stdout.close()
        tree.stderr.close()


def wait_for(path: Path) -> None:
    give_up_s = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < give_up_s, f"{path.name} did not come"
        time.sleep(0.02)


def looked(sampler: ProcessSampler) -> None:
    """Wait until it has looked twice more: the second look began after now."""
    for _ in range(2):
        before_s, give_up_s = sampler.cost_s, time.monotonic() + LIMIT_S
        while sampler.cost_s == before_s:
            assert time.monotonic() < give_up_s, "nobody looked"
            time.sleep(0.02)


def readings_of(folder: Path, work: str) -> tuple[Readings, float]:
    """The readings of a program that does this, and seconds that it lasted at least."""
    folder.mkdir()
    began_s = time.monotonic()
    with sampled(folder, work) as (tree, sampler):
        looked(sampler)
        (folder / "enough").touch()
        tree.wait()
        readings = sampler.end()
    assert readings is not None
    return readings, time.monotonic() - began_s


@pytest.fixture(scope="module")
def sleeping(tmp_path_factory: pytest.TempPathFactory) -> Readings:
    return readings_of(tmp_path_factory.mktemp("sleeping") / "here", "pass")[0]


BURN = "while time.process_time() < 0.6: sum(range(10_000))"


def test_a_busy_processor_is_told_from_a_sleeping_one(tmp_path: Path, sleeping: Readings) -> None:
    readings, lasted_s = readings_of(tmp_path / "busy", BURN)
    assert readings.cpu_share is not None
    assert sleeping.cpu_share is not None
    cores = len(os.sched_getaffinity(0))
    # The sampler began after the test's clock did: of no more seconds it tells no less.
    assert readings.cpu_share * lasted_s * cores >= 0.55
    assert readings.cpu_share <= 1.0


def test_the_time_of_children_that_have_ended_counts(tmp_path: Path) -> None:
    work = f"import subprocess\nfor _ in range(2): subprocess.run([sys.executable, '-S', '-c', {BURN!r}])"
    work = work.replace("'while", "'import time\\nwhile")
    readings, lasted_s = readings_of(tmp_path / "family", work)
    assert readings.cpu_share is not None
    assert readings.cpu_share * lasted_s * len(os.sched_getaffinity(0)) >= 1.1


def test_memory_is_that_of_all_processes_at_their_peak(tmp_path: Path, sleeping: Readings) -> None:
    readings, _ = readings_of(tmp_path / "full", "held = bytearray(b'x') * 300_000_000")
    assert readings.memory_peak_mb is not None
    assert sleeping.memory_peak_mb is not None
    assert 300 < readings.memory_peak_mb < 500
    assert sleeping.memory_peak_mb < 100
    assert readings.memory_share is not None
    assert 0 < readings.memory_share <= 1


def test_memory_that_was_given_back_still_was_the_peak(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with sampled(tmp_path / "here", "held = bytearray(b'x') * 200_000_000") as (tree, sampler):
        looked(sampler)
        (tmp_path / "here" / "enough").touch()
        tree.wait()
        readings = sampler.end()
    assert readings is not None
    assert readings.memory_peak_mb is not None
    assert readings.memory_peak_mb > 200


def on_disk(folder: Path) -> bool:
    said = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=True)
    return said.stdout.strip() not in ("tmpfs", "ramfs")


def test_what_is_written_is_told(tmp_path: Path, sleeping: Readings) -> None:
    if not on_disk(tmp_path):
        pytest.skip("needs a folder on a disk")
    write = (
        "import os\nwith open('data', 'wb') as f:\n    f.write(b'x' * 64_000_000)\n    os.fsync(f.fileno())"
    )
    readings, lasted_s = readings_of(tmp_path / "writing", write)
    assert readings.disk_write_mb_s is not None
    assert sleeping.disk_write_mb_s is not None
    assert readings.disk_write_mb_s * lasted_s >= 64
    assert sleeping.disk_write_mb_s < 1


def test_a_daemon_that_left_its_session_is_still_seen(tmp_path: Path) -> None:
    """It is known by its environment."""
    daemon = "import time; held = bytearray(b'x') * 200_000_000; time.sleep(600)"
    work = (
        "import subprocess\n"
        f"subprocess.Popen([sys.executable, '-S', '-c', {daemon!r}], start_new_session=True)\n"
    )
    (tmp_path / "here").mkdir()
    with sampled(tmp_path / "here", work) as (_, sampler):
        give_up_s = time.monotonic() + LIMIT_S
        while sampler.peak_mb < 200:
            assert time.monotonic() < give_up_s, "the daemon was not seen"
            time.sleep(0.02)
        sampler.end()


def test_a_run_of_which_nothing_can_be_read_has_no_readings() -> None:
    assert ProcessSampler(None, lambda older: []).end() is None


def test_what_began_long_before_a_run_is_looked_at_once(tmp_path: Path) -> None:
    with sampled(tmp_path, "pass") as (tree, sampler):
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        everyone = {one.pid for one in tree.members()}
        assert tree.pid in everyone
        assert {one.pid for one in tree.members(OlderProcesses(now_s - LIMIT_S - 60))} == everyone
        older = OlderProcesses(now_s + 60)
        assert tree.members(older) == []
        assert older.without({tree.pid, 0}) == {0}
        sampler.end()
