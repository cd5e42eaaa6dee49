"""At which moment a machine is ended, a lease released or forgotten: by a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from prudent.cloud.home_folder import default_home
from prudent.cloud.leases.lease import RELEASED, UP, Lease, LeasedMachine, LeaseHolder
from prudent.cloud.leases.reaper import known_providers, reap
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.leases.status import FOREIGN, UNRECORDED, cluster_statuses
from prudent.cloud.providers.provider import Instance, LaunchOrder
from prudent.core.errors import BadInput, RunFailed
from prudent.core.money import Price

PRICE = Price(3.6, "2025-01-01", "catalog")
"""A tenth of a cent per second."""
START_S = 10_000.0
DAY_S = 86_400.0
DEAD = replace(LeaseHolder.here(), started="another:1")


class Shelf:
    """A provider of machines that are only listed; what is ended is gone at the next look."""

    name = "shelf"

    def __init__(self, *machines: Instance, on_list: Callable[[int], None] = lambda look: None) -> None:
        self.machines = list(machines)
        self.settings = {"shelf": "1"}
        self.looks = 0
        self.on_list = on_list

    def list(self) -> tuple[Instance, ...]:
        self.looks += 1
        self.on_list(self.looks)
        return tuple(self.machines)

    def terminate(self, instances: Sequence[Instance]) -> None:
        ids = {one.id for one in instances}
        self.machines = [one for one in self.machines if one.id not in ids]


@pytest.fixture
def register(tmp_path: Path) -> LeaseRegister:
    return LeaseRegister(tmp_path)


def machine(register: LeaseRegister, cluster: str = "c1", index: int = 0, **other: object) -> Instance:
    made = Instance(
        id=f"{cluster}-{index}",
        provider="shelf",
        type="m5.large",
        cluster=cluster,
        run="run-1",
        owner=register.owner,
        index=index,
        state="running",
        address="10.0.0.1",
        launched_s=START_S,
        lease_end_s=START_S + 600,
        price=PRICE,
    )
    return replace(made, **other)  # type: ignore[arg-type]


def want(
    register: LeaseRegister, cluster: str = "c1", *, holder: LeaseHolder | None = None, **other: object
) -> Lease:
    order = LaunchOrder(cluster, "run-1", register.owner, "m5.large", 2, START_S + 600)
    made = Lease(order, "shelf", {"shelf": "1"}, holder or LeaseHolder.here(), START_S, START_S + 600, PRICE)
    return register.add(replace(made, **other))  # type: ignore[arg-type]


class TestReaping:
    @pytest.mark.parametrize(("after_s", "ended"), [(0.0, 0), (120.0, 0), (120.5, 1)])
    def test_who_launches_has_two_minutes_to_record_it(
        self, register: LeaseRegister, after_s: float, ended: int
    ) -> None:
        done = reap(register, [Shelf(machine(register))], START_S + after_s)  # type: ignore[list-item]
        assert [one.why for one in done.ended] == ["it is in no record"] * ended

    def test_the_youngest_machine_of_a_cluster_counts(self, register: LeaseRegister) -> None:
        shelf = Shelf(machine(register), machine(register, index=1, launched_s=START_S + 100))
        assert not reap(register, [shelf], START_S + 200).ended  # type: ignore[list-item]
        assert len(reap(register, [shelf], START_S + 221).ended) == 2  # type: ignore[list-item]

    def test_the_latest_end_of_a_cluster_counts(self, register: LeaseRegister) -> None:
        shelf = Shelf(machine(register), machine(register, index=1, lease_end_s=START_S + 50))
        assert not reap(register, [shelf], START_S + 60).ended  # type: ignore[list-item]
        done = reap(register, [shelf], START_S + 600, grace_s=1e9)  # type: ignore[list-item]
        assert [one.why for one in done.ended] == ["its lease is over"] * 2

    def test_what_is_ended_has_cost_its_time(self, register: LeaseRegister) -> None:
        early = machine(register, index=1, launched_s=START_S + 2000)  # its clock is ahead
        shelf = Shelf(machine(register, launched_s=START_S), early)
        done = reap(register, [shelf], START_S + 1000)  # type: ignore[list-item]
        assert [one.cost_usd for one in done.ended] == pytest.approx([1.0, 0.0])

    def test_a_lease_that_vanishes_is_told_and_keeps_no_other_waiting(self, register: LeaseRegister) -> None:
        for cluster in ("c1", "c2"):
            want(register, cluster, holder=DEAD)

        def lose_one(look: int) -> None:
            if look == 2:
                (register.folder / "c1.json").unlink()

        done = reap(register, [Shelf(on_list=lose_one)], START_S + 1)  # type: ignore[list-item]
        assert [lease.cluster for lease in done.released] == ["c2"]
        assert [text for text in done.complaints if "no lease of c1" in text]

    def test_a_machine_that_stays_keeps_its_lease_and_no_other(self, register: LeaseRegister) -> None:
        for cluster in ("c1", "c2"):
            want(register, cluster, holder=DEAD)
        shelf = Shelf(machine(register))
        shelf.terminate = lambda instances: None  # type: ignore[method-assign]
        done = reap(register, [shelf], START_S + 1)  # type: ignore[list-item]
        assert [lease.cluster for lease in done.released] == ["c2"]
        assert done.complaints == ("shelf: c1 is still there; reap again.",)

    def test_a_lease_is_released_at_its_end_if_nobody_saw_its_machines(self, register: LeaseRegister) -> None:
        want(register)
        shelf = Shelf()
        assert reap(register, [shelf], START_S + 599).released == ()  # type: ignore[list-item]
        (released,) = reap(register, [shelf], START_S + 5000).released  # type: ignore[list-item]
        assert released.released_s == START_S + 600
        # Two machines for ten minutes: what may have been spent is counted as spent.
        assert released.cost_usd(START_S + 9999) == pytest.approx(1.2)

    def test_a_dead_run_is_paid_until_it_is_found(self, register: LeaseRegister) -> None:
        want(register, holder=DEAD, state=UP, machines=(LeasedMachine("c1-0", START_S, PRICE),))
        (released,) = reap(register, [Shelf()], START_S + 100).released  # type: ignore[list-item]
        assert (released.released_s, released.why) == (START_S + 100, "its run is gone")

    @pytest.mark.parametrize(("days", "kept"), [(29.9, 1), (30.0, 1), (30.1, 0)])
    def test_a_released_lease_is_kept_for_thirty_days(
        self, register: LeaseRegister, days: float, kept: int
    ) -> None:
        want(register, state=RELEASED, released_s=START_S)
        reap(register, [], START_S + days * DAY_S)
        assert len(register.leases()) == kept

    def test_a_rehearsal_forgets_nothing(self, register: LeaseRegister) -> None:
        want(register, state=RELEASED, released_s=START_S)
        reap(register, [], START_S + 99 * DAY_S, dry_run=True)
        assert len(register.leases()) == 1

    @pytest.mark.parametrize(("hours", "looked_at"), [(23.9, True), (24.1, False)])
    def test_a_place_is_looked_at_for_a_day_after_its_last_lease(
        self, register: LeaseRegister, tmp_path: Path, hours: float, looked_at: bool
    ) -> None:
        settings = {"local": str(tmp_path / "another")}
        want(register, settings=settings, provider="local", state=RELEASED, released_s=START_S)
        found, complaints = known_providers(register, START_S + hours * 3600)
        assert complaints == ()
        assert len(found) == 1 + looked_at


class TestStanding:
    def test_what_is_recorded_and_seen_is_added_up(self, register: LeaseRegister) -> None:
        want(register, state=UP, machines=(LeasedMachine("c1-0", START_S + 50, PRICE),))
        late = machine(register, index=1, launched_s=START_S + 150)
        ((one,), complaints) = cluster_statuses(
            register,
            [Shelf(machine(register, launched_s=START_S + 50), late)],  # type: ignore[list-item]
            START_S + 250,
        )
        assert complaints == ()
        assert (one.text, one.state, one.held) == ("2*m5.large", UP, True)
        assert one.cost_usd == pytest.approx(0.2 + 0.1)
        assert one.usd_per_h == pytest.approx(7.2)
        said = one.to_dict(START_S + 250)
        assert (said["age_s"], said["lease_left_s"]) == (200.0, 350.0)
        assert [each["age_s"] for each in said["machines"]] == [200.0, 100.0]

    def test_a_clock_that_is_behind_makes_nothing_younger_than_new(self, register: LeaseRegister) -> None:
        ((one,), _) = cluster_statuses(register, [Shelf(machine(register))], START_S - 5)  # type: ignore[list-item]
        said = one.to_dict(START_S - 5)
        assert (said["age_s"], said["machines"][0]["age_s"], one.cost_usd) == (0.0, 0.0, 0.0)

    def test_what_is_in_no_record_is_told_by_its_machines(self, register: LeaseRegister) -> None:
        shelf = Shelf(
            machine(register, index=1, launched_s=START_S - 100, lease_end_s=START_S + 900, type="c5.large"),
            machine(register),
            machine(register, "theirs", owner="prudent-another", launched_s=START_S + 1),
        )
        ((mine, theirs), _) = cluster_statuses(register, [shelf], START_S + 100)  # type: ignore[list-item]
        assert (mine.state, mine.text, mine.held) == (UNRECORDED, "2*m5.large", None)
        assert (mine.since_s, mine.lease_end_s) == (START_S - 100, START_S + 900)
        assert mine.cost_usd == pytest.approx(0.2 + 0.1)
        assert mine.usd_per_h == pytest.approx(7.2)
        assert (theirs.state, theirs.cluster) == (FOREIGN, "theirs")

    def test_what_was_released_is_shown_while_machines_are_there(self, register: LeaseRegister) -> None:
        want(register, state=RELEASED, released_s=START_S)
        assert cluster_statuses(register, [Shelf()], START_S)[0] == ()  # type: ignore[list-item]
        found, _ = cluster_statuses(register, [Shelf(machine(register))], START_S)  # type: ignore[list-item]
        assert [one.state for one in found] == [RELEASED]

    def test_a_place_in_trouble_is_told_and_hides_no_other(self, register: LeaseRegister) -> None:
        def fail(look: int) -> None:
            raise RunFailed("It does not answer; wait.")

        shelves = [Shelf(on_list=fail), Shelf(machine(register))]
        found, complaints = cluster_statuses(register, shelves, START_S)  # type: ignore[arg-type]
        assert [one.cluster for one in found] == ["c1"]
        assert complaints == ("shelf: It does not answer; wait.",)


def test_a_user_without_a_home_is_told_what_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("PRUDENT_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(BadInput, match="PRUDENT_HOME"):
        default_home()
    # A relative one is none, says the specification.
    monkeypatch.setenv("XDG_DATA_HOME", "here")
    with pytest.raises(BadInput, match="PRUDENT_HOME"):
        default_home()
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_home() == Path("/data/prudent")
