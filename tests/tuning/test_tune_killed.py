"""`prudent tune` on machines, killed at every named place: nothing is left, and the study ends the same.

Getting machines and giving them back have one place each here, and a trial has one in
`jobs/test_cluster_command.py`; the others are in the soak.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.clusters.rental import KILL_POINTS, RELEASE_POINTS, RENEW_POINTS
from prudent.cloud.leases.lease import RELEASED, Lease
from prudent.cloud.leases.reaper import reap_all
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.core.processes import KILL_AT

SERVER = Path(__file__).with_name("tune_server.py")
JOB = """
command: |
  sleep $(cat delay)
  echo "PRUDENT {{\\"error\\": $(( ({x} - 2) * ({x} - 2) + {cluster.count} ))}}"
where: local
parameters:
  cluster: {machine: {types: [m3.medium], count: [1, 2]}}
  x: [1, 2]
measures: [error]
goal: minimise error
budget: $0.05
strategy: grid
lease: 10 s
"""
BEST = {"cluster": "1*m3.medium", "x": 2}
# In the middle of the study: the first cluster has been in use, or was given back.
PLACES = (
    *(
        place
        if place in RELEASE_POINTS
        else f"trial.started>{place}"
        if place in RENEW_POINTS
        else f"{place}:2"
        for place in KILL_POINTS
    ),
    "release.terminated:2",
)
USUAL = ("launch.accepted:2", "release.terminated")
assert set(USUAL) <= set(PLACES)


class Tuner:
    """Commands in processes of their own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, folder: Path, *words: str, kill_at: str = "") -> tuple[int, str]:
        out = folder / "out"
        asked = {
            "words": ["tune", str(folder / "job" / "study.yaml"), "--json", *words],
            "environment": {KILL_AT: kill_at, "PRUDENT_HOME": str(folder / "home")},
            "out": str(out),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline()), out.read_text()

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def tuner() -> Iterator[Tuner]:
    made = Tuner()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "study.yaml").write_text(JOB)
    delay(tmp_path, 0.0)
    yield tmp_path
    provider = LocalProvider(tmp_path / "home")
    provider.terminate(provider.list())


def delay(folder: Path, seconds: float) -> None:
    (folder / "job" / "delay").write_text(f"{seconds}\n")


def facts(folder: Path, kind: str) -> list[dict[str, Any]]:
    journal = (folder / "job" / "study.prudent" / "journal.jsonl").read_text()
    return [fact for fact in map(json.loads, journal.splitlines()) if fact["fact"] == kind]


def known(result: dict[str, Any]) -> list[Any]:
    """What a study found out, without what depends on the clock."""
    return [(one["number"], one["configuration"], one["status"], one["measures"]) for one in result["trials"]]


def nobody_carries_on(leases: tuple[Lease, ...]) -> None:
    """What was killed is gone in a moment, longer on a busy computer."""
    end_s = time.monotonic() + 60
    while living := carriers(leases):
        assert time.monotonic() < end_s, f"processes {living} live on"
        time.sleep(0.05)


def carriers(leases: tuple[Lease, ...]) -> list[str]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = environ.read_bytes()
        except OSError:
            continue
        found += [environ.parent.name for lease in leases if lease.cluster.encode() in text]
    return found


def checked(folder: Path, code: int, out: str) -> dict[str, Any]:
    """An answer for which every machine was paid for, once, and of which none is left."""
    assert code == 0, out
    result: dict[str, Any] = json.loads(out[out.index("{\n") :])
    leases = LeaseRegister(folder / "home").leases()
    assert all(lease.state == RELEASED for lease in leases)
    assert LocalProvider(folder / "home").list() == ()
    nobody_carries_on(leases)
    assert result["best"]["configuration"] == BEST
    assert result["spent_usd"] == pytest.approx(sum(lease.cost_usd(0.0) for lease in leases), abs=1e-9)
    told = [fact["trial"]["number"] for fact in facts(folder, "told")]
    assert sorted(told) == [1, 2, 3, 4]
    return result


@pytest.fixture(scope="module")
def untouched(tuner: Tuner, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The study as it goes when nobody kills it."""
    folder = tmp_path_factory.mktemp("untouched")
    (folder / "job").mkdir()
    (folder / "job" / "study.yaml").write_text(JOB)
    delay(folder, 0.0)
    result = checked(folder, *tuner(folder))
    assert len(LeaseRegister(folder / "home").leases()) == 2
    return result


@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=() if at in USUAL else pytest.mark.soak) for at in PLACES]
)
def test_killed_and_resumed(tuner: Tuner, untouched: dict[str, Any], folder: Path, at: str) -> None:
    renews = at.startswith("trial.started>")
    delay(folder, 20.0 if renews else 0.0)
    code, out = tuner(folder, kill_at=at)
    assert code == -signal.SIGKILL, out
    register = LeaseRegister(folder / "home")
    before = [fact["trial"]["number"] for fact in facts(folder, "told")]

    done = reap_all(register, time.time())
    assert done.complaints == ()
    left = register.leases()
    assert all(lease.state == RELEASED for lease in left)
    assert LocalProvider(folder / "home").list() == ()
    nobody_carries_on(left)

    delay(folder, 0.0)
    result = checked(folder, *tuner(folder, "--resume"))
    assert known(result) == known(untouched)
    # What was told before stays as it was: no trial ran, or was paid for, a second time.
    asked = [fact["number"] for fact in facts(folder, "asked")]
    assert asked == [1, 2, 3, 4]
    assert [fact["trial"]["number"] for fact in facts(folder, "told")][: len(before)] == before
    # Only what was up when it was killed had to be rented again.
    launched = sum(bool(lease.machines) for lease in register.leases())
    assert launched <= 2 + 1
