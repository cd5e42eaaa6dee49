"""The kill matrix: a run dies at every step between "decided to launch" and "released".

For another provider, subclass `KillMatrix` and give it a `place` (see providers/conformance.py); the
provider's `launch` passes the point "launch.partial", or the subclass leaves it out of `points`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from prudent.cloud.clusters.points import POINTS, RENEW
from prudent.cloud.leases.lease import RELEASED, Lease
from prudent.cloud.leases.reaper import Reaped, reap
from prudent.cloud.leases.register import Register
from prudent.core.points import KILL_AT

from ..providers.conformance import Place, eventually

RENTER = Path(__file__).with_name("renter.py")


def run(
    place: Place, kill_at: str = "", count: int = 2, lease_s: float = 30.0, work_s: float = 0.2
) -> subprocess.CompletedProcess[str]:
    """Rent, work and release in another process, which ends itself at a point."""
    renter = place.environment.get("PRUDENT_TEST_RENTER", str(RENTER))
    where = json.dumps(place.provider.settings)
    words = [place.home, where, place.type, count, lease_s, work_s, "yes" if place.enters else "no"]
    return subprocess.run(
        [sys.executable, renter, *map(str, words)],
        env={**os.environ, **place.environment, KILL_AT: kill_at},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def reap_once(place: Place) -> Reaped:
    done = reap(Register(place.home), [place.provider], now_s=time.time())
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


class KillMatrix:
    """No machine and no process is left after one round of the reaper, wherever the run has died."""

    points: tuple[str, ...] = POINTS

    @pytest.fixture
    def place(self) -> Iterator[Place]:
        raise NotImplementedError("give the provider under test")

    def test_a_run_that_lives_leaves_nothing(self, place: Place) -> None:
        done = run(place)
        assert done.returncode == 0, done.stderr
        [lease] = Register(place.home).leases()
        assert lease.state == RELEASED
        assert len(lease.machines) == 2
        assert all_gone(place, (lease,))
        if place.enters:
            assert done.stdout.split() == ["0", "42"]

    @pytest.mark.parametrize("at", POINTS)
    def test_killed(self, place: Place, at: str) -> None:
        if at not in self.points:
            pytest.skip("this provider has no such step")
        long = at in (*RENEW, "trial.started")
        # Long enough that the switch does not get in before the reaper on a busy computer.
        lease_s = 6.0 if at in RENEW else 30.0
        kill_at = f"trial.started>{at}" if at in RENEW else at
        done = run(place, kill_at=kill_at, lease_s=lease_s, work_s=60.0 if long else 0.2)
        assert done.returncode == -signal.SIGKILL, done.stderr
        register = Register(place.home)
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

    def test_the_second_renewal(self, place: Place) -> None:
        done = run(place, kill_at="renew.done>renew.done", lease_s=6.0, work_s=30.0)
        assert done.returncode == -signal.SIGKILL, done.stderr
        reap_once(place)
        assert all_gone(place, Register(place.home).leases())

    @pytest.mark.parametrize("at", ["launch.accepted", "trial.started", "renew.recorded"])
    def test_without_a_reaper_machines_end_themselves(self, place: Place, at: str) -> None:
        if not place.switched:
            pytest.skip("no switch runs here")
        kill_at = f"trial.started>{at}" if at in RENEW else at
        done = run(place, kill_at=kill_at, lease_s=4.0, work_s=60.0)
        assert done.returncode == -signal.SIGKILL, done.stderr
        register = Register(place.home)
        [lease] = register.leases()
        assert lease.state != RELEASED
        if time.time() < lease.lease_end_s - 1.0:
            assert place.provider.list() != ()
        assert eventually(lambda: all_gone(place, (lease,)), within_s=20)
        # The reaper comes too late to end anything, and still knows what to charge.
        done_late = reap_once(place)
        assert done_late.ended == ()
        [after] = register.leases()
        assert after.state == RELEASED
        # A renewal that was recorded and did not reach the machine: it has ended at the end it knew.
        early_s = 4.0 if at == "renew.recorded" else 1.0
        assert after.released_s is not None
        assert lease.lease_end_s - early_s <= after.released_s <= lease.lease_end_s + 1.0
        assert after.cost_usd(0) > 0
