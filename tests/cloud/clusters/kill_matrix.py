"""The kill matrix: a run dies at every step between "decided to launch" and "released".

For another provider, subclass `KillMatrix` and give it a `place` (see providers/conformance.py); the
provider's `launch` passes the point "launch.partial", or the subclass leaves it out of `points`. Add
`SelfEnding` where machines can end themselves. All points belong to the soak; those that are `telling` of the
provider are passed with every run of the tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from prudent.cloud.clusters.rental import KILL_POINTS
from prudent.cloud.leases.lease import RELEASED, Lease
from prudent.cloud.leases.reaper import ReaperReport, reap
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.providers.provider import ReportsEnds
from prudent.core.processes import KILL_AT

from ..providers.conformance import Place, eventually

RENTER = Path(__file__).with_name("renter.py")
LEASE_S = 600.0
MOMENTS = (*KILL_POINTS, "renew.done:2")


def run(place: Place, kill_at: str = "") -> subprocess.CompletedProcess[str]:
    """Rent, work and release in another process, which ends itself at a point.

    Its lease is longer than any of this takes, so that the reaper and the switch come when they are told to;
    a run that is to die at a renewal works until it is due, which is soon.
    """
    renewing = kill_at.startswith("renew.")
    steps = f"trial.started>{kill_at}" if renewing else kill_at
    renter = place.environment.get("PRUDENT_TEST_RENTER", str(RENTER))
    where = json.dumps(place.provider.settings)
    renew_s, work_s = (
        (0.1, 300.0) if renewing else (LEASE_S / 3, 300.0 if kill_at == "trial.started" else 0.1)
    )
    words = [place.home, where, place.type, 2, LEASE_S, renew_s, work_s]
    return subprocess.run(
        [sys.executable, renter, *map(str, words)],
        env={**os.environ, **place.environment, KILL_AT: steps},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def reap_once(place: Place) -> ReaperReport:
    done = reap(LeaseRegister(place.home), [place.provider], now_s=time.time())
    assert done.complaints == ()
    return done


def carriers(cluster: str) -> list[str]:
    """What still runs of a cluster on this computer, also as a machine of another provider."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{cluster}".encode() in environ.read_bytes():
                found.append((environ.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def all_gone(place: Place, leases: tuple[Lease, ...]) -> bool:
    return place.provider.list() == () and not any(carriers(lease.cluster) for lease in leases)


def marked(names: Iterable[str], telling: Container[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in telling else pytest.mark.soak) for name in names]


class KillMatrix:
    """No machine and no process is left after one round of the reaper, wherever the run has died."""

    points: Sequence[str] = MOMENTS
    """Those that a launch by this provider passes."""
    telling: Container[str] = MOMENTS

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "at" in metafunc.fixturenames:
            metafunc.parametrize("at", marked(self.points, self.telling))

    @pytest.fixture
    def place(self) -> Iterator[Place]:
        raise NotImplementedError("give the provider under test")

    def test_a_run_that_lives_leaves_nothing(self, place: Place) -> None:
        done = run(place)
        assert done.returncode == 0, done.stderr
        [lease] = LeaseRegister(place.home).leases()
        assert lease.state == RELEASED
        assert len(lease.machines) == 2
        assert all_gone(place, (lease,))
        assert done.stdout.split() == ["0", "42"]

    def test_killed(self, place: Place, at: str) -> None:
        done = run(place, kill_at=at)
        assert done.returncode == -signal.SIGKILL, done.stderr
        register = LeaseRegister(place.home)
        before = register.leases()
        assert len(before) == (at != "launch.decided")

        reaped = reap_once(place)
        left = register.leases()
        assert all_gone(place, left)
        assert [lease.state for lease in left] == [RELEASED] * len(before)
        assert [lease.cluster for lease in reaped.released] == [
            lease.cluster for lease in before if lease.state != RELEASED
        ]
        # What was launched is paid for, once, and until it was ended.
        launched = at not in ("launch.decided", "launch.recorded")
        for lease in left:
            assert bool(lease.machines) == launched
            assert (lease.cost_usd(time.time()) > 0) == launched
            assert lease.cost_usd(0) == lease.cost_usd(time.time() + 1e6)
        again = reap_once(place)
        assert (again.ended, again.released) == ((), ())
        assert register.leases() == left


class SelfEnding:
    """Machines that nobody renews any more end without us."""

    alone: Sequence[str] = ("launch.accepted", "trial.started", "renew.recorded")
    telling_alone: Container[str] = ("trial.started",)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "alone_at" in metafunc.fixturenames:
            metafunc.parametrize("alone_at", marked(self.alone, self.telling_alone))
        super().pytest_generate_tests(metafunc)  # type: ignore[misc]

    def test_without_a_reaper_machines_end_themselves(self, place: Place, alone_at: str) -> None:
        done = run(place, kill_at=alone_at)
        assert done.returncode == -signal.SIGKILL, done.stderr
        register = LeaseRegister(place.home)
        [lease] = register.leases()
        assert lease.state != RELEASED
        there = place.provider.list()
        assert len(there) == 2
        # Whole seconds; a renewal that was recorded last may not have reached the machines.
        assert all(one.lease_end_s <= lease.lease_end_s + 1.5 for one in there)
        # Nobody waits here until the lease is over: its end comes to the machines.
        place.provider.renew(there, time.time())
        assert eventually(lambda: all_gone(place, (lease,)))
        gone_s = time.time()
        # The reaper comes too late to end anything, and still knows what to charge.
        late = reap(register, [place.provider], now_s=lease.lease_end_s + 1000)
        assert (late.ended, late.complaints) == ((), ())
        [after] = register.leases()
        assert after.state == RELEASED
        if isinstance(place.provider, ReportsEnds):
            assert lease.wanted_s <= (after.released_s or 0.0) <= gone_s + 1.0  # some tell whole seconds
        else:
            assert after.released_s == lease.lease_end_s
        assert after.cost_usd(0) > 0
