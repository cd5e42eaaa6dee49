"""What the reaper ends and charges, and what is shown of clusters: to the second, at moments given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prudent.cloud.leases import reaper
from prudent.cloud.leases.lease import RELEASED, UP, Lease, LeasedMachine, LeaseHolder
from prudent.cloud.leases.reaper import GRACE_S, ReaperReport, known_providers, reap, reap_all
from prudent.cloud.leases.register import KEPT_S, LeaseRegister
from prudent.cloud.leases.status import FOREIGN, UNRECORDED, cluster_statuses
from prudent.cloud.providers.provider import PENDING, Instance, LaunchOrder
from prudent.core.errors import RunFailed

from .shown import PRICE, Shown, instance

DAY_S = 24 * 3600.0
GONE = replace(LeaseHolder.here(), started="another:1")


@pytest.fixture
def register(tmp_path: Path) -> LeaseRegister:
    made = LeaseRegister(tmp_path)
    (made.folder / "owner").write_text("me\n")
    return made


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock by which the reaper measures how long it takes; it stands still unless it is moved."""
    standing = SimpleNamespace(moved_s=0.0, monotonic=lambda: standing.moved_s)
    monkeypatch.setattr(reaper, "time", standing)
    return standing


def want(register: LeaseRegister, cluster: str = "c1", count: int = 1, **other: Any) -> Lease:
    order = LaunchOrder(cluster, "run-1", "me", "m5.large", count, 1300.0)
    made = Lease(order, "local", {"local": ""}, LeaseHolder.here(), 990.0, 1300.0, PRICE)
    return register.add(replace(made, **other))


def recorded(register: LeaseRegister, *machines: Instance, **other: Any) -> Lease:
    """A lease whose machines are known."""
    want(register, machines[0].cluster, len(machines), **other)
    return register.record_machines(machines[0].cluster, map(LeasedMachine.of, machines))


def at(now_s: float, register: LeaseRegister, *providers: Any, **other: Any) -> ReaperReport:
    return reap(register, providers, now_s, **other)


class TestWhen:
    def test_a_lease_ends_at_its_end(self, register: LeaseRegister) -> None:
        place = Shown([instance("c1")])
        recorded(register, *place.machines)
        assert at(1299.9, register, place) == ReaperReport()
        done = at(1300.0, register, place)
        assert [(one.instance.id, one.why) for one in done.ended] == [("c1-0", "its lease is over")]
        assert done.ended[0].cost_usd == pytest.approx(0.3)
        assert [(one.state, one.released_s, one.why) for one in done.released] == [
            (RELEASED, 1300.0, "its lease is over")
        ]

    def test_what_is_in_no_record_has_two_minutes(self, register: LeaseRegister) -> None:
        """The youngest machine counts: who launches may still be at it."""
        place = Shown([instance("c1"), instance("c1", 1, launched_s=1010.0)])
        assert GRACE_S == 120.0
        assert at(1010.0 + GRACE_S, register, place) == ReaperReport()
        done = at(1010.1 + GRACE_S, register, place)
        assert [one.why for one in done.ended] == ["it is in no record"] * 2
        assert [one.cost_usd for one in done.ended] == pytest.approx([0.1301, 0.1201])
        assert place.ended == ["c1-0", "c1-1"]

    def test_its_own_end_comes_before_the_grace(self, register: LeaseRegister) -> None:
        """And the latest of its machines counts: one renewal may have reached some of them only."""
        place = Shown([instance("c1", lease_end_s=1020.0), instance("c1", 1, lease_end_s=1030.0)])
        assert at(1029.9, register, place, grace_s=1e9) == ReaperReport()
        done = at(1030.0, register, place, grace_s=1e9)
        assert [one.why for one in done.ended] == ["its lease is over"] * 2

    def test_a_clock_that_goes_back_costs_nothing(self, register: LeaseRegister) -> None:
        recorded(register, instance("c1"), holder=GONE)
        [ended] = at(999.0, register, Shown([instance("c1")])).ended
        assert ended.cost_usd == 0.0


class TestWhat:
    def test_machines_of_another_register_stay(self, register: LeaseRegister) -> None:
        place = Shown([instance("c1", owner="another")])
        assert at(9e9, register, place) == ReaperReport()
        assert place.ended == []

    def test_two_ways_to_one_place_are_one(self, register: LeaseRegister) -> None:
        recorded(register, instance("c1"), holder=GONE)
        one, same = Shown([instance("c1")]), Shown([instance("c1")])
        done = at(1100.0, register, one, same)
        assert (len(done.ended), len(done.released), done.complaints) == (1, 1, ())
        assert one.ended + same.ended == ["c1-0"]

    def test_what_two_places_show_is_ended_once(self, register: LeaseRegister) -> None:
        recorded(register, instance("c1"), holder=GONE)
        one, other = Shown([instance("c1")]), Shown([instance("c1")], setting="prices.csv")
        done = at(1100.0, register, one, other)
        assert [each.instance.id for each in done.ended] == ["c1-0"]
        assert (one.ended, other.ended) == (["c1-0"], [])

    def test_only_the_place_of_a_lease_releases_it(self, register: LeaseRegister) -> None:
        want(register, holder=GONE)
        assert at(1100.0, register, Shown(setting="prices.csv"), Shown(name="hosts")).released == ()
        assert len(at(1100.0, register, Shown()).released) == 1

    def test_a_machine_that_does_not_go_keeps_its_lease(self, register: LeaseRegister) -> None:
        recorded(register, instance("c1"), holder=GONE)
        place = Shown([instance("c1")], kept=["c1-0"])
        done = at(1100.0, register, place)
        assert done.complaints == ("local: c1 is still there; reap again.",)
        assert done.released == ()
        assert register.leases()[0].state == UP

    def test_one_cluster_in_trouble_does_not_save_the_next(self, register: LeaseRegister) -> None:
        class Stubborn(Shown):
            def terminate(self, instances: Any) -> None:
                if instances[0].cluster == "c1":
                    raise RunFailed("busy")
                super().terminate(instances)

        for name in ("c1", "c2"):
            recorded(register, instance(name), holder=GONE)
        done = at(1100.0, register, Stubborn([instance("c1"), instance("c2")]))
        assert [one.instance.id for one in done.ended] == ["c2-0"]
        assert done.complaints == (
            "local: c1 could not be ended: busy",
            "local: c1 is still there; reap again.",
        )
        assert [one.cluster for one in done.released] == ["c2"]

    def test_a_record_that_cannot_be_written_is_told_and_the_next_one_is(
        self, register: LeaseRegister, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("c1", "c2"):
            want(register, name, holder=GONE)
        real = LeaseRegister.release

        def full(self: LeaseRegister, cluster: str, *words: Any) -> Lease:
            if cluster == "c1":
                raise RunFailed("no room")
            return real(self, cluster, *words)

        monkeypatch.setattr(LeaseRegister, "release", full)
        done = at(1100.0, register, Shown())
        assert done.complaints == ("no room",)
        assert [one.cluster for one in done.released] == ["c2"]

    def test_a_rehearsal_tells_and_leaves_all(self, register: LeaseRegister) -> None:
        recorded(register, instance("c1"), holder=GONE)
        old = want(register, "old")
        register.release("old", 1000.0)
        place = Shown([instance("c1")])
        done = at(1000.0 + KEPT_S + DAY_S, register, place, dry_run=True)
        assert [one.instance.id for one in done.ended] == ["c1-0"]
        assert [one.cluster for one in done.released] == ["c1"]
        assert place.ended == []
        assert {one.cluster for one in register.leases()} == {"c1", old.cluster}


class Slow(Shown):
    """Machines that take ten seconds to go."""

    def __init__(self, clock: SimpleNamespace, *machines: Instance) -> None:
        super().__init__(machines)
        self._clock = clock

    def terminate(self, instances: Sequence[Instance]) -> None:
        self._clock.moved_s += 10.0
        super().terminate(instances)


class Remembers(Shown):
    """A place that knows of machines when they were gone."""

    def __init__(self, **known: float) -> None:
        super().__init__()
        self._known = {f"{cluster}-0": end_s for cluster, end_s in known.items()}

    def ended_s(self, cluster: str) -> dict[str, float]:
        return {name: end_s for name, end_s in self._known.items() if name.startswith(f"{cluster}-")}


class TestMoney:
    def test_what_is_ended_is_paid_until_it_is_gone(
        self, register: LeaseRegister, clock: SimpleNamespace
    ) -> None:
        first, second = instance("c1"), instance("c2")
        recorded(register, first, holder=GONE)
        recorded(register, second, holder=GONE)
        done = at(1100.0, register, Slow(clock, first, second))
        assert [(one.cluster, one.released_s) for one in done.released] == [("c1", 1110.0), ("c2", 1120.0)]

    @pytest.mark.parametrize("later_s", [1200.0, 2000.0])  # while the lease lasts, and after its end
    def test_where_its_end_is_known_it_is_paid_until_then(
        self, register: LeaseRegister, later_s: float
    ) -> None:
        recorded(register, instance("c1"), holder=GONE)
        want(register, "c2", count=2, holder=GONE)
        first, second = at(later_s, register, Remembers(c1=1150.0, c2=1170.0)).released
        assert (first.released_s, first.cost_usd(0)) == (1150.0, pytest.approx(0.15))
        # Nobody saw the machine of the other one, but somebody saw it go.
        assert [(one.id, one.launched_s) for one in second.machines] == [("c2-0", 990.0)]
        assert (second.released_s, second.cost_usd(0)) == (1170.0, pytest.approx(0.18))

    def test_each_is_paid_until_its_own_end(self, register: LeaseRegister) -> None:
        recorded(register, instance("c1"), instance("c1", 1), holder=GONE)
        place = Remembers(c1=1080.0)
        place.machines = [instance("c1", 1)]
        [lease] = at(1200.0, register, place).released
        assert (lease.released_s, lease.machines[0].gone_s) == (1200.0, 1080.0)
        assert lease.cost_usd(0) == pytest.approx(0.08 + 0.2)

    def test_what_ended_by_itself_is_paid_to_its_end(self, register: LeaseRegister) -> None:
        recorded(register, instance("c1"))
        [lease] = at(2000.0, register, Shown()).released
        assert (lease.released_s, lease.cost_usd(0)) == (1300.0, pytest.approx(0.3))

    def test_what_is_gone_before_its_end_is_paid_until_now(self, register: LeaseRegister) -> None:
        recorded(register, instance("c1"), holder=GONE)
        [lease] = at(1300.0, register, Shown()).released
        assert (lease.released_s, lease.cost_usd(0)) == (1300.0, pytest.approx(0.3))
        assert lease.why == "its run is gone"

    def test_what_nobody_saw_is_taken_for_launched_when_it_was_wanted(self, register: LeaseRegister) -> None:
        want(register, count=2)
        [lease] = at(2000.0, register, Shown()).released
        assert [(one.id, one.launched_s) for one in lease.machines] == [("c1-0", 990.0), ("c1-1", 990.0)]
        assert lease.cost_usd(0) == pytest.approx(2 * 0.31)

    def test_while_its_lease_lasts_it_is_known_that_nothing_is_there(self, register: LeaseRegister) -> None:
        want(register, holder=GONE)
        [lease] = at(1299.0, register, Shown()).released
        assert (lease.machines, lease.released_s) == ((), 1299.0)

    def test_a_machine_that_nobody_recorded_is_added_to_its_lease(self, register: LeaseRegister) -> None:
        recorded(register, instance("c1"), holder=GONE)
        [lease] = at(1100.0, register, Shown([instance("c1"), instance("c1", 1)])).released
        assert [one.id for one in lease.machines] == ["c1-0", "c1-1"]
        assert lease.cost_usd(0) == pytest.approx(0.2)

    def test_late_machines_of_a_release_are_ended_and_paid(self, register: LeaseRegister) -> None:
        want(register)
        register.release("c1", 1000.0, "launch failed")
        assert at(1050.0, register, Shown()) == ReaperReport()
        done = at(1100.0, register, Shown([instance("c1")]))
        assert [one.why for one in done.ended] == ["its lease was released"]
        [lease] = done.released
        assert (lease.why, lease.released_s, lease.cost_usd(0)) == (
            "launch failed",
            1100.0,
            pytest.approx(0.1),
        )


class TestMemory:
    def test_a_release_is_remembered_for_a_month(self, register: LeaseRegister) -> None:
        assert KEPT_S == 30 * DAY_S
        want(register)
        register.release("c1", 1000.0)
        at(1000.0 + KEPT_S, register)
        assert len(register.leases()) == 1
        at(1000.1 + KEPT_S, register)
        assert register.leases() == ()

    def test_its_place_is_looked_at_for_a_day(self, register: LeaseRegister, tmp_path: Path) -> None:
        prices = str(tmp_path / "prices.csv")
        want(register, settings={"local": prices})
        here, there = {"local": ""}, {"local": prices}
        assert [one.settings for one in known_providers(register, 9e9)[0]] == [here, there], "it is held"
        register.release("c1", 1000.0)
        assert [one.settings for one in known_providers(register, 999.9 + DAY_S)[0]] == [here, there]
        assert [one.settings for one in known_providers(register, 1000.0 + DAY_S)[0]] == [here]

    def test_other_places_are_added_once(self, register: LeaseRegister) -> None:
        other: Any = Shown(setting="x")
        found, complaints = known_providers(register, 1000.0, [other, other])
        assert [one.settings for one in found] == [{"local": "x"}, {"local": ""}]
        assert complaints == ()

    def test_places_that_cannot_be_made_are_told_before_what_is_done(self, register: LeaseRegister) -> None:
        want(register, "c2", provider="hosts", settings={"hosts": "/no/file"})
        (register.folder / "bad.json").write_text("{")
        recorded(register, instance("c1"), settings={"local": "x"})
        other: Any = Shown([instance("c1"), instance("c3")], setting="x")
        rehearsed = reap_all(register, 1200.0, [other], dry_run=True)
        assert [one.instance.cluster for one in rehearsed.ended] == ["c3"]
        assert other.ended == []
        done = reap_all(register, 1200.0, [other], grace_s=500.0)
        assert done.ended == ()
        assert [said.split(" ")[0] for said in done.complaints] == ["hosts:", "The"]
        assert "bad.json is damaged" in done.complaints[1]
        assert [one.instance.cluster for one in reap_all(register, 1200.0, [other]).ended] == ["c3"]


class TestStanding:
    def look(self, register: LeaseRegister, now_s: float, *machines: Instance) -> dict[str, Any]:
        place: Any = Shown(machines)
        found, complaints = cluster_statuses(register, [place], now_s)
        assert complaints == ()
        return {one.cluster: one for one in found}

    def test_one_that_is_up(self, register: LeaseRegister) -> None:
        machines = (instance("c1", zone="a"), instance("c1", 1, launched_s=1010.0, spot=True, state=PENDING))
        recorded(register, *machines)
        one = self.look(register, 1100.0, *machines)["c1"]
        said = json.loads(json.dumps(one.to_dict(1100.0)))
        shown = said.pop("machines")
        assert said == {
            "cluster": "c1",
            "run": "run-1",
            "place": "local",
            "type": "m5.large",
            "count": 2,
            "state": UP,
            "held": True,
            "age_s": 100.0,
            "cost_usd": pytest.approx(0.19),
            "price_usd_per_h": 7.2,
            "lease_end_s": 1300.0,
            "lease_left_s": 200.0,
        }
        assert shown[0] == {
            "id": "c1-0",
            "index": 0,
            "state": "running",
            "address": "127.0.0.1",
            "zone": "a",
            "spot": False,
            "age_s": 100.0,
        }
        assert (shown[1]["index"], shown[1]["age_s"], shown[1]["spot"]) == (1, 90.0, True)
        assert one.text == "2*m5.large"
        assert one.to_dict(0.0)["age_s"] == one.to_dict(0.0)["machines"][0]["age_s"] == 0.0

    def test_machines_that_nobody_recorded_are_counted_too(self, register: LeaseRegister) -> None:
        recorded(register, instance("c1"))
        one = self.look(register, 1100.0, instance("c1"), instance("c1", 1))["c1"]
        assert one.cost_usd == pytest.approx(0.2)
        assert [each.id for each in one.machines] == ["c1-0", "c1-1"]

    def test_one_that_is_wanted_stands_since_then(self, register: LeaseRegister) -> None:
        want(register, holder=GONE)
        one = self.look(register, 1100.0)["c1"]
        assert (one.since_s, one.held, one.cost_usd, one.machines) == (990.0, False, 0.0, ())

    def test_what_was_released_stands_only_with_machines(self, register: LeaseRegister) -> None:
        want(register)
        register.release("c1", 1000.0)
        assert self.look(register, 1100.0) == {}
        assert self.look(register, 1100.0, instance("c1"))["c1"].state == RELEASED

    def test_without_a_record(self, register: LeaseRegister) -> None:
        found = self.look(
            register,
            1100.0,
            instance("lost", 1, type="m5.xlarge", lease_end_s=1400.0),
            instance("lost", 0, launched_s=1050.0),
            instance("other", owner="another"),
        )
        lost = found["lost"]
        assert (lost.state, lost.held, lost.count, lost.type) == (UNRECORDED, None, 2, "m5.large")
        assert (lost.since_s, lost.lease_end_s, lost.usd_per_h) == (1000.0, 1400.0, 7.2)
        assert lost.cost_usd == pytest.approx(0.1 + 0.06)
        assert (lost.run, lost.place) == ("run-1", "local")
        assert found["other"].state == FOREIGN

    def test_oldest_first_then_by_name(self, register: LeaseRegister) -> None:
        found = self.look(register, 1100.0, instance("b"), instance("c", launched_s=900.0), instance("a"))
        assert list(found) == ["c", "a", "b"]

    def test_before_it_was_launched_it_costs_nothing(self, register: LeaseRegister) -> None:
        assert self.look(register, 999.0, instance("c1"))["c1"].cost_usd == 0.0
