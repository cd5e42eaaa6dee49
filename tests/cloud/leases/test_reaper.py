"""The reaper ends what nobody answers for, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prudent.cloud.leases.lease import RELEASED, UP, WANTED, Lease, LeasedMachine, LeaseHolder
from prudent.cloud.leases.reaper import ReaperReport, known_providers, reap, reap_all
from prudent.cloud.leases.register import LeaseRegister
from prudent.cloud.leases.status import FOREIGN, UNRECORDED, cluster_statuses
from prudent.cloud.providers.local.provider import LocalProvider
from prudent.cloud.providers.provider import Instance, LaunchOrder
from prudent.core.errors import RunFailed

from ..providers.troubled import Troubled, failing

DEAD = replace(LeaseHolder.here(), started="another:1")


@pytest.fixture
def register(tmp_path: Path) -> LeaseRegister:
    return LeaseRegister(tmp_path)


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[LocalProvider]:
    made = LocalProvider(tmp_path)
    yield made
    made.terminate(made.list())


def launch(
    register: LeaseRegister,
    provider: LocalProvider,
    cluster: str = "c1",
    *,
    holder: LeaseHolder | None = None,
    lease_s: float = 600.0,
    record: str = UP,
    owner: str = "",
) -> tuple[Instance, ...]:
    """A cluster as a run leaves it, with as much of a record as it has written."""
    order = LaunchOrder(cluster, "run-1", owner or register.owner, "m3.medium", 1, time.time() + lease_s)
    if record:
        want(register, provider, order, holder, lease_s)
    machines = provider.launch(order)
    if record == UP:
        register.record_machines(cluster, map(LeasedMachine.of, machines))
    return machines


def want(
    register: LeaseRegister,
    provider: LocalProvider,
    order: LaunchOrder | None = None,
    holder: LeaseHolder | None = None,
    lease_s: float = 600.0,
) -> None:
    """The record of a cluster of which nothing is known yet."""
    now_s = time.time()
    order = order or LaunchOrder("c1", "run-1", register.owner, "m3.medium", 1, now_s + lease_s)
    who, price = holder or LeaseHolder.here(), provider.offer("m3.medium").price
    register.add(Lease(order, provider.name, provider.settings, who, now_s, order.lease_end_s, price))


def now(register: LeaseRegister, provider: object, later_s: float = 0.0, **other: object) -> ReaperReport:
    return reap(register, [provider], time.time() + later_s, **other)  # type: ignore[list-item, arg-type]


class TestWhatIsEnded:
    def test_a_living_run_keeps_its_machines(self, register: LeaseRegister, provider: LocalProvider) -> None:
        launch(register, provider)
        assert now(register, provider) == ReaperReport()
        assert len(provider.list()) == 1

    @pytest.mark.parametrize("record", [UP, WANTED])
    def test_a_dead_run_does_not(self, register: LeaseRegister, provider: LocalProvider, record: str) -> None:
        launch(register, provider, holder=DEAD, record=record)
        done = now(register, provider)
        assert [one.why for one in done.ended] == ["its run is gone"]
        assert done.ended[0].cost_usd == pytest.approx(0.067 / 60)
        [lease] = done.released
        assert (lease.state, lease.why, len(lease.machines)) == (RELEASED, "its run is gone", 1)
        assert provider.list() == ()

    def test_nor_does_one_whose_lease_is_over(self, register: LeaseRegister, provider: LocalProvider) -> None:
        launch(register, provider)
        done = now(register, provider, later_s=601)
        assert [one.why for one in done.ended] == ["its lease is over"]
        assert provider.list() == ()

    def test_a_renewed_lease_is_not_over(self, register: LeaseRegister, provider: LocalProvider) -> None:
        launch(register, provider)
        register.renew("c1", time.time() + 10_000)
        assert now(register, provider, later_s=601) == ReaperReport()

    def test_what_was_never_recorded_goes_after_a_grace(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider, record="")
        assert now(register, provider, grace_s=300) == ReaperReport()
        done = now(register, provider, later_s=301, grace_s=300)
        assert [one.why for one in done.ended] == ["it is in no record"]
        assert provider.list() == ()

    def test_a_damaged_record_is_told_and_its_machines_go_when_due(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider)
        (register.folder / "c1.json").write_text("{")
        assert now(register, provider).ended == ()
        done = now(register, provider, later_s=601)
        assert [one.why for one in done.ended] == ["its lease is over"]
        assert len(done.complaints) == 1

    def test_what_turns_up_after_the_release_goes_and_is_paid(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider, record=WANTED)
        register.release("c1", time.time(), "launch failed")
        done = now(register, provider)
        assert [one.why for one in done.ended] == ["its lease was released"]
        lease = register.read("c1")
        assert lease is not None
        assert lease.cost_usd(0) == pytest.approx(0.067 / 60)

    def test_machines_of_another_register_are_anothers_to_end(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider, record="", owner="somebody-else")
        assert now(register, provider, later_s=10_000) == ReaperReport()
        assert len(provider.list()) == 1

    def test_a_rehearsal_ends_and_writes_nothing(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider, holder=DEAD)
        before = register.read("c1")
        done = now(register, provider, dry_run=True)
        assert len(done.ended) == len(done.released) == 1
        assert len(provider.list()) == 1
        assert register.read("c1") == before


class TestMoney:
    def test_one_that_was_never_launched_costs_nothing(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        want(register, provider, holder=DEAD)
        [lease] = now(register, provider).released
        assert lease.cost_usd(time.time()) == 0.0

    def test_one_that_may_have_lived_to_its_end_is_counted_until_then(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        want(register, provider, holder=DEAD, lease_s=360)
        [lease] = now(register, provider, later_s=10_000).released
        assert lease.cost_usd(0) == pytest.approx(0.067 / 10)

    @pytest.mark.parametrize("record", [UP, WANTED])
    def test_one_that_ended_by_itself_is_paid_until_then(
        self, register: LeaseRegister, provider: LocalProvider, record: str
    ) -> None:
        """Its switch wrote it down, whoever ended it; a folder that vanishes is this test's own clock."""
        launch(register, provider, record=record)
        there_s = time.time()
        provider.terminate(provider.list())
        gone_s = time.time()
        [lease] = now(register, provider, later_s=10_000).released
        assert there_s - 0.1 <= (lease.released_s or 0.0) <= gone_s + 0.1
        assert lease.cost_usd(0) == pytest.approx(0.067 / 60)


class TestTrouble:
    def test_one_place_in_trouble_does_not_stop_the_others(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider, holder=DEAD)

        class Elsewhere(Troubled):
            name, settings = "ec2", {"ec2": "aws.yaml"}  # type: ignore[assignment]

        dark = Elsewhere(provider, failing(RunFailed("no network"), "list"))
        done = reap(register, [dark, provider], time.time())
        assert done.complaints == ("ec2: no network",)
        assert len(done.ended) == len(done.released) == 1

    def test_a_machine_that_will_not_go_keeps_its_lease_until_it_does(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider, holder=DEAD)
        stubborn = Troubled(provider, failing(RunFailed("busy"), "terminate", times=1))
        first = now(register, stubborn)
        assert (first.ended, first.released) == ((), ())
        assert "busy" in first.complaints[0]
        assert register.leases()[0].state == UP
        assert len(now(register, stubborn).released) == 1

    def test_an_answer_that_was_lost_is_no_matter(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider, holder=DEAD)
        deaf = Troubled(provider, after=failing(RunFailed("timed out"), "terminate"))
        done = now(register, deaf)
        assert done.complaints
        assert [lease.state for lease in register.leases()] == [RELEASED]
        assert register.leases()[0].cost_usd(0) > 0

    def test_several_at_once_release_once(self, register: LeaseRegister, provider: LocalProvider) -> None:
        for number in range(4):
            launch(register, provider, f"c{number}", holder=DEAD)
        done: list[ReaperReport] = []
        together = threading.Barrier(3)

        def work() -> None:
            together.wait()
            done.append(reap(LeaseRegister(register.home), [LocalProvider(register.home)], time.time()))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [one.complaints for one in done] == [()] * 3
        assert provider.list() == ()
        assert {lease.state for lease in register.leases()} == {RELEASED}
        assert all(lease.cost_usd(0) == pytest.approx(0.067 / 60) for lease in register.leases())

    def test_a_lease_that_is_written_while_it_looks_is_seen(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        """A run records and launches between the reading of the register and the listing."""

        def launching(call: str, number: int) -> None:
            if (call, number) == ("list", 1):
                launch(register, provider)

        done = now(register, Troubled(provider, before=launching), grace_s=-1)
        assert done == ReaperReport()
        assert len(provider.list()) == 1


class TestPlaces:
    def test_every_place_of_a_lease_is_looked_at(self, register: LeaseRegister, tmp_path: Path) -> None:
        prices = tmp_path / "prices.csv"
        prices.write_text("name,price_usd_per_h\nm3.medium,1.0\n")
        own = LocalProvider(tmp_path, prices)
        launch(register, own, holder=DEAD)
        prices.unlink()  # to end machines takes no price list
        done = reap_all(register, time.time())
        assert done.complaints == ()
        assert len(done.ended) == 1
        assert [lease.cluster for lease in done.released] == ["c1"]
        assert done.released[0].cost_usd(0) == pytest.approx(1.0 / 60)

    def test_this_computer_is_always_looked_at(self, register: LeaseRegister) -> None:
        found, complaints = known_providers(register, time.time())
        assert [one.settings for one in found] == [{"local": ""}]
        assert complaints == ()

    def test_a_place_that_cannot_be_made_is_told(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider)
        lease = register.read("c1")
        assert lease is not None
        elsewhere = replace(
            lease, order=replace(lease.order, cluster="c2"), provider="hosts", settings={"hosts": "/no/file"}
        )
        register.add(elsewhere)
        found, complaints = known_providers(register, time.time())
        assert [one.name for one in found] == ["local"]
        assert len(complaints) == 1
        assert complaints[0].startswith("hosts: ")

        register.release("c2", time.time())
        assert known_providers(register, time.time())[1] == (), "nothing is expected there any more"


class TestStanding:
    def test_what_is_recorded_and_what_is_seen_are_shown_together(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider, "held")
        launch(register, provider, "left", holder=DEAD, record=WANTED)
        launch(register, provider, "lost", record="")
        launch(register, provider, "other", record="", owner="somebody-else")
        register.release("held", time.time())
        provider.terminate([one for one in provider.list() if one.cluster == "held"])
        now_s = time.time() + 3600
        found, complaints = cluster_statuses(register, [provider], now_s)
        assert complaints == ()
        assert {one.cluster: (one.state, one.held) for one in found} == {
            "left": (WANTED, False),
            "lost": (UNRECORDED, None),
            "other": (FOREIGN, None),
        }
        for one in found:
            assert one.cost_usd == pytest.approx(0.067 * (now_s - one.machines[0].launched_s) / 3600)

    def test_a_place_that_cannot_be_looked_at_is_told(
        self, register: LeaseRegister, provider: LocalProvider
    ) -> None:
        launch(register, provider)
        dark = Troubled(provider, failing(RunFailed("no network"), "list"))
        found, complaints = cluster_statuses(register, [dark], time.time())
        assert [one.cluster for one in found] == ["c1"]
        assert complaints == ("local: no network",)
