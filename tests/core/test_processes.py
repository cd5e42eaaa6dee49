"""Processes that give way: also where the system shares the processor out by sessions."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from prudent.core import memory
from prudent.core.processes import HELPER_NICE, WORK_NICE, lower_session_priority

OWN = Path("/proc/self/autogroup")
needs_groups = pytest.mark.skipif(not OWN.exists(), reason="needs groups of processes by session")


@pytest.fixture
def session() -> Iterator[int]:
    """A process that sleeps in a session of its own."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process.pid
        process.kill()


@needs_groups
def test_a_session_gives_way_and_ours_does_not(session: int) -> None:
    before = OWN.read_text()
    group = Path(f"/proc/{session}/autogroup")
    assert group.read_text().endswith("nice 0\n")
    lower_session_priority(session)
    assert group.read_text().endswith(f"nice {WORK_NICE}\n")
    lower_session_priority(session, HELPER_NICE)
    assert group.read_text().endswith(f"nice {WORK_NICE}\n"), "it gives way further already"
    assert OWN.read_text() == before


def test_a_process_that_is_gone_is_none_to_give_way() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    lower_session_priority(process.pid)


def test_processes_may_be_as_deep_as_a_command_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of thousands, each started by the one before."""
    monkeypatch.setattr(memory, "_children", lambda pid: [pid + 1] if pid < 5000 else [])
    assert list(memory.process_tree(1)) == list(range(1, 5001))
