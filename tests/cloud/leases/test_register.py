"""Leases are on disk as a whole or not at all, whoever writes at the same time."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prudent.cloud.billing import Bill
from prudent.cloud.home_folder import default_home
from prudent.cloud.leases.lease import RELEASED, UP, WANTED, Lease, LeasedMachine, LeaseHolder
from prudent.cloud.leases.register import LeaseLost, LeaseRegister
from prudent.cloud.providers.provider import LaunchOrder
from prudent.core.errors import BadInput, RunFailed
from prudent.core.money import Price

PRICE = Price(3.6, "2025-01-01", "catalog", minimum_s=60)


def lease(cluster: str = "c1", end_s: float = 1300.0, **other: object) -> Lease:
    order = LaunchOrder(cluster, "run-1", "me", "m5.large", 2, end_s)
    made = Lease(order, "local", {"local": ""}, LeaseHolder.here(), 1000.0, end_s, PRICE)
    return replace(made, **other)  # type: ignore[arg-type]


class TestLease:
    def test_it_is_over_at_its_end_and_not_before(self) -> None:
        assert lease().over(1299.9) is None
        assert lease().over(1300.0) == "its lease is over"

    def test_it_is_over_when_its_run_is_gone(self) -> None:
        ended = [sys.executable, "-c", "import os; print(os.getpid())"]
        child = subprocess.run(ended, capture_output=True, check=True)
        gone = replace(LeaseHolder.here(), pid=int(child.stdout))
        assert lease(holder=gone).over(1100.0) == "its run is gone"

    def test_a_number_that_is_used_again_is_another_process(self) -> None:
        mistaken = replace(LeaseHolder.here(), started=LeaseHolder.here().started + "1")
        assert mistaken.gone

    def test_of_a_run_elsewhere_only_the_lease_tells(self) -> None:
        elsewhere = LeaseHolder(1, "boot:1", "another-computer pid:[1]")
        assert elsewhere.alive is None
        assert lease(holder=elsewhere).over(1299.9) is None
        assert lease(holder=elsewhere).over(1300.0) == "its lease is over"

    def test_each_machine_is_paid_from_its_own_launch(self) -> None:
        machines = (LeasedMachine("a", 1000.0, PRICE), LeasedMachine("b", 1100.0, PRICE))
        up = lease(state=UP, machines=machines)
        assert up.cost_usd(1200.0) == pytest.approx(0.2 + 0.1)
        assert up.ended(1300.0, "", ()).cost_usd(9999.0) == pytest.approx(0.3 + 0.2)

    def test_a_machine_that_is_gone_is_paid_until_then(self) -> None:
        machines = (
            LeasedMachine("a", 1000.0, PRICE),
            LeasedMachine("b", 1000.0, PRICE),
            LeasedMachine("c", 1000.0, PRICE),
        )
        left = lease(state=UP, machines=machines).with_ends({"b": 1100.0, "elsewhere": 1.0})
        assert left.cost_usd(1200.0) == pytest.approx(0.2 + 0.1 + 0.2)
        assert left.with_ends({"b": 1150.0}) == left, "what was told first stays"
        ended = left.ended(1300.0, "", (), {"c": 1250.0})
        assert ended.cost_usd(9999.0) == pytest.approx(0.3 + 0.1 + 0.25)
        assert Lease.from_dict(json.loads(json.dumps(ended.to_dict()))) == ended
        assert Bill.of([ended]).total_usd(9999.0) == pytest.approx(0.65)

    def test_a_record_of_an_earlier_version_knows_of_no_machine_that_it_is_gone(self) -> None:
        said = lease(state=UP, machines=(LeasedMachine("a", 1000.0, PRICE),)).to_dict()
        del said["machines"][0]["gone_s"]
        assert Lease.from_dict(said).machines[0].gone_s is None

    def test_it_is_as_old_as_its_first_machine(self) -> None:
        up = lease(state=UP, machines=(LeasedMachine("a", 1000.0, PRICE), LeasedMachine("b", 1001.0, PRICE)))
        assert up.launched_s == 1000.0

    def test_the_billing_minimum_is_per_machine(self) -> None:
        assert lease(machines=(LeasedMachine("a", 1000.0, PRICE),)).cost_usd(1001.0) == pytest.approx(0.06)
        assert lease().cost_usd(2000.0) == 0.0

    def test_the_first_release_counts_and_late_machines_are_paid(self) -> None:
        known, late = LeasedMachine("a", 1000.0, PRICE), LeasedMachine("b", 1000.0, PRICE)
        once = lease(machines=(known,)).ended(1100.0, "done", ())
        assert once.ended(1200.0, "again", (known,)) == once
        assert once.ended(1200.0, "again", (late,)).cost_usd(0) == pytest.approx(0.4)

    def test_who_releases_ends_first_then_who_is_gone_then_the_time(self) -> None:
        gone = replace(LeaseHolder.here(), started="another:1")
        assert lease(holder=gone).over(9999.0) == "its run is gone"
        assert lease(holder=gone).ended(1100.0, "", ()).over(9999.0) == "its lease was released"
        assert lease().ended(1100.0, "", ()).over(1000.0) == "its lease was released"

    def test_machines_are_in_order_and_stay_as_they_were_known(self) -> None:
        first, second, twin = (
            LeasedMachine(name, at_s, PRICE) for name, at_s in (("z", 1000.0), ("b", 1010.0), ("a", 1010.0))
        )
        up = lease(machines=(first,)).with_machines([second, replace(first, launched_s=5.0), twin])
        assert up.machines == (first, twin, second)
        assert (up.launched_s, lease().launched_s) == (1000.0, None)

    def test_before_its_launch_a_machine_costs_nothing(self) -> None:
        assert lease(machines=(LeasedMachine("a", 1000.0, PRICE),)).cost_usd(900.0) == 0.0

    def test_a_late_machine_moves_the_end_and_nothing_else(self) -> None:
        once = lease().ended(1100.0, "done", ())
        late = once.ended(1200.0, "again", (LeasedMachine("a", 1000.0, PRICE),))
        assert (late.state, late.released_s, late.why) == (RELEASED, 1200.0, "done")

    def test_a_record_holds_all_of_a_lease(self) -> None:
        whole = lease(state=UP, machines=(LeasedMachine("a", 1000.5, PRICE),)).ended(1100.5, "done", ())
        said = whole.to_dict()
        assert (said["state"], said["released_s"], said["why"]) == ("released", 1100.5, "done")
        assert Lease.from_dict(said) == whole
        assert Lease.from_dict(lease().to_dict()).released_s is None

    @pytest.mark.parametrize(
        "wrong",
        [
            {"state": "gone"},
            {"machines": [{"id": "a"}]},
            {"settings": None},
            {"wanted_s": "soon"},
            {"order": {"cluster": "c"}},
            {"holder": {"pid": 1}},
        ],
    )
    def test_a_damaged_record_is_bad_input(self, wrong: dict[str, object]) -> None:
        with pytest.raises(BadInput, match=r"A lease is damaged \(.+\): remove the file, then reap\."):
            Lease.from_dict({**lease().to_dict(), **wrong})

    @given(st.text(min_size=1), st.floats(0, 1e10), st.booleans())
    def test_what_is_written_is_read(self, run: str, end_s: float, spot: bool) -> None:
        made = lease(
            order=LaunchOrder("c", run, "o", "t", 3, end_s, spot),
            machines=(LeasedMachine("x", end_s, PRICE),),
        )
        assert Lease.from_dict(json.loads(json.dumps(made.to_dict()))) == made


class TestHolder:
    def test_this_process_is_here_and_alive(self) -> None:
        here = LeaseHolder.here()
        assert here.pid == os.getpid()
        assert here.started
        assert here.realm.startswith(socket.gethostname())
        assert (here.alive, here.gone) == (True, False)
        assert LeaseHolder.from_dict(json.loads(json.dumps(here.to_dict()))) == here

    def test_where_nobody_can_tell_it_is_not_taken_for_gone(self) -> None:
        for unknown in (
            replace(LeaseHolder.here(), started=""),
            replace(LeaseHolder.here(), realm="elsewhere"),
        ):
            assert (unknown.alive, unknown.gone) == (None, False)

    def test_another_container_is_elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        here = LeaseHolder.here()
        monkeypatch.setattr(os, "readlink", lambda _: "pid:[1]")
        assert LeaseHolder.here().realm == f"{socket.gethostname()} pid:[1]"
        assert here.alive is None

        def fail(_: object) -> str:
            raise FileNotFoundError

        monkeypatch.setattr(os, "readlink", fail)
        assert LeaseHolder.here().realm == socket.gethostname()


class TestRegister:
    def test_a_lease_goes_from_wanted_to_up_to_released(self, tmp_path: Path) -> None:
        register = LeaseRegister(tmp_path)
        assert register.add(lease()).state == WANTED
        up = register.record_machines("c1", [LeasedMachine("c1-0", 1001.0, PRICE)])
        assert (up.state, up.machines[0].id) == (UP, "c1-0")
        assert register.renew("c1", 1400.0).lease_end_s == 1400.0
        released = register.release("c1", 1361.0, "done")
        assert (released.state, released.released_s, released.why) == (RELEASED, 1361.0, "done")
        assert LeaseRegister(tmp_path).read("c1") == released
        assert released.cost_usd(0) == pytest.approx(0.36)

    def test_the_same_cluster_is_not_wanted_twice(self, tmp_path: Path) -> None:
        register = LeaseRegister(tmp_path)
        register.add(lease())
        with pytest.raises(BadInput, match="already"):
            register.add(lease())

    def test_a_released_lease_cannot_be_renewed(self, tmp_path: Path) -> None:
        register = LeaseRegister(tmp_path)
        register.add(lease())
        register.release("c1", 1100.0, "its lease is over")
        with pytest.raises(LeaseLost, match="its lease is over"):
            register.renew("c1", 2000.0)
        with pytest.raises(LeaseLost):
            register.record_machines("c1", ())
        with pytest.raises(LeaseLost):
            register.renew("c2", 2000.0)

    def test_the_owner_is_the_same_ever_after(self, tmp_path: Path) -> None:
        owner = LeaseRegister(tmp_path).owner
        assert re.fullmatch("prudent-[0-9a-f]{16}", owner)
        assert LeaseRegister(str(tmp_path)).owner == owner
        assert LeaseRegister(tmp_path).owner != LeaseRegister(tmp_path / "other").owner

    @pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 101, "a b"])
    def test_a_name_that_is_no_file_name_is_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(BadInput):
            LeaseRegister(tmp_path).add(lease(name))

    @pytest.mark.parametrize("name", ["x" * 100, "A1_b.c-d", "9"])
    def test_other_names_are_not(self, tmp_path: Path, name: str) -> None:
        assert LeaseRegister(tmp_path).add(lease(name)).cluster == name

    def test_the_oldest_is_first(self, tmp_path: Path) -> None:
        register = LeaseRegister(tmp_path)
        for name, wanted_s in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
            register.add(lease(name, wanted_s=wanted_s))
        assert [one.cluster for one in register.leases()] == ["b", "c", "a"]

    def test_why_a_lease_is_lost_is_told(self, tmp_path: Path) -> None:
        register = LeaseRegister(tmp_path)
        register.add(lease())
        register.release("c1", 1100.0)
        with pytest.raises(LeaseLost, match=r"c1 was released by another process; launch again\.$"):
            register.renew("c1", 2000.0)
        with pytest.raises(LeaseLost, match=r"There is no lease of c2 any more; launch it again\.$"):
            register.release("c2", 2000.0)

    def test_what_says_nothing_new_is_not_written(self, tmp_path: Path) -> None:
        register = LeaseRegister(tmp_path)
        register.add(lease())
        register.release("c1", 1100.0)
        before = (register.folder / "c1.json").stat().st_ino
        register.release("c1", 1200.0, "again")
        assert (register.folder / "c1.json").stat().st_ino == before

    def test_what_is_no_number_is_not_written(self, tmp_path: Path) -> None:
        register = LeaseRegister(tmp_path)
        before = register.add(lease())
        with pytest.raises(ValueError, match="JSON"):
            register.renew("c1", float("nan"))
        assert register.read("c1") == before

    def test_a_record_that_cannot_be_read_is_told(self, tmp_path: Path) -> None:
        register = LeaseRegister(tmp_path)
        (register.folder / "c1.json").mkdir()
        with pytest.raises(RunFailed, match="see who may read it"):
            register.read("c1")
        assert len(register.survey()[1]) == 1
        assert register.read("c2") is None

    def test_a_home_that_cannot_be_written_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(RunFailed, match=r"Cannot write .*leases \(Not a directory\).*PRUDENT_HOME"):
            LeaseRegister(tmp_path / "file")
        register = LeaseRegister(tmp_path / "home")
        register.folder.rmdir()
        with pytest.raises(RunFailed, match="no cluster is launched without a lease on disk"):
            register.add(lease())

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"order": {}}', "null"])
    def test_a_damaged_record_hides_no_other(self, tmp_path: Path, text: str) -> None:
        register = LeaseRegister(tmp_path)
        register.add(lease("good"))
        (register.folder / "bad.json").write_text(text)
        found, complaints = register.survey()
        assert [one.cluster for one in found] == ["good"]
        assert len(complaints) == 1
        assert "bad.json is damaged" in complaints[0]

    def test_a_write_that_fails_leaves_the_old_record(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        register = LeaseRegister(tmp_path)
        before = register.add(lease())

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RunFailed, match="No space left"):
            register.renew("c1", 5000.0)
        assert register.read("c1") == before
        assert [path.name for path in register.folder.glob(".c1*")] == []

    def test_old_releases_are_forgotten(self, tmp_path: Path) -> None:
        register = LeaseRegister(tmp_path)
        for number in range(3):
            register.add(lease(f"c{number}"))
        register.release("c0", 1000.0)
        register.release("c1", 2000.0)
        register.forget(2000.0)
        assert [one.cluster for one in register.leases()] == ["c1", "c2"]

    def test_processes_that_write_at_once_lose_nothing(self, tmp_path: Path) -> None:
        register = LeaseRegister(tmp_path)
        register.add(lease())
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
        register = LeaseRegister(tmp_path)
        register.add(lease())
        writer = multiprocessing.get_context("fork").Process(target=_add_machines, args=(tmp_path, "a"))
        writer.start()
        while writer.is_alive():
            assert register.read("c1") is not None
            assert register.survey()[1] == ()
        writer.join()

    def test_a_writer_that_was_killed_blocks_nobody(self, tmp_path: Path) -> None:
        code = (
            "import os, sys; from pathlib import Path\n"
            "from prudent.cloud.leases.register import LeaseRegister\n"
            "register = LeaseRegister(Path(sys.argv[1]))\n"
            "with register._locked(): os.kill(os.getpid(), 9)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
        assert done.returncode == -9
        LeaseRegister(tmp_path).add(lease())  # would wait for ever


def _add_machines(home: Path, name: str) -> None:
    register = LeaseRegister(home)
    for number in range(20):
        register.record_machines("c1", [LeasedMachine(f"{name}{number}", 1000.0, PRICE)])


def test_home_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRUDENT_HOME", str(tmp_path / "a"))
    assert default_home() == tmp_path / "a"
    monkeypatch.delenv("PRUDENT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "b"))
    assert default_home() == tmp_path / "b" / "prudent"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    assert default_home() == tmp_path / "c" / ".local" / "share" / "prudent"
    monkeypatch.setenv("PRUDENT_HOME", "~/d")
    assert default_home() == tmp_path / "c" / "d"
    monkeypatch.setenv("PRUDENT_HOME", "e")
    assert default_home() == Path.cwd() / "e"


def test_without_a_home_it_is_told_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("PRUDENT_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(BadInput, match="say with PRUDENT_HOME"):
        default_home()
