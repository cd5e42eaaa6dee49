"""Leases are on disk as a whole or not at all, whoever writes at the same time."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.cloud.leases.holder import Holder
from prudent.cloud.leases.home import default_home
from prudent.cloud.leases.lease import RELEASED, UP, WANTED, Lease, Rented
from prudent.cloud.leases.register import LeaseLost, Register
from prudent.cloud.providers.provider import Order
from prudent.core.errors import BadInput, RunFailed
from prudent.core.money import Price

PRICE = Price(3.6, "2025-01-01", "catalog", minimum_s=60)


def lease(cluster: str = "c1", end_s: float = 1300.0, **other: object) -> Lease:
    order = Order(cluster, "run-1", "me", "m5.large", 2, end_s)
    made = Lease(order, "local", {"local": ""}, Holder.here(), 1000.0, end_s, PRICE)
    return replace(made, **other)  # type: ignore[arg-type]


class TestLease:
    def test_it_is_over_at_its_end_and_not_before(self) -> None:
        assert lease().over(1299.9) is None
        assert lease().over(1300.0) == "its lease is over"

    def test_it_is_over_when_its_run_is_gone(self) -> None:
        ended = [sys.executable, "-c", "import os; print(os.getpid())"]
        child = subprocess.run(ended, capture_output=True, check=True)
        gone = replace(Holder.here(), pid=int(child.stdout))
        assert lease(holder=gone).over(1100.0) == "its run is gone"

    def test_a_number_that_is_used_again_is_another_process(self) -> None:
        mistaken = replace(Holder.here(), started=Holder.here().started + "1")
        assert mistaken.gone

    def test_of_a_run_elsewhere_only_the_lease_tells(self) -> None:
        elsewhere = Holder(1, "boot:1", "another-computer pid:[1]")
        assert elsewhere.alive is None
        assert lease(holder=elsewhere).over(1299.9) is None
        assert lease(holder=elsewhere).over(1300.0) == "its lease is over"

    def test_each_machine_is_paid_from_its_own_launch(self) -> None:
        machines = (Rented("a", 1000.0, PRICE), Rented("b", 1100.0, PRICE))
        up = lease(state=UP, machines=machines)
        assert up.cost_usd(1200.0) == pytest.approx(0.2 + 0.1)
        assert up.ended(1300.0, "", ()).cost_usd(9999.0) == pytest.approx(0.3 + 0.2)

    def test_money_lasts_as_long_as_the_machines_cost_no_more(self) -> None:
        up = lease(state=UP, machines=(Rented("a", 1000.0, PRICE), Rented("b", 1000.0, PRICE)))
        assert up.lasts_s(0.12, 1010.0) == pytest.approx(50.0)  # the minimum is paid for
        assert up.lasts_s(0.119, 1010.0) == 0.0
        lasts_s = up.lasts_s(0.4, 1010.0)
        assert up.cost_usd(1010.0 + lasts_s) == pytest.approx(0.4)
        assert up.ended(1020.0, "", ()).lasts_s(0.0, 1030.0) == float("inf")
        assert up.launched_s == 1000.0

    def test_the_billing_minimum_is_per_machine(self) -> None:
        assert lease(machines=(Rented("a", 1000.0, PRICE),)).cost_usd(1001.0) == pytest.approx(0.06)
        assert lease().cost_usd(2000.0) == 0.0

    def test_the_first_release_counts_and_late_machines_are_paid(self) -> None:
        known, late = Rented("a", 1000.0, PRICE), Rented("b", 1000.0, PRICE)
        once = lease(machines=(known,)).ended(1100.0, "done", ())
        assert once.ended(1200.0, "again", (known,)) == once
        assert once.ended(1200.0, "again", (late,)).cost_usd(0) == pytest.approx(0.4)

    @given(st.text(min_size=1), st.floats(0, 1e10), st.booleans())
    def test_what_is_written_is_read(self, run: str, end_s: float, spot: bool) -> None:
        made = lease(order=Order("c", run, "o", "t", 3, end_s, spot), machines=(Rented("x", end_s, PRICE),))
        assert Lease.from_dict(json.loads(json.dumps(made.to_dict()))) == made


class TestRegister:
    def test_a_lease_goes_from_wanted_to_up_to_released(self, tmp_path: Path) -> None:
        register = Register(tmp_path)
        assert register.want(lease()).state == WANTED
        up = register.up("c1", [Rented("c1-0", 1001.0, PRICE)])
        assert (up.state, up.machines[0].id) == (UP, "c1-0")
        assert register.renew("c1", 1400.0).lease_end_s == 1400.0
        released = register.release("c1", 1361.0, "done")
        assert (released.state, released.released_s, released.why) == (RELEASED, 1361.0, "done")
        assert Register(tmp_path).read("c1") == released
        assert released.cost_usd(0) == pytest.approx(0.36)

    def test_the_same_cluster_is_not_wanted_twice(self, tmp_path: Path) -> None:
        register = Register(tmp_path)
        register.want(lease())
        with pytest.raises(BadInput, match="already"):
            register.want(lease())

    def test_a_released_lease_cannot_be_renewed(self, tmp_path: Path) -> None:
        register = Register(tmp_path)
        register.want(lease())
        register.release("c1", 1100.0, "its lease is over")
        with pytest.raises(LeaseLost, match="its lease is over"):
            register.renew("c1", 2000.0)
        with pytest.raises(LeaseLost):
            register.up("c1", ())
        with pytest.raises(LeaseLost):
            register.renew("c2", 2000.0)

    def test_the_owner_is_the_same_ever_after(self, tmp_path: Path) -> None:
        assert Register(tmp_path).owner == Register(tmp_path).owner
        assert Register(tmp_path).owner != Register(tmp_path / "other").owner

    @pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 101, "a b"])
    def test_a_name_that_is_no_file_name_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(BadInput):
            Register(tmp_path).want(lease(name))

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"order": {}}', "null"])
    def test_a_damaged_record_hides_no_other(self, tmp_path: Path, text: str) -> None:
        register = Register(tmp_path)
        register.want(lease("good"))
        (register.folder / "bad.json").write_text(text)
        found, complaints = register.survey()
        assert [one.cluster for one in found] == ["good"]
        assert len(complaints) == 1
        assert "bad.json is damaged" in complaints[0]

    def test_a_write_that_fails_leaves_the_old_record(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        register = Register(tmp_path)
        before = register.want(lease())

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RunFailed, match="No space left"):
            register.renew("c1", 5000.0)
        assert register.read("c1") == before
        assert [path.name for path in register.folder.glob(".c1*")] == []

    def test_old_releases_are_forgotten(self, tmp_path: Path) -> None:
        register = Register(tmp_path)
        for number in range(3):
            register.want(lease(f"c{number}"))
        register.release("c0", 1000.0)
        register.release("c1", 3000.0)
        register.forget(2000.0)
        assert [one.cluster for one in register.leases()] == ["c1", "c2"]

    def test_processes_that_write_at_once_lose_nothing(self, tmp_path: Path) -> None:
        register = Register(tmp_path)
        register.want(lease())
        context = multiprocessing.get_context("fork")
        several = [context.Process(target=_add_machines, args=(tmp_path, name)) for name in "abc"]
        for one in several:
            one.start()
        for one in several:
            one.join()
        found = register.read("c1")
        assert found is not None
        assert len(found.machines) == 3 * 20

    def test_a_reader_never_sees_half_a_record(self, tmp_path: Path) -> None:
        register = Register(tmp_path)
        register.want(lease())
        writer = multiprocessing.get_context("fork").Process(target=_add_machines, args=(tmp_path, "a"))
        writer.start()
        while writer.is_alive():
            assert register.read("c1") is not None
            assert register.survey()[1] == ()
        writer.join()

    def test_a_writer_that_was_killed_blocks_nobody(self, tmp_path: Path) -> None:
        code = (
            "import os, sys; from pathlib import Path; from prudent.cloud.leases.register import Register\n"
            "register = Register(Path(sys.argv[1]))\n"
            "with register._locked(): os.kill(os.getpid(), 9)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
        assert done.returncode == -9
        begun_s = time.monotonic()
        Register(tmp_path).want(lease())
        assert time.monotonic() - begun_s < 5


def _add_machines(home: Path, name: str) -> None:
    register = Register(home)
    for number in range(20):
        register.up("c1", [Rented(f"{name}{number}", 1000.0, PRICE)])


def test_home_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRUDENT_HOME", str(tmp_path / "a"))
    assert default_home() == tmp_path / "a"
    monkeypatch.delenv("PRUDENT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "b"))
    assert default_home() == tmp_path / "b" / "prudent"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    assert default_home() == tmp_path / "c" / ".local" / "share" / "prudent"
